"""One-time queries over what the registry keeps, against the oracle: random queries, batches, removals."""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests import oracle
from tests.blocks import blocks_of
from tests.cases import SCHEMA, Case
from tests.properties.test_subscriptions import PAIR, STREAMS, Plan, plans, stream, table, two
from tests.strategies import distinct_cases
from watersmeet.errors import QueryError, UnsupportedError


def kept_after(plan: Plan, last: int, living: list[tuple[Case, int]]) -> dict[str, list[tuple[int, Any]]]:
    """The tuples that some living query (case, effect) may still use after a batch, by stream; none of one that nobody reads."""
    arrivals = {s: oracle.Arrival([plan.batch(s, n) for n in range(last + 1)], d.lateness_us) for s, d in plan.data}
    admitted, _ = oracle.admitted(arrivals, last + 1)
    maxima = {s: oracle.highest(a.batches) for s, a in arrivals.items()}
    marks = {s: oracle.watermark(s, arrivals, maxima) for s in arrivals}
    needs: dict[str, list[tuple[int, float]]] = {}
    for case, effect in living:
        bounds, at = oracle.widest(case.query()), dict(case.aliases)
        for x, source in case.aliases:
            cut = min(marks[at[y]] - bounds[x, y] for y in case.names if y != x)
            needs.setdefault(source, []).append((effect, cut))
    return {
        s: [(n, row) for n, row in admitted[s] if any(n >= effect and row["ts"] >= cut for effect, cut in found)]
        for s, found in needs.items()
    }


def told(rows: list[tuple[Any, ...]]) -> Counter[Any]:
    """Rows as they are compared: NaN is itself."""
    return Counter(tuple("NaN" if isinstance(v, float) and math.isnan(v) else v for v in row) for row in rows)


def rows_of(answer: pa.Table) -> list[tuple[Any, ...]]:
    columns = [c.cast(pa.int64()) if pa.types.is_timestamp(c.type) else c for c in answer.columns]
    return list(zip(*(c.to_pylist() for c in columns), strict=True))


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(plan=plans(), data=st.data())
def test_a_one_time_query_sees_what_living_queries_may_still_use(engine: str, plan: Plan, data: Any) -> None:
    asked = data.draw(st.sampled_from([case for case, _, _ in plan.queries]) | distinct_cases(equality=True))
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts", lateness=f"{d.lateness_us} us") for n, d in plan.data}
    subs = wm.local.subscriptions(streams, units=plan.units, engine=engine)
    living: dict[str, tuple[Case, int]] = {}
    for batch in range(plan.batches):
        for n, (case, added, removed) in enumerate(plan.queries):
            if batch == added:
                try:
                    subs.add(case.sql(), id=str(n))
                except UnsupportedError:
                    continue
                living[str(n)] = case, batch
            elif batch == removed > added and str(n) in {e.id for e in subs.list()}:
                subs.remove(str(n))
                living.pop(str(n), None)
        subs.push({s: table(plan.batch(s, batch)) for s in STREAMS})
        if batch % 2 and batch != plan.batches - 1:
            continue
        kept = kept_after(plan, batch, list(living.values()))
        try:
            found = subs.ask(asked.sql())
        except UnsupportedError:
            return
        except QueryError:
            found = None
        assert (found is None) == bool({s for _, s in asked.aliases} - kept.keys()), "an error where nothing is kept"
        if found is None:
            continue
        made = oracle.combinations(asked.query(), {s: kept[s] for _, s in asked.aliases})
        if asked.distinct:
            made = oracle.once_per_bucket(asked.query(), made)
        assert told(rows_of(found)) == told([row for _, _, row in made]), asked.sql()


WIDE = "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 1 HOUR"


def pairs(subs: Any, sql: str = WIDE) -> list[tuple[Any, ...]]:
    return sorted(rows_of(subs.ask(sql)))


