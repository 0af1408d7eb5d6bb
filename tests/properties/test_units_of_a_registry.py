"""Registries whose number of units changes between batches: what each query answers is what the oracle says, as if the number had never changed."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import SCHEMA
from tests.properties.test_backfill import admit, answer, keep_after
from tests.properties.test_subscriptions import STREAMS, Plan, expected, plans, stream, table, two
from watersmeet.errors import UnsupportedError

UNITS = st.sampled_from((1, 2, 3, 4, 5, 7))


def start(plan: Plan) -> Any:
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts", lateness=f"{d.lateness_us} us") for n, d in plan.data}
    return wm.local.subscriptions(streams, units=plan.units, engine=plan.engine)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(plan=plans(), data=st.data())
def test_every_query_is_answered_as_if_units_had_never_changed(engine: str, plan: Plan, data: Any) -> None:
    plan = replace(plan, engine=engine, batch_rows=data.draw(st.sampled_from((2, 3, 5)), label="batch rows"))
    subs, found = start(plan), dict[str, list[Any]]()
    for batch in range(plan.batches):
        subs.resize(data.draw(UNITS, label="units"))
        for n, (case, added, removed) in enumerate(plan.queries):
            if batch == added:
                try:
                    subs.add(case.sql(), id=str(n))
                    found[str(n)] = []
                except UnsupportedError:
                    continue
            elif batch == removed > added and str(n) in found:
                subs.remove(str(n))
        out = subs.push({s: table(plan.batch(s, batch)) for s in STREAMS})
        for id, text in zip(out.column("query").to_pylist(), out.column("answer").to_pylist(), strict=True):
            found[id].append((batch, tuple(json.loads(text).values())))
        assert set(subs._units.states) <= set(range(subs.units)), "units that are gone hold nothing"
    for id, rows in found.items():
        case, added, removed = plan.queries[int(id)]
        assert Counter(rows) == Counter(expected(plan, case, added, removed)), case.sql()
    arrivals = admit(plan)
    in_all = sum(len(plan.batch(s, n)) for s in STREAMS for n in range(plan.batches))
    assert sum(subs.late.values()) == in_all - sum(map(len, arrivals.values())), (
        "late rows of units that are gone count"
    )


@given(plan=plans(), data=st.data())
def test_backfill_sees_what_is_kept_wherever_units_have_it(plan: Plan, data: Any) -> None:
    first, again = plan.queries[0][0], data.draw(st.sampled_from((1, 1, 2)), label="again from")
    plan = replace(plan, queries=((first, 0, 9), *plan.queries[1:], (first, again, 9)))
    admitted, subs = admit(plan), start(plan)
    fills = [*(data.draw(st.booleans(), label=f"backfill {n}") for n in range(len(plan.queries) - 1)), True]
    living: dict[str, Any] = {}
    found: dict[str, Counter[Any]] = {}
    wanted: dict[str, Any] = {}
    for batch in range(plan.batches):
        before = [*living.values()]
        subs.resize(data.draw(UNITS, label="units"))
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


ALERTS = {
    "pair": "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS",
    "self": "SELECT a.id AS x, b.id AS y FROM r a, r b WHERE a.k = b.k AND a.id < b.id WINDOW = 3 SECONDS",
    "once": "SELECT DISTINCT r.k AS k FROM r, s WHERE r.k = s.k WINDOW = 5 SECONDS",
    "once for ever": "SELECT DISTINCT r.k AS k FROM r, s WHERE r.k = s.k",
    "of one": "SELECT r.id FROM r WHERE r.k > 1",
    "once of one": "SELECT DISTINCT s.k FROM s",
    "left": "SELECT r.id AS x, s.id AS y FROM r LEFT JOIN s ON r.k = s.k WINDOW = 3 SECONDS",
    "anti": "SELECT r.id FROM r ANTI JOIN s ON r.k = s.k WINDOW = 4 SECONDS",
    "semi": "SELECT s.id FROM s SEMI JOIN r ON r.k = s.k WINDOW = 2 SECONDS",
    "full": "SELECT r.id AS x, s.id AS y FROM r FULL JOIN s ON r.k = s.k WINDOW = 3 SECONDS",
    "band": "SELECT r.id AS x, s.id AS y FROM r, s WHERE abs(r.k - s.k) <= 1 WINDOW = 2 SECONDS",
    "rows": "SELECT r.id AS x, s.id AS y FROM r [ROWS 2], s WHERE r.k = s.k WINDOW = 3 SECONDS",
    "blocks": "SELECT r.id AS x, s.id AS y FROM r, s [TUMBLING 3 ROWS] WHERE r.k = s.k WINDOW = 3 SECONDS",
    "groups": "SELECT r.k, count(*) AS n FROM r GROUP BY r.k, window(r.ts, '3 seconds') HAVING count(*) > 1",
    "sums": "SELECT s.k, sum(s.id) AS n FROM s GROUP BY s.k",
    "nearest": "SELECT r.id AS x, s.id AS y FROM r ASOF LEFT JOIN s ON r.k = s.k AND r.ts >= s.ts WINDOW = 3 SECONDS",
}
ROWS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2)), max_size=4)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(
    batches=st.lists(
        st.tuples(ROWS, ROWS, UNITS, st.sampled_from(("", "", "remove", "add", "again"))), min_size=3, max_size=7
    )
)
def test_queries_of_all_kinds_are_answered_as_by_one_unit_that_shares_them(engine: str, batches: list[Any]) -> None:
    moving, fixed = two(units=batches[0][2], engine=engine), two(units=1, engine="shared")
    for subs in (moving, fixed):
        for id, sql in ALERTS.items():
            subs.add(sql, id=id)
    for n, (r, s, units, change) in enumerate(batches):
        moving.resize(units)
        arrived = {
            name: [(100 * n + i, k, n + at) for i, (k, at) in enumerate(rows)] for name, rows in (("r", r), ("s", s))
        }
        found = []
        for subs in (moving, fixed):
            _change(subs, change, n, backfill=engine == "shared")
            out = subs.push({name: stream(*rows) for name, rows in arrived.items()})
            answers = zip(*(out.column(c).to_pylist() for c in ("query", "version", "answer", "ts")), strict=True)
            # Of the times at which a row could be answered once, each engine takes another.
            found.append(Counter(row[:3] if row[0].startswith("once") else row for row in answers))
        assert found[0] == found[1], f"batch {n}"
        for sql in ("SELECT r.id FROM r", "SELECT s.id FROM s"):
            join = f"{sql}, s other WHERE other.k = {sql[7]}.k WINDOW = 9 SECONDS"
            assert Counter(moving.ask(join)["id"].to_pylist()) == Counter(fixed.ask(join)["id"].to_pylist())
        figures = [{e.id: e.figures.answers for e in subs.list() if e.figures is not None} for subs in (moving, fixed)]
        assert figures[0] == figures[1]


def _change(subs: Any, change: str, n: int, *, backfill: bool) -> None:
    """Queries that leave and come while units change."""
    known = {e.id for e in subs.list()}
    if change in ("remove", "again"):
        for id in ("once", "left", "groups"):
            if id in known:
                subs.remove(id)
    if change == "again":
        for id in ("once", "left", "groups"):
            subs.add(ALERTS[id], id=id)
    if change == "add":
        subs.add(ALERTS["pair"], id=f"pair {n}", backfill=backfill)
        subs.add(ALERTS["anti"], id=f"anti {n}")


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_a_batch_that_is_repeated_without_a_query_takes_over_alike(engine: str) -> None:
    moving, fixed = (
        wm.local.subscriptions(
            {s: SCHEMA.empty_table() for s in "rs"}, units=u, engine=engine, quotas=wm.Quotas(answers=30)
        )
        for u in (3, 1)
    )
    for subs in (moving, fixed):
        subs.add("SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS", id="pair")
        subs.add("SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k AND r.id > 90 WINDOW = 10 SECONDS", id="few")
    for n, units in enumerate((3, 2, 5, 4, 1)):
        moving.resize(units)
        rows = stream(*((30 * n + i, 1, n) for i in range(6 if n == 3 else 1)))
        found = [subs.push({"r": rows, "s": rows}) for subs in (moving, fixed)]
        assert Counter(found[0]["answer"].to_pylist()) == Counter(found[1]["answer"].to_pylist())
        states = [{e.id: e.state for e in subs.list()} for subs in (moving, fixed)]
        assert states[0] == states[1]
    assert states[0]["pair"] == "suspended"


def test_units_take_over_only_what_their_queries_need() -> None:
    subs = two(units=1)
    for n in range(12):
        subs.add(f"SELECT r.id FROM r, s WHERE r.k = s.k WINDOW = {n + 1} SECONDS", id=f"pair {n}")
    subs.add("SELECT a.id FROM r a, r b WHERE a.k = b.k AND a.k = 9 WINDOW = 2 SECONDS", id="self")
    for n in range(30):
        subs.push({name: stream((n, 1, n)) for name in "rs"})
    subs.resize(6)
    subs.push({})
    stored = {unit: state.rows() for unit, state in subs._units.states.items()}
    assert len({rows["s"] for rows in stored.values()}) > 1, "units with narrow windows take few tuples"
    assert max(rows["s"] for rows in stored.values()) <= 13
    subs.resize(1)
    subs.push({})
    assert set(subs._units.states) == {0}
    assert math.isclose(subs._units.states[0].rows()["s"], 13, abs_tol=1)


def test_a_number_of_units_that_is_none_is_refused() -> None:
    subs = two(units=2)
    for wrong in (0, -1, True, 1.5, "2"):
        with pytest.raises(wm.WatersmeetError, match="units="):
            subs.resize(wrong)
    assert subs.units == 2
    subs.resize(4)
    assert subs.units == 4
