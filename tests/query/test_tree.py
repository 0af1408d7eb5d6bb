"""How long rows of join trees wait: the same as the oracle computes from the definition, for generated trees and windows."""

from __future__ import annotations

import math
import random

import pytest

from tests import oracle_tree as oracle
from watersmeet.query.tree import Leaf, Nearest, Node, Tree
from watersmeet.query.window import UNBOUNDED, Edge

KINDS = ("inner", "left", "full", "semi", "anti", "asof", "asof left")


def generate(chance: random.Random, names: list[str]) -> tuple[Tree, oracle.Tree]:
    """The same random tree for both."""
    if len(names) == 1:
        return Leaf(names[0]), oracle.Leaf(names[0])
    kind = chance.choice(KINDS)
    at = len(names) - 1 if kind.startswith("asof") else chance.randrange(1, len(names))
    (left, its_left), (right, its_right) = generate(chance, names[:at]), generate(chance, names[at:])
    edges: list[Edge] = []
    windows: list[oracle.Window] = []
    for x, y in ((x, y) for x in names[:at] for y in names[at:] if chance.random() < 0.7):
        low, high = chance.choice([None, -9, -2, 0]), chance.choice([None, 0, 3, 7])
        windows.append((x, y, low, high))
        edges += [Edge(x, y, high, "")] if high is not None else []
        edges += [Edge(y, x, -low, "")] if low is not None else []
    nearest = asof = None
    certain = sorted(frozenset.intersection(*left.variants))
    if kind.startswith("asof") and not certain:
        kind = "inner"
    if kind.startswith("asof"):
        op = chance.choice([">=", "<="])
        asof = (certain[0], op, names[-1])
        nearest = Nearest(*asof)
    mine = Node(kind, (left, right), choices=(tuple(edges),), nearest=nearest)
    return mine, oracle.Node(kind, its_left, its_right, windows=windows, asof=asof)


def shown(waits: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    return {pair: math.copysign(math.inf, d) if abs(d) >= UNBOUNDED else d for pair, d in waits.items()}


@pytest.mark.parametrize("seed", range(300))
def test_waits_and_delays_are_those_of_the_definition(seed):
    chance = random.Random(seed)
    mine, its = generate(chance, list("abcd"[: chance.randrange(2, 5)]))
    assert set(mine.variants) == set(oracle.variants(its))
    for present in mine.variants:
        if all(h > -math.inf for h in oracle.closure(its, present).values()):
            assert shown(mine.delays(present)) == oracle.delays(its, present)
    for side in mine.preserved:
        node = its if side == 0 else oracle.mirrored(its)
        for present in mine.inputs[side].variants:
            assert sorted(map(sorted, (shown(w).items() for w in mine.waits(side, present)))) == sorted(
                sorted(w.items()) for w in oracle.waits(node, present)
            )
