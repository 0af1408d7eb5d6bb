"""Recognises conditions on event time, and turns them into edges of the window graph.

A comparison of two sums over event-time columns and day-time intervals is brought to one side:

    b.ts - INTERVAL 10 SECONDS <= a.ts      ->   b.ts - a.ts - 10 s <= 0      ->   Edge(old a, young b, hi 10 s)

Exactly two aliases must remain, one with +1 and one with -1. Times are whole microseconds, so `< h` is `<= h - 1 us`.
Everything else (months, functions, three streams) is an ordinary condition.

Times may be compared as numbers, seconds since 1970, as casts give them:

    CAST(a.ts AS BIGINT) > CAST(b.ts AS BIGINT) + 1         n(t) = floor(t): less than a second below t
    CAST(a.ts AS DOUBLE) - CAST(b.ts AS DOUBLE) <= 0.5      n(t): t, as precisely as a double can say it

Then n(y) - n(x) + c <= 0, where n(y) - n(x) is a whole number if both are floors, and

    y - x  <=  -c + (how far y may be above n(y)) + (how far x may be below n(x))

A FLOAT has 24 bits, and is minutes away from the time: such a condition bounds nothing.

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
from collections.abc import Iterator
from dataclasses import dataclass, replace
from decimal import ROUND_CEILING, ROUND_FLOOR, Decimal, InvalidOperation
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from sqlglot import exp

from watersmeet.errors import WindowError
from watersmeet.query.duration import parse_us, unit_us
from watersmeet.query.window import Edge
from watersmeet.sql.names import Scope, ref_of
from watersmeet.sql.windows.items import LONGEST_US

_FIELDS = ("DAY", "HOUR", "MINUTE", "SECOND")
_DAY_US, _SECOND_US = 86_400_000_000, 1_000_000
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?")


Number = Literal["exact", "floor", "double"]
_NUMBERS: dict[str, Number] = {"BIGINT": "floor", "DOUBLE": "double"}
_ABOVE_US = {"exact": 0, "floor": _SECOND_US - 1, "double": 100}
_BELOW_US = {"exact": 0, "floor": 0, "double": 100}
"""How far a time may be above or below its number."""


@dataclass(frozen=True)
class Term:
    """An event time in a sum: itself, or the number of it and a span."""

    sign: int
    alias: str
    us: int = 0
    number: Number = "exact"


@dataclass(frozen=True)
class Sum:
    """Event times and a constant; `counted`: they are numbers of seconds, and the constant is one."""

    terms: tuple[Term, ...]
    us: Decimal
    counted: bool

    def minus(self, other: Sum) -> Sum:
        taken = tuple(replace(term, sign=-term.sign) for term in other.terms)
        return Sum((*self.terms, *taken), self.us - other.us, self.counted)

    @property
    def points(self) -> int:
        """1 for a point in time, 0 for a span; anything else is not a time."""
        return sum(term.sign for term in self.terms)


@dataclass(frozen=True)
class TimeCondition:
    """The edges that a conjunct means, and how much wider they are than the conjunct."""

    edges: tuple[Edge, ...]
    widened_us: int


def time_condition(node: Any, scope: Scope) -> TimeCondition | None:
    """What a conjunct says about two event times, as edges without a text; None if it is not a condition on them."""
    if not isinstance(node, exp.EQ | exp.LT | exp.LTE | exp.GT | exp.GTE):
        return None
    left, right = read_sum(node.this, scope), read_sum(node.expression, scope)
    if left is None or right is None or left.counted != right.counted:
        return None
    if not left.counted and (left.points != right.points or left.points not in (0, 1)):
        return None
    if isinstance(node, exp.GT | exp.GTE):
        left, right = right, left
    edges = [_edge(left.minus(right), isinstance(node, exp.LT | exp.GT))]
    if isinstance(node, exp.EQ):
        edges.append(_edge(right.minus(left), False))
    found = [edge for edge in edges if edge is not None]
    if not found:
        return None
    if left.counted:
        numbers = {term.number for term in (*left.terms, *right.terms)}
        return TimeCondition(tuple(found), sum(_ABOVE_US[n] + _BELOW_US[n] for n in numbers))
    slack = _slack_us(node, scope)
    if slack is None:
        return None
    return TimeCondition(tuple(replace(edge, hi_us=edge.hi_us + slack) for edge in found), slack)


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
    left, right = read_sum(step.this, scope), read_sum(step.expression, scope)
    assert left is not None
    assert right is not None
    if left.points == right.points:
        return bool(left.points)
    us = span_us(step.expression if left.points else step.this)
    return None if us is None else abs(us) >= _DAY_US


def _edge(form: Sum, strict: bool) -> Edge | None:
    """`form <= 0`, or `form < 0`, as an edge."""
    signs: Counter[str] = Counter()
    for term in form.terms:
        signs[term.alias] += term.sign
    left = {sign: alias for alias, sign in signs.items() if sign}
    if sorted(filter(None, signs.values())) != [-1, 1] or (form.counted and len(form.terms) != 2):
        return None
    young, old = (next(term for term in form.terms if term.alias == left[sign]) for sign in (1, -1))
    most = -form.us - (strict and not form.counted)
    if young.number == old.number == "floor":
        whole = (most / _SECOND_US).to_integral_value(ROUND_FLOOR)
        most = (whole - (strict and whole * _SECOND_US == most)) * _SECOND_US
    hi_us = int(most.to_integral_value(ROUND_CEILING)) + _ABOVE_US[young.number] + _BELOW_US[old.number]
    hi_us += old.us - young.us
    return None if abs(hi_us) > LONGEST_US else Edge(old.alias, young.alias, hi_us, "")


def read_sum(node: Any, scope: Scope) -> Sum | None:
    """The sum that an expression is, of times and intervals or of numbers of seconds; None of anything else."""
    terms: list[Term] = []
    us, counted = Decimal(0), set[bool]()
    for sign, part in _parts(node):
        if isinstance(part, exp.Column) and (alias := _alias_of_time(part, scope)):
            terms.append(Term(sign, alias))
        elif (span := interval_us(part)) is not None:
            us += sign * span
        elif isinstance(part, exp.Literal) and not part.is_string:
            us += sign * Decimal(part.name) * _SECOND_US
        elif (term := _number(sign, part, scope)) is not None:
            terms.append(term)
        else:
            return None
        counted.add(isinstance(part, exp.Literal | exp.Cast))
    return Sum(tuple(terms), us, counted == {True}) if len(counted) == 1 else None


def _number(sign: int, node: Any, scope: Scope) -> Term | None:
    """The number of an instant: an alias' event time and a span of less than a day, which no clock changes."""
    number = _NUMBERS.get(node.to.this.name) if isinstance(node, exp.Cast) else None
    form = read_sum(node.this, scope) if number is not None else None
    if number is None or form is None or form.counted or [t.sign for t in form.terms] != [1] or abs(form.us) >= _DAY_US:
        return None
    spec = scope.specs[form.terms[0].alias]
    is_instant = spec.schema[spec.time] == "timestamp"
    return Term(sign, form.terms[0].alias, int(form.us), number) if is_instant else None


def _alias_of_time(column: Any, scope: Scope) -> str:
    """The alias whose event time a column is, '' if it is none."""
    ref = ref_of(column)
    return ref.alias if ref.column == scope.specs[ref.alias].time else ""


def _parts(node: Any, sign: int = 1) -> Iterator[tuple[int, Any]]:
    """The operands of a sum, with their signs."""
    if isinstance(node, exp.Paren | exp.Neg):
        yield from _parts(node.this, -sign if isinstance(node, exp.Neg) else sign)
    elif isinstance(node, exp.Add | exp.Sub):
        yield from _parts(node.this, sign)
        yield from _parts(node.expression, -sign if isinstance(node, exp.Sub) else sign)
    else:
        yield sign, node


def span_us(node: Any) -> int | None:
    """The microseconds of a sum of INTERVAL literals; None of anything else.

    >>> from sqlglot import parse_one
    >>> span_us(parse_one("INTERVAL '1' HOUR - INTERVAL '5' MINUTES", dialect="spark"))
    3300000000
    """
    total = 0
    for sign, part in _parts(node):
        us = interval_us(part)
        if us is None:
            return None
        total += sign * us
    return total


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
