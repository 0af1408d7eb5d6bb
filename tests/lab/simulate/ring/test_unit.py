"""A ring unit by itself: how rates are asked for, cached, passed on and used; what is refused."""

from __future__ import annotations

import numpy as np
import pytest

from watersmeet.errors import OptionError, QueryError, UnknownNameError
from watersmeet.kernels.registered.key_table import attribute_key, value_key
from watersmeet.kernels.registered.rewriting import AT_VALUES, BATCH, BOUND, KEY, STREAM, TS
from watersmeet.registry.rjoin.catalogue import Layout
from watersmeet_lab.simulate.ring.catalogue import RingCatalogue
from watersmeet_lab.simulate.ring.circle import Ring
from watersmeet_lab.simulate.ring.coded_join import CodedJoin
from watersmeet_lab.simulate.ring.unit import ASKING, INDEXING, QUERIES, Choice, RingOptions, RingUnit, TravellingRows

STREAMS = {"r": ("a", "b"), "s": ("a", "b"), "p": ("a", "b")}
CHAIN = CodedJoin(("r", "s", "p"), (((0, "a"), (1, "a")), ((1, "b"), (2, "b"))), ((0, "b"), (2, "a")))
NODES = 64


def unit_of(choice: Choice = "ric", **options: int) -> RingUnit:
    catalogue = RingCatalogue(STREAMS, Layout.of([CHAIN]))
    return RingUnit(Ring.of(NODES), catalogue, RingOptions(choice, rate_period=100, **options))


def published(unit: RingUnit, stream: int, *values: tuple[int, int], now: int = 0) -> np.ndarray:
    """Copies of tuples, as they arrive."""
    block = np.zeros((len(values), unit.catalogue.tuple_width), np.int64)
    block[:, STREAM], block[:, TS], block[:, BATCH] = stream, now, now
    block[:, AT_VALUES : AT_VALUES + 2] = values
    return unit.index(block, np.zeros(len(values), np.int64))


def nothing(unit: RingUnit) -> TravellingRows:
    return TravellingRows(unit.catalogue.layout.no_rows(), np.zeros((0, 0), np.int64))


def with_rates(choice: Choice = "ric", **options: int) -> RingUnit:
    """Tuples of r come often, of s less, of p seldom."""
    unit = unit_of(choice, **options)
    for stream, count in ((0, 9), (1, 4), (2, 1)):
        unit.step(published(unit, stream, *[(5, 6)] * count), nothing(unit), 1)
    return unit


def posed(unit: RingUnit, sender: int = 3, now: int = 10) -> TravellingRows:
    number = unit.catalogue.add(CHAIN, now)
    return unit.place(unit.catalogue.pose([number]), np.array([sender]), now)


@pytest.mark.parametrize(
    ("choice", "keys"),
    [
        ("ric", {attribute_key(2, 1)}),
        ("worst", {attribute_key(0, 0)}),
        ("first", {attribute_key(0, 0)}),
        ("random", {attribute_key(s, c) for s, c in ((0, 0), (1, 0), (1, 1), (2, 1))}),
    ],
)
def test_choices(choice, keys):
    found = [int(posed(with_rates(choice, seed=seed)).rows[0, KEY]) for seed in range(30)]
    assert set(found) == keys


def test_only_ric_asks():
    for choice in ("random", "worst", "first"):
        unit = with_rates(choice)
        posed(unit)
        assert unit.load.sent[ASKING].sum() == 0
        assert unit.load.sent[QUERIES].sum() > 0


def test_asking_costs_lookups_and_one_hop_back_and_sending_one_hop():
    unit = with_rates()
    keys = np.array([attribute_key(s, c) for s, c in ((0, 0), (1, 0), (1, 1), (2, 1))], np.int64)
    here = int(unit.ring.ids[unit.ring.positions[3]])
    round_trip = sorted(keys.tolist(), key=lambda k: (k - here) % 2**64)
    hops, at, sent = 0, 3, np.zeros(NODES, np.int64)
    for key in round_trip:
        hops += int(unit.ring.send(np.array([at]), np.array([key]), sent)[0])
        at = int(unit.ring.owners(np.array([key]))[0])
    posed(unit)
    assert unit.load.sent[ASKING].sum() == hops + (at != 3)
    assert unit.load.sent[QUERIES].sum() == 1


