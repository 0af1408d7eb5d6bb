"""The command line: what it takes, and which module does it.

Spark and the benchmarks are imported by the commands that need them.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, Literal

import typer
from rich.console import Console
from rich.text import Text

from watersmeet.cli.arguments import Source, query_text, sink, sources, trigger
from watersmeet.cli.columns import check_query
from watersmeet.cli.failure import OURS, reported
from watersmeet.plan.rules.choose_kernel import Wanted

app = typer.Typer(
    help="Joins any number of data streams, on any predicate, over any window, on Spark.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    add_completion=False,
)

Query = Annotated[str | None, typer.Argument(help="The SQL, or @file.sql.", show_default=False)]
QueryFile = Annotated[Path | None, typer.Option(help="A file with the SQL.", show_default=False)]
Streams = Annotated[
    list[str] | None,
    typer.Option("--stream", help="NAME=FOLDER[:parquet|csv|json]. Repeat for each stream.", show_default=False),
]
Times = Annotated[
    list[str] | None,
    typer.Option("--time", help="NAME=COLUMN of event time. Default: ts, or the only timestamp.", show_default=False),
]
Latenesses = Annotated[
    list[str] | None,
    typer.Option("--lateness", help="NAME='10 seconds': the disorder to expect. Default: 0.", show_default=False),
]
Idles = Annotated[
    list[str] | None,
    typer.Option(
        "--idle", help="NAME='10 minutes': a silent stream's watermark follows the others.", show_default=False
    ),
]
Schemas = Annotated[
    list[str] | None,
    typer.Option("--schema", help="NAME='id bigint, ts timestamp': needed for csv and json.", show_default=False),
]
Units = Annotated[int | None, typer.Option(help="Units that share the work; fixed for a checkpoint. Default: 8.")]
Kernel = Annotated[
    str,
    typer.Option(help="The join algorithm: auto, hw, sorted, nlw, mw, lca, ripple, xjoin, or 'gca(...)' around one."),
]
Routing = Annotated[
    str, typer.Option(help="auto, hash, hypercube, range, random, contrand, 'contrand(d, e)', matrix or pipeline.")
]
Driver = Annotated[
    Literal["auto", "timestamp", "round_robin", "consumption_rate", "initial_output_size", "output_rate"],
    typer.Option(help="Which stream's tuples go first inside a micro-batch."),
]
Runtime = Annotated[
    Literal["stream", "rounds"],
    typer.Option(help="stream: state in Spark's state store. rounds: supersteps, state in files under the checkpoint."),
]
Shipping = Annotated[
    Literal["auto", "full", "semijoin"],
    typer.Option(help="semijoin (with --runtime rounds): keys travel first, payloads only for matches."),
]
Static = Annotated[bool, typer.Option("--static", help="Read what is there now, once: a backfill.")]


@app.command()
def demo(
    seconds: Annotated[float, typer.Option(help="How long the streams flow after the first micro-batch.", min=1)] = 40,
    seed: Annotated[int, typer.Option(help="Of the generated streams.")] = 1,
) -> None:
    """Watch three live streams join on a local Spark, each pair with its own window."""
    from watersmeet.cli.demo import demo as show

    show(seconds, seed)


@app.command()
def run(
    query: Query = None,
    query_file: QueryFile = None,
    stream: Streams = None,
    time: Times = None,
    lateness: Latenesses = None,
    idle: Idles = None,
    schema: Schemas = None,
    sink_: Annotated[str, typer.Option("--sink", help="parquet:FOLDER, json:FOLDER or console.")] = "console",
    checkpoint: Annotated[
        Path | None, typer.Option(help="Default: _checkpoint in the sink's folder.", show_default=False)
    ] = None,
    trigger_: Annotated[
        str, typer.Option("--trigger", help="An interval, or available-now (also: once).")
    ] = "1 second",
    files_per_trigger: Annotated[
        int | None, typer.Option(help="At most so many new files of each stream per batch.", min=1)
    ] = None,
    units: Units = None,
    kernel: Kernel = "auto",
    routing: Routing = "auto",
    driver: Driver = "auto",
    runtime: Runtime = "stream",
    shipping: Shipping = "auto",
    static: Static = False,
) -> None:
    """Join folders of files, as streams or (--static) as they are now."""
    with reported():
        text = query_text(query, query_file)
        found = _sources(stream, time, lateness, idle, schema, static)
        to, when = sink(sink_), trigger(trigger_)
        options = _options(units, kernel, routing, driver, runtime, shipping)
        check_query(text, found)
    from watersmeet.cli import run as runs

    if static:
        runs.backfill(text, found, options, to)
    else:
        runs.stream(text, found, options, to, checkpoint, when, files_per_trigger)


@app.command()
def explain(
    query: Query = None,
    query_file: QueryFile = None,
    stream: Streams = None,
    time: Times = None,
    lateness: Latenesses = None,
    idle: Idles = None,
    schema: Schemas = None,
    units: Units = None,
    kernel: Kernel = "auto",
    routing: Routing = "auto",
    driver: Driver = "auto",
    runtime: Runtime = "stream",
    shipping: Shipping = "auto",
    static: Static = False,
    full: Annotated[
        bool, typer.Option("--full", help="Also streams, conditions, routing, kernel, orders, shipping.")
    ] = False,
) -> None:
    """Print the plan of a query: windows, state, warnings, fingerprint. Nothing runs."""
    with reported():
        text = query_text(query, query_file)
        found = _sources(stream, time, lateness, idle, schema, static)
        options = _options(units, kernel, routing, driver, runtime, shipping)
        check_query(text, found)
    from watersmeet.cli import run as runs

    runs.explain(text, found, options, streaming=not static, full=full)


_BENCHES = {
    "spark": "against Spark's own stream-stream join, both runtimes",
    "theta": "a band join against the equality join on the same files, both runtimes",
    "skew": "how evenly routings spread skewed keys",
    "band": "a band and an inequality join in process, against DuckDB",
    "kernel": "every join kernel on arrays in memory, against DuckDB",
    "choice": "probing, pruning and sweeping in process, and what kernel=auto makes of them",
    "shipping": "whole tuples against late materialisation, on the rounds runtime",
    "subscriptions": "many registered queries over the same streams, and the same as jobs of their own",
    "soak": "files, disk and memory over many micro-batches, and the cost of a round",
}


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def bench(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help=", ".join(_BENCHES), show_default=False)] = None,
) -> None:
    """Measure, answers checked: bench spark, theta, skew, band, kernel, choice, shipping, subscriptions or soak [--help]."""
    _named(context, "bench", name, _BENCHES, "watersmeet.bench.{}")


_REPRODUCTIONS = {
    "bistream": "Lin, Ooi, Wang, Yu (2015): the join-biclique against the join-matrix",
    "wjoin": "Hammad, Aref, Elmagarmid (2002): nested-loop, hash and merge window joins, and paths",
    "semijoin": "Tran, Lee (2010): joins across sites, keys first",
    "driver": "Valsomatzis, Gounaris (2013): which input drives inside a batch",
    "rjoin": "Idreos, Liarou, Koubarakis (2008): thousands of continuous joins over a ring",
}


@app.command(add_help_option=False, context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def reproduce(
    context: typer.Context,
    name: Annotated[str | None, typer.Argument(help=", ".join(_REPRODUCTIONS), show_default=False)] = None,
) -> None:
    """Reproduce a paper's evaluation, claim by claim: reproduce bistream, wjoin, driver, semijoin or rjoin [--help]."""
    _named(context, "reproduce", name, _REPRODUCTIONS, "watersmeet.reproduce.{}.command")


def _named(context: typer.Context, verb: str, name: str | None, known: Mapping[str, str], module: str) -> None:
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
    chosen.command()(import_module(module.format(name)).command)
    chosen(context.args, prog_name=f"watersmeet {verb} {name}")


def _sources(
    stream: list[str] | None,
    time: list[str] | None,
    lateness: list[str] | None,
    idle: list[str] | None,
    schema: list[str] | None,
    static: bool,
) -> tuple[Source, ...]:
    return sources(stream or (), time or (), lateness or (), idle or (), schema or (), streaming=not static)


def _options(units: int | None, kernel: str, routing: str, driver: str, runtime: str, shipping: str) -> dict[str, Any]:
    Wanted.of(kernel)
    given = {"kernel": kernel, "routing": routing, "driver": driver, "runtime": runtime, "shipping": shipping}
    return {"units": "auto" if units is None else units, **given}
