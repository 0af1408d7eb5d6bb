"""The state of join trees: after every batch no more rows than the oracle allows, and a tenth of those for dead ones; the same for second copies, and for bits of segments.

Who can match nothing is never stored, and of the right side of an as-of join only what can still be nearest.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

import watersmeet as wm
from tests.trees import KINDS, TreeCase, generate
from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import Turn
from watersmeet.errors import WindowError
from watersmeet.operators.outer.done import BITS, DoneBits
from watersmeet.operators.outer.unmatched import KEPT
from watersmeet.storage.compaction import SLACK
from watersmeet.storage.manifest import Manifest
from watersmeet.testing import QueryTest, table

OUTER = tuple(kind for kind in KINDS if kind != "inner")


@pytest.mark.parametrize("kinds", [*((kind,) for kind in OUTER), OUTER, ("asof", "asof left")], ids=" ".join)
@given(chance=st.randoms(use_true_random=False))
def test_no_more_rows_are_kept_than_can_still_be_part_of_a_result(
    kinds: tuple[str, ...], chance: random.Random
) -> None:
    compare(generate(chance, kinds, most=3, rows=5))


def compare(case: TreeCase) -> None:
    """A case against the oracle; not a tree that no window bounds, nor one that has become a join of more than two inputs."""
    try:
        test = case.start()
    except WindowError:
        reject()
    tree = test._run.plan.join.tree
    assume(tree is not None and all(node.kind != "inner" for node in tree.nodes))
    for n, allowed in enumerate(case.may_keep()):
        state = Counter(test.batch(case.rows(n)).state) + count_copies(test)
        for kind in ("", KEPT, BITS):
            over = {kind + a: (state[kind + a], most) for a, most in allowed.items() if state[kind + a] > most + most // SLACK}  # fmt: skip
            assert not over, (n, over, case.sql, case.options)


def count_copies(test: QueryTest) -> Counter[str]:
    """Second copies of tuples that other units settle, and segments with bits of who is done."""
    held = [state.rows() for state in test._run.units.states.values()]
    return sum((Counter({k: n for k, n in rows.items() if k.startswith((KEPT, BITS))}) for rows in held), Counter())


@pytest.mark.parametrize("options", [{}, {"units": 3, "routing": "random"}], ids=str)
@pytest.mark.parametrize("apart", [0, 20])
def test_a_tuple_that_meets_others_in_many_batches_has_one_bit(apart: int, options: dict[str, Any]) -> None:
    """The first partner comes in the tuple's own batch, or later, and many after it."""
    streams = {name: wm.Stream(table("k int, ts timestamp"), time="ts") for name in ("s", "t")}
    test = QueryTest(wm.sql("SELECT a.k FROM s a FULL JOIN t b ON a.k = b.k WITHIN 1 HOUR", streams, **options))
    for second in range(20 + apart):
        rows = {"s": [(1, second)] if second < 20 else [], "t": [(1, second)] if second >= apart else []}
        test.batch(rows)
    copies = count_copies(test)
    for side in ("a", "b"):
        kind = KEPT + side if options else side
        done = [count_done(test, state, kind, side) for state in test._run.units.states.values()]
        assert sum(done) == 20, side
        assert copies[BITS + side] <= sum(len(s.segments.get(kind, [])) for s in test._run.units.states.values())
    assert copies[KEPT + "a"] == (20 if options else 0)
    assert bool(copies[BITS + "a"]) == bool(apart)
    assert not copies[BITS + "b"]


def count_done(test: QueryTest, state: Manifest, kind: str, side: str) -> int:
    """The tuples of a side at a unit that are known to have met a partner."""
    store = test._run.units.store
    stored = [store.read(info) for info in state.segments.get(kind, [])]
    if not stored:
        return 0
    return int(DoneBits(Turn(0, {}, state, store, Clock({})), side, stored).done.sum())


@pytest.mark.parametrize("order", [">=", "<="])
def test_an_as_of_join_does_not_keep_history(order: str) -> None:
    """Watermarks are 5 seconds behind. Backward, left tuples wait as long, and of 3 keys the last right tuple before them is kept, besides 5 after it. Forward, the
    nearest may be 2 seconds later, and nothing before the first left tuple that waits is kept."""
    streams = {name: wm.Stream(table("k int, ts timestamp"), time="ts", lateness="5 s") for name in ("s", "t")}
    test = QueryTest(wm.sql(f"SELECT a.k FROM s a ASOF JOIN t b ON a.k = b.k AND a.ts {order} b.ts", streams))
    for second in range(100):
        test.batch(s=[(1, second)], t=[(second % 3, second)])
        assert test.state["a"] <= (6 if order == ">=" else 8)
        assert test.state["b"] <= 8
