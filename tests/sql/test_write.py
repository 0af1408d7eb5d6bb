"""Texts that are written without the generator are those of the generator."""

import pytest

from tests.sql.evaluator.edge_values import OTHER, VALUES, systematic
from tests.sql.evaluator.expressions import NUMBER_CASTS, NUMBERS, TIMES
from tests.sql.evaluator.generated import write_expressions
from watersmeet.errors import WatersmeetError
from watersmeet.query.expr import Expr
from watersmeet.query.stream import StreamSpec
from watersmeet.sql import expressions
from watersmeet.sql.copies import copy_tree
from watersmeet.sql.expressions import DUCKDB, SPARK, _write, show
from watersmeet.sql.parse import parse
from watersmeet.sql.write import DUCKDB_RULES, SPARK_RULES, Pen, Unwritten

_STREAMS = {"r": StreamSpec("r", {name: kind for name, (_, kind, _) in VALUES.items()}, time="p"), "other": OTHER}
_ODD = [
    "s = '{0}'", "s LIKE '{x}%'", "s = 'it''s'", "s = 'a\\\\b'", "s = 'a\\nb'", "i = 817263001", "i + 2 > 817263001", "s = '817263002' AND i > 7", "i % 3 % 2", "i * (j % 3)", "i / j % 3",
    "-(-i)", "- -3 + i", "NOT NOT b", "i BETWEEN 3 AND j + 2", "i BETWEEN SYMMETRIC 3 AND 2", "i NOT IN (2, 3, 2)", "s NOT LIKE 'a'", "s LIKE ANY ('a', 'b')", "s LIKE 'a!%' ESCAPE '!'",
    "b IS TRUE", "b IS NOT NULL", "i <=> j", "i div 3", "TRY_CAST(s AS INT)", "CAST(i AS DECIMAL(12, 3))", "CAST(s AS STRING)", "wm_slot0x + 1", "`i` + 2", "r.`i` + 2", "max(i, 3)",
    "CASE i WHEN 3 THEN 4 ELSE 5 END", "CASE WHEN i > 3 THEN 4 END", "if(b, i, 5)", "if(b, i)", "greatest(i, 5, j)", "f817263001(i) > 2", "sum(i)", "count(*)", "count(DISTINCT i)", "max(i)", "avg(d) + 2", "window(p, '5 minutes')",
    "i + 5 + 5 + 7 > 5", "5 < i AND i IN (5, 6, 5)", "CASE WHEN i IN (5, 6) THEN j > 5 ELSE j BETWEEN 6 AND 5 END", "coalesce(5, i) = 5", "length(s) > 5", "lower(s) RLIKE 'a{1,2}'", "s.x.y", "st.x > 4",
]  # fmt: skip
_GIVEN = [*_ODD, *NUMBERS, *NUMBER_CASTS, *TIMES, *systematic()]


def _bind(text: str) -> tuple[Expr, ...]:
    try:
        found = parse(f"SELECT {text} AS it FROM r CROSS JOIN other", _STREAMS)
    except WatersmeetError:
        return ()
    return tuple(o.expr for o in (*found.select, *found.results))


def _name_columns(expr: Expr) -> tuple[object, ...]:
    """An expression with its columns by name: their order is no part of what it says."""
    spark, duckdb = expr.spark(str), expr.duckdb(str)
    return expr.text, spark, duckdb, frozenset(expr.columns), expr.portable, expr.mismatch, expr.settled


def _compare(texts: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    expressions._known.clear()
    found = [[*map(_name_columns, _bind(text))] for text in texts]
    monkeypatch.setattr(expressions, "SPARK_RULES", {})
    monkeypatch.setattr(expressions, "DUCKDB_RULES", {})
    monkeypatch.setattr(expressions._SHOW, "rules", {})
    expressions._known.clear()
    assert found == [[*map(_name_columns, _bind(text))] for text in texts]
    expressions._known.clear()


def test_expressions_are_those_of_the_generator(monkeypatch: pytest.MonkeyPatch) -> None:
    _compare(_GIVEN, monkeypatch)


@pytest.mark.parametrize("seed", range(3))
def test_generated_expressions_are_those_of_the_generator(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    _compare(write_expressions(seed, 150), monkeypatch)


def test_trees_as_parsed_are_written_as_the_generator_writes_them() -> None:
    written = 0
    for text in [*_GIVEN, *write_expressions(9, 200)]:
        try:
            (statement,) = SPARK.parse(f"SELECT {text}")
        except Exception:  # sqlglot's parser raises what it likes
            continue
        tree = statement.expressions[0]
        assert show(tree) == _write(copy_tree(tree), SPARK), text
        for rules, dialect in ((SPARK_RULES, SPARK), (DUCKDB_RULES, DUCKDB)):
            try:
                found = Pen(rules, show).write(tree)
            except Unwritten:
                continue
            written += 1
            if dialect is SPARK or "`" not in found:
                assert found == _write(copy_tree(tree), dialect), text
    assert written > 500


def test_what_is_known_is_not_another_expression() -> None:
    """The second is lowered from what the first left: numbers stand where they stood."""
    (one, *_), (other, *_) = (
        _bind(f"CASE WHEN i > {a} THEN j + {b} ELSE j * {c} END") for a, b, c in ((5, 5, 6), (3, 4, 8))
    )
    turned = one.duckdb_template.replace("CAST(5 AS INT) THEN", "CAST(3 AS INT) THEN")
    assert (one.duckdb_template.count("CAST(5 AS"), one.duckdb_template.count("CAST(6 AS")) == (2, 1)
    assert [other.duckdb_template.count(f"CAST({n} AS") for n in (3, 4, 8)] == [1, 1, 1]
    assert turned.split("THEN")[0] == other.duckdb_template.split("THEN")[0]


def test_a_long_chain_is_the_generators() -> None:
    """As long as the rules can take it."""
    text = "i" + " + 7" * 150
    assert _bind(text)[0].text == "r.i" + " + 7" * 150
