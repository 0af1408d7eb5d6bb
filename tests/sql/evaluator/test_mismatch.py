"""What Spark's analyser refuses for its types is refused when the query is bound, in our words: by Spark's own account where there
is Spark, by our rules where there is none. Our rules refuse nothing that Spark accepts."""

import os
import re

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import QueryError, TypeMismatchError, UnknownNameError
from watersmeet.query.stream import StreamSpec
from watersmeet.sql.parse import parse

TYPES = {
    "t": "tinyint", "i": "int", "l": "bigint", "f": "float", "d": "double", "x": "decimal(10,2)", "s": "string", "b": "boolean",
    "n": "date", "p": "timestamp", "q": "timestamp_ntz",
}  # fmt: skip
ARROW = {
    "t": pa.int8(), "i": pa.int32(), "l": pa.int64(), "f": pa.float32(), "d": pa.float64(), "x": pa.decimal128(10, 2), "s": pa.string(),
    "b": pa.bool_(), "n": pa.date32(), "p": pa.timestamp("us", "UTC"), "q": pa.timestamp("us"),
}  # fmt: skip
PAIRWISE = [
    "{0} = {1}", "{0} < {1}", "{0} <=> {1}", "{0} + {1}", "{0} - {1}", "{0} * {1}", "{0} / {1}", "{0} % {1}", "{0} AND {1}",
    "coalesce({0}, {1})", "CASE WHEN b THEN {0} ELSE {1} END", "CASE {0} WHEN {1} THEN 1 END", "if({0}, {1}, NULL)", "{0} IN ({1})",
    "{0} BETWEEN {1} AND {1}", "greatest({0}, {1})", "nullif({0}, {1})",
]  # fmt: skip
SINGLE = [
    "-{0}", "abs({0})", "NOT {0}", "year({0})", "hour({0})", "date_trunc('day', {0})", "dayofweek({0})", "{0} + INTERVAL 1 DAY", "{0} * INTERVAL 1 DAY",
    "{0} - INTERVAL 1 HOUR", "INTERVAL 1 HOUR - {0}", "INTERVAL 1 HOUR / {0}", "CASE WHEN {0} THEN 1 END", "{0} = INTERVAL 1 DAY", "{0} LIKE 'a'", "{0} || 'a'", "length({0})", "substring({0}, 1)",
    *(f"CAST({{0}} AS {to})" for to in ("INT", "DOUBLE", "DECIMAL(10,2)", "STRING", "BOOLEAN", "DATE", "TIMESTAMP", "TIMESTAMP_NTZ")),
]  # fmt: skip
TEXTS = [form.format(a, b) for form in PAIRWISE for a in TYPES for b in TYPES] + [
    form.format(c) for form in SINGLE for c in TYPES
]
REFUSED_STEP = int(os.environ.get("WATERSMEET_REFUSED_STEP", "17"))
SPECS = {name: StreamSpec(name, TYPES, time="p") for name in ("r", "z")}
TABLES = {name: pa.schema(list(ARROW.items())).empty_table() for name in ("r", "z")}
STREAMS = {name: wm.Stream(table, time="p") for name, table in TABLES.items()}
TAIL = "FROM r a, z b WHERE a.i = b.i WINDOW = 1 SECOND"
REFUSED = {
    f"SELECT a.i FROM r a, z b WHERE {where} WINDOW = 1 SECOND": said
    for where, said in {
        "a.p = b.l": "a.p = b.l.*timestamp.*bigint.*cast one",
        "a.i = b.i AND a.b < b.d": "a.b < b.d.*boolean.*double",
        "a.i = b.i AND a.i + b.b > 1": r"a.i \+ b.b.*int.*boolean",
        "a.i = b.i AND year(a.l) = 2024": r"(?i)year\(a.l\).*bigint",
        "a.i = b.i AND CAST(b.l AS DATE) = a.n": r"CAST\(b.l AS DATE\).*bigint.*date",
        "a.i = b.i AND coalesce(a.p, b.b) IS NULL": r"(?i)coalesce\(a.p, b.b\).*timestamp.*boolean",
        "a.i = b.i AND a.i": "a.i is int, not true or false",
    }.items()
} | {
    f"SELECT a.p * 2 AS y {TAIL}": r"a.p \* 2",
    f"SELECT DISTINCT NOT a.i AS y {TAIL}": "NOT a.i",
    f"SELECT sum(a.b) AS y {TAIL}": r"sum\(a.b\).*boolean",
    f"SELECT a.n + a.p AS g, count(*) AS y {TAIL} GROUP BY a.n + a.p": r"a.n \+ a.p",
}


