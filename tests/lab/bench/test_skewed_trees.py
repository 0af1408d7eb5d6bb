"""What a tree was counted to ship is that of its joins together, whatever their algorithms."""

from __future__ import annotations

import pytest

from watersmeet.sites.planning.model import Algorithm
from watersmeet_lab.bench.skewed_sites.trees import _count_joins, _list_covering
from watersmeet_lab.bench.skewed_sites.workload import BATCHES, Workload, play

WORK = Workload(1002, 3, 3)
TREES = list(_list_covering(WORK))


def test_every_algorithm_of_every_join_is_executed_once() -> None:
    joins = {join for tree in TREES for join, _ in _count_joins(WORK, tree, {})}
    below = {(done, place, to, upward) for done, place, to, _, upward in joins}
    assert len(joins) == len(Algorithm) * len(below)


@pytest.mark.parametrize("n", [1, 16, 31, 46, 68])
def test_joins_of_a_tree_ship_all_of_it(n: int) -> None:
    kinds = play(WORK, TREES[n], BATCHES - 6).shipped.kinds
    assert sum(kinds.values()) == sum(size for _, size in _count_joins(WORK, TREES[n], kinds))
    assert kinds
