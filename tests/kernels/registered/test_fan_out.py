"""What combinations find among the entries of their classes: every entry with their key whose range may hold, whatever the blocks and chunks."""

from __future__ import annotations

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from watersmeet.kernels import hash_window
from watersmeet.kernels.hash_window import address
from watersmeet.kernels.hashing import combine
from watersmeet.kernels.registered.fan_out import Classes, search

VALUES = st.integers(0, 3)


@st.composite
def worlds(
    draw: st.DrawFn,
) -> tuple[list[list[list[int]]], list[tuple[int, ...]], list[list[int]], list[tuple[int, list[int], int]]]:
    """Codes by column, segment and row; classes (alias and column of two values, of a range; its direction), by combination its members, and entries (class, values, lower end)."""
    codes = [[draw(st.lists(VALUES, min_size=4, max_size=4)) for _ in range(2)] for _ in range(3)]
    side, column = st.integers(-1, 1), st.integers(0, 2)
    classes = [
        (draw(side), draw(column), draw(side), draw(column), draw(side), draw(column), draw(st.integers(0, 1)))
        for _ in range(draw(st.integers(1, 4)))
    ]
    members = draw(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=12))
    entries = [
        (draw(st.integers(0, len(classes) - 1)), [draw(VALUES), draw(VALUES)], draw(st.integers(-4, 4)))
        for _ in range(draw(st.integers(0, 20)))
    ]
    return codes, classes, [[row, 1 << 32 | other] for row, other in members], entries


@settings(max_examples=150)
@given(worlds(), st.data(), st.sampled_from([1, 3, 1_000]))
def test_every_entry_of_the_key_below_the_value_is_found_once(world, data, limit):  # type: ignore[no-untyped-def]
    codes, classes, tuples, entries = world
    arrays = [[np.array(rows, np.int64) for rows in segments] for segments in codes]
    place = np.array([[address(rows) for rows in segments] for segments in arrays], np.int64)
    told = np.array(classes, np.int64)
    asked = Classes(
        told[:, [0, 2]].copy(), told[:, [1, 3]].copy(), told[:, 4].copy(), told[:, 5].copy(), told[:, 6] > 0
    )

    def read(member: int, column: int) -> int:
        return codes[column][member >> 32][member & 0xFFFFFFFF]

    def key_of(number: int, values: list[int]) -> int:
        key = np.array([number], np.int64)
        for alias, value in zip(classes[number][:4:2], values, strict=True):
            key = combine(key, np.array([value], np.int64)) if alias >= 0 else key
        return int(key[0])

    index = hash_window.build(
        np.array([key_of(n, values) for n, values, _ in entries], np.int64),
        np.array([low for *_, low in entries], np.int64),
    )
    first = np.array([data.draw(st.integers(0, len(classes) - 1)) for _ in tuples], np.int64)
    count = np.array([data.draw(st.integers(0, len(classes) - n)) for n in first.tolist()], np.int64)
    made = list(search(np.array(tuples, np.int64).reshape(-1, 2), first, count, asked, place, index, limit))
    assert all(0 < len(hits.class_of) <= limit for hits in made)
    found = sorted(
        (c, n, int(row), value)
        for hits in made
        for c, n, begin, many, value in zip(*(array.tolist() for array in hits), strict=True)
        for row in index.rows[begin : begin + many]
    )
    wanted = []
    for c, members in enumerate(tuples):
        for n in range(first[c], first[c] + count[c]):
            one, its, two, theirs, ranged, column, down = classes[n]
            values = [read(members[a], k) if a >= 0 else 0 for a, k in ((one, its), (two, theirs))]
            value = read(members[ranged], column) if ranged >= 0 else 0
            value = ~value if ranged >= 0 and down else value
            key = key_of(n, values)
            wanted += [
                (c, n, e, value) for e, (m, own, low) in enumerate(entries) if key_of(m, own) == key and low <= value
            ]
    assert found == sorted(wanted)
