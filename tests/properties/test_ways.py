"""An OR of conditions that an index can answer, and `abs(x - y) <= column`: equal to the oracle, each pair once, and not by looking at all pairs."""

from __future__ import annotations

import itertools
import math
import random
from unittest.mock import patch

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import SECOND, All, Case, Col, Data, Expression, bag, op, rows_of
from tests.properties.test_local import sources
from watersmeet.operators.probing import ways
from watersmeet.operators.probing.ways import ByUnion

NUMBERS = (0.0, -0.0, 0.1, 0.30000000000000004, 0.3, 1.0, -1.5, math.nan, math.inf, -math.inf, None)


def rows(draw: random.Random, number: int) -> Data:
    """Tuples with few values, NULL, NaN and infinity among them."""
    found = []
    for n in range(number):
        k, m = (draw.choice((1, 2, 3, None, 2**53 + n)) for _ in range(2))
        f, v = draw.choice(NUMBERS), draw.choice(NUMBERS)
        found.append((n, k, m, f, v, draw.choice(("x", "y", "yy", None)), draw.randrange(6) * SECOND))
    return Data(tuple(sorted(found, key=lambda row: row[-1])))


def draw_atom(draw: random.Random, x: str, y: str) -> Expression:
    """What an index can answer."""
    column = draw.choice(("k", "n", "f", "v", "name"))
    left, right = Col(x, column), Col(y, column)
    if column == "name" or draw.random() < 0.3:
        return op("=", left, right)
    reach = draw.choice((Col(x, "f"), Col(y, "n"), Col(x, "v"), op("+", Col(y, "n"), 1)))
    bounds = {
        "within": op(draw.choice(("<", "<=")), op("abs", op("-", left, right)), reach),
        "mirrored": op(draw.choice((">", ">=")), reach, op("abs", op("-", left, right))),
        "band": op("<=", op("abs", op("-", left, right)), draw.choice((0, 1, 0.3))),
        "between": op("between", left, op("-", right, 1), op("+", right, 1)),
        "less": op("<", left, right),
    }
    return bounds[draw.choice(tuple(bounds))]


def draw_condition(draw: random.Random, x: str, y: str, depth: int = 2) -> Expression:
    if depth == 0 or draw.random() < 0.2:
        return draw_atom(draw, x, y)
    if draw.random() < 0.3:
        other = draw.choice((op(">", Col(x, "v"), 0), draw_condition(draw, x, y, depth - 1)))
        return op("and", draw_condition(draw, x, y, depth - 1), other)
    return op("or", draw_condition(draw, x, y, depth - 1), draw_condition(draw, x, y, depth - 1))


def make_case(seed: int) -> Case:
    draw = random.Random(seed)
    names = draw.choice((("a", "b"), ("a", "b"), ("a", "b", "c")))
    pairs = list(itertools.pairwise(names))
    keys = [op("=", Col(x, "k"), Col(y, "k")) for x, y in pairs if draw.random() < 0.25]
    return Case(
        aliases=tuple((name, f"s{n}") for n, name in enumerate(names)),
        predicates=(*keys, *(draw_condition(draw, x, y) for x, y in pairs)),
        windows=(All("WINDOW", draw.choice((1, 3)) * SECOND),),
        select=tuple(Col(name, "id") for name in names),
        data=tuple((f"s{n}", rows(draw, draw.randrange(14))) for n in range(len(names))),
    )


@given(st.integers(0, 2**32), st.sampled_from((1, 3, 50)), st.sampled_from((1, 4)), st.booleans())
def test_the_pairs_are_the_oracles(seed: int, batch_rows: int, units: int, always: bool) -> None:
    """`always`: also where a sample says that the union is not worth it."""
    case = make_case(seed)
    with patch.object(ways, "MOST", 1e9 if always else ways.MOST):
        found = wm.local.run(case.sql(), sources(case), batch_rows=batch_rows, units=units)
    assert bag(rows_of(found)) == bag(case.expected(batch_rows).rows), case.sql()


def table(seed: int, number: int = 600) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "id": np.arange(number),
            "k": draw.integers(0, 200, number),
            "j": draw.integers(0, 200, number),
            "v": draw.integers(0, 5000, number),
            "r": draw.integers(0, 4, number),
            "ts": pa.array(np.arange(number) * 1000, pa.timestamp("us", tz="UTC")),
        }
    )


@pytest.mark.parametrize(
    "condition",
    [
        "a.k = b.k OR a.j = b.j",
        "a.k = b.k OR abs(a.v - b.v) <= 1",
        "a.k = b.k OR a.v BETWEEN b.v - 2 AND b.v + 2",
        "a.k = b.k OR (a.j = b.j AND a.v < b.v) OR abs(a.v - b.v) < b.r",
    ],
)
def test_a_union_looks_at_few_pairs(condition: str) -> None:
    tables, seen = {"a": table(1), "b": table(2)}, list[int]()
    find = ByUnion.find

    def count(self: ByUnion, *given: object) -> object:
        for probes, found in find(self, *given):  # type: ignore[arg-type]
            seen.append(len(found))
            yield probes, found

    text = f"SELECT a.id AS x, b.id AS y FROM a, b WHERE {condition} WINDOW = 1 MINUTE"
    with patch.object(ByUnion, "find", count):
        auto = wm.local.run(text, tables, batch_rows=200)
    plain = wm.local.run(text, tables, batch_rows=200, kernel="nlw")
    assert sorted(zip(*auto.to_pydict().values(), strict=True)) == sorted(zip(*plain.to_pydict().values(), strict=True))
    assert auto.num_rows <= sum(seen) < 600 * 600 / 20


@pytest.mark.parametrize("reach", ["a.r", "b.r", "a.r + 1"])
def test_a_reach_is_looked_up_by_range(reach: str) -> None:
    text = f"SELECT a.id AS x, b.id AS y FROM a, b WHERE abs(a.v - b.v) <= {reach} WINDOW = 1 MINUTE"
    tables = {"a": table(1), "b": table(2)}
    auto = wm.local.run(text, tables, batch_rows=200)
    plain = wm.local.run(text, tables, batch_rows=200, kernel="nlw")
    assert sorted(zip(*auto.to_pydict().values(), strict=True)) == sorted(zip(*plain.to_pydict().values(), strict=True))
    assert wm.local.counts(auto).kernels == {"sorted": 1200}
