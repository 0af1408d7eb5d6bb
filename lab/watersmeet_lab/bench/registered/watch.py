"""A run under watch: when its micro-batches ended, how much memory it took, and which limit stopped it.

    jobs      1 |--a--|--b--|--c--|--d--|
              2    |---a---|---b---|--c--|-d-|
              3        |----a----|---b---|--c--|--d--|
                                 ^ rates are counted from here: all jobs have done their first micro-batches

A rate is micro-batches that ended after that, over the time that they took; one job alone is the same picture.

Invariant: memory is the JVM's, the Python workers' and the driver's resident sets, at the moment of their largest sum. Pages that
workers share are counted for each of them.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from watersmeet.errors import WatersmeetError
from watersmeet_lab.bench.memory import Peak, descendants, sample

POLL_S = 0.5
WARM_PART = 4
"""The first quarter of the micro-batches is not counted."""


@dataclass(frozen=True)
class Limits:
    """When a run is given up."""

    seconds: float
    memory_gb: float


class Watch:
    """From the first start to the end of the last job."""

    def __init__(self, limits: Limits) -> None:
        self.limits, self.began = limits, time.monotonic()
        self.memory_bytes = 0
        self.stopped = ""
        """The limit that stopped the run, or what failed."""

    @property
    def seconds(self) -> float:
        return time.monotonic() - self.began

    def look(self) -> bool:
        """Whether the run may go on."""
        peak = Peak()
        peak.add(sample([os.getpid(), *descendants(os.getpid())]))
        self.memory_bytes = max(self.memory_bytes, peak.workers_rss + peak.driver_worker_rss + peak.jvm_rss)
        if self.memory_bytes > self.limits.memory_gb * 1e9:
            self.stopped = f"memory: over {self.limits.memory_gb:g} GB"
        elif self.seconds > self.limits.seconds:
            self.stopped = f"time: over {self.limits.seconds:g} s"
        return not self.stopped

    def wait(self, handles: Sequence[Any]) -> None:
        """Until all handles have ended, or a limit is reached, or one has failed."""
        for handle in handles:
            while self.look():
                try:
                    if handle.await_termination(POLL_S):
                        break
                except WatersmeetError as error:
                    self.stopped = f"failed: {str(error).splitlines()[0][:200]}"


@dataclass(frozen=True)
class Steady:
    """Rates of jobs that ran side by side."""

    first_seconds: float
    """The longest first micro-batch."""
    batches_per_second: float
    """Micro-batches of all jobs together; 0 if some job has not come so far."""


def steady(queries: Sequence[Any], batches: int) -> Steady:
    """What Spark's streaming queries say of their micro-batches."""
    ends = [[_end(p) for p in query.recentProgress if p["numInputRows"]] for query in queries]
    first = [p["durationMs"]["triggerExecution"] / 1000 for q in queries for p in q.recentProgress[:1]]
    return Steady(max(first, default=0.0), rate(ends, max(1, batches // WARM_PART)))


def rate(ends: Sequence[Sequence[float]], warm: int) -> float:
    """Micro-batches per second, from when all jobs have done `warm` of them.

    >>> rate([[1, 2, 3, 4], [2, 3, 4, 5]], 1)
    1.6666666666666667
    """
    if not ends or any(len(of_job) <= warm for of_job in ends):
        return 0.0
    begin, end = max(of_job[warm - 1] for of_job in ends), max(of_job[-1] for of_job in ends)
    counted = sum(at > begin for of_job in ends for at in of_job)
    return counted / (end - begin) if counted else 0.0


def _end(progress: Any) -> float:
    """When a micro-batch ended, in seconds."""
    began = datetime.fromisoformat(progress["timestamp"].replace("Z", "+00:00"))
    return began.timestamp() + float(progress["durationMs"]["triggerExecution"]) / 1000
