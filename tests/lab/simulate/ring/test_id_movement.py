"""Id movement: nodes that move balance what can be split, and make nothing worse."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from watersmeet_lab.simulate.ring.circle import Ring
from watersmeet_lab.simulate.ring.id_movement import balance


@given(st.integers(2, 30), st.integers(0, 99), st.integers(1, 200))
def test_id_movement_never_makes_the_busiest_node_busier(nodes, seed, meetings):
    random = np.random.default_rng(seed)
    keys = random.integers(-(2**63), 2**63, 300)
    weights = random.zipf(1.5, 300).clip(max=1000).astype(float)
    ring = Ring.of(nodes, seed)
    moved = balance(ring, keys, weights, meetings, seed)
    before, after = (np.bincount(r.owners(keys), weights, minlength=nodes) for r in (ring, moved))
    assert sorted(moved.nodes) == sorted(ring.nodes)
    assert after.sum() == before.sum()
    assert after.max() <= before.max()


def test_id_movement_balances_what_can_be_split():
    random = np.random.default_rng(1)
    keys = random.integers(0, 2**60, 5000)
    ring = Ring.of(50)
    load = np.bincount(balance(ring, keys, np.ones(5000), 2000).owners(keys), minlength=50)
    assert np.bincount(ring.owners(keys), minlength=50).max() > 1000
    assert load.max() <= 4.5 * 100
