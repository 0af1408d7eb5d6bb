"""`watersmeet bench band`: a band join and an inequality join, in process, against DuckDB on one thread.

Two streams of tuples (key, ts) at 1,000 per second of event time, keys uniform over KEYS, WINDOW = 10 SECONDS. Both
systems start from tables in memory and end with an Arrow table of all results. DuckDB's time depends on how the join is
written: by which of the conditions its optimiser makes ranges. So it runs every spelling in DUCKDB, and each is a peer
of its own; a user knows the fastest only after trying them all. watersmeet is given the first spelling alone.

Every answer, count and checksum, is compared before a time is taken; that run is also everybody's warm-up. Then the
systems run in turn, each as often as fits into TURN_S and at least once; the time is the median over all runs of all
turns, and a ratio is of medians. CPU seconds stand beside the wall's: they show what a busy machine adds.
"""

from __future__ import annotations

import json as json_format
import statistics
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet_lab.bench.answer import Answer
from watersmeet_lab.bench.data import INTERARRIVAL_US, KEYS, START_US
from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.turns import turn

WINDOW_US = 10_000_000
SEED = 1
TURN_S = 1.0
QUERY = "SELECT a.key AS a_key, b.key AS b_key, a.ts AS a_ts, b.ts AS b_ts FROM a, b WHERE {} WINDOW = 10 SECONDS"
_DUCKDB = "SELECT a.key AS a_key, b.key AS b_key, a.ts AS a_ts, b.ts AS b_ts FROM a JOIN b ON {}"
_BY_ABS, _BY_RANGE = f"abs(a.ts - b.ts) <= {WINDOW_US}", f"a.ts BETWEEN b.ts - {WINDOW_US} AND b.ts + {WINDOW_US}"


@dataclass(frozen=True)
class Case:
    """One join: its condition, and the spellings of condition and window that DuckDB gets."""

    name: str
    condition: str
    duckdb: dict[str, str] = field(hash=False)


CASES = (
    Case(
        "band",
        "abs(a.key - b.key) <= 1",
        {
            "as written": f"abs(a.key - b.key) <= 1 AND {_BY_ABS}",
            "all ranges": f"a.key BETWEEN b.key - 1 AND b.key + 1 AND {_BY_RANGE}",
            "key as range": f"a.key BETWEEN b.key - 1 AND b.key + 1 AND {_BY_ABS}",
        },
    ),
    Case(
        "inequality",
        "a.key > b.key + 9900",
        {
            "as written": f"a.key > b.key + 9900 AND {_BY_ABS}",
            "all ranges": f"a.key > b.key + 9900 AND {_BY_RANGE}",
        },
    ),
)


@dataclass
class Outcome:
    """A case's answer, and the seconds of every run of every system, on the wall and on the CPU."""

    case: Case
    answer: Answer
    rows: int
    seconds: dict[str, list[float]]
    cpu_seconds: dict[str, list[float]]

    def rate(self, system: str) -> float:
        """Input rows per second, the median run."""
        return self.rows / statistics.median(self.seconds[system])

    def figures(self) -> dict[str, Any]:
        ours = self.rate("watersmeet")
        return {
            **asdict(self),
            "rows_per_s": {system: self.rate(system) for system in self.seconds},
            "ratios": {system: ours / self.rate(system) for system in self.seconds if system != "watersmeet"},
        }


