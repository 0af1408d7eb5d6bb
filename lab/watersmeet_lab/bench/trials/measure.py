"""From a trial's streaming progress to figures.

A micro-batch's rate is its input rows over its trigger's duration. Steady state is the median rate of the last half of
the micro-batches that had input; the total is all input rows over the wall time from start to end of the query. The
first micro-batches are in the total, the JVM's start and the warm-up query are in neither.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from watersmeet.runtime import progress
from watersmeet_lab.bench.answer import Answer, Kind, Question
from watersmeet_lab.bench.data import INTERARRIVAL_US, Keys
from watersmeet_lab.bench.memory import Peak
from watersmeet_lab.bench.trials.systems import System


@dataclass(frozen=True)
class Case:
    """One line of the benchmark: what every system is asked to do."""

    keys: Keys
    ways: int
    rows: int
    files: int
    files_per_trigger: int
    window_us: int
    kind: Kind = "inner"

    @property
    def title(self) -> str:
        """The case in one line.

        >>> Case("uniform", 2, 1_000_000, 20, 5, 10_000_000).title
        '2-way, uniform keys, 2 x 1,000,000 rows, 500,000 rows per micro-batch, window 10 s'
        """
        per_batch = self.rows * self.ways * self.files_per_trigger // self.files
        kind = "" if self.kind == "inner" else f"{self.kind} join, "
        return f"{self.ways}-way, {kind}{self.keys} keys, {self.ways} x {self.rows:,} rows, {per_batch:,} rows per micro-batch, window {self.window_us / 1e6:g} s"

    @property
    def question(self) -> Question:
        """What is asked. Of a left or anti join only what is settled by the data of all batches but the last counts.

        >>> Case("uniform", 2, 1_000_000, 20, 5, 10_000_000, "left").question.until_us
        730000000
        """
        if self.kind == "inner":
            return Question(self.ways, self.window_us)
        settled = self.rows * INTERARRIVAL_US * (self.files - self.files_per_trigger) // self.files
        return Question(self.ways, self.window_us, kind=self.kind, until_us=settled - 2 * self.window_us)


@dataclass(frozen=True)
class Batch:
    """One micro-batch. state_rows is None where the system does not say; retained is by alias, watersmeet's only."""

    rows: int
    duration_ms: int
    state_rows: int | None = None
    retained: Mapping[str, int] | None = None

    @property
    def rate(self) -> float:
        """Input rows per second."""
        return self.rows * 1000 / max(self.duration_ms, 1)


@dataclass(frozen=True)
class Outcome:
    """What one trial showed."""

    case: Case
    system: System
    repetition: int
    answer: Answer
    expected: Answer
    steady: float
    total: float
    wall_s: float
    peak: Peak
    batches: tuple[Batch, ...]

    @property
    def right(self) -> bool:
        """Whether the answer is DuckDB's."""
        return self.answer == self.expected

    @property
    def state_rows(self) -> int | None:
        """Most rows retained after a micro-batch of the last half."""
        seen = [batch.state_rows for batch in self.batches[len(self.batches) // 2 :] if batch.state_rows is not None]
        return max(seen, default=None)

    @property
    def retained_ratio(self) -> float | None:
        """Most rows of one alias that watersmeet retained, over the rows that the window spans."""
        last = self.batches[len(self.batches) // 2 :]
        seen = [rows for batch in last for rows in (batch.retained or {}).values()]
        return max(seen) * INTERARRIVAL_US / self.case.window_us if seen else None


def outcome(
    case: Case, system: System, repetition: int, seen: Mapping[str, Any], expected: Answer, peak: Peak
) -> Outcome:
    """Turn what a trial wrote (see `trial.main`) into figures."""
    batches = tuple(_batch(event) for event in seen["progress"] if event["numInputRows"])
    return Outcome(
        case=case,
        system=system,
        repetition=repetition,
        answer=Answer(seen["answer"]["count"], seen["answer"]["checksum"]),
        expected=expected,
        steady=steady(batches),
        total=sum(batch.rows for batch in batches) / seen["wall_s"],
        wall_s=seen["wall_s"],
        peak=peak,
        batches=batches,
    )


def steady(batches: Sequence[Batch]) -> float:
    """Median rows/s of the last half.

    >>> steady([Batch(100, 1000), Batch(100, 100), Batch(100, 50)])
    1500.0
    """
    return statistics.median(batch.rate for batch in batches[len(batches) // 2 :])


def growth(batches: Sequence[Batch], factor: int = 10) -> tuple[float, float]:
    """Steady rows/s after the first 1/factor of the history, and at the end of it, over equally many micro-batches.

    >>> growth([Batch(10, 100)] * 4 + [Batch(10, 50)] * 36)
    (100.0, 200.0)
    """
    early = batches[: max(2, len(batches) // factor)]
    return steady(early), statistics.median(batch.rate for batch in batches[-len(early[len(early) // 2 :]) :])


def _batch(event: Mapping[str, Any]) -> Batch:
    ours = progress.read(dict(event))
    retained = ours.state_rows if ours else event.get("retained")
    # Spark counts the entries of its state stores: rows for its own join, segments for ours.
    rows = sum(retained.values()) if retained else sum(operator["numRowsTotal"] for operator in event["stateOperators"])
    return Batch(event["numInputRows"], event["durationMs"]["triggerExecution"], rows or None, retained)
