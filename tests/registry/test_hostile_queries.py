"""Hostile queries added to a running registry: each is refused, suspended or answered, no batch fails, and nobody else's answers change."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from contextlib import suppress

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.rounds.test_subscriptions import SCHEMA, SPECS, answers, batch_of, in_memory, sql
from watersmeet.registry.versions import _HELD
from watersmeet.runtime.subscriptions.own import OWN

GOOD = {
    "pair": sql(6),
    "once": "SELECT DISTINCT r.k AS x FROM r, s WHERE r.k = s.k AND r.id > 3 WINDOW = 4 SECONDS",
    "even": "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k AND r.id % 2 = 0 WINDOW = 2 SECONDS",
}
HUGE = (
    "1e308",
    "1e400",
    "-1e-400",
    str(10**38),
    str(10**400),
    "9223372036854775807",
    "-9223372036854775808",
    "0.0",
    "'x'",
)
COLUMNS = ("r.id", "s.id", "r.k", "s.k")


def write_expression(chance: random.Random) -> str:
    one, two, huge = chance.choice(COLUMNS), chance.choice(COLUMNS), chance.choice(HUGE)
    depth = chance.choice((1, 30, 300, 3000))
    return chance.choice(
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
            "\0n\0",
            "817263001",
        ]
    )


def write_query(chance: random.Random) -> str:
    """A query that nobody should have written."""
    kind = chance.choice(
        ("condition", "condition", "select", "wide", "many", "lone", "open", "missing", "groups", "apart")
    )
    made = write_expression(chance)
    seconds = f"WINDOW = {chance.choice((0, 1, 3, 50, 10**9))} SECONDS"
    if kind == "condition":
        test = chance.choice(("{} > 0", "{} = {}", "NOT ({} < 1)", "{} IS NULL OR 1 = 1", "{}")).replace("{}", made)
        return f"SELECT r.id AS x FROM r, s WHERE r.k = s.k AND {test} WINDOW = 3 SECONDS"
    if kind == "select":
        return f"SELECT {made} AS x FROM r, s WHERE r.k = s.k WINDOW = 3 SECONDS"
    if kind == "many":
        shown = ", ".join(f"r.id AS c{n}" for n in range(chance.choice((1, 255, 256, 257, 400))))
        return f"SELECT {shown} FROM r, s WHERE r.k = s.k WINDOW = 3 SECONDS"
    if kind == "lone":
        return f"SELECT r.id AS x FROM r WHERE {made.replace('s.', 'r.')} > {chance.choice(HUGE)}"
    if kind == "missing":
        join = chance.choice(("LEFT", "LEFT ANTI", "LEFT SEMI", "FULL", "RIGHT"))
        on = chance.choice(("r.k = s.k", "r.k = s.k AND {}", "{} > 0", "r.id < s.id")).replace("{}", made)
        return f"SELECT r.id AS x FROM r {join} JOIN s ON {on} {seconds}"
    if kind == "groups":
        having = chance.choice(("", "HAVING count(*) > 0", f"HAVING sum({made.replace('s.', 'r.')}) > 0"))
        return f"SELECT r.k AS x, sum({made.replace('s.', 'r.')}) AS y FROM r GROUP BY r.k, window(r.ts, '3 seconds') {having}"
    if kind == "apart":
        return f"SELECT r.id AS x, {made} AS y FROM r, s WHERE {chance.choice(('r.id < s.id', 'abs(r.id - s.id) <= 3', made))} {seconds}"
    names = [f"a{n}" for n in range(chance.choice((2, 5, 9, 16, 17)))]
    equal = " AND ".join(f"{x}.k = {y}.k" for x, y in itertools.pairwise(names))
    window = "" if kind == "open" else "WINDOW = 50 SECONDS"
    return f"SELECT a0.id AS x FROM {', '.join(f'r {n}' for n in names)} WHERE {equal} {window}"


OVERFLOW = "an aggregate cannot be evaluated"
"""A sum that overflows is no value of one tuple, so it is not NULL: its query fails."""
MANY = 5_000 if settings.get_current_profile_name() == "thorough" else 40
AT_ONCE, LIVES = 20, 2
"""So many are added before every batch, and removed so many batches later."""


def test_thousands_of_hostile_queries_hurt_nobody() -> None:
    """Nobody's batch fails, nobody's answers change, and what is accepted is answered or suspended."""
    hurt_nobody(random.Random(22), MANY, "shared")


def hurt_nobody(chance: random.Random, many: int, engine: str) -> None:
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in SPECS}
    quotas = wm.Quotas(answers=5_000, combinations=20_000, streams=16 if engine == "shared" else 4)
    subs, twin = wm.local.subscriptions(streams, engine=engine, quotas=quotas), in_memory()
    for one in (subs, twin):
        one.add_all(GOOD)
    taken: list[list[str]] = []
    for number in range(max(3, many // AT_ONCE)):
        taken.append([])
        for text in [write_query(chance) for _ in range(min(AT_ONCE, many))]:
            with suppress(wm.WatersmeetError):
                taken[-1].append(subs.add(text))
        out = subs.push(batch_of(number))
        found = Counter(zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True))
        assert Counter({p: n for p, n in found.items() if p[0] in GOOD}) == answers(twin, number)
        failed = [
            (e.sql[:300], e.reason) for e in subs.list() if e.state == "failed" and OVERFLOW not in (e.reason or "")
        ]
        assert not failed, f"what is accepted can be answered: {failed}"
        for id in taken[number - LIVES] if number >= LIVES else ():
            subs.remove(id)
    assert {e.id for e in subs.list() if e.state == "running"} >= set(GOOD)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_a_join_that_only_begins_is_suspended_and_those_that_begin_alike_are_not(engine: str) -> None:
    """Without a limit it would begin 100^5 combinations, of which none ends. RJoin begins where tuples are few, so there it ends, and has no answer."""
    begun = "a.k = b.k AND b.k = c.k"
    good = {
        "pair": "SELECT a.id AS x, b.id AS y FROM r a, r b WHERE a.k = b.k WINDOW = 1 SECOND",
        "three": f"SELECT a.id AS x, c.id AS y FROM r a, r b, r c WHERE {begun} WINDOW = 1 SECOND",
        "other": "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 2 SECONDS",
    }
    end, last = ("s f", "e.id = f.k") if engine == "shared" else ("r f", "e.k = f.k AND a.id + f.id < 0")
    bad = f"SELECT a.id AS x FROM r a, r b, r c, r d, r e, {end} WHERE {begun} AND c.k = d.k AND d.k = e.k AND {last}"
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in SPECS}
    subs, twin = (
        wm.local.subscriptions(streams, quotas=wm.Quotas(combinations=most), units=1, engine=engine)
        for most in (20_000, 10**9)
    )
    for one in (subs, twin):
        one.add_all(good)
    for number in range(3):
        if number == 1:
            subs.add(bad, id="bad")
        rows = [(1_000 + n, 7, (1_700_000_000 + n) * 1_000_000) for n in range(50 * number, 50 * number + 50)]
        batch = {
            n: pa.table(dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True)), schema=SCHEMA) for n in SPECS
        }
        out, want = (
            Counter(zip(made["query"].to_pylist(), made["answer"].to_pylist(), strict=True))
            for made in (subs.push(batch), twin.push(batch))
        )
        assert {id for id, _ in want} == set(good)
        assert out == want
    assert {e.id: e.state for e in subs.list()} == {**dict.fromkeys(good, "running"), "bad": "suspended"}
    (entry,) = (e for e in subs.list() if e.id == "bad")
    assert "more than 20,000 combinations in one micro-batch" in str(entry.reason)


def test_a_long_list_inside_a_condition_is_read_at_once() -> None:
    """Found by the test above: reading it as a list of values took exponential time, and the driver stood still."""
    subs = in_memory()
    listed = ", ".join(map(str, range(3_000)))
    subs.add(f"SELECT r.id AS x FROM r, s WHERE r.k = s.k AND (r.id IN ({listed}) IS NULL OR 1 = 1) WINDOW = 3 SECONDS")
    assert subs.push(batch_of(0)).num_rows > 0


def test_an_error_that_stands_twice_in_a_condition_is_null() -> None:
    """Found by the test above: DuckDB computed the part that is common to both sides before TRY, which did not catch its error."""
    subs = in_memory()
    twice = "cast(s.id AS tinyint) * 100"
    subs.add(f"SELECT r.id AS x FROM r, s WHERE r.k = s.k AND {twice} = {twice} WINDOW = 3 SECONDS", id="q")
    assert all(subs.push(batch_of(number)) is not None for number in range(12, 15))
    assert [(e.id, e.state) for e in subs.list() if e.state != "running"] == []


def test_runs_of_queries_that_are_gone_are_forgotten() -> None:
    subs = in_memory()
    for number in range(60):
        id = subs.add(f"SELECT r.id AS x FROM r, s WHERE r.id < s.id + {number} WINDOW = 1 SECOND")
        subs.push(batch_of(number))
        subs.remove(id)
    held = [key for key in _HELD[subs._view.name] if isinstance(key, tuple) and key[0] == OWN]
    assert 1 <= len(held) <= 30


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@settings(max_examples=5)
@given(st.randoms(use_true_random=False), st.integers(1, 3))
def test_hostile_queries_hurt_nobody(engine: str, chance: random.Random, many: int) -> None:
    hurt_nobody(chance, many, engine)
