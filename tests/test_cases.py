"""The description means the same to SQL and to the oracle: DuckDB and Spark answer the drawn conditions alike.

Neither knows anything of our windows: they are spelled out as differences of times.
"""

from __future__ import annotations

import duckdb
import pytest
from hypothesis import HealthCheck, given, settings

from tests.cases import SECOND, All, Case, Col, Interval, Pair, Range, bag, op, rounded, rows_of
from tests.strategies import cases, grouped_cases


def without_windows(case: Case, micros: str) -> str:
    """The query as any SQL engine reads it; `micros` is its function from a timestamp to microseconds."""
    wide = f"CAST({micros}({{}}.ts) AS DECIMAL(38, 0))"  # first and last instant are further apart than 64 bits hold
    difference = f"{wide.format('{1}')} - {wide.format('{0}')}"
    terms = [f"({p.sql()})" for p in case.predicates]
    for x, y, lo, hi in case.query().windows:
        terms += [f"{difference.format(x, y)} >= {lo}"] if lo is not None else []
        terms += [f"{difference.format(x, y)} <= {hi}"] if hi is not None else []
    if all(row["ts"] is None or abs(row["ts"]) < 2**62 for _, data in case.data for row in data.dicts()):
        terms += [
            f"({w.sql()})" for w in case.windows if isinstance(w, Interval)
        ]  # sums at the end of 64 bits overflow
    for stops, hops in case.query().paths:
        ways = []
        for order in (zip(stops, stops[1:], hops, strict=False), zip(stops[1:], stops, hops, strict=False)):
            ways.append(" AND ".join(f"{difference.format(x, y)} BETWEEN 0 AND {hop}" for x, y, hop in order))
        terms.append(f"({ways[0]} OR {ways[1]})")
    select = ", ".join(f"{e.sql()} AS c{i}" for i, e in enumerate((*case.select, *case.aggregates)))
    source = ", ".join(f"{s} {a}" for a, s in case.aliases)
    by = f" GROUP BY {', '.join(e.sql() for e in case.select)}" if case.aggregates and case.select else ""
    return f"SELECT {select} FROM {source} WHERE {' AND '.join(terms) or 'TRUE'}{by}"


@given(cases())
@settings(max_examples=max(1, settings.default.max_examples // 2), suppress_health_check=list(HealthCheck))
def test_the_oracle_agrees_with_duckdb(case):
    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    for name, table in case.tables().items():
        connection.register(name, table)
    assert bag(rows_of(connection.sql(without_windows(case, "epoch_us")).to_arrow_table())) == bag(case.expected().rows)


@given(grouped_cases())
@settings(max_examples=max(1, settings.default.max_examples // 4), suppress_health_check=list(HealthCheck))
def test_the_oracle_groups_as_duckdb_does(case):
    connection = duckdb.connect()
    connection.execute("SET timezone = 'UTC'")
    for name, table in case.tables().items():
        connection.register(name, table)
    found = rows_of(connection.sql(without_windows(case, "epoch_us")).to_arrow_table())
    assert bag(rounded(found)) == bag(rounded(case.expected().final))


@pytest.mark.spark
def test_the_oracle_agrees_with_spark(spark):
    @given(cases())
    @settings(max_examples=max(1, settings.default.max_examples // 6), suppress_health_check=list(HealthCheck))
    def agrees(case):
        for name, table in case.tables().items():
            spark.createDataFrame(table).createOrReplaceTempView(name)
        assert bag(rows_of(spark.sql(without_windows(case, "unix_micros")).toArrow())) == bag(case.expected().rows)

    agrees()


def spell(**changes: object) -> str:
    base = {
        "aliases": (("a", "s0"), ("b", "s1")),
        "predicates": (op("=", Col("a", "k"), Col("b", "k")),),
        "select": (Col("a", "id"),),
        "data": (),
    }
    return Case(**(base | {"windows": ()} | changes)).sql()


def test_text_of_each_window_form():
    assert (
        spell(windows=(All("WINDOW", SECOND),))
        == "SELECT a.id AS c0 FROM s0 a, s1 b WHERE a.k = b.k WINDOW = 1 SECONDS"
    )
    assert (
        spell(windows=(All("WITHIN", 1500),), style="first")
        == "SELECT a.id AS c0 FROM s0 a, s1 b WITHIN 1500 MICROSECONDS WHERE a.k = b.k"
    )
    pairs = (Pair("WINDOW", "a", "b", SECOND), Pair("DWINDOW", "b", "a", 2000))
    assert spell(windows=pairs).endswith(
        "WHERE a.k = b.k WINDOW (a, b) = 1 SECONDS AND DWINDOW (b, a) = 2 MILLISECONDS"
    )
    assert (
        spell(windows=(Range("a", SECOND),), rows=(("b", 3),))
        == "SELECT a.id AS c0 FROM s0 a [RANGE 1 SECONDS], s1 b [ROWS 3] WHERE a.k = b.k"
    )
    assert (
        spell(rows=(("a", 2), ("b", 3)), tumbling=frozenset("b"))
        == "SELECT a.id AS c0 FROM s0 a [ROWS 2], s1 b [TUMBLING 3 ROWS] WHERE a.k = b.k"
    )
    timed = (Interval("a", "b", -SECOND, 0),)
    assert (
        spell(windows=timed, style="join")
        == "SELECT a.id AS c0 FROM s0 a JOIN s1 b ON a.k = b.k AND b.ts BETWEEN a.ts - INTERVAL 1 SECONDS AND a.ts"
    )
    assert spell(windows=(Interval("a", "b", 0, SECOND, strict=True),)).endswith(
        "b.ts > a.ts AND b.ts < a.ts + INTERVAL 1 SECONDS"
    )
