"""Notes and the tuples that they are of: what nested loops find, whatever hashes collide."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.operators.outer.notes import H1, H2, Notes
from watersmeet.plan.model import TIME
from watersmeet.storage.segment import Segment

FEW = st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 2))
"""Time, first and second hash: so few that many are equal in some of them."""


def notes(rows: list[tuple[int, int, int]]) -> Notes:
    return Notes(*(np.array(column, np.int64) for column in zip(*rows, strict=True)))


@given(st.lists(FEW, max_size=30), st.lists(FEW, min_size=1, max_size=30))
def test_a_note_is_of_all_tuples_with_its_time_and_both_hashes(
    noted: list[tuple[int, int, int]], tuples: list[tuple[int, int, int]]
) -> None:
    stored = Segment.of(pa.table(dict(zip((TIME, H1, H2), map(list, zip(*tuples, strict=True)), strict=True))))
    found = notes(noted).find(stored) if noted else Notes.read([]).find(stored)
    assert {*found.tolist()} == {n for n, row in enumerate(tuples) if row in noted}


def test_many_equal_notes_of_many_equal_tuples_are_not_compared_one_by_one() -> None:
    equal = [(1, 2, 3)] * 5_000
    stored = Segment.of(pa.table(dict(zip((TIME, H1, H2), map(list, zip(*equal, strict=True)), strict=True))))
    assert len(notes(equal).find(stored)) == len(equal)


def test_notes_and_tuples_go_to_the_same_units() -> None:
    columns = {"k": pa.array([*range(50)]), TIME: pa.array([7] * 50)}
    tuples = pa.table({**columns, "payload": pa.array([str(n) for n in range(50)])})
    made = Notes.of(columns)
    by_unit = dict(made.by_unit(3, tuples))
    assert {unit: part.num_rows for unit, part in made.by_unit(3)} == {u: part.num_rows for u, part in by_unit.items()}
    for unit, part in made.by_unit(3):
        stored = Segment.of(by_unit[unit])
        assert sorted(Notes.read([part]).find(stored).tolist()) == [*range(stored.rows)]


def test_values_inside_others_tell_tuples_apart() -> None:
    one, two, three = ({TIME: pa.array([1]), "s": pa.array([{"x": [x]}])} for x in (1, 2, 2))
    assert Notes.of(one).h1 != Notes.of(two).h1
    assert Notes.of(two) == Notes.of(three)
