"""The ring: every key has one owner, lookups take O(log N) hops, and changes move the keys of one arc."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import OptionError
from watersmeet_lab.simulate.ring.circle import Ring, place

IDS = st.integers(0, 2**64 - 1)
PLACES = st.dictionaries(st.integers(0, 40), IDS, min_size=1, max_size=12).filter(
    lambda p: len(set(p.values())) == len(p)
)


def codes(ids: list[int]) -> np.ndarray:
    return np.array(ids, np.uint64).view(np.int64)


def owner(places: dict[int, int], key: int) -> int:
    """The first node at or after a key, clockwise."""
    return min(places, key=lambda n: (places[n] - key) % 2**64)


@given(PLACES, st.lists(IDS, max_size=10))
def test_a_key_belongs_to_the_first_node_at_or_after_it(places, keys):
    keys += list(places.values()) + [(p + 1) % 2**64 for p in places.values()]
    assert Ring.at(places).owners(codes(keys)).tolist() == [owner(places, k) for k in keys]


@given(PLACES, st.data(), st.lists(IDS, min_size=1, max_size=10))
def test_lookups_arrive_and_every_hop_is_counted_at_its_sender(places, data, keys):
    ring = Ring.at(places)
    senders = np.array([data.draw(st.sampled_from(sorted(places))) for _ in keys], np.int64)
    sent = np.zeros(max(places) + 1, np.int64)
    hops = ring.send(senders, codes(keys), sent)
    assert sent.sum() == hops.sum()
    assert all((h == 0) == (owner(places, k) == s) for h, k, s in zip(hops, keys, senders.tolist(), strict=True))
    assert hops.max() <= len(places)


@pytest.mark.parametrize("nodes", [2, 16, 128, 1024])
def test_hops_are_logarithmic(nodes):
    random = np.random.default_rng(nodes)
    keys = random.integers(-(2**63), 2**63, 4000)
    hops = Ring.of(nodes).send(random.integers(0, nodes, 4000), keys, np.zeros(nodes, np.int64))
    assert hops.mean() <= math.log2(nodes) / 2 + 1.5
    assert hops.max() <= 2 * math.log2(nodes) + 1


@given(PLACES, st.integers(50, 60), IDS, st.lists(IDS, max_size=20))
def test_joining_and_leaving_move_one_arc(places, node, at, keys):
    ring = Ring.at(places)
    if at in places.values():
        with pytest.raises(OptionError, match="same identifier"):
            ring.join(node, at)
        return
    larger = ring.join(node, at)
    before, after = ring.owners(codes(keys)), larger.owners(codes(keys))
    assert {int(n) for n in after[before != after]} <= {node}
    assert {int(n) for n in before[before != after]} <= {owner(places, at)}
    assert larger.leave(node).places == ring.places
    assert larger.move({node: at}).places == larger.places


def test_mistakes():
    ring = Ring.of(2)
    with pytest.raises(OptionError, match="one node or more"):
        Ring.of(0)
    with pytest.raises(OptionError, match="is on the ring already"):
        ring.join(1, 5)
    with pytest.raises(OptionError, match="node 7 cannot leave: it is not there"):
        ring.leave(7)
    with pytest.raises(OptionError, match="it is the last one"):
        ring.leave(0).leave(1)
    with pytest.raises(OptionError, match="node 7 cannot move"):
        ring.move({7: 1})


def test_places_do_not_depend_on_the_process():
    assert [place(n) % 1000 for n in range(3)] == [place(n, 0) % 1000 for n in range(3)]
    assert place(1, 1) != place(1, 0)
