"""The placement hash is Spark's `hash`, value by value: by a plain transcription without Java, and by Spark itself."""

from __future__ import annotations

import datetime as dt
import math
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.columns.arrow import place_keys
from watersmeet.kernels.placement import place_in_sql

ARROW = {
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "date": pa.date32(),
    "timestamp": pa.timestamp("us", "UTC"),
    "timestamp_ntz": pa.timestamp("us"),
    "interval day to second": pa.duration("us"),
    "decimal(9,2)": pa.decimal128(9, 2),
    "decimal(18,0)": pa.decimal128(18, 0),
    "decimal(19,3)": pa.decimal128(19, 3),
    "decimal(38,10)": pa.decimal128(38, 10),
    "string": pa.string(),
    "binary": pa.binary(),
}
"""Every type that keys have, as Spark gives it to Python."""


def placed(*keys: tuple[str, list[Any]]) -> list[int]:
    out = place_keys([(pa.array(values, ARROW[spark_type]), spark_type) for spark_type, values in keys])
    return [int(h) for h in out]


def murmur3(blob: bytes, seed: int) -> int:
    """Spark's: a tail of single, signed bytes, each mixed in as a word of its own."""
    words = [int.from_bytes(blob[i : i + 4], "little") for i in range(0, len(blob) // 4 * 4, 4)]
    words += [(b - 256 if b > 127 else b) % 2**32 for b in blob[len(words) * 4 :]]
    h = seed % 2**32
    for word in words:
        k = word * 0xCC9E2D51 % 2**32
        h ^= ((k << 15 | k >> 17) % 2**32) * 0x1B873593 % 2**32
        h = ((h << 13 | h >> 19) % 2**32 * 5 + 0xE6546B64) % 2**32
    h ^= len(blob)
    h = (h ^ h >> 16) * 0x85EBCA6B % 2**32
    h = (h ^ h >> 13) * 0xC2B2AE35 % 2**32
    h ^= h >> 16
    return h - 2**32 if h >= 2**31 else h


@given(st.lists(st.one_of(st.none(), st.integers(-(2**63), 2**63 - 1)), max_size=9))
def test_bigints(values: list[int | None]) -> None:
    assert placed(("bigint", values)) == [
        42 if v is None else murmur3((v % 2**64).to_bytes(8, "little"), 42) for v in values
    ]


@given(st.lists(st.one_of(st.none(), st.binary(max_size=20)), max_size=9), st.integers(-(2**31), 2**31 - 1))
def test_bytes_after_another_key(values: list[bytes | None], number: int) -> None:
    first = murmur3((number % 2**32).to_bytes(4, "little"), 42)
    found = placed(("int", [number] * len(values)), ("binary", values))
    assert found == [first if v is None else murmur3(v, first) for v in values]


@given(st.lists(st.integers(-(10**38) + 1, 10**38 - 1), max_size=9))
def test_wide_decimals_are_the_fewest_bytes_of_their_number(numbers: list[int]) -> None:
    values = [Decimal(n).scaleb(-10) if abs(n) < 10**28 else Decimal(f"{n}e-10") for n in numbers]
    blobs = [n.to_bytes((n if n >= 0 else ~n).bit_length() // 8 + 1, "big", signed=True) for n in numbers]
    assert placed(("decimal(38,10)", values)) == [murmur3(blob, 42) for blob in blobs]


def test_values_that_are_equal_for_spark_are_placed_alike() -> None:
    for kind in ("float", "double"):
        zero, minus_zero, nan, other_nan = placed((kind, [0.0, -0.0, math.nan, -math.nan]))
        assert (zero, nan) == (minus_zero, other_nan)


VALUES: dict[str, list[Any]] = {
    "boolean": [True, False],
    "tinyint": [0, 1, -1, 127, -128],
    "smallint": [0, -2, 2**15 - 1],
    "int": [0, 7, -7, 2**31 - 1, -(2**31)],
    "bigint": [0, 1, -1, 2**31, -(2**63), 2**63 - 1],
    "float": [0.0, -0.0, 1.5, math.nan, math.inf, -1e-40],
    "double": [0.0, -0.0, 0.1, math.nan, -math.inf, 5e-324],
    "date": [dt.date(1970, 1, 1), dt.date(1, 1, 1), dt.date(9999, 12, 31)],
    "timestamp": [dt.datetime(1970, 1, 1, tzinfo=dt.UTC), dt.datetime(1931, 5, 5, 5, 5, 5, 7, tzinfo=dt.UTC)],
    "timestamp_ntz": [dt.datetime(1970, 1, 1), dt.datetime(2262, 4, 11, 1, 2, 3, 4)],
    "interval day to second": [dt.timedelta(0), dt.timedelta(days=-3, microseconds=5)],
    "decimal(9,2)": [Decimal("0.00"), Decimal("-1.25"), Decimal("9999999.99")],
    "decimal(18,0)": [Decimal(10**18 - 1), Decimal(-(10**18) + 1)],
    "decimal(19,3)": [Decimal("0.000"), Decimal("-0.128"), Decimal("0.128"), Decimal("-0.129"), Decimal("1e15")],
    "decimal(38,10)": [Decimal(2**63).scaleb(-10), Decimal("-1e27"), Decimal("99999999999999999999999999.5")],
    "string": ["", "a", "abcd", "abcde", "naïve", "日本語", "x" * 100],
    "binary": [b"", b"\x00", b"\xff\x80\x7f", bytes(range(256))],
}


@pytest.mark.spark
def test_spark_places_every_value_of_every_type_in_the_same_unit(spark: Any) -> None:
    rows = max(map(len, VALUES.values())) + 1
    columns = {t: [*v, *[None] * (rows - len(v))] for t, v in VALUES.items()}
    names = {f"k{n}": t for n, t in enumerate(VALUES)}
    schema = ", ".join(f"{name} {kind}" for name, kind in names.items())
    frame = spark.createDataFrame(list(zip(*columns.values(), strict=True)), schema).coalesce(1)
    sets = [*([name] for name in names), ["k3", "k4"], ["k15", "k5", "k14"], list(names)]
    for_spark = frame.selectExpr(*(place_in_sql(keys, 1_000_003) for keys in sets)).collect()
    for at, keys in enumerate(sets):
        ours = np.array(placed(*((names[k], columns[names[k]]) for k in keys))) % 1_000_003
        assert [row[at] for row in for_spark] == ours.tolist(), [names[k] for k in keys]
