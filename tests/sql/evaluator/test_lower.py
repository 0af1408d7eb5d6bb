"""The DuckDB templates, evaluated and compared with what Spark 4.3 answers (ANSI mode, looked up there)."""

from decimal import Decimal

import duckdb
import pyarrow as pa
import pytest

from tests.sql.evaluator.edge_values import OTHER, edges, expr_of, nested, systematic
from watersmeet.expressions.evaluator import connection
from watersmeet.query.stream import StreamSpec
from watersmeet.sql.parse import parse

ROW = pa.table(
    {
        "i": pa.array([7], pa.int32()), "z": pa.array([0], pa.int32()), "l": pa.array([-7], pa.int64()), "nil": pa.array([None], pa.int32()),
        "d": pa.array([2.5]), "s": ["abc"], "big": pa.array([-(2**31)], pa.int32()), "tiny": pa.array([127], pa.int8()), "dec": pa.array([Decimal("1.50")], pa.decimal128(10, 2)),
        "st": pa.array([{"x": 5}]), "arr": pa.array([[10, 20]]), "ts": pa.array([1_704_067_199_000_000], pa.timestamp("us", "UTC")),
    }
)  # fmt: skip
TYPES = {"i": "int", "z": "int", "l": "bigint", "nil": "int", "d": "double", "s": "string", "big": "int", "tiny": "tinyint", "dec": "decimal(10,2)", "st": "struct<x:int>", "arr": "array<int>", "ts": "timestamp"}  # fmt: skip


@pytest.fixture(scope="module")
def answer():
    con = connection("UTC")
    con.register("r", ROW)
    streams = {"r": StreamSpec("r", TYPES, time="ts"), "other": OTHER}

    def ask(text):
        expr = parse(f"SELECT {text} AS it FROM r CROSS JOIN other", streams).select[0].expr
        return (
            con.sql(f"SELECT {expr.duckdb(lambda ref: ref.column)} AS it FROM r").to_arrow_table()["it"].to_pylist()[0]
        )

    return ask