def test_tuples_that_are_dead_and_still_lie_there_are_not_seen() -> None:
    subs = two()
    subs.add(PAIR)
    for n in range(100):
        subs.push({s: stream((n, n % 3, n / 10)) for s in "rs"})
    for n in (21, 22, 23):
        subs.push({s: stream((n * 10, 1, n)) for s in "rs"})
        retained = subs.reports[0].retained["r"]
        cut = n - 10
        needed = [m for m in range(100) if m / 10 >= cut] + [m * 10 for m in range(21, n + 1)]
        assert sorted({x for x, _ in pairs(subs)}) == needed
        assert retained >= len(needed)
    with blocks_of(2**25):  # small ones would be dropped whole
        subs = two()
        subs.add(PAIR)
        subs.push({s: stream(*((n, 1, n / 10) for n in range(200))) for s in "rs"})
        subs.push({s: stream((999, 1, 20.5)) for s in "rs"})
        assert subs.reports[0].retained["r"] > 96, "dead rows inside the slack"
        assert {x for x, _ in pairs(subs)} == {*range(105, 200), 999}


def test_an_answer_is_as_of_the_latest_batch_and_leaves_no_trace() -> None:
    subs = two(units=3)
    subs.push({s: stream((1, 1, 0)) for s in "rs"})
    narrow, wide = subs.add(PAIR), subs.add(PAIR.replace("10 SECONDS", "20 SECONDS"))
    subs.push({s: stream((2, 1, 1)) for s in "rs"})
    before = json.dumps([m.to_json() for m in subs._units.states.values()]), subs.list()
    assert pairs(subs) == [(2, 2)], "a tuple that came before all queries is not kept"
    subs.remove(wide)
    assert pairs(subs) == [(2, 2)]
    assert len(subs._units.store.segments) >= 2
    assert (json.dumps([m.to_json() for m in subs._units.states.values()]), [*subs.list(), before[1][1]]) == before
    subs.push({s: stream((3, 1, 15)) for s in "rs"})
    assert pairs(subs) == [(3, 3)], "after 15 seconds a window of 10 keeps one of the two"
    subs.remove(narrow)
    assert pairs(subs) == [(3, 3)], "the next batch does not know it any more"
    subs.push({"r": stream((4, 1, 15))})
    with pytest.raises(QueryError, match="no tuples of 'r' are kept"):
        subs.ask(WIDE)


def test_whatever_a_join_can_be_may_be_asked() -> None:
    subs = two()
    subs.add("SELECT r.id FROM r, s WHERE r.k = s.k")
    subs.push({"r": stream((1, 1, 5), (2, 2, 1), (3, 2, 9)), "s": stream((7, 2, 3), (8, 1, 60))})
    subs.push({"r": stream((4, 1, 70)), "s": stream((9, 1, 65))})
    assert pairs(subs, "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k < s.k WITHIN 10 SECONDS") == [(1, 7)]
    counted = subs.ask("SELECT r.k, count(*) AS n, max(s.id) + 1 AS m FROM r, s WHERE r.k = s.k GROUP BY r.k")
    assert sorted(rows_of(counted)) == [(1, 4, 10), (2, 2, 8)]
    assert pairs(subs, "SELECT r.id AS x, s.id AS y FROM r [ROWS 1], s WHERE r.k = s.k") == [
        (2, 7),
        (3, 7),
        (4, 8),
        (4, 9),
    ]
    path = "SELECT r.id AS x, s.id AS y FROM r, s, r z WHERE r.k = s.k AND z.k = s.k PATH (r, s, z) = 6 SECONDS"
    assert pairs(subs, path) == [(2, 7), (3, 7)], "there and back"
    assert pairs(subs, "SELECT DISTINCT r.k AS x, 1 AS y FROM r, s WHERE r.k = s.k") == [(1, 1), (2, 1)]
    empty = subs.ask("SELECT a.ts, b.name FROM r a, r b WHERE a.k = b.k AND a.id = 77")
    assert (empty.num_rows, [str(t) for t in empty.schema.types]) == (0, ["timestamp[us, tz=UTC]", "string"])


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT reverse(r.name) AS x FROM r, s WHERE r.k = s.k", "list of functions"),
        ("SELECT r.id FROM r, s WHERE r.k = s.k AND reverse(r.name) = 'a'", "list of functions"),
        ("SELECT r.id FROM r, s WHERE reverse(r.name) = s.name", "list of functions"),
        ("SELECT max(reverse(r.name)) AS x FROM r, s WHERE r.k = s.k", "list of functions"),
        ("SELECT reverse(max(r.name)) AS x FROM r, s WHERE r.k = s.k", "list of functions"),
        ("SELECT r.id FROM r, s WHERE r.k = s.k AND r.k IN (SELECT k FROM s)", "subquery"),
        ("SELECT r.id FROM r, s WHERE r.k = s.name", "not compared"),
        ("SELECT r.id FROM r, t WHERE r.k = t.k", "'t' is not supplied"),
        ("DROP TABLE r", "expected a SELECT"),
    ],
)
def test_what_is_asked_is_held_to_the_list(sql: str, said: str) -> None:
    subs = two()
    subs.add(PAIR)
    subs.push({})
    with pytest.raises(QueryError, match=said):
        subs.ask(sql)


