"""Periods and windows over many combinations: what a loop over all of them says."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.operators.probing.side import check_windows, find_period
from watersmeet.query.window import Edge, WindowGraph, directed_edges

NAMES = ("a", "b", "c", "d")
HOPS = (3, 1, 2)


def chain(stops: str, hops: tuple[int, ...]) -> list[Edge]:
    return [edge for (x, y), us in zip(pairwise(stops), hops, strict=True) for edge in directed_edges(x, y, us, "")]


PATH = WindowGraph.either(NAMES, [chain("abcd", HOPS), chain("dcba", HOPS[::-1])])
TIMES = st.lists(st.tuples(*[st.integers(0, 6)] * 4), min_size=1, max_size=30)


def travels(times: tuple[int, ...]) -> bool:
    waits = [y - x for x, y in pairwise(times)]
    return all(0 <= w <= h for w, h in zip(waits, HOPS, strict=True)) or all(
        -h <= w <= 0 for w, h in zip(waits, HOPS, strict=True)
    )


@given(TIMES)
def test_a_path_is_satisfied_one_way_or_the_other(combinations):
    times = {alias: np.array(column) for alias, column in zip(NAMES, zip(*combinations, strict=True), strict=True)}
    assert check_windows(PATH, times).tolist() == [travels(c) for c in combinations]


@given(TIMES, st.permutations(NAMES), st.integers(1, 3))
def test_no_member_outside_the_period_can_complete_what_is_bound(combinations, order, bound):
    """And what is inside is tight: with two different times bound, the period is that of the one direction left."""
    columns = dict(zip(NAMES, map(np.array, zip(*combinations, strict=True)), strict=True))
    some = {alias: columns[alias] for alias in order[:bound]}
    y = order[bound]
    lo, hi = find_period(PATH, some, y)
    for at in range(-8, 16):
        could = check_windows(PATH, some | {y: np.full(len(combinations), at)})
        assert not (could & ((at < lo) | (at > hi))).any()
        ways = sum(check_windows(way, some).astype(int) for way in PATH.alternatives)
        assert (could | (at < lo) | (at > hi))[ways == 1].all()