@pytest.mark.parametrize(
    ("text", "spark_says"),
    [
        ("i / 2", 3.5), ("i / l", -1.0), ("nil / 0", None), ("l / 2 * 2", -7.0), ("l div 2", -3), ("l % 3", -1), ("i % -3", 1), ("nil % z", None),
        ("big % -1", 0), ("tiny + 1", 128), ("dec / 2", Decimal("0.7500000000000")), ("d / 2", 1.25), ("-big::bigint", 2**31), ("pmod(l, 3)", 2),
        ("concat(s, NULL)", None), ("concat(s, 1)", "abc1"), ("s || 'x' || s", "abcxabc"), ("s = 'ABC'", False), ("nil <=> NULL", True), ("i <=> NULL", False),
        ("substring(s, 0, 2)", "ab"), ("substring(s, -5, 3)", "a"), ("substring(s, -2)", "bc"), ("substring(s, 2, -1)", ""), ("substring(s, nil, 2)", None),
        ("left(s, 2)", "ab"), ("right(s, 2)", "bc"), ("'a%b' LIKE 'a\\\\%b'", True), ("'axb' LIKE 'a\\\\%b'", False), ("'a%b' LIKE 'a/%b' ESCAPE '/'", True),
        ("if(i > 5, 'y', 'n')", "y"), ("nvl(nil, 3)", 3), ("nvl2(nil, 1, 2)", 2), ("nullif(i, 7)", None), ("isnan(CAST(nil AS DOUBLE))", False),
        ("abs(l)", 7), ("length('añ日😀')", 4), ("upper(s)", "ABC"), ("lower('ABC')", "abc"), ("upper('straße')", "STRASSE"), ("lower('ΑΣ')", "ας"), ("s RLIKE '^A'", False), ("s RLIKE '(?i)^A.C$'", True), ("'a\\n' RLIKE 'a$'", True), ("trim('  a ')", "a"), ("ltrim(' a')", "a"), ("initcap('ab cd')", "Ab Cd"),
        ("round(d)", 3.0), ("round(-d)", -3.0), ("round(2.675D, 2)", 2.68), ("round(dec)", Decimal("2")), ("floor(-1.5D)", -2), ("ceil(1.2D)", 2), ("sqrt(4)", 2.0), ("power(2, 3)", 8.0),
        ("CAST(2.7D AS INT)", 2), ("CAST(-2.7D AS INT)", -2), ("CAST(dec AS INT)", 1), ("CAST('12' AS INT)", 12), ("try_cast('x' AS INT)", None), ("CAST(i AS STRING)", "7"),
        ("year(ts)", 2023), ("month(ts)", 12), ("hour(ts)", 23), ("unix_micros(ts)", 1_704_067_199_000_000), ("unix_timestamp(ts)", 1_704_067_199), ("dayofweek(ts)", 1),
        ("unix_seconds(ts + INTERVAL 900 MILLISECONDS)", 1_704_067_199), ("unix_millis(ts)", 1_704_067_199_000), ("CAST(ts + INTERVAL 900 MILLISECONDS AS BIGINT)", 1_704_067_199),
        ("CAST(ts + INTERVAL 900 MILLISECONDS AS INT)", 1_704_067_199), ("CAST(ts + INTERVAL 500 MILLISECONDS AS DOUBLE)", 1_704_067_199.5), ("CAST(ts AS FLOAT)", 1_704_067_200.0),
        ("unix_seconds(TIMESTAMP '1969-12-31 23:59:58.1')", -2), ("unix_timestamp(TIMESTAMP '1969-12-31 23:59:58.1')", -1), ("unix_millis(TIMESTAMP '1969-12-31 23:59:59.9999')", -1), ("unix_seconds(timestamp_seconds(l))", -7),
        ("timestamp_millis(1500) = TIMESTAMP '1970-01-01 00:00:01.5'", True), ("timestamp_micros(l) = TIMESTAMP '1969-12-31 23:59:59.999993'", True),
        ("weekday(ts)", 6),
        ("unix_micros(date_trunc('day', ts))", 1_703_980_800_000_000), ("unix_micros(ts - INTERVAL 1 HOUR 5 MINUTES)", 1_704_063_299_000_000), ("extract(YEAR FROM ts)", 2023),
        ("ts > '2023-12-31'", True), ("i = '7'", True), ("st.x + 1", 6), ("arr[0]", 10), ("arr[z]", 10), ("arr[z - 1]", None), ("size(arr)", 2), ("'{0}'", "{0}"), ("i IN (1.0, 7)", True), ("CAST('NaN' AS DOUBLE) > 1", True),
    ],
)  # fmt: skip
def test_answers(answer, text, spark_says):
    assert answer(text) == spark_says


@pytest.mark.parametrize(
    "text",
    [
        "i / 0",
        "i / z",
        "d / 0.0",
        "CAST('NaN' AS DOUBLE) / 0",
        "i % z",
        "d % 0",
        "i div z",
        "-big",
        "abs(big)",
        "big - 1",
        "tiny + CAST(1 AS TINYINT)",
        "CAST('x' AS INT)",
        "CAST(300 AS TINYINT)",
        "i = 'x'",
        "mod(i, 0)",
    ],
)
def test_errors(answer, text):
    with pytest.raises(duckdb.Error):
        answer(text)


@pytest.mark.parametrize(
    "text",
    [
        "initcap(s)",
        "s RLIKE u",
        "s RLIKE '(a)\\\\1'",
        "round(d, 2)",
        "x / y",
        "s LIKE u",
        "s = i",
        "CAST(s AS INT)",
        "CAST(d AS STRING)",
        "rand()",
        "l + CAST(1 AS DECIMAL(38,0))",
        "p - q",
        "foo(i)",
        "trim(s)",
    ],
)
def test_what_is_not_proven_is_not_portable(text):
    assert not expr_of(text).portable


def test_all_of_the_allow_list_is_portable_and_runs():
    con = connection("UTC")
    con.register("edges", edges())
    for text in systematic():
        expr = expr_of(text)
        assert expr.portable, text
        con.execute(f"EXPLAIN SELECT {expr.duckdb(lambda ref: ref.column)} FROM edges")


def test_random_compositions_bind():
    assert sum(expr_of(text).portable for text in nested()) > 60
