"""`watersmeet bench kernel`: the join kernels on arrays in memory, on one core, against DuckDB on one thread.

Two streams of (key, ts), keys uniform, one tuple per millisecond and stream; a window is given as the number of the other
stream's tuples in it. The result is pairs of row numbers, materialised.

    keyed    1,000,000 tuples, 10,000 keys, 10,000 tuples in a window: about one match per tuple. What units run with a
             key: an index over everything, and indexes of 100,000 tuples each, as micro-batches leave them behind
    all      few tuples, and every kernel: those that units run batch by batch, and those that go tuple by tuple
    silent   1,000,000 tuples of which few have a window partner at all: probing them, dropping them by time, sweeping

Comparisons, of times and of predicates, are per tuple; only kernels that go tuple by tuple count them. The join alone is timed:
columns are in memory, results are arrays (watersmeet) or an Arrow table (DuckDB, fastest of two spellings of the window).
Every answer, count and checksum, is compared before a time is taken. Then the systems run in turn, each as often as fits into
TURN_S and at least once; the figure is the median of all runs.
"""

from __future__ import annotations

import json as json_format
import statistics
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import typer
from rich.console import Console
from rich.table import Table

from watersmeet.kernels import hash_window, nested_loop, sorted_window
from watersmeet.kernels.hash_window import pairs
from watersmeet.kernels.instants import mark
from watersmeet.kernels.problem import CHUNK, TESTS, TIMES, Problem, counters, equal_keys, in_time
from watersmeet.kernels.residual import EQUAL, compare
from watersmeet_lab.bench.answer import Answer
from watersmeet_lab.bench.data import INTERARRIVAL_US
from watersmeet_lab.bench.machine import describe
from watersmeet_lab.bench.turns import turn
from watersmeet_lab.kernels.catalogue import named
from watersmeet_lab.kernels.tuplewise import round_robin

SEED = 1
TURN_S = 1.0
BATCH = 100_000
Pairs = Iterator[tuple[np.ndarray, np.ndarray]]
TUPLE_BY_TUPLE = ("nlw", "hw", "ripple", "xjoin")


@dataclass(frozen=True)
class Streams:
    """Keys and times of two streams, in time order, and the window."""

    keys: tuple[np.ndarray, np.ndarray]
    ts: tuple[np.ndarray, np.ndarray]
    window_us: int

    @classmethod
    def of(cls, rows: int, keys: int, in_window: float) -> Streams:
        rng = np.random.default_rng(SEED)
        ts = tuple(np.arange(rows) * INTERARRIVAL_US + rng.integers(0, INTERARRIVAL_US, rows) for _ in range(2))
        drawn = tuple(rng.integers(0, keys, rows) for _ in range(2))
        return cls(drawn, ts, int(in_window * INTERARRIVAL_US / 2))  # type: ignore[arg-type]

    @property
    def rows(self) -> int:
        return sum(len(t) for t in self.ts)

    def problem(self) -> Problem:
        w = self.window_us
        return Problem(self.ts, tuple((k,) for k in self.keys), np.array([[0, w], [w, 0]]), equal_keys(0, {0: 0, 1: 0}))


@dataclass(frozen=True)
class Case:
    """A setting, and the kernels that it is for."""

    name: str
    rows: int
    keys: int
    in_window: float
    systems: tuple[str, ...]


@dataclass
class Outcome:
    """A case's answer, what was compared, and the seconds of every run of every system."""

    case: Case
    answer: Answer
    comparisons: dict[str, float] = field(default_factory=dict)
    """Per tuple."""
    seconds: dict[str, list[float]] = field(default_factory=dict)
    cpu_seconds: dict[str, list[float]] = field(default_factory=dict)

    def rate(self, system: str) -> float:
        """Tuples per second, the median run."""
        return 2 * self.case.rows / statistics.median(self.seconds[system])

    def over_duckdb(self, system: str) -> float:
        """How many times faster than DuckDB's faster spelling."""
        return self.rate(system) / max(self.rate(s) for s in self.seconds if s.startswith("DuckDB"))

    def figures(self) -> dict[str, Any]:
        rates = {s: self.rate(s) for s in self.seconds}
        return {**asdict(self), "tuples_per_s": rates, "over_duckdb": {s: self.over_duckdb(s) for s in self.seconds}}


# ---------------------------------------------------------------- what units run, on one segment or several


