"""Hostile values in process: whatever a query does with a column of any type, it comes out as it went in, and nothing fails on it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.hostile import ROWS, columns, show_all

COLUMNS = columns()
KEYS = pa.table({"k": range(ROWS), "ts": pa.array(range(ROWS), pa.timestamp("us", "UTC"))})
WIDE = pa.table({**{name: KEYS.column(name) for name in KEYS.column_names}, **COLUMNS})
BATCHES = pytest.mark.parametrize("batch_rows", [1, 100])


def stream(table: pa.Table, lateness: str = "1 hour") -> wm.Stream:
    return wm.Stream(table, time="ts", lateness=lateness)


def shown(table: pa.Table, names: Sequence[str]) -> dict[int, dict[str, Any]]:
    """Rows by key, as they can be compared."""
    columns = {name: show_all(table.column(name)) for name in names}
    rows = {k: {name: values[n] for name, values in columns.items()} for n, k in enumerate(table["k"].to_pylist())}
    assert len(rows) == table.num_rows
    return rows


@BATCHES
@pytest.mark.parametrize("kind", ["", "LEFT", "FULL"])
def test_trees_of_outer_joins_carry_values_of_every_type(kind: str, batch_rows: int) -> None:
    """Rows without a partner have NULLs of the same types, which lie in one table with values."""
    columns = ", ".join(f'b."{name}"' for name in COLUMNS)
    text = f"SELECT a.k, {columns} FROM s a LEFT JOIN t b ON a.k = b.k {kind} JOIN s c ON c.k = a.k WITHIN 1 SECOND"
    out = wm.local.run(text, {"s": stream(KEYS), "t": stream(WIDE.slice(0, 4))}, batch_rows=batch_rows)
    found, wanted = shown(out, list(COLUMNS)), shown(WIDE, list(COLUMNS))
    for k in range(ROWS):
        assert found[k] == (wanted[k] if k < 4 else dict.fromkeys(COLUMNS)), k
    assert out.select(list(COLUMNS)).schema.types == [c.type for c in COLUMNS.values()]


@BATCHES
def test_distinct_knows_values_of_every_type(batch_rows: int) -> None:
    """Spark has no equality of maps, and one zero."""
    names = [name for name in COLUMNS if not name.startswith("by_")]
    text = (
        f"SELECT DISTINCT a.k, {', '.join(f'a.{name}' for name in names)} FROM s a JOIN t b ON a.k = b.k WITHIN 1 HOUR"
    )
    streams = {"s": stream(pa.concat_tables([WIDE, WIDE])), "t": stream(KEYS)}
    found, wanted = shown(wm.local.run(text, streams, batch_rows=batch_rows), names), shown(WIDE, names)
    for k in range(ROWS):
        assert {n: str(v).replace("-0.0", "0.0") for n, v in found[k].items()} == {
            n: str(v).replace("-0.0", "0.0") for n, v in wanted[k].items()
        }


NESTED = ["numbers", "text_struct", "time_structs", "by_day", "clock_lists", "by_decimal_struct"]


@pytest.mark.parametrize("name", ["clock", *NESTED])
@pytest.mark.parametrize(
    "tail", ["t a ASOF JOIN s b ON a.k = b.k AND a.ts >= b.ts", "t a, s b [ROWS 2] WHERE a.k = b.k"]
)
def test_values_of_every_type_break_ties(name: str, tail: str) -> None:
    """All rows have one time and one key, and what wins does not depend on the order in which they come."""
    same = pa.table({"k": [1] * ROWS, "ts": pa.array([0] * ROWS, KEYS.schema.field("ts").type), "v": COLUMNS[name]})
    one = stream(same.select(["k", "ts"]).slice(0, 1))
    orders = [same, same.take(pa.array(range(ROWS - 1, -1, -1))), same.take(pa.array([3, 0, 5, 1, 4, 2]))]
    found = [show_all(wm.local.run(f"SELECT b.v FROM {tail}", {"s": stream(s), "t": one})["v"]) for s in orders]
    assert found[0]
    assert all(sorted(map(repr, values)) == sorted(map(repr, found[0])) for values in found)


def test_late_rows_are_json_whatever_their_types() -> None:
    text, late = (
        "SELECT a.k FROM s a JOIN t b ON a.k = b.k WITHIN 1 HOUR",
        pa.concat_tables([WIDE.slice(ROWS - 1), WIDE]),
    )
    lost = wm.sql(text, s=stream(late, "0 seconds"), t=stream(KEYS)).late(batch_rows=1)
    rows = [json.loads(row) for row in lost.column("row").to_pylist()]
    assert [row["k"] for row in rows] == list(range(ROWS - 1))
    assert all(list(row) == WIDE.column_names for row in rows)
    assert rows[0]["times"][:2] == ["-4000-01-01T00:00:00.000000Z", "20000-11-22T03:33:20.000000Z"]
    assert rows[0]["text_struct"] == {"a b": "", "never": "", "a b_2": 0}
    assert rows[0]["by_day_struct"].keys() == {'{"a b":"infinity","never":"infinity","a b_2":0}', '{"a b":"5877642-06-23 (BC)","never":"5877642-06-23 (BC)","a b_2":1}'}  # fmt: skip
    assert rows[3]["texts"] == [""]
    assert rows[2]["by_text"] == {"😀é": "😀é", "\ufffd\0\ufffd": "\ufffd\0\ufffd"}


def test_an_outer_join_tells_tuples_apart_by_values_inside_others() -> None:
    """The condition looks into the list: one of two tuples with equal keys and times has a partner."""
    time = pa.array([0, 0], KEYS.schema.field("ts").type)
    left = pa.table({"k": [1, 1], "ts": time, "v": [[1], [1, 2]]})
    right = pa.table({"k": [1], "ts": time.slice(1), "n": [1]})
    text = "SELECT a.v, b.n FROM a LEFT JOIN b ON a.k = b.k AND a.v[1] + b.n = 3 WITHIN 1 SECOND"
    for units in (1, 3):
        out = wm.local.run(text, {"a": left, "b": right}, units=units)
        assert sorted(out.to_pylist(), key=str) == [{"v": [1, 2], "n": 1}, {"v": [1], "n": None}]
