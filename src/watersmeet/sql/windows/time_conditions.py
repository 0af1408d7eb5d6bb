"""Recognises conditions on event time, and turns them into edges of the window graph.

A comparison of two sums over event-time columns and day-time intervals is brought to one side:

    b.ts - INTERVAL 10 SECONDS <= a.ts      ->   b.ts - a.ts - 10 s <= 0      ->   Edge(old a, young b, hi 10 s)

Exactly two aliases must remain, one with +1 and one with -1. Times are whole microseconds, so `< h` is `<= h - 1 us`.
Times that are cast to numbers are read by `epoch_seconds`. Everything else (months, functions, three streams) is an ordinary condition.

To Spark, whole days of a span and the difference of two timestamps are counted on the clock of the session's time zone:

    b.ts <= a.ts + INTERVAL 1 DAY       23 or 25 hours where the clock is set       edge: 25 h
    b.ts - a.ts <= INTERVAL 1 HOUR      0 or 2 hours of time that passes            edge: 2 h

Where the offset changes, such an edge is wider by as much as it can change, and the condition remains, to be decided exactly:

    New York: 1 h, within any span       Apia: 24 h, around the day that it left out

The offsets are those of the evaluator's rules, sampled from 1840 to 2110: before, a zone has its mean solar time, and after, the rules
repeat.

Invariant: whatever satisfies the condition satisfies its edges; if `widened_us` is 0, the reverse holds, too.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from functools import lru_cache
from typing import Any

import numpy as np
from sqlglot import exp

from watersmeet.errors import WindowError
from watersmeet.query.duration import parse_us, unit_us
from watersmeet.query.window import Edge
from watersmeet.sql.names import Scope, ref_of
from watersmeet.sql.windows.epoch_seconds import epoch_edges
from watersmeet.sql.windows.items import LONGEST_US

_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
_DAY_US = 86_400_000_000
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


@dataclass(frozen=True)
class Linear:
    """A sum of event times (alias -> how often) and a constant."""

    times: dict[str, int]
    us: int

    def plus(self, other: Linear, sign: int) -> Linear:
        times = Counter(self.times)
        for alias, n in other.times.items():
            times[alias] += sign * n
        return Linear({alias: n for alias, n in times.items() if n}, self.us + sign * other.us)

    @property
    def points(self) -> int:
        """1 for a point in time, 0 for a span; anything else is not a time."""
        return sum(self.times.values())


@dataclass(frozen=True)
class TimeCondition:
    """The edges that a conjunct means, and how much wider they are than the conjunct."""

    edges: tuple[Edge, ...]
    widened_us: int


def time_condition(node: Any, scope: Scope, text: str = "") -> TimeCondition | None:
    """What a conjunct says about two event times; None if it is not a condition on them."""
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    left, right = linear(node.this, scope), linear(node.expression, scope)
    if left is None or right is None:
        counted, wider = epoch_edges(node, lambda time: _shifted(time, scope), text)
        return TimeCondition(counted, wider) if counted else None
    if left.points != right.points or left.points not in (0, 1):
        return None
    if isinstance(node, exp.GT | exp.GTE):
        left, right = right, left
    strict = isinstance(node, exp.LT | exp.GT)
    edges = [_edge(left.plus(right, -1), strict, text)]
    if isinstance(node, exp.EQ):
        edges.append(_edge(right.plus(left, -1), False, text))
    found = [edge for edge in edges if edge is not None]
    slack = _slack_us(node, scope) if found else None
    if slack is None:
        return None
    return TimeCondition(tuple(replace(edge, hi_us=edge.hi_us + slack) for edge in found), slack)


def _shifted(node: Any, scope: Scope) -> tuple[str, int] | None:
    """An instant: an alias' event time and a span of less than a day, which no clock changes."""
    form = linear(node, scope)
    if form is None or list(form.times.values()) != [1] or abs(form.us) >= _DAY_US:
        return None
    (alias,) = form.times
    spec = scope.specs[alias]
    return (alias, form.us) if spec.schema[spec.time] == "timestamp" else None


def _slack_us(node: Any, scope: Scope) -> int | None:
    """How far fixed spans can be from those of the clock; None if nothing bounds it."""
    if scope.session.is_fixed or not any(scope.type_of(ref_of(c)) == "timestamp" for c in node.find_all(exp.Column)):
        return 0
    steps = [step for side in (node.this, node.expression) for step in side.find_all(exp.Add, exp.Sub)]
    spans = [_on_the_clock(step, scope) for step in steps]
    if any(span is None for span in spans):
        return None
    days = sum(abs(us) for i in node.find_all(exp.Interval) if (us := interval_us(i)) is not None)
    counted = sum(span is True for span in spans)
    reach = days + (counted + 1) * FURTHEST_US
    return counted * largest_change_us(scope.session.timezone, reach) if counted else 0


def _on_the_clock(step: Any, scope: Scope) -> bool | None:
    """Whether a sum is counted on the clock: a difference of two times, or a time and a day or more; None: a time and any span."""
    left, right = linear(step.this, scope), linear(step.expression, scope)
    assert left is not None
    assert right is not None
    if left.points == right.points:
        return bool(left.points)
    us = span_us(step.expression if left.points else step.this)
    return None if us is None else abs(us) >= _DAY_US


def _edge(form: Linear, strict: bool, text: str) -> Edge | None:
    """`form <= 0` as an edge."""
    by_sign = {n: alias for alias, n in form.times.items()}
    if len(form.times) != 2 or set(by_sign) != {1, -1} or abs(form.us) > LONGEST_US:
        return None
    return Edge(old=by_sign[-1], young=by_sign[1], hi_us=-form.us - strict, text=text)