def probe_keys(s: Streams) -> Pairs:
    """hw: an index of one stream, probed by the other."""
    index = hash_window.build(s.keys[1], s.ts[1])
    first, count = hash_window.probe(index, s.keys[0], s.ts[0] - s.window_us, s.ts[0] + s.window_us)
    return pairs(first, count, index.rows, CHUNK)


def in_batches(s: Streams) -> Pairs:
    """hw as units run it: new tuples of a batch probe older segments, and the second stream's also the first's new ones."""
    segments: list[list[tuple[int, int, hash_window.HashIndex]]] = [[], []]
    for begin in range(0, len(s.ts[0]), BATCH):
        for x in range(2):
            keys, ts = s.keys[x][begin : begin + BATCH], s.ts[x][begin : begin + BATCH]
            for offset, latest, index in segments[1 - x]:
                if latest >= ts[0] - s.window_us:
                    first, count = hash_window.probe(index, keys, ts - s.window_us, ts + s.window_us)
                    for mine, its in pairs(first, count, index.rows, CHUNK):
                        found = (mine + begin, its + offset)
                        yield found if x == 0 else found[::-1]
            segments[x].append((begin, int(ts[-1]), hash_window.build(keys, ts)))


def prune_and_probe(s: Streams) -> Pairs:
    """hw over what has a window partner."""
    marked = np.zeros(len(s.ts[0]), np.bool_)
    mark(s.ts[0], np.arange(len(s.ts[0])), -s.window_us, s.window_us, s.ts[1], marked)
    rows = np.flatnonzero(marked)
    index = hash_window.build(s.keys[1], s.ts[1])
    ts = s.ts[0][rows]
    first, count = hash_window.probe(index, s.keys[0][rows], ts - s.window_us, ts + s.window_us)
    for mine, its in pairs(first, count, index.rows, CHUNK):
        yield rows[mine], its


def probe_ranges(s: Streams) -> Pairs:
    """sorted: a range of one value."""
    box = sorted_window.Box(s.keys[0], s.keys[0], s.ts[0] - s.window_us, s.ts[0] + s.window_us)
    return sorted_window.pairs(sorted_window.build(s.keys[1], s.ts[1]), box, CHUNK)


def loop_over_pairs(s: Streams) -> Pairs:
    """nlw: every pair in the window, then its keys."""
    index = nested_loop.build(s.ts[1])
    first, count = nested_loop.probe(index, s.ts[0] - s.window_us, s.ts[0] + s.window_us)
    for mine, its in pairs(first, count, index.rows, CHUNK):
        keep = compare(s.keys[0], mine, s.keys[1], its, EQUAL)
        yield mine[keep], its[keep]


WHOLE: dict[str, Callable[[Streams], Pairs]] = {
    "hw": probe_keys,
    "hw, in batches": in_batches,
    "hw, dropped by time": prune_and_probe,
    "sorted": probe_ranges,
    "nlw": loop_over_pairs,
}
CASES = (
    Case("keyed", 1_000_000, 10_000, 10_000, ("hw", "hw, in batches")),
    Case(
        "all",
        10_000,
        1_000,
        1_000,
        (
            *("hw", "sorted", "nlw", "mw", "lca", "gca(mw)"),
            *(f"{name}, {order}" for name in TUPLE_BY_TUPLE for order in ("in turn", "in time")),
        ),
    ),
    Case("silent", 1_000_000, 10_000, 0.1, ("hw", "hw, dropped by time", "mw")),
)


def tuplewise(s: Streams, name: str, order: str, counts: np.ndarray | None) -> Pairs:
    """A kernel that takes the join as one problem; tuples arrive in turn or in event-time order."""
    problem = s.problem()
    arrival = round_robin(problem) if order == "in turn" else in_time(problem)
    return ((rows[0], rows[1]) for rows in named(name)(problem, arrival, counts))


def system(
    s: Streams, title: str, counts: np.ndarray | None = None
) -> Callable[[], list[tuple[np.ndarray, np.ndarray]]]:
    """A kernel by its title, ready to run."""
    if title in WHOLE:
        return lambda: list(WHOLE[title](s))
    name, _, order = title.partition(", ")
    return lambda: list(tuplewise(s, name, order, counts))


