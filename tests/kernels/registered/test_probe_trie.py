"""The walk over a trie of probes: against nested loops, in chunks of any size, over large groups and several segments."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.kernels.hash_window import address
from watersmeet.kernels.registered.probe_trie import SCANNED, TRIED, _lower_bound, count_tries, silence, walk
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.plan import BATCH, RegistryPlan
from watersmeet.registry.shared.probe_trie import Trie, TrieBuilder
from watersmeet.registry.shared.visible import Layout, Visible
from watersmeet.registry.template import Template
from watersmeet.storage.segment import Segment

PLAN = RegistryPlan(
    {n: StreamSpec(n, {"k": "bigint", "j": "bigint", "ts": "timestamp"}, time="ts") for n in ("r", "s")}, 1
)
Row = tuple[int, int | None, int]


def segment(rows: list[Row]) -> Segment:
    ts = pa.array([t for _, _, t in rows], pa.timestamp("us", tz="UTC"))
    return Segment.of(
        pa.table(
            {
                "c_k": pa.array([k for k, _, _ in rows], pa.int64()),
                "c_j": pa.array([j for _, j, _ in rows], pa.int64()),
                "_ts": ts,
                BATCH: pa.array([0] * len(rows), pa.int64()),
            }
        )
    )


def _apart(aliases: int, window: int) -> tuple[tuple[int, ...], ...]:
    return tuple(tuple(0 if x == y else window for y in range(aliases)) for x in range(aliases))


def templates(window: int) -> list[Template]:
    tight, wide = ((0, window), (window, 0)), ((0, UNBOUNDED), (0, 0))
    three = _apart(3, window)
    return [
        Template(("r", "s"), ((0, "k", 1, "k", "integer"),), tight),
        Template(("r", "s"), ((0, "k", 1, "k", "integer"),), wide),
        Template(("r", "s"), ((0, "j", 1, "j", "integer"), (0, "k", 1, "k", "integer")), tight),
        Template(("r", "r"), ((0, "k", 1, "k", "integer"),), tight),
        Template(("r", "r", "s"), ((0, "k", 1, "k", "integer"), (1, "j", 2, "j", "integer")), three),
    ]


def found(
    window: int, old: dict[str, list[list[Row]]], new: dict[str, list[Row]], limit: int
) -> Counter[tuple[int, ...]]:
    builder = build(templates(window))
    return walk_all(builder, builder.build(), old, new, limit)[0]


def build(known: list[Template]) -> TrieBuilder:
    """Streams and columns have the same numbers, whatever the templates."""
    builder = TrieBuilder()
    for stream in PLAN.streams:
        builder.streams[stream] = len(builder.streams)
        for column in ("k", "j"):
            builder.column(stream, column, "integer")
    for template in known:
        builder.add(template)
    return builder


def walk_all(
    builder: TrieBuilder, trie: Trie, old: dict[str, list[list[Row]]], new: dict[str, list[Row]], limit: int
) -> tuple[Counter[tuple[int, ...]], np.ndarray]:
    """The combinations, and the tuples that every node tried."""
    tried = count_tries(trie.nodes)
    stored = {s: [segment(rows) for rows in parts if rows] for s, parts in old.items()}
    fresh = {s: segment(rows) if rows else None for s, rows in new.items()}
    layout = Layout(PLAN, list(builder.streams), builder.columns, set(builder.columns.values()))
    visible = Visible(PLAN, layout, stored, fresh)
    offset = np.cumsum([0, *(0 if s is None else s.rows for s in visible.segments)]).tolist()
    out: Counter[tuple[int, ...]] = Counter()
    for number in range(len(builder.streams)):
        rows = visible.new_rows(number)
        for which, tuples in walk(trie, builder.width, visible.kernel, number, rows, limit, tried=tried):
            assert len(which) <= max(limit, len(builder.templates))
            for t, members in zip(which.tolist(), tuples.tolist(), strict=True):
                named = [offset[m >> 32] + (m & 0xFFFFFFFF) for m in members if m >= 0]
                out[t, *named] += 1
    return out, tried[:-1]


def expected(window: int, old: dict[str, list[list[Row]]], new: dict[str, list[Row]]) -> Counter[tuple[int, ...]]:
    """Nested loops; tuples are numbered stream by stream, stored ones first."""
    rows: dict[str, list[tuple[int, Row, bool]]] = {}
    number = 0
    for s in ("r", "s"):
        parts = [(row, False) for part in old[s] for row in part] + [(row, True) for row in new[s]]
        rows[s] = [(number + n, row, is_new) for n, (row, is_new) in enumerate(parts)]
        number += len(parts)
    out: Counter[tuple[int, ...]] = Counter()
    for t, template in enumerate(templates(window)):
        for members in product(*(rows[s] for s in template.streams)):
            values = [{"k": row[0], "j": row[1], "ts": row[2]} for _, row, _ in members]
            equal = all(values[x][a] is not None and values[x][a] == values[y][b] for x, a, y, b, _ in template.edges)
            near = all(
                hi >= UNBOUNDED or values[y]["ts"] - values[x]["ts"] <= hi
                for x, row in enumerate(template.bounds)
                for y, hi in enumerate(row)
            )
            if equal and near and any(is_new for _, _, is_new in members):
                out[t, *(n for n, _, _ in members)] += 1
    return out


TIMES = st.builds(
    int.__add__, st.integers(0, 12), st.sampled_from((0, 0, 0, 0, 0, 0, 2**62, 2**63 - 13, -(2**63), 250_000))
)
ROWS = st.lists(st.tuples(st.integers(0, 2), st.sampled_from((0, 0, 1, None)), TIMES), max_size=9)


@given(st.integers(0, 6), st.tuples(ROWS, ROWS, ROWS), st.tuples(ROWS, ROWS), st.sampled_from((1, 2, 7, 1000)))
def test_every_combination_with_a_new_member_once(
    window: int, old: tuple[list[Row], ...], new: tuple[list[Row], ...], limit: int
) -> None:
    stored, fresh = {"r": [old[0], old[1]], "s": [old[2]]}, {"r": new[0], "s": new[1]}
    assert found(window, stored, fresh, limit) == expected(window, stored, fresh)


@given(st.integers(0, 6), st.tuples(ROWS, ROWS, ROWS), st.tuples(ROWS, ROWS), st.sampled_from((1, 7, 1000)))
def test_segments_in_order_of_time_are_compared_row_by_row(
    window: int, old: tuple[list[Row], ...], new: tuple[list[Row], ...], limit: int
) -> None:
    parts = [sorted(rows, key=lambda row: row[2]) for rows in (*old, *new)]
    stored, fresh = {"r": parts[:2], "s": [parts[2]]}, {"r": parts[3], "s": parts[4]}
    assert found(window, stored, fresh, limit) == expected(window, stored, fresh)


@pytest.mark.parametrize("seed", range(4))
def test_crowded_and_empty_times_side_by_side(seed: int) -> None:
    """Some periods hold fewer rows than are compared one by one, others more."""
    rng = np.random.default_rng(seed)
    times = np.sort(np.concatenate([rng.integers(0, 6, 2 * SCANNED), rng.integers(100, 200, SCANNED)]))
    rows = [(*rng.integers(0, 9, 2).tolist(), t) for t in times.tolist()]
    stored, fresh = {"r": [rows[::3]], "s": [rows[::4]]}, {"r": rows[1::3], "s": rows[1::2]}
    assert found(5, stored, fresh, 50) == expected(5, stored, fresh)


def test_templates_that_begin_alike_share_their_probes() -> None:
    builder = TrieBuilder()
    for window in range(1, 100):
        builder.add(Template(("r", "s"), ((0, "k", 1, "k", "integer"),), ((0, window), (window, 0))))
    trie = builder.build()
    assert len(trie.nodes) == 2
    assert len(trie.leaf_template) == 2 * 99


@given(
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.lists(st.booleans(), min_size=10, max_size=10),
    st.tuples(ROWS, ROWS),
    st.tuples(ROWS, ROWS),
    st.sampled_from((1, 7, 1000)),
)
@example([False] * 9 + [True], [False] * 10, ([], []), ([(0, 0, -(2**63))], []), 1)
def test_who_is_silenced_leaves_no_trace(
    first: list[bool], then: list[bool], old: tuple[list[Row], ...], new: tuple[list[Row], ...], limit: int
) -> None:
    """Combinations and tuples that are tried are those of a trie that is built of the living templates alone."""
    stored, fresh = {"r": [old[0]], "s": [old[1]]}, {"r": new[0], "s": new[1]}
    known = [*templates(1), *templates(4)]
    alive = np.array(first)
    whole = build(known)
    trie = whole.build()
    for living in (alive, alive & np.array(then)):
        silence(trie.nodes, trie.leaf_template, trie.leaf_high, trie.leaf_tests, living)
        numbers = np.flatnonzero(living).tolist()
        made, tried = walk_all(whole, trie, stored, fresh, limit)
        anew = build([known[n] for n in numbers])
        want, least = walk_all(anew, anew.build(), stored, fresh, limit)
        assert made == Counter({(numbers[t], *named): n for (t, *named), n in want.items()})
        assert sorted(tried[tried > 0]) == sorted(least[least > 0])


def test_a_walk_that_finds_nothing_comes_back() -> None:
    """Its node has tried a multiple of the chunk's size by then."""
    rows: list[Row] = [(0, n, n) for n in range(60)]
    builder = build(
        [Template(("r", "s"), ((0, "k", 1, "k", "integer"), (0, "j", 1, "j", "integer")), ((0, 99), (99, 0)))]
    )
    layout = Layout(PLAN, list(builder.streams), builder.columns, set(builder.columns.values()))
    visible = Visible(
        PLAN, layout, {"r": [], "s": [segment([(0, -1, n) for n in range(60)])]}, {"r": segment(rows), "s": None}
    )
    trie = builder.build()
    tried = count_tries(trie.nodes)
    seen = [
        (len(which), int(tried[:-1].sum()))
        for which, _ in walk(trie, builder.width, visible.kernel, 0, visible.new_rows(0), 10, tried=tried)
    ]
    assert [count for count, _ in seen] == [0] * len(seen)
    assert len(seen) > 0
    assert seen[0][1] <= TRIED * 10
    assert tried[:-1].sum() > seen[-1][1]
    assert tried[-1] == tried[:-1].max()


