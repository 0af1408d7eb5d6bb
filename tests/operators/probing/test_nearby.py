"""A sweep goes through the tuples that a new one can meet, and no others."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from tests.cases import SECOND, Case, Col, Data, Range, bag, op, rows_of
from tests.properties.test_local import sources
from watersmeet import local
from watersmeet.operators.probing.nearby import find_nearby
from watersmeet.operators.probing.side import VisibleSide
from watersmeet.plan.model import Side
from watersmeet.query.window import WindowGraph
from watersmeet.storage.segment import Segment

WINDOW = WindowGraph(("a", "b"), ((0, 10), (10, 0)), ())


def segment(*times: int) -> Segment:
    return Segment.of(pa.table({"_ts": pa.array(times, pa.timestamp("us", tz="UTC"))}))


def side(name: str, old: list[Segment], new: Segment | None) -> VisibleSide:
    return VisibleSide(Side((name,), name, {}), old, new)


def test_heads_and_tails_of_old_segments() -> None:
    old = [segment(*range(0, 50)), segment(70, 55, 60), segment(*range(100, 200))]
    a, b = side("a", old, None), side("b", [segment(58)], segment(65, 69))
    near = find_nearby(WINDOW, [a, b])
    assert near[0].ts.tolist() == [70, 55, 60]
    assert near[0].row_idx.tolist() == [50, 51, 52]
    assert not near[0].new.any()
    assert near[1].ts.tolist() == [65, 69]  # an old tuple of b meets a new one of a only, and there is none
    assert near[1].new.all()


def test_pieces_of_segments() -> None:
    a = side("a", [segment(*range(0, 100, 2)), segment(99, 91, 150)], segment(300))
    b = side("b", [], segment(80, 90))
    near = find_nearby(WINDOW, [a, b])
    assert near[0].ts.tolist() == [*range(70, 100, 2), 99, 91, 300]
    assert near[0].new.tolist() == [False] * 17 + [True]
    assert np.array_equal(np.concatenate([s.ts for s in a.segments])[near[0].row_idx], near[0].ts)


def test_at_a_unit_that_stores_one_side_the_probing_tuples_are_new() -> None:
    a, b = side("a", [segment(1, 95)], segment(96, 500)), side("b", [], segment(100))
    near = find_nearby(WINDOW, [a, b], b)
    assert near[0].ts.tolist() == [95, 96]
    assert [one.new.tolist() for one in near] == [[False, False], [True]]


@pytest.mark.parametrize("kernel", ["mw", "lca"])
def test_without_a_bound_the_past_has_no_end(kernel: str) -> None:
    first = -9225076104034775808
    rows = tuple((n, 0, 0, 0.0, 0.0, "x", ts) for n, ts in enumerate((first, first + SECOND, 0)))
    case = Case(
        aliases=(("a", "s0"), ("b", "s1")),
        predicates=(op("=", Col("a", "k"), Col("b", "k")),),
        windows=(Range("b", 2 * SECOND),),
        select=(Col("a", "id"), Col("b", "id")),
        data=(("s0", Data(rows)), ("s1", Data(rows))),
    )
    found = local.run(case.sql(), sources(case), batch_rows=1, kernel=kernel)
    assert bag(rows_of(found)) == bag(case.expected(1).rows)
