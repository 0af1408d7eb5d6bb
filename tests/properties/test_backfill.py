"""Queries that are answered from stored tuples first, against the oracle: what is kept when they come, and each combination once."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests import oracle
from tests.cases import SCHEMA, Case
from tests.properties.test_subscriptions import PAIR, STREAMS, Plan, plans, shown, stream, table, two
from watersmeet.errors import UnsupportedError

Rows = dict[str, list[tuple[int, Any]]]
"""By stream (batch, row)."""


def admit(plan: Plan) -> Rows:
    arrivals = {s: oracle.Arrival([plan.batch(s, n) for n in range(plan.batches)], d.lateness_us) for s, d in plan.data}
    return oracle.admitted(arrivals, plan.batches)[0]


def keep_after(plan: Plan, last: int, living: list[tuple[Case, Rows]]) -> Rows:
    """What some living query (case, what it may see) may still use after a batch."""
    arrivals = {s: oracle.Arrival([plan.batch(s, n) for n in range(last + 1)], d.lateness_us) for s, d in plan.data}
    maxima = {s: oracle.highest(a.batches) for s, a in arrivals.items()}
    marks = {s: oracle.watermark(s, arrivals, maxima) for s in arrivals}
    out: dict[str, dict[int, tuple[int, Any]]] = {s: {} for s in arrivals}
    for case, visible in living:
        bounds, at = oracle.widest(case.query()), dict(case.aliases)
        for x, source in case.aliases:
            cut = min((marks[at[y]] - bounds[x, y] for y in case.names if y != x), default=float("inf"))
            out[source] |= {id(row): (n, row) for n, row in visible[source] if n <= last and row["ts"] >= cut}
    return {s: [*rows.values()] for s, rows in out.items()}


def answer(case: Case, visible: Rows, effect: int) -> list[tuple[int, tuple[Any, ...]]]:
    """(batch, values) of a query that sees these tuples; what it finds among tuples from before its effect leaves in that batch."""
    times = [getattr(e, "name", "") == "ts" for e in case.select]
    moved = {s: [(max(n, effect), row) for n, row in rows] for s, rows in visible.items()}
    made = oracle.combinations(case.query(), moved)
    if case.distinct:
        made = oracle.once_per_bucket(case.query(), made)
    return [(n, tuple(shown(v, t) for v, t in zip(row, times, strict=True))) for n, _, row in made]


@given(plan=plans(), data=st.data())
def test_a_query_with_backfill_sees_what_is_kept_and_answers_each_combination_once(plan: Plan, data: Any) -> None:
    first, again = plan.queries[0][0], data.draw(st.sampled_from((1, 1, 2)), label="again from")
    plan = replace(plan, queries=((first, 0, 9), *plan.queries[1:], (first, again, 9)))
    admitted = admit(plan)
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts", lateness=f"{d.lateness_us} us") for n, d in plan.data}
    subs = wm.local.subscriptions(streams, units=plan.units)
    fills = [*(data.draw(st.booleans(), label=f"backfill {n}") for n in range(len(plan.queries) - 1)), True]
    living: dict[str, tuple[Case, Rows]] = {}
    found: dict[str, Counter[Any]] = {}
    wanted: dict[str, tuple[Case, Rows, int, int]] = {}
    for batch in range(plan.batches):
        before = [*living.values()]
        for n, (case, added, removed) in enumerate(plan.queries):
            if batch == added:
                try:
                    subs.add(case.sql(), id=str(n), backfill=fills[n])
                except UnsupportedError:
                    continue
                kept = keep_after(plan, batch - 1, before) if fills[n] and batch else {s: [] for s in STREAMS}
                sees = {s: kept[s] + [(b, row) for b, row in admitted[s] if b >= batch] for s in STREAMS}
                living[str(n)], found[str(n)] = (case, sees), Counter()
                wanted[str(n)] = case, sees, batch, removed if removed > added else plan.batches
            elif batch == removed > added and str(n) in living:
                subs.remove(str(n))
                del living[str(n)]
        out = subs.push({s: table(plan.batch(s, batch)) for s in STREAMS})
        for id, text in zip(out.column("query").to_pylist(), out.column("answer").to_pylist(), strict=True):
            found[id][batch, tuple(json.loads(text).values())] += 1
    for id, (case, sees, effect, last) in wanted.items():
        assert found[id] == Counter(a for a in answer(case, sees, effect) if a[0] < last), case.sql()


@pytest.mark.parametrize("units", [1, 4])
def test_what_ask_finds_is_what_a_backfill_answers(units: int) -> None:
    subs = two(units=units)
    subs.add("SELECT r.id FROM r, s WHERE r.k = s.k WINDOW = 1 HOUR")
    for n in range(5):
        subs.push({name: stream((n, n % 2, float(n))) for name in "rs"})
    late = "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 2 SECONDS"
    asked = subs.ask(late).sort_by([("x", "ascending"), ("y", "ascending")]).to_pylist()
    subs.add(late, id="q", backfill=True)
    subs.add("SELECT s.id FROM s WHERE s.k = 1", id="alone", backfill=True)
    out = subs.push({})
    rows = [(row["query"], json.loads(row["answer"])) for row in out.to_pylist()]
    assert sorted((a for id, a in rows if id == "q"), key=lambda a: (a["x"], a["y"])) == asked
    assert sorted(a["id"] for id, a in rows if id == "alone") == [1, 3]
    again = subs.push({"r": stream((9, 0, 5.0))})
    assert [json.loads(a) for a in again["answer"].to_pylist() if '"y"' in a] == [{"x": 9, "y": 4}]
    assert next(e for e in subs.list() if e.id == "q").backfill


def test_rjoin_says_that_it_cannot_fill_back() -> None:
    subs = two(engine="rjoin")
    with pytest.raises(UnsupportedError, match=r"backfill=True with engine='rjoin'.*ask\(\)"):
        subs.add(PAIR, backfill=True)
