"""Runs of kernels over feeds: each compared with DuckDB's answer before anything about it is said.

A run is counted, and timed in CPU seconds of this thread. What a kernel has consumed is what it has stored or dropped:
NLW, HW and the baselines take a tuple of each stream in turn (3.1), or the oldest first; a sweep takes what it needs next,
and leaves what is far ahead where it is. Cost per tuple is over the tuples consumed, by any kernel.

Invariant: a run that does not give DuckDB's results raises; answers of DuckDB are computed once per feed and windows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from time import thread_time
from typing import Literal

import numpy as np

from watersmeet.kernels.catalogue import Kernel
from watersmeet.kernels.problem import (
    ADMITTED,
    PURGED,
    STORED,
    TESTS,
    TIMES,
    Problem,
    counters,
    equal_keys,
    in_time,
)
from watersmeet_lab.kernels.catalogue import named
from watersmeet_lab.kernels.tuplewise import hw, ripple, round_robin, xjoin
from watersmeet_lab.reproduce.wjoin.answer import Answer, WrongAnswerError, ask_duckdb, digest
from watersmeet_lab.reproduce.wjoin.data import Feed

Order = Literal["in turn", "in time"]
LIMIT = 1024
"""The most results of a chunk; the curve has a point after each."""
ALMOST = 8
"""What counts as almost an order of magnitude."""
POINTS = 4
"""Points of a curve for every thousand tuples, where results come evenly."""


@dataclass(frozen=True)
class Size:
    """How much is run."""

    rows: int
    """Tuples of a synthetic stream."""
    window_us: int
    """The window of synthetic streams: the paper's second."""
    values: int
    """How many values they have: about one tuple in a window of the fastest has a tuple's value."""
    streams: int
    """The most streams of figure 9."""
    seeds: tuple[int, ...]
    more_values: tuple[int, ...]
    """Figure 14's numbers of values."""
    per_hour: float
    items: int
    days: int
    every: int
    """After how many tuples the baselines purge, and HW those buckets that no probe has met."""
    flight_days: int


FULL = Size(10_000, 1_000_000, 1000, 6, (1, 2, 3), (250, 500, 1000, 2000, 4000), 2500, 20_000, 2, 10_000, 365)
QUICK = Size(1_500, 150_000, 150, 4, (1,), (75, 300), 100, 800, 2, 400, 21)


@dataclass(frozen=True)
class Run:
    """What a kernel did; `curve` has (tuples consumed, comparisons, seconds) after each chunk."""

    kernel: str
    rows: int
    counts: np.ndarray
    seconds: float
    answer: Answer
    curve: np.ndarray = field(repr=False)

    @property
    def consumed(self) -> int:
        return int(self.counts[PURGED] + self.counts[STORED])

    @property
    def comparisons(self) -> float:
        """Of times and of values, per tuple."""
        return float(self.counts[TIMES] + self.counts[TESTS]) / self.consumed

    @property
    def tests(self) -> float:
        """Comparisons of values per tuple."""
        return float(self.counts[TESTS]) / self.consumed

    @property
    def service_us(self) -> float:
        """Microseconds per tuple."""
        return 1e6 * self.seconds / self.consumed

    def plus(self, other: Run) -> Run:
        """Two queries whose results are one answer."""
        assert other.rows == self.rows
        counts = self.counts + other.counts
        counts[[PURGED, STORED, ADMITTED]] = self.counts[[PURGED, STORED, ADMITTED]]
        answer = self.answer + other.answer
        return replace(self, counts=counts, seconds=self.seconds + other.seconds, answer=answer)

    def per_thousand(self) -> tuple[list[float], list[float], list[float]]:
        """Tuples consumed, and the mean comparisons and microseconds per tuple of each thousand (4.3)."""
        at = np.arange(0, self.consumed + 1, 1000)
        consumed, comparisons, seconds = self.curve
        costs = [np.diff(np.interp(at, consumed, c)) / 1000 for c in (comparisons, 1e6 * seconds)]
        return at[1:].tolist(), *(c.tolist() for c in costs)  # type: ignore[return-value]


