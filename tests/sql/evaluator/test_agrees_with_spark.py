"""Spark and DuckDB answer alike for every portable expression, over every edge value; where one raises, so does the other.

DuckDB goes first and finds the cells (expression, row) that raise. Spark then computes all other cells in one job, and must
not raise; a sample of the raising cells is tried one by one, and must. Only single operations are held to the last: in a
nested expression Spark skips an operand, and its error, where the other operand is NULL.
"""

import math
import os
import re
from contextlib import contextmanager
from decimal import Decimal

import duckdb
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.sql.evaluator.edge_values import edges, expr_of, nested, systematic
from tests.sql.evaluator.expressions import ALL, ZONES, pairs
from tests.sql.evaluator.expressions import expr_of as expr_in
from watersmeet.expressions.evaluator import connection

pytestmark = pytest.mark.spark
RAISING_SAMPLE = int(os.environ.get("WATERSMEET_RAISING_SAMPLE", "6"))
RAISED = re.compile(r"(?i)^raised.*(overflow|by.zero|out.of.range|cast_invalid)", re.DOTALL)


def same(a, b) -> bool:
    if a is None or b is None:
        return a is b
    if isinstance(a, float) and isinstance(b, float):
        return a == b or (math.isnan(a) and math.isnan(b))
    if isinstance(a, Decimal | int | float) and isinstance(b, Decimal | int | float) and not isinstance(a, bool):
        return Decimal(a) == Decimal(b)
    return type(a) is type(b) and a == b


class InDuckDB:
    """Cells by expression: the values by row, without the rows that raise."""

    def __init__(self, table, zone):
        self.con = connection(zone)
        self.con.register("edges", table)
        self.rows = table.num_rows

    def cells(self, sql):
        return dict(self._halves(self._plain(sql), 0, self.rows))

    def _halves(self, sql, start, stop):
        """Halves the rows until those that raise are alone."""
        try:
            found = self.con.sql(
                f"SELECT row, {sql} AS it FROM (SELECT * FROM edges WHERE row >= {start} AND row < {stop}) edges"
            ).to_arrow_table()
        except (duckdb.OutOfRangeException, duckdb.ConversionException, duckdb.InvalidInputException):
            middle = (start + stop) // 2
            return [] if stop - start == 1 else self._halves(sql, start, middle) + self._halves(sql, middle, stop)
        return list(zip(found["row"].to_pylist(), found["it"].to_pylist(), strict=True))

    def _plain(self, sql):
        kind = self.con.sql(f"SELECT {sql} AS it FROM edges LIMIT 0").types[0]
        return f"epoch_us({sql})" if "TIMESTAMP" in str(kind) else sql


def spark_cells(spark, view, exprs, cells, rows):
    """All cells that do not raise in DuckDB: template and original text, each in one column."""
    kinds = spark.sql(
        "SELECT "
        + ", ".join(f"{e.spark(lambda r: r.column)} AS e{i}" for i, (_, e) in enumerate(exprs))
        + f" FROM {view} LIMIT 0"
    ).dtypes
    columns = ["row"]
    for i, (text, expr) in enumerate(exprs):
        bad = sorted(set(range(rows)) - set(cells[i]))
        for tag, sql in (("t", expr.spark(lambda r: r.column)), ("o", text)):
            sql = f"unix_micros({sql})" if kinds[i][1] == "timestamp" else sql
            guard = f"row NOT IN ({', '.join(map(str, bad))})" if bad else "TRUE"
            columns.append(f"CASE WHEN {guard} THEN {sql} END AS {tag}{i}")
    return {r["row"]: r for r in spark.sql(f"SELECT {', '.join(columns)} FROM {view}").collect()}


@pytest.fixture(scope="module")
def table():
    return edges()


@pytest.fixture(scope="module")
def view(spark, table):
    spark.createDataFrame(table).createOrReplaceTempView("edges")
    assert spark.conf.get("spark.sql.session.timeZone") == "UTC"
    assert spark.conf.get("spark.sql.ansi.enabled") == "true"
    return "edges"


