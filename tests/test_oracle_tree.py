"""The oracle of join trees: which rows, against DuckDB; in which batch, by cases that are worked out by hand."""

from __future__ import annotations

import random
from typing import Any

import duckdb
import pytest

from tests.oracle import Arrival, OracleQuery, Predicate, run, same
from tests.oracle_tree import Leaf, Node

DDL = {"a": "a", "b": "b", "c": "c"}


def equal(x: str, y: str) -> dict[str, Any]:
    """ON x.k = y.k."""
    return {
        "on": [Predicate(frozenset((x, y)), lambda env: same(env[x]["k"], env[y]["k"]))],
        "keys": [(frozenset((x,)), lambda env: env[x]["k"]), (frozenset((y,)), lambda env: env[y]["k"])],
    }


def query(tree: Any, aliases: str = "ab") -> OracleQuery:
    shown = list(aliases)
    return OracleQuery(
        [(a, a) for a in aliases],
        [],
        [],
        lambda env: tuple(env[a]["v"] if a in env else None for a in shown),
        tree=tree,
    )


def arrive(**batches: list[list[tuple[Any, int]]]) -> dict[str, Arrival]:
    """Streams of (key, time), lateness 0; v is the stream's name and the time."""
    return {
        name: Arrival([[{"k": k, "ts": ts, "v": f"{name}{ts}"} for k, ts in batch] for batch in found], 0)
        for name, found in batches.items()
    }


def test_an_unmatched_row_leaves_when_the_watermark_has_passed_its_window():
    tree = Node("left", Leaf("a"), Leaf("b"), **equal("a", "b"), windows=[("a", "b", -5, 5)])
    streams = arrive(a=[[(1, 10), (2, 10)], [], []], b=[[(1, 12)], [(9, 15)], [(9, 16)]])
    assert run(query(tree), streams).results == [(0, ("a10", "b12")), (2, ("a10", None))], "15 may still meet it"


def test_a_row_that_can_match_nothing_leaves_at_once():
    tree = Node("full", Leaf("a"), Leaf("b"), **equal("a", "b"), windows=[("a", "b", -5, 5)])
    streams = arrive(a=[[(None, 10)], [(1, 30)]], b=[[(None, 12)], [(1, 40)]])
    found = run(query(tree), streams, ends=True)
    assert found.in_batch(0) == [("a10", None), (None, "b12")]
    assert [r for r in found.results if r[0]] == [(1, ("a30", None)), (2, (None, "b40"))]


def test_semi_once_and_anti_never_of_a_matched_row():
    streams = arrive(a=[[(1, 10), (2, 11)], []], b=[[(1, 12), (1, 13)], [(1, 14), (3, 99)]])
    for kind, expected in (("semi", [(0, ("a10", None))]), ("anti", [(1, ("a11", None))])):
        tree = Node(kind, Leaf("a"), Leaf("b"), **equal("a", "b"), windows=[("a", "b", -5, 5)])
        assert run(query(tree), streams).results == expected


def test_a_join_after_an_outer_join_waits_for_what_leaves_late():
    left = Node("left", Leaf("a"), Leaf("b"), **equal("a", "b"), windows=[("a", "b", 0, 5)])
    tree = Node("anti", Leaf("c"), left, **equal("a", "c"), windows=[("c", "a", -2, 2)])
    streams = arrive(a=[[(1, 10)], [(7, 90)], []], b=[[(8, 10)], [], [(9, 18)]], c=[[(1, 10), (2, 10)], [], []])
    assert run(query(tree, "abc"), streams).results == [(2, (None, None, "c10"))], (
        "b may release a partner at 12 until its watermark is past 17"
    )


def test_as_of_takes_the_nearest_and_waits_for_it():
    streams = arrive(a=[[(1, 10), (2, 20)], []], b=[[(1, 3), (1, 9), (1, 10)], [(1, 11), (2, 30)]])
    back = Node("asof left", Leaf("a"), Leaf("b"), **equal("a", "b"), asof=("a", ">=", "b"))
    assert run(query(back), streams).results == [(1, ("a10", "b10")), (1, ("a20", None))]
    strict = Node("asof", Leaf("a"), Leaf("b"), **equal("a", "b"), asof=("a", ">", "b"))
    assert run(query(strict), streams).results == [(1, ("a10", "b9"))]
    ahead = Node("asof", Leaf("a"), Leaf("b"), **equal("a", "b"), asof=("a", "<=", "b"), windows=[("a", "b", None, 10)])
    assert run(query(ahead), streams, ends=True).results == [(1, ("a10", "b10")), (2, ("a20", "b30"))]


KINDS = {
    "inner": "JOIN",
    "left": "LEFT JOIN",
    "right": "RIGHT JOIN",
    "full": "FULL JOIN",
    "semi": "SEMI JOIN",
    "anti": "ANTI JOIN",
}


@pytest.mark.parametrize("second", KINDS)
@pytest.mark.parametrize("first", KINDS)
def test_the_rows_are_those_of_duckdb(first, second):
    chance = random.Random(f"{first} {second}")
    shape = chance.choice(["left deep", "right deep"] if second not in ("semi", "anti") else ["left deep"])
    if first in ("semi", "anti"):
        shape = "left deep"
    streams = arrive(
        **{
            n: [[(chance.choice([1, 2, 3, None]), ts) for ts in sorted(chance.sample(range(40), 9))] for _ in "12"]
            for n in "abc"
        }
    )
    streams = {n: Arrival(s.batches, None) for n, s in streams.items()}
    near = lambda x, y: [(x, y, -8, 4)]  # noqa: E731
    text = lambda x, y: f"{x}.k = {y}.k AND ({y}.ts - {x}.ts BETWEEN -8 AND 4 OR {x}.ts IS NULL OR {y}.ts IS NULL)"  # noqa: E731
    if shape == "left deep":
        inner = Node(first, Leaf("a"), Leaf("b"), **equal("a", "b"), windows=near("a", "b"))
        tree = Node(second, inner, Leaf("c"), **equal("a", "c"), windows=near("a", "c"))
        sql = f"a {KINDS[first]} b ON {text('a', 'b')} {KINDS[second]} c ON {text('a', 'c')}"
    else:
        inner = Node(first, Leaf("b"), Leaf("c"), **equal("b", "c"), windows=near("b", "c"))
        tree = Node(second, Leaf("a"), inner, **equal("a", "b"), windows=near("a", "b"))
        sql = f"a {KINDS[second]} (b {KINDS[first]} c ON {text('b', 'c')}) ON {text('a', 'b')}"
    found = run(query(tree, "abc"), streams, ends=True).rows
    with duckdb.connect() as db:
        for name, stream in streams.items():
            db.execute(f"CREATE TABLE {name} (k INT, ts BIGINT, v VARCHAR)")
            db.executemany(
                f"INSERT INTO {name} VALUES (?, ?, ?)", [[r["k"], r["ts"], r["v"]] for b in stream.batches for r in b]
            )
        gone = {"b": first, "c": second}
        shown = ", ".join(f"{n}.v" if gone.get(n) not in ("semi", "anti") else "NULL" for n in "abc")
        expected = db.execute(f"SELECT {shown} FROM {sql}").fetchall()
    assert sorted(found, key=str) == sorted(expected, key=str)
    assert found or first in ("semi", "anti", "inner")
