"""Hostile queries added to a running registry: each is refused, suspended or answered, no batch fails, and nobody else's answers change.

`make fuzz` adds thousands; what it finds is kept here.
"""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.registry.hostile import GOOD, hurt_nobody
from tests.rounds.test_subscriptions import SCHEMA, SPECS, answers, batch_of, in_memory
from watersmeet.registry.shared import gates
from watersmeet.registry.shared.gates import _residual
from watersmeet.registry.versions import _HELD
from watersmeet.runtime.subscriptions.own import OWN


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_hostile_queries_of_one_running_registry_hurt_nobody(engine: str) -> None:
    assert hurt_nobody(random.Random(22), 40, engine) > 0


def test_what_takes_too_much_beside_what_breaks_is_suspended() -> None:
    """RJoin's combinations are counted in later rounds than the one in which an aggregate breaks: the quota is met while the broken one is looked for."""
    assert hurt_nobody(random.Random(11), 100, "rjoin") > 0


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


@pytest.mark.parametrize("join", ["LEFT", "LEFT ANTI", "LEFT SEMI", "FULL", "RIGHT", "ASOF LEFT"])
@pytest.mark.parametrize("asked", ["r.id + 0.0", "s.id + 0.0", "r.id + s.id"])
def test_a_value_is_no_condition_of_an_outer_join(join: str, asked: str) -> None:
    """Found by the fuzz: what one side alone decides was taken, and every batch failed."""
    with pytest.raises(wm.QueryError, match="not true or false: compare it with something"):
        in_memory().add(
            f"SELECT r.id AS x FROM r {join} JOIN s ON r.k = s.k AND r.ts >= s.ts AND {asked} WINDOW = 3 SECONDS"
        )


def test_a_condition_that_breaks_before_tuples_are_joined_fails_its_query_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Found by the fuzz: the gate of a query that was struck out stayed in its block, and the batch failed without any query."""

    def write(columns: Any, residual: Any) -> str:
        made: str = _residual(columns, residual)
        return f"no_such_function({made})" if "817263001" in residual.parameters else made

    monkeypatch.setattr(gates, "_residual", write)
    subs, twin = in_memory(), in_memory()
    for one in (subs, twin):
        one.add_all(GOOD)
    subs.add("SELECT r.id AS x FROM r, s WHERE r.k = s.k AND r.id * 3 < 817263001 WINDOW = 9 SECONDS", id="bad")
    for number in range(3):
        assert Counter({p: n for p, n in answers(subs, number).items() if p[0] in GOOD}) == answers(twin, number)
    assert {e.id: e.state for e in subs.list()} == {**dict.fromkeys(GOOD, "running"), "bad": "failed"}
