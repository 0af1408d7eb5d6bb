"""DISTINCT and GROUP BY by themselves: collisions, updates batch by batch, and what they keep."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.cases import SECOND, Agg, All, Case, Col, Data, op
from tests.properties.test_finish import answer, expected
from watersmeet.columns.row_hash import row_hash
from watersmeet.dataflow.clock import Clock, Promise
from watersmeet.dataflow.contract import Turn
from watersmeet.operators.assemble import PlanFlows
from watersmeet.operators.finish import aggregate, distinct
from watersmeet.operators.finish.aggregate import GroupUnits
from watersmeet.operators.finish.distinct import KEPT, LEFT, DistinctUnits
from watersmeet.operators.finish.project import project_rows
from watersmeet.operators.finish.views import make_view
from watersmeet.plan.model import TIME, Plan
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.stores import MemoryStore

TABLE = pa.table(
    {"k": pa.array([], pa.int64()), "v": pa.array([], pa.float64()), "ts": pa.array([], pa.timestamp("us"))}
)


def plan(select: str, tail: str = "") -> Plan:
    streams = {name: wm.Stream(TABLE, time="ts") for name in "st"}
    return wm.sql(f"SELECT {select} FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS {tail}", **streams).plan


def results(plan: Plan, **columns: Any) -> pa.Table:
    assert list(columns) == [f"{r.alias}_{r.column}" for r in plan.output]
    return pa.table({f"o{n}": values for n, values in enumerate(columns.values())})


def turn_of(plan: Plan, state: Manifest, store: MemoryStore, tables: list[pa.Table], **marks: int) -> Turn:
    """A turn over what has left the joins, with these watermarks after it."""
    clock = Clock(plan.join.streams).with_promise(Promise(marks))
    return Turn(0, {LEFT: tables}, state, store, clock)


@pytest.mark.parametrize(
    "changes",
    [{"distinct": True}, {"aggregates": (Agg("count"), Agg("sum", Col("b", "id")), Agg("max", Col("a", "name")))}],
)
def test_rows_of_one_hash_are_told_apart(monkeypatch, changes):
    """All hashes collide: values alone decide."""
    for module in (distinct, aggregate):
        monkeypatch.setattr(module, "row_hash", lambda table: np.zeros(table.num_rows, np.int64))
    rows = tuple((i % 7, 0, i % 3, 0.0, 0.0, "xyz"[i % 3], (i // 3) * SECOND) for i in range(24))
    data = (("s0", Data(rows)), ("s1", Data(rows)))
    key = (op("=", Col("a", "k"), Col("b", "k")),)
    case = Case(
        (("a", "s0"), ("b", "s1")),
        key,
        (All("WINDOW", 2 * SECOND),),
        (Col("a", "n"), Col("b", "name")),
        data,
        **changes,
    )
    for batch_rows in (1, 5):
        assert answer(case, batch_rows=batch_rows) == expected(case, batch_rows)


def test_aggregate_lets_out_the_groups_that_have_changed():
    made = plan("a.k, count(*) AS n, avg(b.v) AS m", "GROUP BY a.k")
    unit, manifest, store = GroupUnits(made), Manifest.fresh(Identity.of(made)), MemoryStore()

    def batch(keys: list[int | None], amounts: list[float | None]) -> list[tuple[Any, ...]]:
        rows = project_rows(made, results(made, a_k=keys, b_v=pa.array(amounts, pa.float64())))
        (out,) = unit.step(turn_of(made, manifest, store, [make_view(made, rows)]))
        return sorted(zip(*(c.to_pylist() for c in out.columns), strict=True), key=repr)

    assert batch([1, 1, 2], [1.0, 3.0, None]) == [(1, 2, 2.0), (2, 1, None)]
    assert batch([2, None], [5.0, 7.0]) == [(2, 2, 5.0), (None, 1, 7.0)]
    assert batch([None], [9.0]) == [(None, 2, 8.0)]


def test_aggregate_keeps_a_few_times_its_groups():
    made = plan("a.k, sum(b.v) AS s", "GROUP BY a.k")
    unit, manifest, store = GroupUnits(made), Manifest.fresh(Identity.of(made)), MemoryStore()
    for _ in range(60):
        rows = project_rows(made, results(made, a_k=list(range(20)), b_v=[1.0] * 20))
        list(unit.step(turn_of(made, manifest, store, [make_view(made, rows)])))
    assert manifest.rows()[KEPT] <= 4 * 20
    assert set(unit.groups(manifest, store).column("v0").to_pylist()) == {60.0}
    assert len(store.segments) == len(manifest.segments[KEPT])


def test_distinct_forgets_a_bucket_when_the_lowest_watermark_has_passed_it():
    made = plan("DISTINCT a.k")
    unit, manifest, store = DistinctUnits(made), Manifest.fresh(Identity.of(made)), MemoryStore()
    end = 20 * SECOND - 1

    def step(mark: int) -> int:
        rows = pa.table({"p0": [1, 1], TIME: [end, end]})
        fresh = unit.step(turn_of(made, manifest, store, [rows], s=mark, t=99 * SECOND))
        return sum(table.num_rows for table in fresh)

    assert [step(0), step(end), step(end)] == [1, 0, 0]
    assert manifest.rows()[KEPT] == 1
    assert not list(unit.step(turn_of(made, manifest, store, [], s=end + 1, t=99 * SECOND)))
    assert (manifest.rows()[KEPT], store.segments) == (0, {})


def test_equal_rows_have_equal_hashes():
    nan = float("nan")
    one = pa.table({"f": [0.0, nan, None], "s": ["x", None, ""], "b": [True, None, False], "n": [[1], [2], None]})
    two = pa.table({"f": [-0.0, -nan, None], "s": ["x", None, ""], "b": [True, None, False], "n": [[9], None, [3]]})
    assert row_hash(one).tolist() == row_hash(two).tolist()
    whole = {
        pa.int8(): [0, 1, None],
        pa.date32(): [0, 1, None],
        pa.timestamp("us", tz="UTC"): [0, 1, None],
        pa.duration("us"): [0, 1, None],
    }
    for kind, column in {**whole, pa.decimal128(5, 0): [0, 1, None], pa.binary(): [b"", b"1", None]}.items():
        assert len(set(row_hash(pa.table({"c": pa.array(column, kind)})).tolist())) == 3, kind


@pytest.mark.parametrize(
    "query",
    ["SELECT DISTINCT a.s, a.r, b.s AS z", "SELECT a.s, a.r, max(b.s) AS z", "SELECT window.start, a.s, a.r, b.s"],
)
def test_units_that_keep_have_their_numbers_whatever_a_batch_ships_later(query):
    """Their state would be lost otherwise when shipping="auto" changes its mind."""
    empty = wm.testing.table("k int, s string, r string, ts timestamp")
    by = {"max": " GROUP BY a.s, a.r", "window": " GROUP BY window(a.ts, '5 s'), a.s, a.r, b.s"}
    text = f"{query} FROM a, b WHERE a.k = b.k WINDOW = 5 s{next((by[word] for word in by if word in query), '')}"
    plan = wm.sql(text, {name: wm.Stream(empty, time="ts") for name in "ab"}).plan
    assert plan.shipping == "auto"
    flows = [PlanFlows(plan).assemble(decided) for decided in ({}, {"shipping": ["a"]}, {"shipping": ["a", "b"]})]
    assert len({len(flow.stages) for flow in flows}) == 1
    assert len({type(flow.stages[-1].operator) for flow in flows}) == 1
