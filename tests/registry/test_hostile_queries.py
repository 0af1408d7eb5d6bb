"""Hostile queries added to a running registry: each is refused, suspended or answered, no batch fails, and nobody else's answers change."""

from __future__ import annotations

import itertools
from collections import Counter
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.rounds.test_subscriptions import SCHEMA, SPECS, answers, batch_of, in_memory, sql

GOOD = {
    "pair": sql(6),
    "once": "SELECT DISTINCT r.k AS x FROM r, s WHERE r.k = s.k AND r.id > 3 WINDOW = 4 SECONDS",
    "even": "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k AND r.id % 2 = 0 WINDOW = 2 SECONDS",
}
HUGE = st.sampled_from(
    [
        "1e308",
        "1e400",
        "-1e-400",
        str(10**38),
        str(10**400),
        "9223372036854775807",
        "-9223372036854775808",
        "0.0",
        "'x'",
    ]
)
COLUMN = st.sampled_from(["r.id", "s.id", "r.k", "s.k"])


@st.composite
def expressions(draw: Any) -> str:
    one, two, huge = draw(COLUMN), draw(COLUMN), draw(HUGE)
    depth = draw(st.sampled_from([1, 30, 300, 3000]))
    return draw(
        st.sampled_from(
            [
                f"{one} / ({two} - {two})",
                f"{one} % 0",
                f"{one} * {huge} * {two}",
                f"{one} + {huge}",
                f"{'-' * (depth % 7)}{one}",
                f"{'(' * depth}{one}{')' * depth}",
                " + ".join([one] * (depth // 2)) or one,
                "CASE " + " ".join(f"WHEN {one} = {n} THEN {n}" for n in range(depth % 100)) + f" ELSE {two} END",
                f"repeat('a', {huge})",
                f"cast({one} AS tinyint) * 100",
                f"{one} IN ({', '.join(map(str, range(depth)))})",
                f"'{'a' * depth}!' RLIKE '(a+)+$'",
                f"'{'a' * depth}' LIKE '{'%a' * (depth % 40)}%b'",
                f"{one} BETWEEN {huge} AND {two}",
                f"(SELECT max(k) FROM s WHERE s.k = {one})",
                f"`{one}`",
                "{0}",
                "1; DROP TABLE r",
            ]
        )
    )


@st.composite
def hostile(draw: Any) -> str:
    kind = draw(st.sampled_from(["condition", "select", "wide", "many", "lone", "open"]))
    if kind == "condition":
        test = draw(st.sampled_from(["{} > 0", "{} = {}", "NOT ({} < 1)", "{} IS NULL OR 1 = 1", "{}"]))
        return f"SELECT r.id AS x FROM r, s WHERE r.k = s.k AND {test.replace('{}', draw(expressions()))} WINDOW = 3 SECONDS"
    if kind == "select":
        return f"SELECT {draw(expressions())} AS x FROM r, s WHERE r.k = s.k WINDOW = 3 SECONDS"
    if kind == "many":
        count = draw(st.sampled_from([1, 255, 256, 257, 400]))
        return f"SELECT {', '.join(f'r.id AS c{n}' for n in range(count))} FROM r, s WHERE r.k = s.k WINDOW = 3 SECONDS"
    if kind == "lone":
        return f"SELECT r.id AS x FROM r WHERE {draw(expressions()).replace('s.', 'r.')} > {draw(HUGE)}"
    names = [f"a{n}" for n in range(draw(st.sampled_from([2, 5, 9, 16, 17])))]
    equal = " AND ".join(f"{x}.k = {y}.k" for x, y in itertools.pairwise(names))
    window = "" if kind == "open" else "WINDOW = 50 SECONDS"
    return f"SELECT a0.id AS x FROM {', '.join(f'r {n}' for n in names)} WHERE {equal} {window}"


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@settings(max_examples=8)
@given(st.lists(hostile(), min_size=1, max_size=6))
def test_hostile_queries_hurt_nobody(engine: str, queries: list[str]) -> None:
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in SPECS}
    quotas = wm.Quotas(answers=5_000, combinations=20_000, streams=16 if engine == "shared" else 4)
    subs, twin = wm.local.subscriptions(streams, engine=engine, quotas=quotas), in_memory()
    for one in (subs, twin):
        one.add_all(GOOD)
    for number in range(3):
        for sql_ in queries[number::3]:
            with suppress(wm.WatersmeetError):
                subs.add(sql_)
        out = subs.push(batch_of(number))
        found = Counter(zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True))
        assert Counter({p: n for p, n in found.items() if p[0] in GOOD}) == answers(twin, number)
    assert {e.id for e in subs.list() if e.state == "running"} >= set(GOOD)
    assert not [e for e in subs.list() if e.state == "failed"], "what is accepted can be answered"
