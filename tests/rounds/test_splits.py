"""Splits of Parquet files as source tasks read them: every row group once, however a file is cut, and nothing that Spark might read otherwise."""

from __future__ import annotations

from datetime import date, datetime
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns.spark_types import unit_type
from watersmeet.runtime.rounds.splits import Split, UnreadableError, Wanted, list_groups, list_splits, read_split

WHOLE = 2**60
INSTANT, WALL = pa.timestamp("us", tz="UTC"), pa.timestamp("us")
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "bigint": (pa.int64(), [1, None, -(2**63)]),
    "int": (pa.int32(), [1, None, 2**31 - 1]),
    "smallint": (pa.int16(), [1, None, -5]),
    "tinyint": (pa.int8(), [1, None, -5]),
    "double": (pa.float64(), [0.5, None, float("inf")]),
    "float": (pa.float32(), [0.5, None, -0.0]),
    "string": (pa.string(), ["a", None, "straße"]),
    "binary": (pa.binary(), [b"a", None, b"\xff"]),
    "boolean": (pa.bool_(), [True, None, False]),
    "date": (pa.date32(), [date(2026, 1, 2), None, date(1900, 1, 1)]),
    "decimal(10,2)": (pa.decimal128(10, 2), [Decimal("1.25"), None, Decimal("-99999999.99")]),
    "timestamp": (INSTANT, [datetime(2026, 1, 2, 3, 4, 5, 6), None, datetime(1900, 1, 1)]),
    "timestamp_ntz": (WALL, [datetime(2026, 1, 2, 3, 4, 5, 6), None, datetime(1900, 1, 1)]),
}


def read(path: Path, name: str, kind: pa.DataType) -> pa.Table:
    split = Split(0, f"file://{quote(str(path))}", 0, WHOLE)
    return pa.concat_tables(read_split(split, [Wanted(name, kind, "c0")]))


def put(folder: Path, table: pa.Table, **how: Any) -> Path:
    path = folder / "x.parquet"
    pq.write_table(table, path, **how)
    return path


@pytest.mark.parametrize("kind", VALUES)
@pytest.mark.parametrize("how", [{}, {"store_schema": False}, {"use_dictionary": False, "compression": "none"}])
def test_columns_come_as_units_hold_them(tmp_path: Path, kind: str, how: dict[str, Any]) -> None:
    type_, values = VALUES[kind]
    found = read(put(tmp_path, pa.table({"a": pa.array(values, type_), "b": [1, 2, 3]}), **how), "a", type_)
    assert found.column_names == ["c0"]
    assert found.schema.field("c0").type == unit_type(kind)
    assert found.column("c0").combine_chunks().equals(pa.array(values, type_).cast(unit_type(kind)))


@pytest.mark.parametrize("zone", ["UTC", "Europe/Berlin", "+05:30"])
@pytest.mark.parametrize("unit", ["us", "ms"])
def test_instants_are_the_same_whatever_they_were_written_in(tmp_path: Path, zone: str, unit: str) -> None:
    values = pa.array([datetime(2026, 7, 1, 12)], pa.timestamp(unit, tz=zone))
    found = read(put(tmp_path, pa.table({"a": values})), "a", INSTANT)
    assert (
        found.column("c0").cast(pa.int64()).to_pylist()
        == values.cast(pa.timestamp("us", tz=zone)).cast(pa.int64()).to_pylist()
    )


def test_instants_of_96_bits(tmp_path: Path) -> None:
    values = pa.array([datetime(2026, 7, 1, 12, 0, 0, 7), None], WALL)
    path = put(tmp_path, pa.table({"a": values}), use_deprecated_int96_timestamps=True, store_schema=False)
    assert read(path, "a", INSTANT).column("c0").combine_chunks().equals(values.cast(INSTANT))
    with pytest.raises(UnreadableError, match="a is timestamp"):
        read(path, "a", WALL)


