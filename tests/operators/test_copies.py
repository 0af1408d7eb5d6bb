"""Copies of rows that tables have multiplied: the first that passes counts, wherever Arrow batches end."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
from hypothesis import example, given
from hypothesis import strategies as st

from watersmeet.operators.enter import Copies
from watersmeet.query.stream import COPY, COUNTED
from watersmeet.query.table import Lookup

ROWS = st.lists(st.tuples(st.integers(0, 6), st.booleans()), max_size=40)
CUTS = st.lists(st.integers(0, 40), max_size=6)


def lookup(alias: str, *, chained: bool = False) -> Lookup:
    return Lookup(alias, alias, "left", (), {}, chained)


def counting(lookups: list[Lookup], rows: list[tuple[int, bool]], cuts: list[int]) -> list[int]:
    """The rows that count, by their places; rows come in tables that end at the cuts."""
    copies, out = Copies(lookups), list[bool]()
    for begin, end in pairwise(sorted({0, *(c for c in cuts if c < len(rows)), len(rows)})):
        ids = pa.array([number if passes else None for number, passes in rows[begin:end]], pa.int64())
        out += copies.mark(pa.table({COPY: ids})).column(COUNTED).to_pylist()
    return np.flatnonzero(~np.array(out, bool) & np.array([passes for _, passes in rows], bool)).tolist()


def firsts(rows: list[tuple[int, bool]]) -> list[int]:
    seen: dict[int, int] = {}
    for place, (number, passes) in enumerate(rows):
        if passes:
            seen.setdefault(number, place)
    return sorted(seen.values())


@given(ROWS, CUTS)
@example([(1, True), (2, True), (1, True), (2, True)], [3])
def test_copies_of_two_shuffled_tables_lie_mixed(rows, cuts):
    assert counting([lookup("t"), lookup("u")], rows, cuts) == firsts(rows)


@given(ROWS, CUTS)
def test_copies_of_one_table_and_of_those_that_follow_from_it_lie_together(rows, cuts):
    together = sorted(rows, key=lambda row: row[0])
    assert counting([lookup("t"), lookup("u", chained=True)], together, cuts) == firsts(together)