def test_what_nobody_reads_and_nested_columns_cannot_be_asked_for() -> None:
    nested = pa.table({"k": [1], "l": [[1]], "ts": pa.array([0], pa.timestamp("us"))})
    subs = wm.local.subscriptions(dict.fromkeys("rs", nested.slice(0, 0)))
    sql = "SELECT r.k FROM r, s WHERE r.k = s.k WINDOW = 1 SECOND"
    with pytest.raises(QueryError, match="no tuples of 'r' are kept"):
        subs.ask(sql)
    subs.add("SELECT a.k FROM r a, r b WHERE a.k = b.k WINDOW = 1 SECOND")
    with pytest.raises(QueryError, match="has taken effect"):
        subs.ask(sql)
    subs.push({"r": nested, "s": nested})
    with pytest.raises(QueryError, match="no tuples of 's' are kept"):
        subs.ask(sql)
    assert subs.ask("SELECT a.k FROM r a, r b WHERE a.k = b.k").to_pydict() == {"k": [1]}
    for bad in ("SELECT a.l FROM r a, r b WHERE a.k = b.k", "SELECT a.k FROM r a, r b WHERE a.l = b.l"):
        with pytest.raises(UnsupportedError, match=r"a\.l: a one-time query takes plain types"):
            subs.ask(bad)


@pytest.mark.parametrize("units", [1, 3])
def test_tuples_of_a_query_that_shares_nothing_are_seen(units: int) -> None:
    subs = two(units=units)
    subs.add("SELECT r.id AS x, s.id AS y FROM r FULL JOIN s ON r.k = s.k AND r.id < s.id WINDOW = 5 SECONDS", id="own")
    for n in range(4):
        subs.push({s: stream((n, 1, 2 * n)) for s in "rs"})
    near = [(x, y) for x in range(1, 4) for y in range(1, 4)]
    assert pairs(subs) == near, "the first has been left behind by 6 seconds"
    subs.add(WIDE.replace("1 HOUR", "2 SECONDS"), id="late", backfill=True)
    found = subs.push({"r": stream((9, 7, 7))})
    late = [
        json.loads(a)
        for q, a in zip(found["query"].to_pylist(), found["answer"].to_pylist(), strict=True)
        if q == "late"
    ]
    assert {(a["x"], a["y"]) for a in late} == {(x, y) for x, y in near if abs(x - y) <= 1}


def test_numbers_of_tuples_keep_none_by_time() -> None:
    subs = two()
    subs.add("SELECT r.id FROM r [ROWS 2], s [ROWS 2] WHERE r.k = s.k")
    for n in range(3):
        subs.push({s: stream((n, 1, n)) for s in "rs"})
    assert not subs.list()[0].unbounded
    assert sum(subs.reports[0].retained.values()) == 2, "the latest instant alone"
