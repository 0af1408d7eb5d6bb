"""Routing: members of a combination meet in exactly one unit, whatever the classes, the units and the keys."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.routing.rows import Rows
from watersmeet.kernels.placement import hash_codes
from watersmeet.routing.hypercube import Hypercube, grid
from watersmeet.routing.labels import labels

CLASSES = st.lists(st.frozensets(st.integers(0, 3), max_size=3), min_size=2, max_size=4).map(tuple)


@given(CLASSES, st.integers(1, 20), st.dictionaries(st.integers(0, 3), st.integers(-(2**63), 2**63 - 1), min_size=4))
def test_a_combination_meets_in_exactly_one_unit(
    classes_of: tuple[frozenset[int], ...], units: int, keys: dict[int, int]
) -> None:
    cube = grid(classes_of, units)
    assert cube.units <= max(units, 1)
    meeting = set(range(cube.units))
    for position, own in enumerate(classes_of):
        (delivery,) = cube.deliveries(position, Rows({c: [keys[c]] for c in own}))
        cells = list(delivery.units)
        assert delivery.role == "both"
        assert len(cells) == len(set(cells)) == cube.copies(position)
        assert sum(cube.is_primary(position, cell) for cell in cells) == 1
        meeting &= set(cells)
    assert len(meeting) == 1 or not frozenset().union(*classes_of)


@given(CLASSES, st.integers(1, 20), st.lists(st.integers(-(2**63), 2**63 - 1), min_size=8, max_size=8))
def test_combinations_meet_in_one_unit_whatever_is_spread(
    classes_of: tuple[frozenset[int], ...], units: int, drawn: list[int]
) -> None:
    spread = [n for n, own in enumerate(classes_of) if not own or drawn[n] % 2]
    cube = grid(classes_of, units, spread)
    meeting = set(range(cube.units))
    for position, own in enumerate(classes_of):
        (delivery,) = cube.deliveries(position, Rows({c: [drawn[c]] for c in own}, spread=[drawn[4 + position]]))
        assert len(delivery.units) == cube.copies(position)
        meeting &= set(delivery.units)
    assert len(meeting) == 1 or not any(classes_of)


@pytest.mark.parametrize(
    ("classes_of", "units", "shares", "kind"),
    [
        (({0}, {0}), 8, (8,), "hash"),
        (({0, 1}, {0, 1}), 6, (6,), "hash"),
        (({0}, {0, 1}, {1}), 8, (4, 2), "hypercube"),
        (({0}, {0, 1}, {1}), 1, (1, 1), "hash"),
        (({0, 1}, {1, 2}, {2, 0}), 8, (2, 2, 2), "hypercube"),
    ],
)
def test_shares_are_a_fixed_rule(
    classes_of: tuple[set[int], ...], units: int, shares: tuple[int, ...], kind: str
) -> None:
    cube = grid(tuple(map(frozenset, classes_of)), units)
    assert (cube.shares, cube.kind) == (shares, kind)


def test_a_grid_without_classes_is_one_unit() -> None:
    assert Hypercube((), (), (frozenset(), frozenset())).units == 1


def test_labels_are_stable() -> None:
    assert labels(8)[:4] == labels(4)
    assert len(set(labels(64))) == 64
    assert labels(3) == (61679, 172485, 68881)  # checkpoints of dataframe() have them


@pytest.mark.parametrize("partitions", [1, 2, 3, 7, 64, 200, 1000])
def test_labels_meet_every_partition(partitions: int) -> None:
    placed = hash_codes(np.array(labels(partitions, partitions))) % partitions
    assert placed.tolist() == list(range(partitions))
