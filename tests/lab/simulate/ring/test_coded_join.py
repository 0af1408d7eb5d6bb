"""Templates: slots, and what cannot be constructed."""

from __future__ import annotations

from dataclasses import replace

import pytest

from watersmeet.errors import QueryError, WindowError
from watersmeet_lab.simulate.ring.coded_join import CodedJoin, within

CHAIN = CodedJoin(("r", "s", "p"), (((0, "a"), (1, "a")), ((1, "b"), (2, "b"))), ((0, "b"), (1, "b")))


def test_equal_columns_are_one_slot():
    assert [s.places for s in CHAIN.slots] == [((0, "a"), (1, "a")), ((0, "b"),), ((1, "b"), (2, "b"))]
    assert [s.join for s in CHAIN.slots] == [True, False, True]
    assert [CHAIN.slot_of(p) for p in CHAIN.select] == [1, 2]


def test_equality_is_transitive_and_takes_constants_along():
    star = CodedJoin(CHAIN.streams, (((0, "a"), (1, "a")), ((1, "a"), (2, "a"))), ((0, "a"),), (((2, "a"), 7),))
    assert [(s.places, s.constant) for s in star.slots] == [(((0, "a"), (1, "a"), (2, "a")), 7)]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"equalities": CHAIN.equalities[:1]}, r"alias 2 \(p\) is joined to nothing"),
        ({"select": ()}, "selects nothing"),
        ({"select": ((3, "a"),)}, "column 'a' is of alias 3, but FROM has only 0 to 2"),
        ({"constants": (((0, "a"), 1), ((1, "a"), 2))}, "equal to different constants"),
        ({"constants": (((0, "a"), 1), ((0, "a"), 2))}, "cannot equal two constants"),
        ({"streams": ("r",)}, "reads 1 streams"),
    ],
)
def test_bad_queries(change, message):
    with pytest.raises(QueryError, match=message):
        replace(CHAIN, **change)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"tumbling": -1}, "negative"),
        ({"bounds": within(2, 5)}, "not over the 3 aliases"),
        ({"bounds": ((0, 1, 9), (1, 0, 1), (9, 1, 0))}, "not closed"),
        ({"bounds": ((0, -1, 0), (0, 0, 0), (0, 0, 0))}, "not closed"),
        ({"rows": (1, 2)}, "one number for each of the 3 aliases"),
    ],
)
def test_bad_windows(change, message):
    with pytest.raises(WindowError, match=message):
        replace(CHAIN, **change)