def linear(node: Any, scope: Scope) -> Linear | None:
    """The sum that an expression is, or None."""
    if isinstance(node, exp.Paren):
        return linear(node.this, scope)
    if isinstance(node, exp.Column):
        ref = ref_of(node)
        return Linear({ref.alias: 1}, 0) if ref.column == scope.specs[ref.alias].time else None
    if isinstance(node, exp.Interval):
        us = interval_us(node)
        return None if us is None else Linear({}, us)
    if isinstance(node, exp.Neg):
        form = linear(node.this, scope)
        return None if form is None else Linear({}, 0).plus(form, -1)
    if isinstance(node, exp.Add | exp.Sub):
        left, right = linear(node.this, scope), linear(node.expression, scope)
        return None if left is None or right is None else left.plus(right, 1 if isinstance(node, exp.Add) else -1)
    return None


def span_us(node: Any) -> int | None:
    """The microseconds of a sum of INTERVAL literals; None of anything else.

    >>> from sqlglot import parse_one
    >>> span_us(parse_one("INTERVAL '1' HOUR - INTERVAL '5' MINUTES", dialect="spark"))
    3300000000
    """
    if isinstance(node, exp.Paren):
        return span_us(node.this)
    if isinstance(node, exp.Neg):
        us = span_us(node.this)
        return None if us is None else -us
    if isinstance(node, exp.Add | exp.Sub):
        left, right = span_us(node.this), span_us(node.expression)
        return None if left is None or right is None else left + right * (1 if isinstance(node, exp.Add) else -1)
    return interval_us(node)


def interval_us(node: Any) -> int | None:
    """The microseconds of a day-time INTERVAL literal, in any of Spark's spellings; None for months and expressions.

    >>> from sqlglot import parse_one
    >>> [interval_us(parse_one(s, dialect="spark")) for s in ("INTERVAL '1 hour 5 minutes'", "INTERVAL '0 00:10:00' DAY TO SECOND", "INTERVAL 1 MONTH")]
    [3900000000, 600000000, None]
    """
    if not isinstance(node, exp.Interval) or not isinstance(node.this, exp.Literal):
        return None
    value, unit = node.this.name.strip(), node.args.get("unit")
    try:
        if unit is None:
            return parse_us(value)
        if isinstance(unit, exp.IntervalSpan):
            return _clock_us(value, unit.this.name.upper(), unit.expression.name.upper())
        return int(Decimal(value) * unit_us(unit.name)) if _NUMBER.fullmatch(value) else None
    except (WindowError, InvalidOperation, ValueError):
        return None


def _clock_us(value: str, first: str, last: str) -> int | None:
    """`d h:m:s.f`, from field `first` to field `last`."""
    if first not in _FIELDS or last not in _FIELDS:
        return None
    fields = _FIELDS[_FIELDS.index(first) : _FIELDS.index(last) + 1]
    sign, digits = (-1, value[1:]) if value.startswith("-") else (1, value.removeprefix("+"))
    parts = re.split(r"[ :]+", digits.strip())
    if len(parts) != len(fields) or not all(_NUMBER.fullmatch(p) for p in parts):
        return None
    return sign * sum(int(Decimal(part) * unit_us(name)) for part, name in zip(parts, fields, strict=True))


_STEP_S = 6 * 3600
"""No offset has ever been in force for less."""
_FIRST_S, _LAST_S = -4_102_444_800, 4_417_977_600
_HOUR_US = 3_600_000_000
FURTHEST_US = 36 * _HOUR_US
"""More than any two offsets are apart: what holds for a zone that the evaluator does not know."""

Runs = tuple[tuple[int, int, int], ...]
"""Offsets in force: from and until (seconds), and the offset in microseconds."""


def largest_change_us(timezone: str, span_us: int) -> int:
    """The largest difference between the offsets of two instants that are at most so far apart.

    >>> [largest_change_us(zone, 86_400_000_000) // 3_600_000_000 for zone in ("America/New_York", "Pacific/Apia")]
    [1, 24]
    """
    runs = _runs(timezone)
    if runs is None:
        return FURTHEST_US
    largest = 0
    for n, (_, until, offset) in enumerate(runs):
        for since, _, other in runs[n + 1 :]:
            if (since - until - 2 * _STEP_S) * 1_000_000 > span_us:  # the clock was set between two samples
                break
            largest = max(largest, abs(other - offset))
    return largest


@lru_cache(64)
def _runs(timezone: str) -> Runs | None:
    """The offsets of a zone in order; None if the evaluator has no rules for it."""
    import duckdb

    with duckdb.connect(":memory:", config={"threads": 1, "autoinstall_known_extensions": False}) as con:
        try:
            con.execute(f"SET TimeZone = '{timezone}'")
        except duckdb.Error:
            return None
        sampled = con.sql(
            f"SELECT epoch_us(CAST(to_timestamp(s) AS TIMESTAMP)) - s * 1000000 AS offset_us FROM range({_FIRST_S}, {_LAST_S}, {_STEP_S}) AS sampled(s)"
        ).fetchnumpy()["offset_us"]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(sampled)) + 1])
    ends = np.append(starts[1:], len(sampled)) - 1
    at = [_FIRST_S + _STEP_S * int(n) for n in (*starts, *ends)]
    return tuple(zip(at[: len(starts)], at[len(starts) :], map(int, sampled[starts]), strict=True))
