"""Types with other offsets, zones and flags hold the same values, of every type, in slices and in chunks."""

from __future__ import annotations

import pyarrow as pa
import pytest

from tests.hostile import ROWS, columns, show_all
from watersmeet.columns.arrow import enlarge, from_bytes, large_type, mark_utc, shrink, to_bytes
from watersmeet.columns.retype import retype, retype_table
from watersmeet.columns.row_hash import row_hash
from watersmeet.columns.spark_types import held_type, spark_name

COLUMNS = columns()


@pytest.mark.parametrize("name", COLUMNS)
@pytest.mark.parametrize("piece", ["all", "slice", "chunks", "none"])
def test_values_survive_every_change_of_their_types(name: str, piece: str) -> None:
    whole = COLUMNS[name]
    given = {
        "all": pa.chunked_array([whole]),
        "slice": pa.chunked_array([whole.slice(1, 4)]),
        "chunks": pa.chunked_array([whole.slice(3), whole.slice(2, 2), whole.slice(0, 0), whole]),
        "none": pa.chunked_array([], whole.type),
    }[piece]
    table = pa.table(
        {"x": given, "s": pa.array(["s"] * len(given)), "t": pa.nulls(len(given), pa.timestamp("us", "Asia/Tokyo"))}
    )
    wanted = show_all(given)
    held = enlarge(mark_utc(table))
    assert held.schema.field("x").type == large_type(mark_utc(table).schema.field("x").type)
    assert show_all(held.column("x")) == wanted
    assert show_all(from_bytes(to_bytes(held)).column("x")) == wanted
    assert show_all(shrink(held).column("x")) == wanted
    assert show_all(retype_table(shrink(held), table.schema).column("x")) == wanted
    held.validate(full=name.find("text") < 0)


@pytest.mark.parametrize("name", COLUMNS)
def test_units_hold_what_the_name_of_a_type_says(name: str) -> None:
    """NULLs for an outer join are made by the name of the type, and lie in one table with values from a source."""
    kind = enlarge(mark_utc(pa.table({"x": COLUMNS[name]}))).schema.field("x").type
    assert (held_type(spark_name(COLUMNS[name].type)) or pa.null()) == kind


@pytest.mark.parametrize("name", [n for n, c in COLUMNS.items() if not pa.types.is_null(c.type)])
def test_whole_rows_have_equal_hashes_if_they_are_equal(name: str) -> None:
    column = COLUMNS[name]
    one = row_hash(pa.table({"x": column}), whole=True)
    held = enlarge(pa.table({"x": pa.chunked_array([column.slice(0, 2), column.slice(2)])}))
    assert row_hash(held, whole=True).tolist() == one.tolist(), "whatever the offsets"
    assert row_hash(held.slice(2), whole=True).tolist() == one[2:].tolist()
    shown = [str(v).replace("-0.0", "0.0") for v in show_all(column)]
    same = [[a == b for b in shown] for a in shown]
    assert [[bool(a == b) for b in one] for a in one] == same


def test_a_null_typed_column_takes_any_type() -> None:
    kind = COLUMNS["number_structs"].type
    assert retype(pa.chunked_array([pa.nulls(2)]), kind).to_pylist() == [None, None]


def test_lists_that_are_too_long_for_32_bits_are_an_error_before_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = pa.array([0, 2**31], pa.int64())
    wide = pa.Array.from_buffers(pa.large_list(pa.null()), 1, [None, offsets.buffers()[1]], children=[pa.nulls(2**31)])
    with pytest.raises(pa.ArrowInvalid):
        retype(pa.chunked_array([wide]), pa.list_(pa.null()))


def test_as_many_rows_everywhere() -> None:
    assert {len(c) for c in COLUMNS.values()} == {ROWS}


def test_a_field_that_may_not_be_null_is_empty_where_its_struct_is():
    given = pa.chunked_array([pa.array([{"value": b"1"}, None], pa.struct([("value", pa.large_binary())]))])
    found = retype(given, pa.struct([pa.field("value", pa.large_binary(), nullable=False)]))
    assert found.to_pylist() == [{"value": b"1"}, None]
    assert found.chunk(0).field(0).null_count == 0
