"""Join trees as they are bound: what an outer join becomes, where conditions go, and what is refused in words that help."""

from __future__ import annotations

import pytest

from watersmeet.errors import QueryError, UnknownNameError, UnsupportedError, WindowError
from watersmeet.query.stream import StreamSpec
from watersmeet.query.tree import Node
from watersmeet.sql.parse import parse

SCHEMA = {"k": "bigint", "n": "bigint", "v": "double", "ts": "timestamp"}
STREAMS = {name: StreamSpec(name, SCHEMA, time="ts") for name in ("s0", "s1", "s2")}
NEAR = "WINDOW (a, b) = 10 SECONDS"


def bind(text: str):
    return parse(text, STREAMS)


def kinds(tree: Node) -> list[str]:
    return [node.kind for node in tree.nodes]


@pytest.mark.parametrize(
    ("join", "kind"),
    [("LEFT JOIN", "left"), ("LEFT OUTER JOIN", "left"), ("RIGHT JOIN", "left"), ("FULL OUTER JOIN", "full"), ("LEFT SEMI JOIN", "semi"), ("SEMI JOIN", "semi"), ("LEFT ANTI JOIN", "anti"), ("ANTI JOIN", "anti")],
)  # fmt: skip
def test_every_kind(join, kind):
    found = bind(f"SELECT a.k FROM s0 a {join} s1 b ON a.k = b.k {NEAR}" if kind != "left" or "RIGHT" not in join else f"SELECT b.k FROM s0 a {join} s1 b ON a.k = b.k {NEAR}")  # fmt: skip
    assert kinds(found.tree) == [kind]
    assert found.tree.inputs[0].alias == ("b" if "RIGHT" in join else "a")


@pytest.mark.parametrize(
    ("from_", "where", "now"),
    [
        ("s0 a LEFT JOIN s1 b ON a.k = b.k", "b.n > 3", None),
        ("s0 a LEFT JOIN s1 b ON a.k = b.k", "b.n > 3 OR b.n IS NULL", "left"),
        ("s0 a LEFT JOIN s1 b ON a.k = b.k", "b.n IS NOT NULL", None),
        ("s0 a LEFT JOIN s1 b ON a.k = b.k", "NOT (b.n <= 3)", None),
        ("s0 a LEFT JOIN s1 b ON a.k = b.k", "coalesce(b.n, 5) > 3", "left"),
        ("s0 a LEFT JOIN s1 b ON a.k = b.k", "a.n > 3", "left"),
        ("s0 a FULL JOIN s1 b ON a.k = b.k", "a.n > 3", "left"),
        ("s0 a FULL JOIN s1 b ON a.k = b.k", "b.n + 1 BETWEEN 1 AND 3", "left"),
        ("s0 a FULL JOIN s1 b ON a.k = b.k", "a.n < b.n", None),
        ("s0 a RIGHT JOIN s1 b ON a.k = b.k", "a.n IN (1, 2)", None),
    ],
)
def test_a_condition_that_rejects_nulls_makes_it_the_join_that_it_equals(from_, where, now):
    found = bind(f"SELECT a.n, b.n AS m FROM {from_} WHERE {where} {NEAR}")
    assert (None if found.tree is None else found.tree.kind) == now
    before = {"LEFT": "left", "FULL": "full", "RIGHT": "left"}[from_.split()[2]]
    assert bool(found.notes) == (now != before)


def test_a_later_on_rejects_nulls_too():
    found = bind(
        f"SELECT a.k FROM s0 a LEFT JOIN s1 b ON a.k = b.k JOIN s2 c ON c.k = b.k {NEAR} WINDOW (b, c) = 1 SECOND"
    )
    assert found.tree is None
    assert found.notes == ("LEFT JOIN b is an inner join: WHERE or a later ON rejects its NULLs",)


def test_conditions_go_where_they_decide():
    found = bind(
        f"SELECT a.k, b.k AS j FROM s0 a LEFT JOIN s1 b ON a.k = b.k AND a.n = 1 AND b.n = 2 WHERE a.v > 0 AND (b.v > 0 OR b.v IS NULL) {NEAR}"
    )
    assert [str(f) for f in found.filters] == ["a.v > 0", "b.n = 2"]
    assert [str(e) for e in found.tree.own] == ["a.n = 1"]
    assert [str(e) for e in found.after] == ["b.v > 0 OR b.v IS NULL"]


def test_inner_joins_next_to_each_other_are_one():
    found = bind("SELECT a.k FROM s0 a JOIN s1 b ON a.k = b.k LEFT JOIN s2 c ON c.k = a.k WINDOW = 10 SECONDS")
    assert kinds(found.tree) == ["inner", "left"]
    nested = bind("SELECT a.k FROM s0 a LEFT JOIN (s1 b JOIN s2 c ON b.k = c.k) ON b.k = a.k WINDOW = 10 SECONDS")
    assert kinds(nested.tree) == ["inner", "left"]
    assert nested.tree.inputs[1].aliases == ("b", "c")


