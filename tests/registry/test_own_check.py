"""Queries that share nothing are checked where they are added, without being run: with the words, and the columns, of a run."""

from __future__ import annotations

import random
from collections import Counter

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.registry.hostile import write_query
from tests.rounds.test_subscriptions import in_memory
from watersmeet.query.join import Join
from watersmeet.runtime.subscriptions import binding, own_plan
from watersmeet.runtime.subscriptions.own_plan import _infer_columns, find_columns, plan_run
from watersmeet_lab.bench import registration

_TS = pa.timestamp("us", tz="UTC")
_NESTED = {
    "o": pa.schema({"id": pa.int64(), "part": pa.struct({"x": pa.int64()}), "v": pa.float64(), "ts": _TS}),
    "p": pa.schema({"id": pa.int64(), "d": pa.decimal128(8, 2), "s": pa.string(), "ts": _TS}),
}


def _streams() -> dict[str, wm.Stream]:
    return {name: wm.Stream(schema.empty_table(), time="ts") for name, schema in _NESTED.items()}


def _compare(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Let every check be compared with a run; what was found, counted."""
    told: Counter[str] = Counter()

    def check(join: Join, schemas: dict[str, pa.Schema]) -> own_plan.Columns:
        try:
            found = _infer_columns(join, schemas)
        except wm.WatersmeetError:
            found = None
        try:
            run = find_columns(plan_run(join))
        except wm.WatersmeetError:
            assert found is None, f"a run refuses {join.text}"
            told["refused"] += 1
            raise
        assert found in (None, run), join.text
        told["only a run can tell" if found is None else "known without a run"] += 1
        return run

    monkeypatch.setattr(binding, "check_query", check)
    return told


def test_the_check_is_that_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told, chance, seen = _compare(monkeypatch), random.Random(5), {None}
    subs = wm.local.subscriptions(registration.make_streams())
    for kind in ("aggregate", "apart"):
        for sql in registration.write_queries(chance, kind, 60, seen):
            subs.add(sql)
    assert told == {"known without a run": 120}


def test_the_check_of_hostile_queries_is_that_of_a_run(monkeypatch: pytest.MonkeyPatch) -> None:
    told, chance, subs = _compare(monkeypatch), random.Random(6), in_memory()
    for _ in range(300):
        try:
            subs.add(write_query(chance))
        except wm.WatersmeetError:
            continue
    assert told["known without a run"] > 10


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.id, min_by(p.s, p.d) AS s, avg(p.d) AS a, stddev(o.v) AS d FROM o, p WHERE o.id = p.id WINDOW = 5 SECONDS GROUP BY o.id, window(o.ts, '1 minute')",
        "SELECT window.end AS e, window.start AS b, sum(o.id) / count(*) AS m FROM o GROUP BY window(o.ts, '1 minute') HAVING max(o.v) > 1 AND first(o.id) IS NOT NULL",
        "SELECT o.id, collect_list(o.v) AS l FROM o GROUP BY o.id, window(o.ts, '1 minute')",
        "SELECT count(*) AS n FROM o",
        "SELECT DISTINCT p.d * 2 AS x, p.s FROM o, p WHERE o.id < p.id WINDOW = 5 SECONDS",
        "SELECT o.v > p.d AS x, p.ts FROM o FULL JOIN p ON o.id = p.id AND o.v > 1 WINDOW = 5 SECONDS",
        "SELECT p.d FROM o ASOF LEFT JOIN p ON o.id = p.id AND o.ts >= p.ts WINDOW = 5 SECONDS",
    ],
)
def test_columns_are_those_of_a_run(monkeypatch: pytest.MonkeyPatch, sql: str) -> None:
    told, subs = _compare(monkeypatch), wm.local.subscriptions(_streams())
    if "collect_list" in sql:
        with pytest.raises(wm.UnsupportedError, match=r"answers in plain types, and this is array<double>"):
            subs.add(sql)
        assert told == {"refused": 1}
    else:
        subs.add(sql)
        assert told == {"known without a run": 1}


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT o.part FROM o, p WHERE o.id < p.id WINDOW = 5 SECONDS",
        "SELECT o.id, count(o.part) AS n FROM o GROUP BY o.id, window(o.ts, '1 minute')",
    ],
)
def test_a_nested_column_is_refused_by_its_name(sql: str) -> None:
    with pytest.raises(
        wm.UnsupportedError, match=r"SELECT o.part: a subscription answers in plain types, and this is struct"
    ):
        wm.local.subscriptions(_streams()).add(sql)