def peers(s: Streams, con: duckdb.DuckDBPyConnection) -> dict[str, Callable[[], pa.Table]]:
    """DuckDB on the same columns, with the window as a range and as a difference."""
    for name, keys, ts in zip("ab", s.keys, s.ts, strict=True):
        con.register("source", pa.table({"key": keys, "ts": ts, "i": np.arange(len(ts))}))
        con.execute(f"CREATE OR REPLACE TABLE {name} AS FROM source")
    spelled = {
        "DuckDB, range": f"a.ts BETWEEN b.ts - {s.window_us} AND b.ts + {s.window_us}",
        "DuckDB, abs": f"abs(a.ts - b.ts) <= {s.window_us}",
    }
    join = "SELECT a.i AS i, b.i AS j FROM a JOIN b ON a.key = b.key AND {}"
    return {title: partial(_ask, con, join.format(window)) for title, window in spelled.items()}


def _ask(con: duckdb.DuckDBPyConnection, query: str) -> pa.Table:
    return con.sql(query).to_arrow_table()


def answer(found: Any) -> Answer:
    """The count, and a sum modulo 2**64 of products, which tells one pairing of the same rows from another."""
    chunks = [(found["i"].to_numpy(), found["j"].to_numpy())] if isinstance(found, pa.Table) else found
    with np.errstate(over="ignore"):
        sums = [int(((i + 1) * (j + 3)).sum()) for i, j in chunks]
    return Answer(sum(len(i) for i, _ in chunks), sum(sums) % 2**64)


def measure(case: Case, repeat: int, say: Callable[[str], None]) -> Outcome:
    """Check all answers, then time all systems in turn."""
    s = Streams.of(case.rows, case.keys, case.in_window)
    with duckdb.connect() as con:
        con.execute("SET threads = 1")
        systems: dict[str, Callable[[], Any]] = {title: system(s, title) for title in case.systems} | peers(s, con)
        outcome = Outcome(case, Answer(0, 0))
        answers = {}
        for title, run in systems.items():
            say(f"{case.name}: answer and warm-up, {title}")
            answers[title] = answer(run())
            if title not in WHOLE and not title.startswith("DuckDB"):
                counts = counters()
                system(s, title, counts)()
                outcome.comparisons[title] = float(counts[TIMES] + counts[TESTS]) / s.rows
        if len(set(answers.values())) > 1:
            raise SystemExit(f"{case.name}: the answers differ, so there is nothing to time: {answers}")
        outcome.answer = next(iter(answers.values()))
        for n in range(repeat):
            for title, run in systems.items():
                say(f"{case.name}: turn {n + 1} of {repeat}, {title}")
                turn(run, TURN_S, outcome.seconds.setdefault(title, []), outcome.cpu_seconds.setdefault(title, []))
    return outcome


def command(
    repeat: Annotated[int, typer.Option(help="Turns of each system, of about a second.", min=1)] = 3,
    json: Annotated[Path | None, typer.Option(help="Write raw results to this file.")] = None,
    quick: Annotated[bool, typer.Option(help="A few seconds: a tenth of the tuples, one turn.")] = False,
) -> None:
    """Every join kernel on arrays in memory against DuckDB on one thread; every answer checked."""
    console, outcomes = Console(), []
    for case in CASES:
        smaller = Case(case.name, case.rows // 10, case.keys, case.in_window, case.systems) if quick else case
        with console.status("") as status:
            outcomes.append(measure(smaller, 1 if quick else repeat, status.update))
        console.print(_table(outcomes[-1]))
    if json is not None:
        raw = {"seed": SEED, "repeat": repeat, "machine": describe(), "cases": [o.figures() for o in outcomes]}
        json.write_text(json_format.dumps(raw, indent=1))


def _table(outcome: Outcome) -> Table:
    case = outcome.case
    table = Table(
        title=f"{case.name}: 2 x {case.rows:,} tuples, {case.keys:,} keys, {case.in_window:,g} tuples of the other stream in a window, {outcome.answer.count:,} pairs",
        title_justify="left",
    )
    for title in ("", "seconds", "CPU s", "tuples/s", "/ DuckDB", "comparisons"):
        table.add_column(title, justify="right" if title else "left", no_wrap=True)
    for title, seconds in outcome.seconds.items():
        wall, cpu = statistics.median(seconds), statistics.median(outcome.cpu_seconds[title])
        compared = f"{outcome.comparisons[title]:,.1f}" if title in outcome.comparisons else ""
        ratio = f"{outcome.over_duckdb(title):,.2f}"
        table.add_row(title, f"{wall:.4f}", f"{cpu:.4f}", f"{outcome.rate(title):,.0f}", ratio, compared)
    return table
