"""`watersmeet bench sweep`: probing, pruning and sweeping. A key in process, from streams that hardly meet to streams that do.

Streams of exponential interarrival times, one key of 10,000 values, `wm.local.run` from tables in memory to a table of results. What
grows from row to row is the share of tuples that have a window partner in every other stream: with two streams the window, with
three the rate of the third, as a stream that is mostly silent. One more setting has unequal windows, and one is dense.

    hw          every tuple probes: what time alone says is not asked
    hw, pruned  tuples without a partner are dropped first where the sample says that this pays
    lca         every batch is swept
    auto        what units choose, batch by batch

Answers, count and checksum, are compared before a time is taken; then all run in turn, each as often as fits into TURN_S. The
figure is CPU time, the least of all runs, since the differences are small and other processes' noise is not.
"""

from __future__ import annotations

import json as json_format
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet.operators.probing import tactics
from watersmeet_lab.bench.answer import Answer
from watersmeet_lab.bench.data import START_US
from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.turns import turn

SEED, TURN_S, KEYS, RATE, SECONDS = 1, 0.5, 10_000, 1_000, 200
SYSTEMS = ("hw", "hw, pruned", "lca", "auto")


@dataclass(frozen=True)
class Case:
    """Rates of the streams in tuples per second, and the windows."""

    name: str
    rates: tuple[float, ...]
    windows: str
    batch_rows: int = 20_000

    def sql(self) -> str:
        names = [f"s{n}" for n in range(len(self.rates))]
        same = " AND ".join(f"s0.k = {name}.k" for name in names[1:])
        times = ", ".join(f"{name}.ts AS t{n}" for n, name in enumerate(names))
        return f"SELECT {times} FROM {', '.join(names)} WHERE {same} {self.windows}"


CASES = (
    *(Case(f"two streams, {us} us", (RATE, RATE), f"WINDOW = {us} MICROSECONDS") for us in (50, 200, 700, 2000)),
    *(Case(f"two and one of {r}/s, 10 ms", (RATE, RATE, r), "WINDOW = 10 MILLISECONDS") for r in (1, 10, 30, 100)),
    Case("1 s, and 10 ms to one of 1/s", (RATE, RATE, 1), "WINDOW (s0, s1) = 1 SECOND AND WINDOW (s1, s2) = 10 MILLISECONDS"),
    Case("two streams, 5 s", (RATE, RATE), "WINDOW = 5 SECONDS"),
)  # fmt: skip


@dataclass
class Outcome:
    """A case's answer, what auto ran, and the seconds of every run."""

    case: Case
    rows: int
    answer: Answer
    swept: float
    """The share of tuples that auto gave to a sweep."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)

    def rate(self, system: str) -> float:
        return self.rows / min(self.cpu_seconds[system])


def command(
    repeat: Annotated[int, typer.Option(help="Turns of each system, of about half a second.", min=1)] = 3,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="A few seconds: a tenth of the tuples, one turn.")] = False,
) -> None:
    """Probing, pruning, sweeping, and what `auto` makes of them, in process; every answer checked."""
    console, outcomes = Console(), []
    with console.status("") as status:
        for case in CASES:
            outcomes.append(measure(case, SECONDS // 10 if quick else SECONDS, 1 if quick else repeat, status.update))
    console.print(_table(outcomes))
    if json is not None:
        raw = {"seed": SEED, "machine": describe(), "cases": [asdict(o) for o in outcomes]}
        json.write_text(json_format.dumps(raw, indent=1))


def stream(rate: float, seconds: float, seed: int) -> pa.Table:
    """One stream, in time order."""
    rng = np.random.default_rng(seed)
    ts = START_US + np.cumsum(rng.exponential(1e6 / rate, max(1, int(rate * seconds)))).astype(np.int64)
    return pa.table({"k": rng.integers(0, KEYS, len(ts)), "ts": pa.array(ts, pa.timestamp("us", tz="UTC"))})


def measure(case: Case, seconds: float, repeat: int, say: Callable[[str], None]) -> Outcome:
    """Check all answers, then time all systems in turn."""
    tables = {f"s{n}": stream(rate, seconds, SEED + n) for n, rate in enumerate(case.rates)}
    results = {}
    for system in SYSTEMS:
        say(f"{case.name}: answer and warm-up, {system}")
        results[system] = _run(case, tables, system)
    answers = {system: answer(result) for system, result in results.items()}
    if len(set(answers.values())) > 1:
        raise SystemExit(f"{case.name}: the answers differ, so there is nothing to time: {answers}")
    ran = wm.local.counts(results["auto"]).kernels
    rows = sum(t.num_rows for t in tables.values())
    outcome = Outcome(case, rows, answers["auto"], ran.get("lca", 0) / rows)
    for n in range(repeat):
        for system in SYSTEMS:
            say(f"{case.name}: turn {n + 1} of {repeat}, {system}")
            times = outcome.seconds.setdefault(system, []), outcome.cpu_seconds.setdefault(system, [])
            turn(lambda s=system: _run(case, tables, s), TURN_S, *times)  # type: ignore[misc]
    return outcome


def _run(case: Case, tables: dict[str, pa.Table], system: str) -> pa.Table:
    with _switch_pruning(system != "hw"):
        kernel = system.partition(",")[0]
        return wm.local.run(case.sql(), tables, batch_rows=case.batch_rows, kernel=kernel)


@contextmanager
def _switch_pruning(on: bool) -> Iterator[None]:
    """Without the pre-filter no sample is taken, either."""
    few = tactics.FEW
    try:
        tactics.FEW = few if on else 2**62
        yield
    finally:
        tactics.FEW = few


def answer(result: pa.Table) -> Answer:
    """The count, and a sum modulo 2**64 of products of times."""
    product = np.ones(result.num_rows, np.int64)
    for column in result.columns:
        product *= np.asarray(column.cast(pa.int64())) - START_US + 7
    return Answer(result.num_rows, int(product.sum()) % 2**64)


def _table(outcomes: list[Outcome]) -> Table:
    table = Table(title="million tuples per CPU second", title_justify="left")
    for title in ("", "results", *SYSTEMS, "swept by auto"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for o in outcomes:
        rates: list[Any] = [f"{o.rate(system) / 1e6:.2f}" for system in SYSTEMS]
        table.add_row(o.case.name, f"{o.answer.count:,}", *rates, f"{o.swept:.0%}")
    return table
