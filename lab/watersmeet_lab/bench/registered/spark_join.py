"""A query of the workload as Spark's own stream-stream joins: a chain of three.

A result of a join may carry one event-time column into the next join (MULTIPLE_EVENT_TIME_COLUMNS): the first relation's time
stays it, the others go on as plain numbers. The next relation meets the first by a time condition, by which Spark cleans its
state, and the others by arithmetic.

Invariant: the same answers as the text in `wm.sql`: every pair of members at most the window apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from pyspark.sql import functions as F

from watersmeet_lab.bench.registered.workload import ATTRIBUTES

_EQUALITY = re.compile(r"(r\d+)\.(a\d+) = (r\d+)\.(a\d+)")
_OUTPUT = re.compile(r"(r\d+)\.(a\d+) AS (\w)")


def join_frames(frames: Mapping[str, Any], text: str, window_ms: int) -> Any:
    """The streaming frame of a query's answers."""
    equalities = _EQUALITY.findall(text)
    first = equalities[0][0]
    rows, times = _prefix_columns(frames[first], first), list[str]()
    for left, a, right, b in equalities:
        other = _prefix_columns(frames[right], right)
        near = [F.expr(f"{right}_ts BETWEEN {first}_ts - {_span(window_ms)} AND {first}_ts + {_span(window_ms)}")]
        near += [F.expr(f"abs(unix_micros({right}_ts) - {time}) <= {window_ms * 1000}") for time in times]
        condition = F.col(f"{left}_{a}") == F.col(f"{right}_{b}")
        for each in near:
            condition = condition & each
        rows = rows.join(other, condition).withColumn(f"{right}_us", F.expr(f"unix_micros({right}_ts)"))
        rows = rows.drop(f"{right}_ts")
        times.append(f"{right}_us")
    return rows.select(*(F.col(f"{r}_{a}").alias(name) for r, a, name in _OUTPUT.findall(text)))


def _prefix_columns(frame: Any, name: str) -> Any:
    columns = [*(f"a{n}" for n in range(ATTRIBUTES)), "ts"]
    return frame.withWatermark("ts", "0 seconds").select(*(F.col(c).alias(f"{name}_{c}") for c in columns))


def _span(window_ms: int) -> str:
    return f"INTERVAL {window_ms * 1000} MICROSECONDS"