def command(
    rows: Annotated[int, typer.Option(help="Tuples per stream.", min=100)] = 50_000,
    batch_rows: Annotated[
        int, typer.Option(help="Tuples of each stream per micro-batch of watersmeet.", min=1)
    ] = 10_000,
    repeat: Annotated[int, typer.Option(help="Turns of each system, of about a second.", min=1)] = 3,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="A few seconds: 10,000 tuples per stream.")] = False,
) -> None:
    """A band and an inequality join in process against DuckDB on one thread; every answer checked."""
    rows = min(rows, 10_000) if quick else rows
    console, tables = Console(), {alias: stream(rows, SEED + n) for n, alias in enumerate("ab")}
    outcomes = []
    for case in CASES:
        with console.status("") as status:
            outcomes.append(measure(case, tables, batch_rows, repeat, status.update))
        console.print(_table(outcomes[-1], rows, batch_rows))
    if json is not None:
        setting = {"seed": SEED, "rows": rows, "batch_rows": batch_rows, "repeat": repeat, "window_us": WINDOW_US}
        raw = {**setting, "machine": describe(), "cases": [outcome.figures() for outcome in outcomes]}
        json.write_text(json_format.dumps(raw, indent=1))


def stream(rows: int, seed: int) -> pa.Table:
    """One stream, in time order."""
    rng = np.random.default_rng(seed)
    ts = START_US + np.arange(rows) * INTERARRIVAL_US + rng.integers(0, INTERARRIVAL_US, rows)
    return pa.table({"key": rng.integers(0, KEYS, rows), "ts": pa.array(ts, pa.timestamp("us", tz="UTC"))})


def measure(
    case: Case, tables: dict[str, pa.Table], batch_rows: int, repeat: int, say: Callable[[str], None]
) -> Outcome:
    """Check all answers, then time all systems in turn."""
    with duckdb.connect() as con:
        con.execute("SET threads = 1")
        for alias, table in tables.items():
            con.register("source", table.set_column(1, "ts", table["ts"].cast(pa.int64())))
            con.execute(f"CREATE TABLE {alias} AS FROM source")
        systems: dict[str, Callable[[], pa.Table]] = {
            "watersmeet": lambda: wm.local.run(QUERY.format(case.condition), tables, batch_rows=batch_rows)
        }
        for spelling, condition in case.duckdb.items():
            systems[f"DuckDB, {spelling}"] = lambda c=condition: con.sql(_DUCKDB.format(c)).to_arrow_table()  # type: ignore[misc]
        answers = {}
        for system, run in systems.items():
            say(f"{case.name}: answer and warm-up, {system}")
            answers[system] = answer(run())
        if len(set(answers.values())) > 1:
            raise SystemExit(f"{case.name}: the answers differ, so there is nothing to time: {answers}")
        outcome = Outcome(case, answers["watersmeet"], sum(t.num_rows for t in tables.values()), {}, {})
        for n in range(repeat):
            for system, run in systems.items():
                say(f"{case.name}: turn {n + 1} of {repeat}, {system}")
                turn(run, TURN_S, outcome.seconds.setdefault(system, []), outcome.cpu_seconds.setdefault(system, []))
    return outcome


def answer(result: pa.Table) -> Answer:
    """The count, and a sum modulo 2**64 of products, which tells one pairing of the same tuples from another."""
    a_key, b_key, a_ts, b_ts = (
        np.asarray(result.column(name).cast(pa.int64())) for name in ("a_key", "b_key", "a_ts", "b_ts")
    )
    products = (a_key + 1) * (b_key + 3) + (a_ts - START_US) * (b_ts - START_US + 7)
    return Answer(result.num_rows, int(products.sum()))


def _table(outcome: Outcome, rows: int, batch_rows: int) -> Table:
    case = outcome.case
    table = Table(
        title=f"{case.name}: {case.condition}, 2 x {rows:,} tuples, window 10 s, {outcome.answer.count:,} results; watersmeet in batches of {batch_rows:,} per stream",
        title_justify="left",
    )
    for title in ("", "seconds", "CPU s", "rows/s", "watersmeet / it"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for system, seconds in outcome.seconds.items():
        ratio = "" if system == "watersmeet" else f"{outcome.rate('watersmeet') / outcome.rate(system):,.1f}"
        wall, cpu = statistics.median(seconds), statistics.median(outcome.cpu_seconds[system])
        rate = f"{outcome.rate(system):,.0f}"
        table.add_row(system, f"{wall:.3f}", f"{cpu:.3f}", rate, ratio)
    return table
