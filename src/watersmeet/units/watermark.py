"""Watermarks and expiry: arithmetic on maxima.

    watermark(s) = max(highest event time of s - lateness(s),  highest event time of the others - idle(s) if set)

A tuple x is dead when no future tuple can meet it: for every other alias y, watermark(y) > x.ts + hi(x, y), that is

    x.ts < cut(x) = min over y of (watermark(y) - hi(x, y))

In a pipeline y ranges over the aliases of the stage's other side: that stage is where x waits for them. The results of an
earlier stage are dead when one of their members is: the one whose time is the side's time.

Invariant: maxima only grow, so watermarks and cuts only grow.
"""

from __future__ import annotations

from collections.abc import Mapping

from watersmeet.kernels.instants import FIRST, moved
from watersmeet.plan.model import Plan
from watersmeet.query.window import UNBOUNDED

NEVER = FIRST
"""Before all time: the watermark of a stream that has not been seen."""
TIMELESS = -(2**62)
"""What stands for the event time of rows that never expire. It is in stored segments, so it stays what it is."""

Maxima = Mapping[str, int]
"""Highest event time by stream."""


def watermarks(plan: Plan, maxima: Maxima) -> dict[str, int]:
    """The watermark of every stream."""
    out = {}
    for name, spec in plan.join.streams.items():
        own = maxima.get(name, NEVER)
        mark = moved(own, -spec.lateness_us)
        others = [t for s, t in maxima.items() if s != name]
        if spec.idle_us is not None and others:
            mark = max(mark, moved(max(others), -spec.idle_us))
        out[name] = mark
    return out


def cuts(plan: Plan, marks: Mapping[str, int]) -> dict[str, int]:
    """For every side of every stage, by name, the time before which its tuples are dead."""
    graph, streams = plan.join.windows, {i.alias: i.stream for i in plan.join.inputs}
    out = {}
    for stage in plan.stages:
        for side in stage.sides:
            bounds = [(marks[streams[y]], graph.hi(side.reference, y)) for y in stage.partners(side)]
            out[side.name] = min(
                (NEVER if hi >= UNBOUNDED or mark <= NEVER else moved(mark, -hi) for mark, hi in bounds), default=NEVER
            )
    return out


def stream_cuts(hull: Mapping[tuple[str, str], int], marks: Mapping[str, int]) -> dict[str, int]:
    """By stream the time before which its tuples are dead, where many queries share them: `hull` has for every ordered pair of
    streams the largest y.ts - x.ts that some query allows.

    >>> stream_cuts({("r", "s"): 5, ("s", "r"): 2}, {"r": 100, "s": 90})
    {'r': 85, 's': 98}
    """
    out: dict[str, int] = {}
    for (x, y), hi in hull.items():
        cut = NEVER if hi >= UNBOUNDED or marks[y] <= NEVER else moved(marks[y], -hi)
        out[x] = min(out.get(x, cut), cut)
    return out


def advance(before: Maxima, seen: Mapping[str, int]) -> dict[str, int]:
    """Maxima after a batch."""
    return {s: max(before.get(s, NEVER), seen.get(s, NEVER)) for s in {*before, *seen}}