@pytest.mark.parametrize(
    ("text", "error", "words"),
    [
        ("SELECT a.k FROM s0 a LEFT JOIN s1 b ON a.k = b.k", WindowError, r"LEFT JOIN b: .*'a' without a partner could never leave.*add WINDOW \(a, b\)"),
        ("SELECT a.k FROM s0 a LEFT ANTI JOIN s1 b ON a.k = b.k", WindowError, r"LEFT ANTI JOIN b.*add WINDOW \(a, b\)"),
        ("SELECT a.k FROM s0 a LEFT JOIN s1 b ON a.k = b.k AND b.ts >= a.ts", WindowError, r"add WINDOW \(a, b\)"),
        (f"SELECT a.k FROM s0 a LEFT JOIN s1 b ON a.k = c.k JOIN s2 c ON a.k = c.k {NEAR}", UnknownNameError, "ON of LEFT JOIN b names c, which is not joined there.*later ON or to WHERE"),
        (f"SELECT a.k, b.k FROM s0 a LEFT SEMI JOIN s1 b ON a.k = b.k {NEAR}", UnknownNameError, "no alias 'b' in FROM|'b'"),
        (f"SELECT a.k FROM s0 a LEFT ANTI JOIN s1 b ON a.k = b.k WHERE b.n > 1 {NEAR}", UnknownNameError, "'b'"),
        ("SELECT a.k FROM s0 a [ROWS 5] LEFT JOIN s1 b ON a.k = b.k WINDOW (a, b) = 1 SECOND", UnsupportedError, "ROWS goes with inner joins.*RANGE"),
        (f"SELECT a.k FROM s0 a FULL JOIN s1 b USING (k) {NEAR}", UnsupportedError, "USING in FULL JOIN b"),
        (f"SELECT a.k FROM s0 a RIGHT SEMI JOIN s1 b ON a.k = b.k {NEAR}", UnsupportedError, "RIGHT SEMI JOIN b is not supported: there are"),
        (f"SELECT a.k FROM s0 a NATURAL LEFT JOIN s1 b {NEAR}", UnsupportedError, "NATURAL"),
        (f"SELECT a.k FROM s0 a ASOF JOIN s1 b ON a.k = b.k {NEAR}", QueryError, r"ASOF JOIN b: ON needs one order of event times, such as a\.ts >= b\.ts; found none"),
        (f"SELECT a.k FROM s0 a ASOF JOIN s1 b ON a.k = b.k AND a.ts >= b.ts AND a.ts <= b.ts {NEAR}", QueryError, r"ASOF JOIN b: ON needs one order .*found a\.ts >= b\.ts and a\.ts <= b\.ts; leave one, .*WINDOW"),
        (f"SELECT a.k FROM s0 a ASOF JOIN s1 b ON a.k = b.k AND a.ts = b.ts {NEAR}", QueryError, "needs one order of event times.*found none"),
        (f"SELECT a.k FROM s0 a ASOF JOIN s1 b ON a.n < b.n AND a.ts >= b.ts {NEAR}", UnsupportedError, "ASOF JOIN b: a.n < b.n is no equality.*WHERE"),
        ("SELECT a.k FROM s0 a ASOF JOIN s1 b ON a.ts >= b.ts AND b.ts >= a.ts - INTERVAL 5 SECONDS", UnsupportedError, r"is no equality.*WINDOW \(a, b\) = 10 MINUTES"),
        ("SELECT a.k FROM s0 a ASOF LEFT JOIN s1 b ON a.k = b.k AND a.ts <= b.ts", WindowError, r"ASOF LEFT JOIN b: .*could never leave.*add WINDOW \(a, b\) = 10 MINUTES$"),
        ("SELECT a.k FROM s0 a ASOF LEFT JOIN s1 b ON a.ts < b.ts AND a.k = b.k", WindowError, r"add WINDOW \(a, b\) = 10 MINUTES$"),
        (f"SELECT a.k FROM s0 a ASOF JOIN s1 b ON a.ts >= c.ts JOIN s2 c ON a.k = c.k {NEAR}", UnknownNameError, "ON of ASOF JOIN b names c, which is not joined there"),
        (f"SELECT a.k FROM s0 a FULL JOIN s1 b ON a.k = b.k AND c.n = 1 JOIN s2 c ON a.k = c.k {NEAR}", UnknownNameError, "ON of FULL JOIN b names c.*later ON or to WHERE"),
        ("SELECT b.k FROM s0 a RIGHT JOIN s1 b ON a.k = b.k", WindowError, r"RIGHT JOIN b: .*'b' without a partner could never leave.*add WINDOW \(b, a\)"),
        ("SELECT a.k FROM s0 a FULL JOIN s1 b ON a.k = b.k AND b.ts >= a.ts", WindowError, r"FULL JOIN b: .*add WINDOW \(a, b\)"),
        ("SELECT a.k FROM s0 a JOIN s1 b ON a.k = b.k LEFT JOIN s2 c ON c.k = b.k WINDOW (a, b) = 1 SECOND", WindowError, r"LEFT JOIN c: .*'c' may come; add WINDOW \(a, c\)"),
        ("SELECT a.k FROM s0 a LEFT ANTI JOIN s1 b [ROWS 5] ON a.k = b.k WINDOW (a, b) = 1 SECOND", UnsupportedError, r"b \[ROWS 5\] .*ROWS goes with inner joins.*b \[RANGE"),
        ("SELECT a.k FROM s0 a [ROWS 5] ASOF JOIN s1 b ON a.ts >= b.ts", UnsupportedError, r"a \[ROWS 5\] .*ROWS goes with inner joins"),
    ],
)  # fmt: skip
def test_refused(text, error, words):
    with pytest.raises(error, match=words):
        bind(text)
