"""Bands of every type that has differences, in every spelling: equal to exact arithmetic, probed by range, whatever the kernel and the routing."""

from __future__ import annotations

import datetime as dt
import math
import random
from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from itertools import product
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.errors import OptionError
from watersmeet.kernels import sorted_window
from watersmeet.operators.probing import tactics

TYPES = {
    "int": pa.int32(), "bigint": pa.int64(), "decimal(5,2)": pa.decimal128(5, 2), "decimal(18,4)": pa.decimal128(18, 4),
    "decimal(9,0)": pa.decimal128(9, 0), "double": pa.float64(), "date": pa.date32(), "timestamp": pa.timestamp("us", "UTC"),
}  # fmt: skip
MONDAY = dt.date(2024, 3, 4)
NOON = dt.datetime(2024, 3, 10, 12, tzinfo=dt.UTC)


@dataclass
class Band:
    """A condition on a.v and b.v as SQL, and for two values."""

    text: str
    holds: Any


def values(chance: random.Random, kind: str) -> list[Any]:
    """Few values, close to one another and to both ends."""
    drawn = [chance.randint(-6, 6) for _ in range(chance.randint(0, 12))]
    out = {
        "int": lambda n: n, "bigint": lambda n: n + chance.choice((0, 2**53)), "decimal(5,2)": lambda n: Decimal(n) / 20,
        "decimal(18,4)": lambda n: Decimal(n) / 10_000 + chance.choice((0, 9 * 10**13)), "decimal(9,0)": lambda n: Decimal(n),
        "double": lambda n: chance.choice((n / 10, n / 10, n / 10, math.nan, math.inf)), "date": lambda n: MONDAY + dt.timedelta(n),
        "timestamp": lambda n: NOON + dt.timedelta(minutes=10 * n),
    }[kind]  # fmt: skip
    return [None if chance.random() < 0.1 else out(n) for n in drawn]


def bands(chance: random.Random, left: str, right: str) -> Band:
    """A band of two numbers, or of two dates."""
    if left == "date":
        days = chance.randint(0, 4)
        word = chance.choice(("days", "diff"))
        bound, apart = (f"INTERVAL {days} DAYS", "a.v - b.v") if word == "days" else (f"{days}", "datediff(a.v, b.v)")
        return _compare(chance, apart, bound, days, lambda x, y: (x - y).days)
    if left == "timestamp":
        minutes = chance.choice((0, 5, 10, 25))
        span = dt.timedelta(minutes=minutes)
        text = f"a.v BETWEEN b.v - INTERVAL {minutes} MINUTES AND b.v + INTERVAL {minutes} MINUTES"
        return Band(text, lambda x, y: y - span <= x <= y + span)
    digits = chance.choice(("0", "1", "0.1", "0.05", "0.20", "2.5", "0.00015", "3"))
    if (left, right) == ("double", "double") and chance.random() < 0.4:
        low, high = chance.choice((0.0, 0.1, 100.0)), float(digits)
        return Band(
            f"a.v BETWEEN b.v + {low - high!r} AND b.v + {low + high!r}".replace("+ -", "- "),
            lambda x, y: _is_at_most(y + (low - high), x) and _is_at_most(x, y + (low + high)),
        )
    if "double" in (left, right):
        return _compare(chance, "a.v - b.v", digits, float(digits), lambda x, y: float(x) - float(y))
    if chance.random() < 0.3:
        least, most = Decimal(digits) - 1, Decimal(digits)
        return Band(f"a.v BETWEEN b.v + ({least}) AND b.v + {most}", lambda x, y: y + least <= x <= y + most)
    return _compare(chance, "a.v - b.v", digits, Decimal(digits), lambda x, y: Decimal(x) - Decimal(y))


def _compare(chance: random.Random, apart: str, bound: str, value: Any, minus: Any) -> Band:
    form = chance.choice(("abs", "abs", "abs <", "<=", "<", ">", ">=", "=", "between", "mirrored"))
    if form in ("abs", "abs <"):
        op = "<" if form.endswith("<") else "<="
        return Band(f"abs({apart}) {op} {bound}", lambda x, y: _order(abs(minus(x, y)), op, value))
    if form == "between":
        low = bound if bound.startswith("INTERVAL") else f"-{bound}"
        low = low.replace("INTERVAL ", "INTERVAL -") if low == bound else low
        return Band(
            f"{apart} BETWEEN {low} AND {bound}",
            lambda x, y: _order(minus(x, y), ">=", -value) and _order(minus(x, y), "<=", value),
        )
    if form == "mirrored":
        return Band(f"{bound} > abs({apart})", lambda x, y: _order(abs(minus(x, y)), "<", value))
    return Band(f"{apart} {form} {bound}", lambda x, y: _order(minus(x, y), form, value))


def _order(x: Any, op: str, y: Any) -> bool:
    """A comparison as Spark makes it: NaN is greater than all."""
    if isinstance(x, float) and math.isnan(x):
        return op in (">", ">=")
    return {"<": x < y, "<=": x <= y, ">": x > y, ">=": x >= y, "=": x == y}[op]