@pytest.mark.parametrize("part", range(4))
def test_agrees(spark, view, table, part):
    texts = (systematic() + nested())[part::4]
    exprs, cells = agreeing(spark, view, table, texts, "UTC")
    single = set(systematic())
    raising = [
        (text, first_missing(found, table.num_rows))
        for (text, _), found in zip(exprs, cells, strict=True)
        if len(found) < table.num_rows and text in single
    ]
    for text, row in raising[:: max(1, len(raising) // RAISING_SAMPLE)]:
        answer = spark_answer(spark, f"SELECT {text} AS it FROM {view} WHERE row = {row}")
        assert RAISED.search(answer), f"{text} in row {row} raises in DuckDB; Spark: {answer}"


@settings(max_examples=max(2, settings().max_examples // 40), suppress_health_check=list(HealthCheck))
@given(seed=st.integers(0, 2**32), zone=st.sampled_from(ZONES))
def test_generated_expressions_agree(spark, view, table, seed, zone):
    with session(spark, zone, ansi=True):
        agreeing(spark, view, table, nested(60, seed), zone)


def agreeing(spark, view, table, texts, zone):
    """The portable ones of some expressions, and their cells: where DuckDB has an answer, Spark has the same."""
    exprs = [(text, expr) for text in texts for expr in [expr_of(text)] if expr.portable]
    assert len(exprs) > len(texts) * 0.7
    duck = InDuckDB(table, zone)
    cells = [duck.cells(expr.duckdb(lambda r: r.column)) for _, expr in exprs]
    answers = spark_cells(spark, view, exprs, cells, table.num_rows)
    wrong = [
        f"{text} in row {row}: Spark {answers[row][f'o{i}']!r}, its template {answers[row][f't{i}']!r}, DuckDB {value!r} for {[(str(c), table[c.column][row].as_py()) for c in expr.columns]}"
        for i, (text, expr) in enumerate(exprs)
        for row, value in cells[i].items()
        if not (same(answers[row][f"o{i}"], value) and same(answers[row][f"t{i}"], value))
    ]
    assert not wrong, f"{len(wrong)} cells in {zone}:\n" + "\n".join(wrong[:30])
    return exprs, cells


@pytest.fixture(scope="module")
def rows(spark, tmp_path_factory):
    """The rows of `expressions`, by way of a file: so local times keep their type."""
    folder = tmp_path_factory.mktemp("pairs")
    pq.write_table(pairs(), folder / "pairs.parquet")
    spark.read.parquet(str(folder)).createOrReplaceTempView("pairs")
    return pairs()


@pytest.mark.parametrize("zone", ZONES)
def test_agrees_in_a_time_zone(spark, rows, zone):
    """What is portable of the table is evaluated as Spark does, by the clocks of every zone."""
    exprs = [(text, expr) for text in ALL for expr in [expr_in(text)] if expr.portable]
    assert len(exprs) > len(ALL) * 0.6
    with session(spark, zone, ansi=True):
        answers = answered(spark, [text for text, _ in exprs])
    con = connection(zone)
    con.register("pairs", rows)
    duck = [expr.duckdb(lambda ref: ref.column) for _, expr in exprs]
    kinds = con.sql(f"SELECT {', '.join(duck)} FROM pairs").types
    items = [in_plain_types(sql, str(kind)) for sql, kind in zip(duck, kinds, strict=True)]
    found = con.sql(f"SELECT {', '.join(items)} FROM pairs ORDER BY row").fetchall()
    wrong = [
        f"{text} in row {row}: Spark {a!r}, DuckDB {b!r} for {[(str(c), rows[c.column][row].as_py()) for c in expr.columns]}"
        for row, values in enumerate(zip(answers, found, strict=True))
        for (text, expr), a, b in zip(exprs, *values, strict=True)
        if not same(a, b)
    ]
    assert not wrong, f"{len(wrong)} cells in {zone}:\n" + "\n".join(wrong[:30])


@pytest.mark.parametrize("ansi", [True, False], ids=["ansi", "not ansi"])
def test_templates_of_the_table_mean_what_was_written(spark, rows, ansi):
    """In value and in type."""
    templates = [expr_in(text).spark(lambda ref: ref.column) for text in ALL]
    texts = [t for both in zip(ALL, templates, strict=True) for t in both]
    with session(spark, ZONES[0], ansi=ansi):
        assert kinds_of(spark, ALL) == kinds_of(spark, templates)
        answers = answered(spark, texts)
    wrong = {texts[n] for row in answers for n in range(0, len(texts), 2) if not same(row[n], row[n + 1])}
    assert wrong == set()


def answered(spark, texts):
    """The values of expressions by row: instants as whole microseconds, local times and spans as texts."""
    kinds = kinds_of(spark, texts)
    items = [f"{_plain_in_spark(t, kind)} AS a{n}" for n, (t, kind) in enumerate(zip(texts, kinds, strict=True))]
    return spark.sql(f"SELECT {', '.join(items)} FROM pairs ORDER BY row").collect()


def kinds_of(spark, texts):
    return [
        kind
        for _, kind in spark.sql(f"SELECT {', '.join(f'{t} AS a{n}' for n, t in enumerate(texts))} FROM pairs").dtypes
    ]


def _plain_in_spark(sql, kind):
    if kind == "timestamp":
        return f"unix_micros({sql})"
    return f"CAST({sql} AS STRING)" if kind == "timestamp_ntz" or "interval" in kind else sql


def in_plain_types(sql, kind):
    if kind == "TIMESTAMP WITH TIME ZONE":
        return f"epoch_us({sql})"
    return f"CAST({sql} AS VARCHAR)" if kind == "TIMESTAMP" else sql


@contextmanager
def session(spark, zone, ansi):
    """Spark's settings for a while."""
    spark.conf.set("spark.sql.session.timeZone", zone)
    spark.conf.set("spark.sql.ansi.enabled", str(ansi).lower())
    try:
        yield
    finally:
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        spark.conf.set("spark.sql.ansi.enabled", "true")


def first_missing(found, rows):
    return next(row for row in range(rows) if row not in found)


def spark_answer(spark, sql):
    try:
        return str(spark.sql(sql).collect())
    except Exception as error:
        return f"raised {error}"