@dataclass
class Lab:
    """Runs at one size; `verified` has what was checked."""

    size: Size
    say: Callable[[str], None] = lambda line: None
    verified: list[tuple[str, str, Answer]] = field(default_factory=list)
    _answers: dict[tuple[str, bytes], Answer] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Load what is compiled before anything is timed."""
        few = problem(Feed("", (np.arange(3),) * 2, (np.arange(3),) * 2), uniform(2, 5))
        for kernel in ("nlw", "hw", "ripple", "xjoin", "mw", "lca", "gca(mw)"):
            list(self._kernel(kernel)(few))

    def run(self, kernel: str, feed: Feed, hi: np.ndarray, order: Order = "in turn") -> Run:
        """A kernel's run with these windows, verified."""
        run = self.measure(kernel, problem(feed, hi), order)
        self.check(run, feed, [hi])
        return run

    def run_with_curve(self, kernel: str, feed: Feed, hi: np.ndarray, order: Order = "in turn") -> Run:
        """The same with a fine curve, which is taken apart: small chunks cost a little time."""
        limit = min(max(self.ask_duckdb(feed, [hi]).results * 1000 // (POINTS * feed.rows), 1), LIMIT)
        fine = self.measure(kernel, problem(feed, hi), order, limit=limit)
        return replace(self.run(kernel, feed, hi, order), curve=fine.curve)

    def measure(
        self,
        kernel: str,
        of: Problem,
        order: Order = "in turn",
        keep: Callable[[np.ndarray], np.ndarray] | None = None,
        limit: int = LIMIT,
    ) -> Run:
        """Count and time; `keep` refines what the kernel finds."""
        self.say(f"{kernel}, {of.streams} streams")
        counts, answer, seconds = counters(), Answer(0, 0), 0.0
        points = [(0, 0, 0.0)]
        chunks = self._kernel(kernel)(of, (round_robin if order == "in turn" else in_time)(of), counts, limit)
        while True:
            begun = thread_time()
            rows = next(chunks, None)
            if rows is not None and keep is not None:
                rows = rows[:, keep(rows)]
            seconds += thread_time() - begun
            points.append((int(counts[PURGED] + counts[STORED]), int(counts[TIMES] + counts[TESTS]), seconds))
            if rows is None:
                break
            answer += digest(rows)
        return Run(kernel, sum(map(len, of.ts)), counts, seconds, answer, np.array(points).T)

    def ask_duckdb(self, feed: Feed, alternatives: Sequence[np.ndarray]) -> Answer:
        """DuckDB's answer, computed once."""
        key = (feed.name, b"".join(hi.tobytes() for hi in alternatives))
        if key not in self._answers:
            self.say(f"DuckDB: {feed.name}")
            self._answers[key] = ask_duckdb(feed, alternatives)
        return self._answers[key]

    def check(self, run: Run, feed: Feed, alternatives: Sequence[np.ndarray]) -> None:
        """Raise unless the run's answer is DuckDB's."""
        want = self.ask_duckdb(feed, alternatives)
        if run.answer != want:
            raise WrongAnswerError(
                f"{run.kernel} on {feed.name}: {run.answer.results} results with checksum {run.answer.checksum}, but DuckDB has"
                f" {want.results} with {want.checksum}; nothing else was measured, please report this"
            )
        self.verified.append((run.kernel, feed.name, want))

    def _kernel(self, name: str) -> Kernel:
        purging = {"ripple": ripple, "xjoin": xjoin, "hw": hw}
        return partial(purging[name], every=self.size.every) if name in purging else named(name)


def problem(feed: Feed, hi: np.ndarray) -> Problem:
    """Equal values, and the windows hi."""
    columns = tuple((k.astype(np.int64),) for k in feed.keys)
    return Problem(feed.ts, columns, hi, equal_keys(0, dict.fromkeys(range(feed.streams), 0)))


def uniform(streams: int, window_us: int) -> np.ndarray:
    """One window for all pairs.

    >>> uniform(2, 5).tolist()
    [[0, 5], [5, 0]]
    """
    return window_us * (1 - np.eye(streams, dtype=np.int64))
