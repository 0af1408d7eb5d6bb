"""Types that are found by binding are those of values over no rows; what has none is evaluated, and the errors are those of an evaluation."""

from __future__ import annotations

import duckdb
import pyarrow as pa
import pytest

from watersmeet.errors import DataError
from watersmeet.expressions import evaluator, schema
from watersmeet.expressions.evaluator import connection, evaluate
from watersmeet.expressions.schema import find_schema

COLUMNS = pa.schema(
    {
        "i8": pa.int8(), "i32": pa.int32(), "i64": pa.int64(), "f32": pa.float32(), "f64": pa.float64(), "b": pa.bool_(), "d": pa.decimal128(10, 2),
        "wide": pa.decimal128(38, 4), "s": pa.string(), "large": pa.large_string(), "y": pa.binary(), "day": pa.date32(), "t": pa.timestamp("us", "UTC"),
        "local": pa.timestamp("us"), "list": pa.list_(pa.int32()), "part": pa.struct({"x": pa.int64()}), "none": pa.null(), "clock": pa.time64("us"),
    }
)  # fmt: skip
COMPUTED = [
    *COLUMNS.names, "i8 + i32", "d * d", "wide * 2", "i64 / 2", "TRY(CAST(s AS INTEGER))", "i32 > 7 OR NULL", "CAST(i64 AS HUGEINT)", "NULL", "[i32]",
    "{'x': i64}", "t - t", "CAST(t AS TIMESTAMP)", "wm_instant(local)", "upper(s)", "wm_upper(s)", "s || large", "CASE WHEN b THEN d ELSE i64 END",
    "CAST(i64 AS UTINYINT)", "INTERVAL 1 DAY", "to_json(i64)", "error('x')", "1/0", "length(s)", "epoch_us(t)",
]  # fmt: skip


@pytest.mark.parametrize("timezone", ["UTC", "Europe/Berlin"])
@pytest.mark.parametrize("text", COMPUTED)
def test_a_schema_that_is_bound_is_that_of_an_evaluation(text: str, timezone: str) -> None:
    items = f'({text}) AS "0", (i32) AS "1"'
    evaluated = evaluator._answer(f"SELECT {items} FROM _rows", text, timezone, {"_rows": COLUMNS.empty_table()})
    found = find_schema(connection(timezone), COLUMNS, items)
    assert found in (None, evaluated.schema)


def test_most_types_need_no_evaluation() -> None:
    bound = [find_schema(connection("UTC"), COLUMNS, f'({text}) AS "0"') is not None for text in COMPUTED]
    assert sum(bound) > len(bound) / 2


def test_more_schemas_than_are_remembered_are_found_as_well(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(schema, "_MOST_TABLES", 3)
    con = duckdb.connect()
    kinds = [pa.int8(), pa.int16(), pa.int32(), pa.int64(), pa.float32(), pa.float64()]
    for kind in (*kinds, *reversed(kinds)):
        assert find_schema(con, pa.schema({"x": kind}), "x") == pa.schema({"x": kind})
    assert len(schema._tables[con]) == 3


@pytest.mark.parametrize(
    ("text", "said"), [("nothing + 1", "Binder Error"), ("1 +", "Parser Error"), ("upper(i32, 1)", "Binder Error")]
)
def test_what_cannot_be_bound_is_an_error_of_the_evaluation(text: str, said: str) -> None:
    with pytest.raises(DataError, match=f"the condition cannot be evaluated for the row {{}}: {said}"):
        evaluate(COLUMNS.empty_table(), [text], "the condition", "UTC")


def test_a_connection_that_breaks_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    before = connection("UTC")

    def break_down(*_: object) -> None:
        raise duckdb.InternalException("broken")

    monkeypatch.setattr(evaluator, "find_schema", break_down)
    evaluator._NOTHING.clear()
    found = evaluate(pa.schema({"x": pa.int32()}).empty_table(), ["x + 17"], "SELECT", "UTC")
    assert found.schema == pa.schema({"0": pa.int32()})
    assert connection("UTC") is not before