@pytest.mark.parametrize(
    ("column", "kind", "why"),
    [
        (pa.array([1], pa.int32()), pa.int64(), "a is int32, not int64"),
        (pa.array(["1"]), pa.binary(), "a is string, not binary"),
        (pa.array([b"1"]), pa.string(), "a is binary, not string"),
        (pa.array([b"1"], pa.binary(1)), pa.binary(), "a is fixed"),
        (pa.array([1.0]), pa.float32(), "a is double, not float"),
        (pa.array([Decimal("1.0")], pa.decimal128(5, 1)), pa.decimal128(5, 2), "decimal"),
        (pa.array([datetime(2026, 1, 1)], WALL), INSTANT, "not timestamp"),
        (pa.array([datetime(2026, 1, 1)], INSTANT), WALL, "not timestamp"),
        (pa.array([datetime(2026, 1, 1)], pa.timestamp("ns", "UTC")), INSTANT, "not timestamp"),
        (pa.array([1], pa.timestamp("s", "UTC")).cast(pa.time32("s")), INSTANT, "not timestamp"),
        (pa.array([datetime(1899, 12, 31, 23)], INSTANT), INSTANT, "days of before 1900"),
        (pa.array([datetime(1899, 12, 31, 23)], WALL), WALL, "days of before 1900"),
        (pa.array([date(1582, 10, 4)]), pa.date32(), "days of before 1900"),
        (pa.array(["x"]).dictionary_encode(), pa.string(), "not string"),
    ],
)  # fmt: skip
def test_what_spark_may_read_otherwise_is_left_to_it(
    tmp_path: Path, column: pa.Array, kind: pa.DataType, why: str
) -> None:
    with pytest.raises(UnreadableError, match=why):
        read(put(tmp_path, pa.table({"a": column})), "a", kind)


@pytest.mark.parametrize("names", [["b"], ["A"], ["a", "A"], ["A", "b"]])
def test_columns_are_those_of_the_stream(tmp_path: Path, names: list[str]) -> None:
    path = put(tmp_path, pa.table([[1]] * len(names), names))
    with pytest.raises(UnreadableError, match="not the stream's: a"):
        read(path, "a", pa.int64())


@pytest.mark.parametrize("uri", ["s3://bucket/x.parquet", "file://host/x.parquet", "file:///data/day=1/x.parquet"])
def test_only_plain_local_paths_are_read(uri: str) -> None:
    with pytest.raises(UnreadableError, match="no plain local path"):
        list(read_split(Split(0, uri, 0, WHOLE), []))


@pytest.mark.parametrize("begin", [0, 4, -8])
def test_what_arrow_cannot_read_is_left_to_spark(tmp_path: Path, begin: int) -> None:
    path = put(tmp_path, pa.table({"a": range(1000)}), use_dictionary=False, compression="none")
    blob = bytearray(path.read_bytes())
    blob[begin : begin + 8 or None] = b"\xff" * 8
    path.write_bytes(blob)
    with pytest.raises(UnreadableError, match="Arrow cannot read"):
        read(path, "a", pa.int64())
    with pytest.raises(UnreadableError, match="Arrow cannot read"):
        read(tmp_path / "gone.parquet", "a", pa.int64())


@given(
    rows=st.integers(1, 60),
    size=st.integers(1, 25),
    parts=st.lists(st.floats(0, 1), max_size=4),
    dictionary=st.booleans(),
)
def test_every_row_group_is_in_one_split(
    tmp_path_factory: pytest.TempPathFactory, rows: int, size: int, parts: list[float], dictionary: bool
) -> None:
    table = pa.table({"t": [f"{n % 3}" for n in range(rows)], "a": range(rows)})
    path = put(tmp_path_factory.mktemp("split"), table, row_group_size=size, use_dictionary=dictionary)
    end = path.stat().st_size
    edges = sorted({0, end, *(int(part * end) for part in parts)})
    wanted = [Wanted("a", pa.int64(), "c1"), Wanted("t", pa.string(), "c0"), Wanted("a", pa.int64(), "c2")]
    found = [
        read for begin, stop in pairwise(edges) for read in read_split(Split(0, str(path), begin, stop - begin), wanted)
    ]
    assert pa.concat_tables(found).to_pydict() == {
        "c1": list(range(rows)),
        "c0": table.column("t").to_pylist(),
        "c2": list(range(rows)),
    }
    metadata = pq.read_metadata(path)
    assert list_groups(metadata, 0, end) == list(range(metadata.num_row_groups))


def test_splits_are_named_once() -> None:
    names = ["_alias", "file_path", "file_block_start", "file_block_length"]
    batches = [
        pa.RecordBatch.from_arrays([pa.array(c) for c in zip(*rows, strict=True)], names)
        for rows in ([(0, "x", 0, 5), (0, "x", 0, 5), (0, "x", 5, 5)], [(0, "x", 5, 5), (1, "x", 0, 5)])
    ]
    assert list_splits(batches) == [Split(0, "x", 0, 5), Split(0, "x", 5, 5), Split(1, "x", 0, 5)]
