"""The commands that the laboratory adds: `watersmeet bench ...` and `watersmeet reproduce ...`.

Invariant: a benchmark or a reproduction is imported when it is run, and has its own options.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from watersmeet.cli.failure import OURS

bench_app = typer.Typer(add_completion=False)
reproduce_app = typer.Typer(add_completion=False)
_PASSED_ON: dict[str, Any] = {
    "add_help_option": False,
    "context_settings": {"allow_extra_args": True, "ignore_unknown_options": True},
}

_BENCHES = {
    "spark": "against Spark's own stream-stream join, both runtimes",
    "flink": "start() against Flink's interval join, in heap and with RocksDB",
    "nexmark": "Nexmark's joins, beside Spark's own streaming where it can run them, both runtimes",
    "theta": "a band join against the equality join on the same files, both runtimes",
    "hot": "a key with half of the tuples, under start()",
    "skew": "how evenly routings spread skewed keys",
    "band": "a band and an inequality join in process, against DuckDB",
    "kernel": "every join kernel on arrays in memory, against DuckDB",
    "choice": "is auto right? every forced choice on more than 60 shapes of queries and data",
    "drivers": "every driver= in process, on the paper's data sets and on Nexmark",
    "sweep": "probing, pruning and sweeping in process, and what kernel=auto makes of them",
    "shipping": "whole tuples against late materialisation, on the rounds runtime",
    "subscriptions": "many registered queries over the same streams, and the same as jobs of their own",
    "alerts": "many alerts on values, ranges and what does not happen, over three streams, in process",
    "skewed-sites": "what auto ships between sites under skew, beside the best of all plans, executed",
    "soak": "files, disk and memory over many micro-batches, and the cost of a round",
    "page": "CPU time of the live page by the time of the batches that it shows",
    "sites": "one application for each site: bytes on the wire, latency, and tuples/s over a narrow line",
    "scale": "what a micro-batch costs by rows, units, payload and state, as a formula",
}


@bench_app.command(**_PASSED_ON)
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help=", ".join(_BENCHES), show_default=False)] = None,
) -> None:
    """Measure, answers checked: bench spark, flink, nexmark, theta, hot, skew, band, kernel, choice, drivers, sweep, shipping, subscriptions, alerts, skewed-sites, soak, page, sites or scale [--help]."""
    _run_named(context, "bench", name, _BENCHES, "watersmeet_lab.bench.{}")


_REPRODUCTIONS = {
    "bistream": "Lin, Ooi, Wang, Yu (2015): the join-biclique against the join-matrix",
    "wjoin": "Hammad, Aref, Elmagarmid (2002): nested-loop, hash and merge window joins, and paths",
    "semijoin": "Tran, Lee (2010): joins across sites, keys first",
    "driver": "Valsomatzis, Gounaris (2013): which input drives inside a batch",
    "rjoin": "Idreos, Liarou, Koubarakis (2008): thousands of continuous joins over a ring",
}


@reproduce_app.command(**_PASSED_ON)
def reproduce(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help=", ".join(_REPRODUCTIONS), show_default=False)] = None,
) -> None:
    """Reproduce a paper's evaluation, claim by claim: reproduce bistream, wjoin, driver, semijoin or rjoin [--help]."""
    _run_named(context, "reproduce", name, _REPRODUCTIONS, "watersmeet_lab.reproduce.{}.command")


def _run_named(context: typer.Context, verb: str, name: str | None, known: Mapping[str, str], module: str) -> None:
    """Run the command of a module that is chosen by name; without a name, list them."""
    if name in (None, "--help"):
        for title, what in known.items():
            Console().print(f"watersmeet {verb} {title:<14}{what}", highlight=False)
        return
    if name not in known:
        noun = {"bench": "benchmark", "reproduce": "reproduction"}[verb]
        Console(stderr=True).print(
            Text(f"there is no {noun} {name!r}; there are: {', '.join(known)}", style="bold red")
        )
        raise typer.Exit(OURS)
    chosen = typer.Typer(add_completion=False, pretty_exceptions_enable=False)
    chosen.command()(import_module(module.format(name.replace("-", "_"))).command)
    chosen(context.args, prog_name=f"watersmeet {verb} {name}")
