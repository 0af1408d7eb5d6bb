"""Queries that nobody should have written, and a registry that runs while they come and go: nobody else may notice."""

from __future__ import annotations

import itertools
import random
from collections import Counter
from contextlib import suppress
from functools import cache

import watersmeet as wm
from tests.rounds.test_subscriptions import SCHEMA, SPECS, answers, batch_of, in_memory, sql

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
AT_ONCE, LIVES = 20, 2
"""So many are added before every batch, and removed so many batches later."""


@cache
def answer_good(batches: int) -> list[Counter[tuple[str, str]]]:
    """The answers of GOOD in a registry without others, by batch."""
    twin = in_memory()
    twin.add_all(GOOD)
    return [answers(twin, number) for number in range(batches)]


def hurt_nobody(chance: random.Random, many: int, engine: str) -> int:
    """Add so many to a running registry: each is refused, suspended or answered, no batch fails, and the answers of GOOD are those of a twin without them. How many were
    not refused."""
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in SPECS}
    quotas = wm.Quotas(answers=5_000, combinations=20_000)
    subs = wm.local.subscriptions(streams, engine=engine, quotas=quotas)
    subs.add_all(GOOD)
    taken: list[list[str]] = []
    for number in range(max(3, many // AT_ONCE)):
        taken.append([])
        for text in [write_query(chance) for _ in range(min(AT_ONCE, many))]:
            with suppress(wm.WatersmeetError):
                taken[-1].append(subs.add(text))
        out = subs.push(batch_of(number))
        found = Counter(zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True))
        assert Counter({p: n for p, n in found.items() if p[0] in GOOD}) == answer_good(max(3, many // AT_ONCE))[number]
        failed = [
            (e.sql[:300], e.reason) for e in subs.list() if e.state == "failed" and OVERFLOW not in (e.reason or "")
        ]
        assert not failed, f"what is accepted can be answered: {failed}"
        for id in taken[number - LIVES] if number >= LIVES else ():
            subs.remove(id)
    assert {e.id for e in subs.list() if e.state == "running"} >= set(GOOD)
    return sum(map(len, taken))
