"""Spark and DuckDB answer alike for every portable expression, over every edge value; where one raises, so does the other.

DuckDB goes first and finds the cells (expression, row) that raise. Spark then computes all other cells in one job, and must
not raise; a sample of the raising cells is tried one by one, and must. Only single operations are held to the last: in a
nested expression Spark skips an operand, and its error, where the other operand is NULL.
"""

import math
import os
import re
from decimal import Decimal

import duckdb
import pytest

from tests.sql.edge_values import edges, expr_of, nested, systematic
from watersmeet.units.evaluator import connection

pytestmark = pytest.mark.spark
RAISING_SAMPLE = int(os.environ.get("WATERSMEET_RAISING_SAMPLE", "6"))
RAISED = re.compile(r"(?i)^raised.*(overflow|by.zero|out.of.range|cast_invalid)", re.DOTALL)
ONLY_SPARK_TEXT = ["unix_timestamp(p)", "lower(s)", "trim(s)", "round(d, 2)", "date_add(n, 3)", "timestampdiff(SECOND, p, q)", "extract(YEAR FROM p)", "pmod(i, 3)", "dayofweek(p)", "weekday(n)", "nvl2(i, 1, 2)", "s RLIKE '^a'", "left(s, 2)", "sha2(s, 256)", "split(s, ',')[0]", "CAST(d AS STRING)"]  # fmt: skip


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

    def __init__(self, table):
        self.con = connection("UTC")
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
    exprs = [(text, expr) for text in texts for expr in [expr_of(text)] if expr.portable]
    assert len(exprs) > len(texts) * 0.8
    duck = InDuckDB(table)
    cells = [duck.cells(expr.duckdb(lambda r: r.column)) for _, expr in exprs]
    answers = spark_cells(spark, view, exprs, cells, table.num_rows)
    wrong = [
        f"{text} in row {row}: Spark {answers[row][f'o{i}']!r}, its template {answers[row][f't{i}']!r}, DuckDB {value!r} for {[(str(c), table[c.column][row].as_py()) for c in expr.columns]}"
        for i, (text, expr) in enumerate(exprs)
        for row, value in cells[i].items()
        if not (same(answers[row][f"o{i}"], value) and same(answers[row][f"t{i}"], value))
    ]
    assert not wrong, f"{len(wrong)} cells:\n" + "\n".join(wrong[:30])
    single = set(systematic())
    raising = [
        (text, first_missing(found, table.num_rows))
        for (text, _), found in zip(exprs, cells, strict=True)
        if len(found) < table.num_rows and text in single
    ]
    for text, row in raising[:: max(1, len(raising) // RAISING_SAMPLE)]:
        answer = spark_answer(spark, f"SELECT {text} AS it FROM {view} WHERE row = {row}")
        assert RAISED.search(answer), f"{text} in row {row} raises in DuckDB; Spark: {answer}"


def first_missing(found, rows):
    return next(row for row in range(rows) if row not in found)


def spark_answer(spark, sql):
    try:
        return str(spark.sql(sql).collect())
    except Exception as error:
        return f"raised {error}"


def test_templates_mean_what_was_written(spark, view):
    """Also where DuckDB is not proven, Spark's own template is the text's equal."""
    pairs = [(text, expr_of(text).spark(lambda r: r.column)) for text in ONLY_SPARK_TEXT]
    (different,) = spark.sql(
        "SELECT "
        + ", ".join(f"sum(CASE WHEN ({a}) <=> ({b}) THEN 0 ELSE 1 END) AS c{i}" for i, (a, b) in enumerate(pairs))
        + f" FROM {view}"
    ).collect()
    assert [pairs[i] for i, n in enumerate(different) if n] == []
