"""The state of join trees: after every batch no more rows than the oracle allows, and a tenth of those for dead ones.

Who can match nothing is never stored, and of the right side of an as-of join only what can still be nearest.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import assume, given, reject
from hypothesis import strategies as st

from tests.trees import KINDS, TreeCase, generate
from watersmeet.errors import WindowError
from watersmeet.storage.segment import SLACK

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
        state = test.batch(case.rows(n)).state
        over = {a: (state[a], most) for a, most in allowed.items() if state[a] > most + most // SLACK}
        assert not over, (n, over, case.sql, case.options)
