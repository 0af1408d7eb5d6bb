"""Quotas of registered queries: who takes more is suspended, and the others are answered as if it had never been."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.rounds.test_subscriptions import SCHEMA, SPECS, Life, Sink, answers, batch_of, in_memory, sql
from watersmeet.kernels.registered.probe_trie import walk

ENGINES = pytest.mark.parametrize("engine", ["shared", "rjoin"])
CROSS = "SELECT r.id AS x, s.id AS y FROM r, s, r z WHERE r.k = s.k AND z.k = s.k WINDOW = 100 SECONDS"


def registry(quotas: wm.Quotas, engine: str = "shared") -> Any:
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in SPECS}
    return wm.local.subscriptions(streams, engine=engine, quotas=quotas, units=2)


def of(out: pa.Table) -> Counter[tuple[str, str]]:
    return Counter(zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True))


@ENGINES
def test_a_query_with_too_many_answers_is_suspended_and_the_others_are_answered(engine: str) -> None:
    subs, twin = registry(wm.Quotas(answers=30), engine), in_memory()
    for one in (subs, twin):
        one.add(sql(4), id="small")
    subs.add(CROSS, id="large")
    for number in range(5):
        assert Counter({p: n for p, n in of(subs.push(batch_of(number))).items() if p[0] == "small"}) == answers(
            twin, number
        )
    (entry,) = (e for e in subs.list() if e.id == "large")
    assert entry.state == "suspended"
    assert entry.reason is not None
    assert "more than 30 answers in one micro-batch" in entry.reason
    assert "answers=" in entry.reason
    subs.remove("large")
    assert [e.id for e in subs.list()] == ["small"]


@ENGINES
def test_a_join_that_explodes_is_suspended_though_it_answers_nothing(engine: str) -> None:
    subs = registry(wm.Quotas(combinations=50), engine)
    where = " AND ".join(f"a.k = {x}.k" for x in "bcdefgh")
    bomb = f"SELECT a.id AS x FROM {', '.join(f'r {x}' for x in 'abcdefgh')} WHERE {where} AND a.id + b.id < 0"
    subs.add_all({"small": sql(1), "bomb": f"{bomb} WINDOW = 100 SECONDS", "other": f"{bomb} WINDOW = 99 SECONDS"})
    assert {id for id, _ in of(subs.push(batch_of(0)))} == {"small"}
    assert {e.id: e.state for e in subs.list()} == {"small": "running", "bomb": "suspended", "other": "suspended"}
    assert "more than 50 combinations in one micro-batch" in str(subs.list()[-1].reason)


def test_who_has_the_most_rewritten_queries_is_suspended() -> None:
    """Those of `long` wait for a third tuple that never comes."""
    subs, twin = (registry(quotas, "rjoin") for quotas in (wm.Quotas(rewritten_bytes=8_000), wm.Quotas()))
    waits = "SELECT a.id AS x FROM r a, r b, s WHERE a.k = b.k AND b.id = s.id AND s.k = a.id AND a.id > 3 WINDOW = {} SECONDS"
    for one in (subs, twin):
        one.add_all({"small": sql(4), "short": waits.format(1)})
    subs.add(waits.format(50), id="long")
    for number in range(12):
        assert of(subs.push(batch_of(number))) == of(twin.push(batch_of(number)))
    assert {e.id: e.state for e in subs.list()} == {"small": "running", "short": "running", "long": "suspended"}
    reason = next(str(e.reason) for e in subs.list() if e.id == "long")
    assert "has the most of more than 8,000 bytes of rewritten queries at one unit" in reason
    assert "rewritten_bytes=" in reason


@ENGINES
@settings(max_examples=8)
@given(st.data())
def test_whatever_the_quotas_who_is_not_suspended_is_answered_as_without_them(engine: str, data: st.DataObject) -> None:
    """And who is suspended was answered in full until then."""
    most = st.integers(5, 60)
    quotas = wm.Quotas(answers=data.draw(most), combinations=data.draw(most), rewritten_bytes=150 * data.draw(most))
    subs, twin = (registry(q, engine) for q in (quotas, wm.Quotas()))
    forms = [
        sql(1),
        sql(9),
        CROSS,
        CROSS.replace("100 S", "3 S"),
        CROSS.replace("z.k", "z.id"),
        CROSS.replace("SELECT", "SELECT DISTINCT"),
    ]
    for number in range(data.draw(st.integers(2, 4))):
        for form in data.draw(st.lists(st.sampled_from(forms), max_size=3)):
            for one in (subs, twin):
                one.add(form, id=f"{number}-{forms.index(form)}") if form not in [e.sql for e in one.list()] else None
        out, want = of(subs.push(batch_of(number))), of(twin.push(batch_of(number)))
        running = {e.id for e in subs.list() if e.state == "running"}
        assert out == Counter({p: n for p, n in want.items() if p[0] in running})
    assert {e.state for e in subs.list()} <= {"running", "suspended"}


@pytest.mark.parametrize(
    ("query", "quotas", "reason"),
    [
        ("SELECT r.id FROM r, s WHERE r.id < s.id", wm.Quotas(answers=30), "30 answers in one micro-batch"),
        ("SELECT r.id FROM r, s WHERE r.id < s.id", wm.Quotas(state=5), "5 tuples and rows of state"),
        (
            "SELECT count(*) AS n FROM r, s WHERE r.id <> s.id GROUP BY r.id > 99",
            wm.Quotas(combinations=30),
            "30 combinations in one micro-batch",
        ),
    ],
)
def test_a_query_that_shares_nothing_has_quotas(query: str, quotas: wm.Quotas, reason: str) -> None:
    subs, lone = registry(quotas), "SELECT r.id AS x FROM r WHERE r.id >= 0"
    subs.add_all(
        {
            "large": f"{query} WINDOW = 100 SECONDS"
            if "GROUP" not in query
            else query.replace("GROUP", "WINDOW = 100 SECONDS GROUP"),
            "small": lone,
        }
    )
    found = [of(subs.push(batch_of(number))) for number in range(5)]
    assert all("small" in {id for id, _ in out} for out in found)
    (entry,) = (e for e in subs.list() if e.id == "large")
    assert entry.state == "suspended"
    assert f"more than {reason}" in str(entry.reason)


def test_what_leaves_is_not_joined_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[int] = []

    def count(*args: Any, **named: Any) -> Any:
        for templates, tuples in walk(*args, **named):
            made.append(len(templates))
            yield templates, tuples

    monkeypatch.setattr("watersmeet.registry.shared.flow.walk", count)
    subs = registry(wm.Quotas())
    subs.add_all({**{f"q{n}": sql(n + 1) for n in range(8)}, "cross": CROSS})
    subs.push(batch_of(0))
    subs.remove("cross")
    for n in range(1, 8):
        subs.remove(f"q{n}")
    del made[:]
    out = subs.push(batch_of(1))
    assert sum(made) == out.num_rows == Counter(out["query"].to_pylist())["q0"] > 0


def test_a_query_with_too_much_state_is_suspended_and_its_tuples_are_dropped() -> None:
    subs = registry(wm.Quotas(state=30))
    subs.add_all({"short": sql(4), "long": sql(1_000), "longer": CROSS.replace("100 S", "1000 S")})
    for number in range(3):
        subs.push(batch_of(number))
    assert {e.state for e in subs.list()} == {"running"}
    for number in range(3, 8):
        subs.push(batch_of(number))
    found = {e.id: e.state for e in subs.list()}
    assert found == {"short": "running", "long": "suspended", "longer": "suspended"}
    assert all(sum(r.retained.values()) <= 30 for r in subs.reports)


def test_rows_of_distinct_count_as_state() -> None:
    subs = registry(wm.Quotas(state=20))
    subs.add("SELECT DISTINCT r.id AS x FROM r, s WHERE r.k = s.k", id="distinct")
    subs.add("SELECT r.id AS x FROM r, s WHERE r.k = s.k WINDOW = 1 SECOND", id="plain")
    for number in range(2):
        subs.push(batch_of(number))
    assert {e.id: e.state for e in subs.list()} == {"plain": "running", "distinct": "suspended"}


def test_a_suspension_survives_a_restart_and_is_told_with_the_progress(tmp_path: Path) -> None:
    quotas = wm.Quotas(answers=30)
    life = Life(tmp_path, Sink(), quotas=quotas)
    life.registry.add_all([("small", sql(4)), ("large", CROSS)])
    life.batch(0)
    life.batch(1)
    assert set(life.last.suspended) == {"large"}
    assert not life.last.failed
    again = Life(tmp_path, life.sink, quotas=quotas)
    again.batch(2)
    assert {e.id: e.state for e in again.registry.list()} == {"small": "running", "large": "suspended"}
    assert {id for id, _ in life.sink.batches[2]} == {"small"}


def test_sizes_are_refused_by_add() -> None:
    subs = registry(wm.Quotas(streams=2, columns=1, conditions=2))
    with pytest.raises(wm.UnsupportedError, match="3 streams in FROM, and a subscription has 2 at most"):
        subs.add(CROSS)
    with pytest.raises(wm.UnsupportedError, match="2 columns in SELECT"):
        subs.add(sql(3))
    with pytest.raises(wm.UnsupportedError, match="3 conditions"):
        subs.add("SELECT r.id FROM r, s WHERE r.k = s.k AND r.id > 3 AND s.id > 5")


@pytest.mark.parametrize(
    "given", [{"answers": 0}, {"state": -1}, {"columns": 257}, {"streams": True}, {"answers": 2.5}]
)
def test_quotas_that_are_none(given: dict[str, Any]) -> None:
    with pytest.raises(wm.OptionError, match=next(iter(given))):
        wm.Quotas(**given)


def test_what_is_no_quota_or_cannot_be_counted() -> None:
    with pytest.raises(wm.OptionError, match=r"give wm\.Quotas"):
        registry(3)  # type: ignore[arg-type]
    with pytest.raises(wm.OptionError, match="engine='rjoin'"):
        registry(wm.Quotas(state=5), "rjoin")
