"""Spark's StreamingSymmetricHashJoinHelperSuite, as facts: which conditions of ON are decided before a row is stored, and which where rows meet."""

from __future__ import annotations

import pytest

import watersmeet as wm
from tests.foreign.streams import pair

LEFT, RIGHT, BOTH = "l.a > 1", "r.b > 2", "l.a + r.b > 3"


def split(*conditions: str) -> tuple[list[str], list[str], list[str]]:
    """Of ON in a left join: conditions on the left alone, on the right alone, and on both."""
    on = " AND ".join(["l.ts = r.ts", *conditions])
    join = pair(f"SELECT l.a FROM lefts l LEFT JOIN rights r ON {on}", "a int, b int")._run.plan.join
    both = [str(p) for p in join.tree.predicates if "ts" not in str(p)]
    return [str(e) for e in join.tree.own], [str(f) for f in join.filters], both


@pytest.mark.parametrize(
    ("conditions", "found"),
    [
        ([], ([], [], [])),
        ([LEFT], ([LEFT], [], [])),
        ([RIGHT], ([], [RIGHT], [])),
        ([BOTH], ([], [], [BOTH])),
        ([LEFT, RIGHT, BOTH], ([LEFT], [RIGHT], [BOTH])),
        ([BOTH, RIGHT, "l.b = 7", LEFT], (["l.b = 7", LEFT], [RIGHT], [BOTH])),
    ],
    ids=["empty", "left", "right", "both", "mixed", "mixed, in another order"],
)
def test_split(conditions, found):
    """Cases "empty expression", "only left consumable", "only right consumable", "mixed": a row that fails its own condition meets nobody."""
    assert split(*conditions) == found


def test_literals():
    """Case "only literals": what is always true is no condition, and what is never true lets every left row out at once."""
    for condition, answer in (("1 = 1", 5), ("1 = 2", None)):
        on = f"l.ts = r.ts AND {condition}"
        test = pair(f"SELECT l.a, r.b FROM lefts l LEFT JOIN rights r ON {on}", "a int, b int")
        test.batch(lefts=[(1, 0, 0)], rights=[(1, 5, 0)]).end().check((1, answer))


@pytest.mark.parametrize("condition", ["rand() > 0.5", "l.a > rand()", "l.a + r.b > rand()"])
def test_chance(condition):
    """Cases with nondeterministic conjuncts: Spark splits off what stands before one; here a replay must give the same answers, so it is refused."""
    with pytest.raises(wm.UnsupportedError, match="replayable"):
        split(LEFT, condition)