def test_the_candidate_table_saves_questions_until_they_are_old():
    unit = with_rates(rate_valid=50)
    posed(unit)
    first = unit.load.sent[ASKING].sum()
    posed(unit, now=60)
    assert unit.load.sent[ASKING].sum() == first
    posed(unit, now=61)  # too old: asked again, but the addresses are known
    assert first < unit.load.sent[ASKING].sum() <= first + 5
    posed(unit, sender=4, now=62)  # another node knows nothing
    assert unit.load.sent[ASKING].sum() > first + 5


def test_what_a_row_carries_its_receiver_knows():
    unit = with_rates()
    row = posed(unit)
    assert (row.carried[0, 1::2] >= 0).sum() == 4
    receiver = int(unit.ring.owners(row.rows[:, KEY].copy())[0])
    assert receiver != 3
    unit.step(np.zeros((0, unit.catalogue.tuple_width), np.int64), row, 11)
    asked = unit.load.sent[ASKING].sum()
    posed(unit, sender=receiver, now=12)
    assert unit.load.sent[ASKING].sum() == asked


def test_a_rewritten_query_asks_only_for_what_is_new():
    unit = with_rates()
    row = posed(unit)
    unit.step(np.zeros((0, unit.catalogue.tuple_width), np.int64), row, 11)
    asked = unit.load.sent[ASKING].sum()
    made = unit.step(published(unit, 2, (1, 2), now=12), nothing(unit), 12).rows
    assert made.rows[:, BOUND].tolist() == [4]
    assert int(made.rows[0, KEY]) == value_key(1, 1, 2)  # nothing has come there
    new = np.zeros(NODES, np.int64)
    sender = unit.ring.owners(row.rows[:, KEY].copy())
    unit.ring.send(sender, np.array([value_key(1, 1, 2)]), new)
    assert unit.load.sent[ASKING].sum() - asked <= new.sum() + 1


def test_after_a_move_a_known_address_is_looked_up_again():
    unit = with_rates(rate_valid=50)
    key = int(posed(unit).rows[0, KEY])
    queries = unit.load.sent[QUERIES].sum()
    owner = int(unit.ring.owners(np.array([key]))[0])
    unit.change(unit.ring.leave(owner))
    posed(unit, now=20)
    expected = unit.ring.send(np.array([3]), np.array([key]), np.zeros(NODES, np.int64))[0]
    assert unit.load.sent[QUERIES].sum() == queries + expected


def test_every_tuple_is_indexed_twice_for_each_column():
    unit = unit_of()
    copies = published(unit, 0, (1, 2))
    assert sorted(copies[:, 1].tolist()) == sorted(
        [attribute_key(0, 0), attribute_key(0, 1), value_key(0, 0, 1), value_key(0, 1, 2)]
    )
    assert unit.load.sent[INDEXING].sum() > 0
    unit.step(copies, nothing(unit), 1)
    assert unit.load.tuples.sum() == 4


def test_new_nodes_are_counted_too():
    unit = with_rates()
    sent = unit.load.sent.sum()
    unit.change(unit.ring.join(NODES + 1, 12345))
    assert (len(unit.load.rows), unit.load.sent.sum()) == (NODES + 2, sent)


def test_refusals():
    with pytest.raises(OptionError, match="choice='best': there are 'ric', 'random', 'worst', 'first'"):
        RingOptions("best")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="levels='none'"):
        RingOptions(levels="none")  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="delta=-1"):
        RingOptions(delta=-1)
    catalogue = unit_of().catalogue
    with pytest.raises(UnknownNameError, match="there is no stream 'q'; there are r, s, p"):
        catalogue.add(CodedJoin(("r", "q"), (((0, "a"), (1, "a")),), ((0, "a"),)), 0)
    with pytest.raises(UnknownNameError, match="stream s has no column 'z'; it has a, b"):
        catalogue.add(CodedJoin(("r", "s"), (((0, "a"), (1, "z")),), ((0, "a"),)), 0)
    four = tuple(((n, "a"), (n + 1, "a")) for n in range(3))
    with pytest.raises(QueryError, match="more aliases or columns than this run was laid out for"):
        catalogue.add(CodedJoin(("r", "s", "p", "r"), four, ((0, "a"),)), 0)
    good, bad = CHAIN, CodedJoin(("r", "s"), (((0, "a"), (1, "z")),), ((0, "a"),))
    with pytest.raises(UnknownNameError, match="no column 'z'"):
        catalogue.add_between([good, bad], 0, 9)
    assert len(catalogue) == 0
    catalogue.add_between([good, good], 0, 9)  # what was refused has left nothing behind
    assert catalogue.arrays[2].tolist() == [[0, 2, 4, 6], [6, 8, 10, 12]]
