"""Ranges, lists and prefixes of many queries: found by an index, told apart by codes, answered as the conditions say."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.kernels.registered.ranges import build_tree, stab
from watersmeet.registry.ranges import read_condition
from watersmeet.registry.shared.compiled import find_compiled

DAY = date(2024, 1, 1)
SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("small", pa.int16()),
        ("x", pa.float64()),
        ("f", pa.float32()),
        ("price", pa.decimal128(10, 2)),
        ("name", pa.string()),
        ("day", pa.date32()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
WHOLE = st.integers(-4, 4)
DECIMALS = st.sampled_from(["-2.5", "-1", "0", "0.5", "1.25", "2", "2.500", "3.999", "-0.0"])
NAMES = ["", "a", "ab", "abcdefgh", "abcdefghi", "abd", "b", "\u00e9", "{0}", "zz"]
VALUES: dict[str, Any] = {
    "k": st.sampled_from([-(2**63), -3, 0, 1, 2, 3, 2**53 + 1, 2**63 - 1]),
    "small": WHOLE,
    "x": st.sampled_from([-math.inf, -2.5, -0.0, 0.0, 0.5, 1.25, 2.0, 1e300, math.inf, math.nan]),
    "f": st.sampled_from([-2.5, 0.0, 0.5, 0.1, 2.0, math.nan]),
    "price": st.sampled_from([Decimal(t) for t in ("-2.50", "0.00", "0.50", "1.25", "2.00", "3.99")]),
    "name": st.sampled_from(NAMES),
    "day": st.integers(-2, 3).map(lambda n: DAY + timedelta(days=n)),
}
NOTHING: dict[str, Any] = {"id": 0, "ts": 0, **dict.fromkeys(VALUES)}
OPERATORS = st.sampled_from(["<", "<=", ">", ">=", "="])


def literal(draw: Any, column: str) -> str:
    if column == "name":
        return "'" + draw(st.sampled_from([n for n in NAMES if "'" not in n])) + "'"
    if column == "day":
        return f"DATE '{DAY + timedelta(days=draw(st.integers(-2, 3)))}'"
    if column == "k":
        return draw(st.sampled_from(["-3", "0", "1.5", "2", "9223372036854775807", "9007199254740993", "1e3"]))
    return draw(DECIMALS)


@st.composite
def conditions(draw: Any, alias: str = "r") -> str:
    """A conjunction of conditions on single columns."""
    found = []
    for _ in range(draw(st.integers(1, 3))):
        column = draw(st.sampled_from(sorted(VALUES)))
        form = draw(st.sampled_from(["compare", "turned", "between", "in", "like", "not"]))
        one, two = literal(draw, column), literal(draw, column)
        if form == "compare":
            found.append(f"{alias}.{column} {draw(OPERATORS)} {one}")
        elif form == "turned":
            found.append(f"{one} {draw(OPERATORS)} {alias}.{column}")
        elif form == "between":
            found.append(f"{alias}.{column} BETWEEN {one} AND {two}")
        elif form == "in":
            found.append(f"{alias}.{column} IN ({one}, {two})")
        elif form == "like":
            start = draw(st.sampled_from(["a", "ab", "abcdefgh", "abcdefghi", "{", "\u00e9"]))
            found.append(f"{alias}.name LIKE '{start}%'")
        else:
            found.append(f"NOT {alias}.{column} > {one}")
    return " AND ".join(found)


@st.composite
def rows(draw: Any, most: int = 8) -> list[dict[str, Any]]:
    return [
        {"id": n, "ts": n, **{c: draw(st.none() | VALUES[c]) for c in VALUES}}
        for n in range(draw(st.integers(1, most)))
    ]


def table(found: list[dict[str, Any]]) -> pa.Table:
    return pa.table({f.name: pa.array([r[f.name] for r in found], f.type) for f in SCHEMA}, schema=SCHEMA)


def registry(**options: Any) -> Any:
    return wm.local.subscriptions({n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in "rs"}, **options)


def ids(out: pa.Table) -> Counter[tuple[str, int]]:
    read = (json.loads(answer)["id"] for answer in out["answer"].to_pylist())
    return Counter(zip(out["query"].to_pylist(), read, strict=True))


def expected(asked: list[str], data: pa.Table) -> Counter[tuple[str, int]]:
    """By a one-time query, which knows no ranges: conditions are evaluated as they stand."""
    subs = registry()
    subs.add("SELECT r.id FROM r, s WHERE r.id = s.id")
    subs.push({"r": data, "s": data})
    values = ", ".join(f"({c}) AS q{n}" for n, c in enumerate(asked))
    out = subs.ask(f"SELECT r.id, {values} FROM r, s WHERE r.id = s.id").to_pylist()
    return Counter((f"q{n}", row["id"]) for row in out for n in range(len(asked)) if row[f"q{n}"])


@given(st.lists(conditions(), min_size=1, max_size=6), rows(), st.sampled_from([1, 3]))
def test_one_stream_by_itself_is_watched(asked: list[str], found: list[dict[str, Any]], units: int) -> None:
    subs, data = registry(units=units), table(found)
    subs.add_all({f"q{n}": f"SELECT r.id FROM r WHERE {c}" for n, c in enumerate(asked)})
    got = ids(subs.push({"r": data}))
    assert got == expected(asked, data)
    assert all(not any(r.retained.values()) for r in subs.reports), "nothing is kept of a stream that is watched alone"


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(st.lists(conditions(), min_size=1, max_size=6), rows())
@example(["r.k IN (1.5, 1e3)"], [NOTHING])
def test_joined_streams_are_asked_for_ranges(engine: str, asked: list[str], found: list[dict[str, Any]]) -> None:
    subs, data = registry(engine=engine), table(found)
    both = "SELECT r.id FROM r, s WHERE r.id = s.id AND {} WINDOW = 1 SECOND"
    subs.add_all({f"q{n}": both.format(c) for n, c in enumerate(asked)})
    got = ids(subs.push({"r": data, "s": data}))
    assert got == expected(asked, data)


def test_a_hundred_ranges_are_one_class_and_none_is_evaluated(monkeypatch: pytest.MonkeyPatch) -> None:
    subs = registry()
    subs.add_all({f"q{n}": f"SELECT r.id FROM r WHERE r.x > {n} AND r.small < 3" for n in range(100)})
    monkeypatch.setattr("watersmeet.registry.shared.fan_out.evaluate", lambda *_: pytest.fail("no need to evaluate"))
    some = {"k": 0, "f": 0.0, "price": Decimal(0), "name": "", "day": DAY}
    found = [{"id": n, "ts": n, "x": 96.5 + n, "small": n, **some} for n in range(5)]
    got = ids(subs.push({"r": table(found)}))
    assert got == Counter((f"q{n}", id) for id in range(3) for n in range(100) if 96.5 + id > n)
    (block,) = find_compiled(subs._view.name, 0).blocks
    assert len(block.index.classes) == 1


@pytest.mark.parametrize(
    ("template", "kind"),
    [
        ("{0} <> 5", "int"),
        ("{0} > 5", "timestamp"),
        ("{0} > 1e3", "bigint"),
        ("{0} > 0.1234567890123456", "double"),
        ("{0} > 5", "decimal(20,2)"),
        ("{0} LIKE '%a'", "string"),
        ("{0} LIKE 'a_%'", "string"),
        ("{0} > CAST('2024-13-01' AS DATE)", "date"),
        ("{0} IN (1, NULL)", "int"),
        ("{0} > 'a'", "int"),
        (f"{{0}} IN ({', '.join(map(str, range(3_000)))}) IS NULL", "int"),  # reading it took for ever
    ],
)
def test_what_is_no_range(template: str, kind: str) -> None:
    assert read_condition(template, kind) is None


@given(st.data())
def test_a_value_finds_the_ranges_it_lies_in(data: Any) -> None:
    end = st.integers(-3, 12)
    ranges = sorted(data.draw(st.lists(st.tuples(end, end), min_size=1, max_size=40)))
    values = np.array(data.draw(st.lists(end, min_size=1, max_size=10)), np.int64)
    lower, upper = np.array(ranges, np.int64).T.copy()
    runs = np.array([int(np.searchsorted(lower, v, side="right")) for v in values], np.int64)
    tree, rows_ = build_tree(upper), np.arange(len(ranges)) + 100
    limit = data.draw(st.sampled_from([1, 3, 1000]))
    chunks = list(stab(tree, rows_, np.zeros(len(values), np.int64), runs, values, limit))
    assert all(0 < len(p) <= limit for p, _ in chunks)
    got = [pair for p, r in chunks for pair in zip(p.tolist(), (r - 100).tolist(), strict=True)]
    assert got == [(i, n) for i, v in enumerate(values) for n, (lo, hi) in enumerate(ranges) if lo <= v <= hi]


def test_ranges_hold_for_queries_that_come_and_go() -> None:
    subs, dice = registry(), random.Random(7)
    living: dict[str, int] = {}
    for batch in range(12):
        for n in range(6):
            bound = dice.randrange(100)
            living[subs.add(f"SELECT r.id FROM r WHERE r.id >= {bound}", id=f"{batch}-{n}")] = bound
        for id in dice.sample(sorted(living), 3):
            subs.remove(id)
            del living[id]
        none = dict.fromkeys(VALUES)
        got = ids(subs.push({"r": table([{"id": n, "ts": batch, **none} for n in range(0, 100, 9)])}))
        assert got == Counter((id, n) for id, bound in living.items() for n in range(0, 100, 9) if n >= bound)


def test_what_one_stream_cannot_have() -> None:
    subs = registry()
    with pytest.raises(wm.UnsupportedError, match="a window relates two streams"):
        subs.add("SELECT r.id FROM r WHERE r.id > 5 WINDOW = 10 SECONDS")
    with pytest.raises(wm.QueryError, match="a join needs two or more streams"):
        wm.sql("SELECT r.id FROM r", r=wm.Stream(SCHEMA.empty_table(), time="ts"))


def test_distinct_of_one_stream_is_answered_once() -> None:
    subs = registry(units=2)
    subs.add("SELECT DISTINCT r.k AS id FROM r WHERE r.k > 1", id="once")
    none = dict.fromkeys(VALUES)
    data = table([{"id": n, "ts": n, **none, "k": n % 4} for n in range(8)])
    assert ids(subs.push({"r": data})) == Counter({("once", 2): 1, ("once", 3): 1})
    assert subs.push({"r": data}).num_rows == 0
    assert subs.list()[0].distinct == "once: full history"
