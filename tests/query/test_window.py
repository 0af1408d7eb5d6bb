"""The window graph: closed exactly as all paths say, and an error where no result can exist."""

from __future__ import annotations

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import WindowError
from watersmeet.query.window import UNBOUNDED, Edge, WindowGraph, directed_edges, symmetric_edges

ALIASES = ("a", "b", "c", "d")
EDGES = st.lists(
    st.builds(
        lambda pair, hi: Edge(*pair, hi, f"{pair[1]} - {pair[0]} <= {hi}"),
        st.permutations(ALIASES).map(lambda p: p[:2]),
        st.integers(-3, 10),
    ),
    max_size=8,
)


def lengths(edges: list[Edge], x: str, y: str) -> list[int]:
    """The lengths of all simple paths from x to y (cycles through x if they are the same)."""
    direct = {}
    for edge in edges:
        direct[edge.old, edge.young] = min(edge.hi_us, direct.get((edge.old, edge.young), UNBOUNDED))
    found = []
    for count in range(len(ALIASES) - 1):
        for middle in permutations([a for a in ALIASES if a not in (x, y)], count):
            steps = list(zip((x, *middle), (*middle, y), strict=True))
            if all(step in direct for step in steps):
                found.append(sum(direct[step] for step in steps))
    return found


def cycles(edges: list[Edge]) -> list[int]:
    """The lengths of all simple cycles: a path there and an edge back."""
    return [path + edge.hi_us for edge in edges for path in lengths(edges, edge.young, edge.old)]


@given(EDGES)
def test_closed_graph_equals_all_paths(edges):
    if any(length < 0 for length in cycles(edges)):
        with pytest.raises(WindowError, match="unsatisfiable window"):
            WindowGraph.close(ALIASES, edges)
        return
    graph = WindowGraph.close(ALIASES, edges)
    for x, y in permutations(ALIASES, 2):
        assert graph.hi(x, y) == min(lengths(edges, x, y), default=UNBOUNDED)
        assert graph.lo(x, y) == -graph.hi(y, x)
    assert all(graph.hi(x, x) == 0 for x in ALIASES)


@given(EDGES.filter(lambda edges: all(length >= 0 for length in cycles(edges))))
def test_closing_twice_changes_nothing(edges):
    once = WindowGraph.close(ALIASES, edges)
    again = [Edge(x, y, once.hi(x, y), "") for x, y in permutations(ALIASES, 2) if once.hi(x, y) < UNBOUNDED]
    assert WindowGraph.close(ALIASES, again).bounds == once.bounds


def test_zero_cycle_is_legal():
    graph = WindowGraph.close(("a", "b"), [Edge("a", "b", 5, ""), Edge("b", "a", -5, "")])
    assert (graph.lo("a", "b"), graph.hi("a", "b")) == (5, 5)


def test_unsatisfiable_says_which_windows():
    edges = [
        *directed_edges("a", "b", 10, "DWINDOW (a, b) = 10 us"),
        Edge("b", "a", -11, "b.ts > a.ts + 10 us"),
        *symmetric_edges("c", "d", 3, "WINDOW (c, d) = 3 us"),
    ]
    with pytest.raises(WindowError, match="a, b") as caught:
        WindowGraph.close(ALIASES, edges)
    assert "DWINDOW (a, b) = 10 us" in str(caught.value)
    assert "b.ts > a.ts + 10 us" in str(caught.value)
    assert "WINDOW (c, d)" not in str(caught.value)


def test_symmetric_and_directed():
    graph = WindowGraph.close(("a", "b", "c"), [*symmetric_edges("a", "b", 5, ""), *directed_edges("b", "c", 7, "")])
    assert (graph.lo("a", "b"), graph.hi("a", "b")) == (-5, 5)
    assert (graph.lo("b", "c"), graph.hi("b", "c")) == (0, 7)
    assert (graph.lo("a", "c"), graph.hi("a", "c")) == (-5, 12)


def test_retention_and_horizon():
    graph = WindowGraph.close(("a", "b"), directed_edges("a", "b", 7, ""))
    assert (graph.retention_us("a"), graph.retention_us("b"), graph.horizon_us) == (7, 0, 7)
    open_ended = WindowGraph.close(("a", "b"), [Edge("a", "b", 7, "")])
    assert (open_ended.retention_us("a"), open_ended.retention_us("b"), open_ended.horizon_us) == (7, UNBOUNDED, 7)
    assert WindowGraph.close(("a", "b"), []).horizon_us == UNBOUNDED


@pytest.mark.parametrize(
    ("edges", "text"),
    [
        ([], "unbounded"),
        (symmetric_edges("a", "b", 5_000_000, ""), "|b - a| <= 5 s"),
        (directed_edges("a", "b", 5_000_000, ""), "0 s <= b - a <= 5 s"),
        ([Edge("a", "b", 2_000, "")], "b - a <= 2 ms"),
        ([Edge("b", "a", 2_000, "")], "-2 ms <= b - a"),
    ],
)
def test_show(edges, text):
    assert WindowGraph.close(("a", "b"), edges).show("a", "b") == text


# ---------------------------------------------------------------- alternatives


@given(st.lists(EDGES, min_size=1, max_size=3))
def test_the_hull_is_pairwise_the_widest_and_closed(choices):
    closed = [WindowGraph.close(ALIASES, c) for c in choices if all(length >= 0 for length in cycles(c))]
    if not closed:
        with pytest.raises(WindowError, match="unsatisfiable window"):
            WindowGraph.either(ALIASES, choices)
        return
    hull = WindowGraph.either(ALIASES, choices)
    for x, y in permutations(ALIASES, 2):
        assert hull.hi(x, y) == max(g.hi(x, y) for g in closed)
        steps = [(hull.hi(x, z), hull.hi(z, y)) for z in ALIASES]
        assert all(hull.hi(x, y) <= sum(step) for step in steps if UNBOUNDED not in step)
    assert {g.bounds for g in hull.alternatives or (hull,)} <= {g.bounds for g in closed}
    assert all(any(g.within(h) for h in hull.alternatives or (hull,)) for g in closed)


def test_one_choice_is_no_choice():
    wide, tight = symmetric_edges("a", "b", 9, ""), directed_edges("a", "b", 5, "")
    assert WindowGraph.either(("a", "b"), [tight, wide, wide]) == WindowGraph.close(("a", "b"), wide)