@pytest.mark.parametrize("query", REFUSED)
def test_is_refused_when_it_is_bound_without_spark(query):
    for attempt in (lambda: wm.sql(query, **STREAMS), lambda: wm.local.run(query, STREAMS)):
        with pytest.raises(QueryError, match=REFUSED[query]):
            attempt()


@pytest.mark.parametrize(
    "where", ["a.p = b.l", "a.i = b.i AND a.b < b.d", "a.i = b.i AND year(a.l) = 2024", "a.i = b.i AND a.s = b.l"]
)
def test_a_subscription_is_refused_when_it_is_added(where):
    registry = wm.local.subscriptions(STREAMS)
    with pytest.raises(TypeMismatchError):
        registry.add(f"SELECT a.i FROM r a, z b WHERE {where} WINDOW = 1 SECOND")


def mismatch(text):
    columns = re.sub(r"\b([tilfdxsbnpq])\b(?!')", r"a.\1", text.replace("'a'", "'A'")).replace("'A'", "'a'")
    return parse(f"SELECT {columns} AS y FROM r a CROSS JOIN z", SPECS).select[0].expr.mismatch


def test_types_that_are_not_known_are_never_a_mismatch():
    for text in ("lower(s) = 1", "from_unixtime(l) + p", "try_cast(s AS INT) AND b"):
        assert mismatch(text) == ""


@pytest.fixture(scope="module")
def frame(spark):
    return spark.sql(f"SELECT {', '.join(f'CAST(NULL AS {kind}) AS {name}' for name, kind in TYPES.items())}")


@pytest.mark.spark
def test_our_rules_refuse_what_spark_refuses(frame):
    """Every operation with every pair of types. Spark takes all that our rules take, and of what they refuse a sample is tried."""
    from pyspark.errors import AnalysisException

    refused = {text for text in TEXTS if mismatch(text)}
    frame.selectExpr(*(text for text in TEXTS if text not in refused))
    for text in sorted(refused)[::REFUSED_STEP]:
        with pytest.raises(AnalysisException):
            frame.selectExpr(text)


@pytest.mark.spark
def test_is_refused_when_it_is_bound_on_spark(spark, frame):
    streams = {name: wm.Stream(frame, time="p") for name in ("r", "z")}
    for query, said in REFUSED.items():
        with pytest.raises(QueryError, match=said) as caught:
            wm.sql(query, **streams)
        assert len(str(caught.value).splitlines()) == 1
    with pytest.raises(TypeMismatchError):
        wm.join(a=streams["r"], b=streams["z"]).on("a.p = b.l").window("1 second").query()
    with pytest.raises(UnknownNameError, match="no function 'NONSENSE'"):
        wm.sql(f"SELECT nonsense(a.i) AS y {TAIL}", **streams)
    spark.conf.set("spark.sql.ansi.enabled", "false")
    try:
        assert "a.b = b.i" in wm.sql("SELECT a.i FROM r a, z b WHERE a.b = b.i WINDOW = 1 SECOND", **streams).explain(
            "full"
        )
    finally:
        spark.conf.set("spark.sql.ansi.enabled", "true")


def test_a_run_without_spark_warns_of_expressions_that_nobody_has_compared():
    text = "SELECT initcap(a.s) AS y FROM r a, z b WHERE a.i = b.i AND a.t < b.d WINDOW = 1 SECOND"
    said = wm.local.explain(text, STREAMS)
    assert "not compared with Spark: INITCAP(a.s);" in said
    assert "not compared" not in wm.local.explain(text.replace("initcap(a.s)", "a.s || b.s"), STREAMS)
