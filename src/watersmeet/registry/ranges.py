"""Conditions on one column as ranges and lists of codes: what queries with different numbers are found by, and told apart by without an evaluator.

    o.total > 500                  codes from that of the next double after 500 on
    o.qty BETWEEN 2 AND 5          codes 2 to 5
    o.price < 12.5                 of decimal(10,2): codes up to 1249
    o.user IN (3, 5)               codes 3 and 5
    o.name LIKE 'ab%'              of the first eight bytes: from 'ab' to 'ab' and 0xFF...; the condition itself decides in the end
    o.day >= DATE '2024-05-01'     days since 1970

Codes are those of `plan.types`; texts have codes of their own that keep the order of their first eight bytes.

Invariant: a value without NULL satisfies the condition only if its code lies in the range or list, and, where `exact`, if and only if. What is not
sure to be so (more than 15 digits, a double literal beside a bigint, times) is no range.
Implements: predicate indexing as in Hanson, Chaabouni, Kim, Wang (1990), with sorted arrays in place of the tree (`kernels.registered.ranges`).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fractions import Fraction
from math import ceil, floor

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import codes
from watersmeet.kernels.hashing import order_floats
from watersmeet.plan.types import Kind, kind_of
from watersmeet.query.stream import DECIMAL, INTEGERS

LEAST, MOST = -(2**63), 2**63 - 1
_DIGITS = 15
"""A number of so many digits is the same double however it is made."""
_NUMBER = r"-?(?:\d+(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?"
_VALUE = rf"(?:{_NUMBER}|'(?:[^'\\]|'')*'|CAST\('\d{{4}}-\d\d-\d\d' AS DATE\))"
_COMPARED = re.compile(rf"\{{0\}} (<=|>=|<|>|=) ({_VALUE})")
_MIRRORED = re.compile(rf"({_VALUE}) (<=|>=|<|>|=) \{{0\}}")
_BETWEEN = re.compile(rf"\{{0\}} BETWEEN ({_VALUE}) AND ({_VALUE})")
_LISTED = re.compile(rf"\{{0\}} IN \(({_VALUE}(?:, {_VALUE})*)\)")
_BEGINS = re.compile(r"\{0\} LIKE '((?:[^'\\%_]|'')+)%'")
_TURNED = {"<": ">", ">": "<", "<=": ">=", ">=": "<=", "=": "="}
_DAY_0 = date(1970, 1, 1).toordinal()


@dataclass(frozen=True)
class Asked:
    """What a condition asks of a column: codes from `low` to `high`, or one of some `values`."""

    kind: Kind
    low: int = LEAST
    high: int = MOST
    values: tuple[int | str, ...] | None = None
    exact: bool = True


def read_condition(template: str, spark_type: str) -> Asked | None:
    """What a condition on one column of a type asks, by its text; None if it is no range or list.

    >>> read_condition("{0} > 2.5", "int")
    Asked(kind='integer', low=3, high=9223372036854775807, values=None, exact=True)
    >>> read_condition("{0} IN ('a', 'b')", "string").values
    ('a', 'b')
    >>> read_condition("{0} <> 5", "int") is None
    True
    """
    found = _BEGINS.fullmatch(template)
    if found is not None:
        return _begin_with(_unquote(found[1])) if spark_type == "string" else None
    found = _LISTED.fullmatch(template)
    if found is not None:
        return _one_of(re.findall(_VALUE, found[1]), spark_type)
    ends = _ends(template)
    if ends is None:
        return None
    if len(ends) == 1 and ends[0][0] == "=":
        return _one_of([ends[0][1]], spark_type)
    place = _place_of(spark_type)
    return None if place is None else _between(ends, place, spark_type)


def _ends(template: str) -> list[tuple[str, str]] | None:
    """The comparisons with constants that a condition makes."""
    if found := _COMPARED.fullmatch(template):
        return [(found[1], found[2])]
    if found := _MIRRORED.fullmatch(template):
        return [(_TURNED[found[2]], found[1])]
    if found := _BETWEEN.fullmatch(template):
        return [(">=", found[1]), ("<=", found[2])]
    return None


def _between(ends: list[tuple[str, str]], place: Callable[[str], Fraction | None], spark_type: str) -> Asked | None:
    low, high = LEAST, MOST
    for sign, text in ends:
        at = place(text)
        if at is None:
            return None
        is_text = spark_type == "string"  # equal beginnings say nothing
        if sign in (">", ">="):
            low = max(low, ceil(at) if sign == ">=" or is_text else floor(at) + 1)
        else:
            high = min(high, floor(at) if sign == "<=" or is_text else ceil(at) - 1)
    kind: Kind | None = "prefix" if spark_type == "string" else kind_of(spark_type)
    assert kind is not None
    if low > MOST or high < LEAST:
        low, high = 1, 0
    return Asked(kind, low, high, exact=spark_type != "string")


def _one_of(texts: list[str], spark_type: str) -> Asked | None:
    """An equality with one of some constants."""
    if spark_type == "string":
        if not all(text.startswith("'") for text in texts):
            return None
        return Asked("bytes", values=tuple(dict.fromkeys(_unquote(text[1:-1]) for text in texts)), exact=False)
    place, kind = _place_of(spark_type), kind_of(spark_type)
    places = [place(text) for text in texts] if place is not None else [None]
    if kind is None or None in places:
        return None
    whole = [int(at) for at in places if at is not None and at.denominator == 1 and LEAST <= at <= MOST]
    return Asked(kind, values=tuple(dict.fromkeys(whole)))


def _begin_with(start: str) -> Asked:
    first = start.encode()[:8]
    low, high = (_order_text(first.ljust(8, pad)) for pad in (b"\0", b"\xff"))
    return Asked("prefix", low, high, exact=False)


def _place_of(spark_type: str) -> Callable[[str], Fraction | None] | None:
    """Where a constant lies among the codes of a type's values; between two of them, if no value equals it."""
    if spark_type in INTEGERS:
        return lambda text: _number(text, 0, doubles=spark_type != "bigint")
    if spark_type in ("float", "double"):
        return _float
    if spark_type == "date":
        return _day
    if spark_type == "string":
        return lambda text: Fraction(_order_text(_unquote(text[1:-1]).encode())) if text.startswith("'") else None
    decimal = DECIMAL.fullmatch(spark_type)
    if decimal and kind_of(spark_type) == "decimal":
        return lambda text: _number(text, int(decimal[2]), doubles=False)
    return None


def _number(text: str, scale: int, *, doubles: bool) -> Fraction | None:
    value = _short(text)
    if value is None or (not doubles and "e" in text.lower()):
        return None
    return Fraction(value) * 10**scale


def _float(text: str) -> Fraction | None:
    value = _short(text)
    return None if value is None else Fraction(int(order_floats(np.array([float(value)]))[0]))


def _short(text: str) -> Decimal | None:
    """A number, if it has few digits."""
    if not re.fullmatch(_NUMBER, text):
        return None
    value = Decimal(text)
    _, digits, exponent = value.as_tuple()
    return value if len(digits) <= _DIGITS and isinstance(exponent, int) and -_DIGITS <= exponent <= _DIGITS else None


def _day(text: str) -> Fraction | None:
    if not text.startswith("CAST"):
        return None
    try:
        return Fraction(date.fromisoformat(text[6:16]).toordinal() - _DAY_0)
    except ValueError:
        return None


def _order_text(value: bytes) -> int:
    return int(codes(pa.array([value], pa.large_binary()), "prefix")[0])


def _unquote(text: str) -> str:
    """A text as it stands in a template, where quotes and braces are doubled."""
    return text.replace("''", "'").replace("{{", "{").replace("}}", "}")