def _is_at_most(x: float, y: float) -> bool:
    return math.isnan(y) or (not math.isnan(x) and x <= y)


def table(numbers: list[Any], kind: str, keys: list[int | None] | None = None) -> pa.Table:
    schema = pa.schema({"id": pa.int64(), "k": pa.int64(), "v": TYPES[kind], "ts": pa.timestamp("us")})
    times = [1_000_000 * (n % 3) for n in range(len(numbers))]
    columns = [range(len(numbers)), keys or [None] * len(numbers), numbers, times]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)


FORCED: list[dict[str, Any]] = [
    {}, {"kernel": "nlw"}, {"kernel": "sorted"}, {"kernel": "hw"}, {"kernel": "lca"}, {"routing": "range"}, {"routing": "random"},
]  # fmt: skip


@given(st.randoms(use_true_random=False))
def test_a_band_is_exact_under_every_kernel_and_routing(chance: random.Random) -> None:
    numbers = [kind for kind in TYPES if kind not in ("date", "timestamp")]
    one, other = chance.choice(numbers), chance.choice(numbers)
    left, right = chance.choice((("date", "date"), ("timestamp", "timestamp"), (one, other)))
    band, a, b = bands(chance, left, right), values(chance, left), values(chance, right)
    keyed = chance.random() < 0.5
    k, m = ([chance.choice((1, 2, None)) for _ in numbers] for numbers in (a, b))
    wanted = Counter(
        (i, j)
        for (i, x), (j, y) in product(enumerate(a), enumerate(b))
        if None not in (x, y) and band.holds(x, y) and (not keyed or (k[i] is not None and k[i] == m[j]))
    )
    sql = f"SELECT a.id, b.id AS other FROM a, b WHERE {'a.k = b.k AND ' if keyed else ''}{band.text} WINDOW = 1 MINUTE"
    options = {"units": chance.choice((1, 4)), "batch_rows": chance.choice((3, 100))}
    tables = {"a": table(a, left, k), "b": table(b, right, m)}
    for forced in FORCED:
        try:
            with patch.object(tactics, "MANY", chance.choice((0, tactics.MANY))):
                found = wm.local.run(sql, tables, **options, **forced)
        except OptionError:  # no such kernel or routing for this condition, or units
            assert forced
            continue
        assert Counter(zip(*found.to_pydict().values(), strict=True)) == wanted, (sql, forced, options, a, b)


@pytest.mark.parametrize(
    ("kind", "condition"),
    [
        ("decimal(5,2)", "abs(a.v - b.v) <= 0.2"),
        ("decimal(5,2)", "abs(a.v - b.v) < 0.2"),
        ("decimal(5,2)", "a.v BETWEEN b.v - 0.2 AND b.v + 0.2"),
        ("decimal(18,4)", "a.v - b.v BETWEEN -1 AND 1"),
        ("double", "abs(a.v - b.v) < 0.2"),
        ("double", "a.v BETWEEN b.v - 0.5 AND b.v + 0.5"),
        ("date", "abs(datediff(a.v, b.v)) <= 2"),
        ("date", "a.v - b.v BETWEEN INTERVAL -2 DAYS AND INTERVAL 2 DAYS"),
        ("timestamp", "a.v BETWEEN b.v - INTERVAL 5 MINUTES AND b.v + INTERVAL 5 MINUTES"),
        ("timestamp", "a.v >= b.v AND a.v <= b.v + INTERVAL 1 HOUR"),
    ],
)
def test_a_band_is_probed_and_routed_by_range(kind: str, condition: str) -> None:
    empty = table([], kind)
    plan = wm.local.explain(
        f"SELECT a.id FROM a, b WHERE {condition} WINDOW = 1 MINUTE", a=empty, b=empty, units=4, detail="full"
    )
    assert "sorted (" in str(plan)
    assert "biclique, range" in str(plan)


def test_a_range_is_looked_up_inside_a_key_that_many_rows_have() -> None:
    """Pairs that a look-up meets: those of key and band, not those of the key."""
    rows = 400
    both = {
        name: table([n * (1 + at) for n in range(rows)], "int", [n % 2 for n in range(rows)])
        for at, name in enumerate("ab")
    }
    sql = "SELECT a.id, b.id AS other FROM a, b WHERE a.k = b.k AND {} WINDOW = 1 MINUTE"
    wanted = sum(abs(n - 2 * m) <= 1 and n % 2 == m % 2 for n in range(rows) for m in range(rows))
    met, pairs = list[int](), sorted_window.pairs

    def count(*args: Any) -> Any:
        for probe_idx, row_idx in pairs(*args):
            met.append(len(row_idx))
            yield probe_idx, row_idx

    with patch.object(sorted_window, "pairs", count):
        for band in ("abs(a.v - b.v) <= 1", "a.v BETWEEN b.v - 1 AND b.v + 1"):
            met.clear()
            found = wm.local.run(sql.format(band), both, units=1)
            assert found.num_rows == wanted
            assert sum(met) == wanted, "the whole key would be 80,000"
