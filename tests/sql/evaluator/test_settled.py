"""Types that are settled by our rules are those that DuckDB finds, and it takes the text."""

import pytest

from tests.sql.evaluator.edge_values import OTHER, VALUES, systematic
from tests.sql.evaluator.expressions import NUMBER_CASTS, NUMBERS, TIMES
from tests.sql.evaluator.generated import write_expressions
from watersmeet.errors import WatersmeetError
from watersmeet.query.expr import Expr, cast
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.bind import find_form
from watersmeet.runtime.arrow_types import _find_form_types
from watersmeet.sql.parse import parse

_STREAMS = {"r": StreamSpec("r", {name: kind for name, (_, kind, _) in VALUES.items()}, time="p"), "other": OTHER}
_KINDS = {name: kind for name, (kind, _, _) in VALUES.items()}


def _bind(text: str) -> Expr | None:
    try:
        return parse(f"SELECT {text} AS it FROM r CROSS JOIN other", _STREAMS).select[0].expr
    except WatersmeetError:
        return None


def _check(expr: Expr) -> None:
    """Ask DuckDB for the type of an expression as a registered query does."""
    form, parameters = find_form(expr)
    (found,) = _find_form_types([(form, tuple(_KINDS[ref.column] for ref in expr.columns), len(parameters))])
    assert found == expr.settled, f"{expr}: {form}"


@pytest.mark.parametrize("seed", range(6))
def test_settled_types_of_generated_expressions(seed: int) -> None:
    bound = [expr for text in write_expressions(seed, 150) if (expr := _bind(text)) is not None and expr.settled]
    for expr in bound:
        _check(expr)
    assert len(bound) > 60


def test_settled_types_of_what_is_compared_with_spark() -> None:
    texts = [*NUMBERS, *NUMBER_CASTS, *TIMES, *(text for text in systematic() if isinstance(text, str))]
    bound = [expr for text in texts if (expr := _bind(text)) is not None and expr.settled]
    assert len(bound) > 50
    for expr in bound:
        _check(expr)


def test_a_cast_of_what_is_settled_is_not() -> None:
    expr = _bind("i + 1")
    assert expr is not None
    assert expr.settled == "int"
    assert cast(expr, "bigint").settled == ""


def test_settled_types_are_no_part_of_an_expression() -> None:
    expr = _bind("l > 4")
    assert expr is not None
    assert expr == Expr(*(getattr(expr, name) for name in ("text", "spark_template", "duckdb_template", "columns", "portable")))  # fmt: skip
    assert "settled" not in repr(expr)


@pytest.mark.parametrize(
    "text", ["s RLIKE '^a'", "p > q", "NULL", "coalesce(NULL, NULL)", "substring(s, 1, 2)", "p - q"]
)
def test_what_is_asked_for(text: str) -> None:
    expr = _bind(text)
    assert expr is None or expr.settled == ""


def test_what_is_nested_deeply_is_asked_for() -> None:
    expr = _bind("i" + " + 1" * 200)
    assert expr is not None
    assert expr.settled == ""
