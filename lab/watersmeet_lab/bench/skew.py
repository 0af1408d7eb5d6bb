"""`watersmeet bench skew`: how evenly routings spread skewed keys over units, and what it costs in copies.

Two streams with Zipf keys are routed, not joined: counted are the rows that every unit stores and the copies that travel.
With scaling, keys that are found to be hot in the first tenth of the rows are spread over their side from then on.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Annotated

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from watersmeet.dataflow.contract import PROBE
from watersmeet.operators.enter import WireContent, route
from watersmeet.plan.model import Plan
from watersmeet.plan.options import Options
from watersmeet.query.scaling import Scaling
from watersmeet.query.stream import StreamSpec
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.hot_keys import find_frequent
from watersmeet.routing.scaling import ScalingMemory, decide
from watersmeet.runtime.local import LocalRun
from watersmeet.sql.parse import parse
from watersmeet_lab.bench.data import START_US

QUERY = "SELECT a.id AS x, b.id AS y FROM a, b WHERE a.key = b.key WINDOW = 10 SECONDS"


@dataclass(frozen=True)
class Spread:
    """Rows stored by unit, and copies sent for one row."""

    stored: dict[int, int]
    copies: float

    @property
    def busiest(self) -> float:
        """The fullest unit's rows over the mean."""
        return max(self.stored.values()) * len(self.stored) / sum(self.stored.values())


def command(
    rows: Annotated[int, typer.Option(help="Tuples per stream.", min=1000)] = 500_000,
    keys: Annotated[int, typer.Option(help="Different keys.", min=10)] = 10_000,
    theta: Annotated[float, typer.Option(help="Zipf's exponent.", min=0)] = 1.2,
    units: Annotated[int, typer.Option(help="Units of both sides together.", min=2)] = 8,
) -> None:
    """Rows that the busiest unit stores over the mean, for every routing of an equality join."""
    streams = [zipf(rows, keys, theta, seed) for seed in (1, 2)]
    half = units // 2
    ways = ["hash", f"contrand({half}, {half})", "contrand", "random"]
    table = Table(title=f"2 x {rows:,} tuples, Zipf {theta:g} over {keys:,} keys, {units} units", title_justify="left")
    for column in ("routing", "busiest unit / mean", "copies sent per tuple"):
        table.add_column(column, justify="right" if column != "routing" else "left")
    for way in ways:
        found = measure_spread(way, streams, units, scaled=False)
        table.add_row(way, f"{found.busiest:.2f}", f"{found.copies:.2f}")
        if way.startswith("contrand"):
            found = measure_spread(way, streams, units, scaled=True)
            table.add_row(f"{way}, hot keys spread", f"{found.busiest:.2f}", f"{found.copies:.2f}")
    Console().print(table)


def zipf(rows: int, keys: int, theta: float, seed: int) -> pa.Table:
    """A stream whose key k comes with a frequency of 1 / k^theta."""
    draw, weights = np.random.default_rng(seed), 1 / np.arange(1, keys + 1) ** theta
    key = draw.choice(keys, rows, p=weights / weights.sum())
    ts = pa.array(START_US + np.arange(rows) * 1000, pa.timestamp("us", tz="UTC"))
    return pa.table({"id": np.arange(rows), "key": key, "ts": ts})


def measure_spread(routing: str, streams: list[pa.Table], units: int, *, scaled: bool) -> Spread:
    """Route both streams by a routing."""
    tables = dict(zip("ab", streams, strict=True))
    specs = {n: StreamSpec(n, {"id": "bigint", "key": "bigint", "ts": "timestamp"}, "ts", 0) for n in tables}
    run = LocalRun(parse(QUERY, specs), tables, Options(routing=routing, units=units))
    stage = run.plan.stages[0]
    used, stored, sent = stage.routing, dict.fromkeys(range(units), 0), 0
    rows = streams[0].num_rows
    cuts = [0, rows // 10, rows] if scaled else [0, rows]
    for begin, end in pairwise(cuts):
        memory = ScalingMemory()
        for side, source in enumerate(run.plan.inputs):
            wire = run.wires[source.alias].slice(begin, end - begin).combine_chunks()
            for message in route(run.plan, stage, side, wire, 0, used):
                sent += message.table.num_rows
                stored[message.to] += 0 if message.kind.startswith(PROBE) else message.table.num_rows
            memory.count(side, wire.num_rows, find_frequent(_codes(run.plan, side, wire)))
        if scaled and isinstance(used, Biclique):
            used = decide(Scaling(2**40, low=0.0), used, {}, memory).routing
    return Spread(stored, sent / (2 * rows))


def _codes(plan: Plan, side: int, wire: pa.Table) -> np.ndarray:
    return WireContent(plan, plan.stages[0].sides[side].keys, wire).key((0,))