def test_the_widest_below_a_node_that_tries_too_much() -> None:
    def chain(window: int, streams: tuple[str, ...]) -> Template:
        edges = tuple((x, "k", x + 1, "k", "integer") for x in range(len(streams) - 1))
        return Template(streams, edges, _apart(len(streams), window))

    known = [chain(5, ("r", "s")), chain(9, ("r", "s", "s")), chain(UNBOUNDED, ("r", "s", "s")), chain(7, ("r", "s"))]
    trie = build(known).build()
    first, tried = int(trie.roots[0, 0]), count_tries(trie.nodes)
    assert trie.find_widest(tried, 3).tolist() == []
    tried[first] = 4
    assert trie.find_widest(tried, 4).tolist() == []
    assert trie.find_widest(tried, 3).tolist() == [2]
    silence(trie.nodes, trie.leaf_template, trie.leaf_high, trie.leaf_tests, np.array([True, True, False, True]))
    assert trie.find_widest(tried, 3).tolist() == [1]
    silence(trie.nodes, trie.leaf_template, trie.leaf_high, trie.leaf_tests, np.array([True, False, False, True]))
    assert trie.find_widest(tried, 3).tolist() == [3]


@pytest.mark.parametrize("size", [0, 1, 2, 31, 1000])
def test_the_search_finds_its_place_from_any_hint(size: int) -> None:
    stamps = np.sort(np.random.default_rng(size).integers(0, 300, size + 2))
    start, end = 1, size + 1
    for lowest in (-1, 0, 1, 57, 150, 299, 300, 400):
        want = start + int(np.searchsorted(stamps[start:end], lowest))
        for hint in sorted({start, end, *np.random.default_rng(1).integers(start, end + 1, 20).tolist()}):
            assert _lower_bound(address(stamps), hint, start, end, lowest) == want
