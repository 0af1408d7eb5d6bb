"""Dropped rows in process: as many as are counted, and the oracle's, with their batches, reasons and lags, row by row."""

from __future__ import annotations

import json
import math
import random
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import BASE_US, COLUMNS, NOW_US, SECOND, All, Case, Col, Data, canonical, op, rows_of
from tests.oracle import Dropped, Outcome
from tests.properties.test_local import bag, local, sources
from tests.strategies import BATCHES, cases, distinct_cases, grouped_cases, with_lateness
from tests.trees import KINDS, SCHEMA, generate
from watersmeet.errors import WindowError
from watersmeet.kernels.instants import FIRST, LAST

NO_NUMBERS = {"nan": "NaN", "inf": "Infinity", "-inf": "-Infinity"}
"""Doubles that JSON does not know, as texts."""
FEW = max(1, settings.default.max_examples // 2)


def seen(lost: dict[str, Any], columns: list[str]) -> tuple[Any, ...]:
    """A dropped row as a bag counts it; the time in the text of the row is compared where Python has it."""
    row = json.loads(lost["row"])
    assert list(row) == columns
    at = lost["ts"]
    if at is not None and abs(at) < 10**17:
        told = (datetime(1970, 1, 1) + timedelta(microseconds=at)).isoformat(timespec="microseconds")
        assert row["ts"].removesuffix("Z") == told
    assert (at is None) == (row["ts"] is None)
    values = [shown(v) for c, v in row.items() if c != "ts"]
    return lost["batch"], lost["reason"], lost["lag_us"], at, *values


def shown(value: Any) -> Any:
    return tuple(map(canonical, value)) if isinstance(value, list) else value


def wanted(dropped: Dropped, columns: list[str]) -> tuple[Any, ...]:
    lag = dropped.lag_us
    values = [dropped.row[c] for c in columns if c != "ts"]
    values = [NO_NUMBERS.get(str(v), shown(v)) for v in values]
    return (
        dropped.batch,
        dropped.reason,
        None if lag is None else min(max(int(lag), FIRST), LAST),
        dropped.row["ts"],
        *values,
    )


def rows_of_late(lost: pa.Table) -> list[dict[str, Any]]:
    at = lost.schema.get_field_index("ts")
    return lost.set_column(at, "ts", lost.column("ts").cast(pa.int64())).to_pylist()


def check(case: Case, batch_rows: int, **options: Any) -> None:
    """Results, and between what must be counted and what may be; `Case.late_bounds` says where they differ."""
    want = case.expected(batch_rows)
    got = local(case, batch_rows=batch_rows, late=True, **options)
    marked = got.column("_late").combine_chunks()
    lost = rows_of_late(pa.Table.from_struct_array(marked.filter(marked.is_valid())))
    results = got.filter(got.column("_late").is_null()).drop_columns(["_late"])
    if not (case.aggregates or case.distinct):  # `test_finish` compares those
        assert bag(rows_of(results)) == bag(want.rows), case.sql()
    counted = wm.local.counts(got).late
    assert Counter(r["stream"] for r in lost) == Counter({s: n for s, n in counted.items() if n}), case.sql()
    for stream, _ in case.data:
        found = Counter(seen(r, COLUMNS) for r in lost if r["stream"] == stream)
        most = Counter(wanted(d, COLUMNS) for d in useful(case, want, stream, case._keyed))
        least = Counter(wanted(d, COLUMNS) for d in useful(case, want, stream, case._complete))
        assert least <= found <= most, case.sql()


def useful(case: Case, want: Outcome, stream: str, test: Any) -> list[Dropped]:
    return [d for d in want.dropped.get(stream, []) if case._useful(stream, d.row, test)]


def one(*times: int | None, **spans: Any) -> Case:
    """A self join of one stream."""
    rows = tuple((n, 1, 0, math.nan, 0.5, 'a "b"', ts) for n, ts in enumerate(times))
    key = (op("=", Col("a", "k"), Col("b", "k")),)
    data = (("s", Data(rows, lateness_us=0, **spans)),)
    return Case((("a", "s"), ("b", "s")), key, (All("WINDOW", SECOND),), (Col("a", "id"),), data)


@given(st.data(), cases(null_ts=True), BATCHES, st.sampled_from((1, 3)))
def test_dropped_rows_are_the_oracles(data, case, batch_rows, units):
    check(data.draw(with_lateness(case, idle=True, ahead=True)), batch_rows, units=units)


@example(one(0, 5 * SECOND, None, 0, 9 * SECOND, 6 * SECOND, max_ahead_us=0), 1)
@given(cases(rows=True).flatmap(lambda case: with_lateness(case, ahead=True)), BATCHES)
@settings(max_examples=FEW)
def test_with_rows_windows(case, batch_rows):
    check(case, batch_rows)


@given(st.data(), st.one_of(distinct_cases(null_ts=True), grouped_cases(null_ts=True)), BATCHES)
@settings(max_examples=FEW)
def test_under_distinct_and_group_by(data, case, batch_rows):
    check(data.draw(with_lateness(case, ahead=True)), batch_rows)


@given(st.randoms(use_true_random=False))
@settings(max_examples=FEW)
def test_in_join_trees(chance: random.Random) -> None:
    """Also after restarts from the saved state."""
    case = generate(chance, (*KINDS, "asof", "asof left"))
    try:
        test = case.start()
    except WindowError:
        return
    for n in range(max(len(a.batches) for a in case.arrivals.values())):
        test.batch(case.rows(n))
        if chance.random() < 0.3:
            test.restart()
    lost, columns = test.late_rows, SCHEMA.names
    assert Counter(r["stream"] for r in lost) == Counter({s: n for s, n in test.late.items() if n}), case.sql
    found = Counter((r["stream"], seen(in_us(r), columns)) for r in lost)
    most = Counter((s, wanted(d, columns)) for s, some in case.expected().dropped.items() for d in some)
    assert found <= most, case.sql


def in_us(lost: dict[str, Any]) -> dict[str, Any]:
    return {**lost, "ts": lost["ts"] and (lost["ts"] - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)}


def test_one_row_a_year_ahead_moves_no_watermark():
    """Without the bound the row of batch 1 makes that of batch 2 late; with it, it alone is dropped."""
    year = 365 * 86_400 * SECOND
    bounded = one(0, year, SECOND // 2, max_ahead_us=SECOND)
    reasons = {c.data[0][1].max_ahead_us: reason_counts(c) for c in (bounded, one(0, year, SECOND // 2))}
    assert reasons == {SECOND: {"ahead": 1}, None: {"late": 1}}
    check(bounded, 1)


def reason_counts(case: Case) -> Counter[str]:
    found = local(case, batch_rows=1, late=True).column("_late").combine_chunks()
    return Counter(m["reason"] for m in found.drop_null().to_pylist())


def test_the_query_over_tables_says_what_it_loses():
    case = one(0, 5 * SECOND, None, SECOND)
    lost = wm.sql(case.sql(), **{n: wm.Stream(t, time="ts") for n, t in case.tables().items()}).late(batch_rows=1)
    assert lost.column("reason").to_pylist() == ["no time", "late"]
    assert lost.column("lag_us").to_pylist() == [None, 4 * SECOND]
    assert lost.column("ts").to_pylist()[1] == datetime(2024, 1, 1, 0, 0, 1, tzinfo=UTC)


def test_times_without_a_zone_are_held_against_the_clock_on_the_wall():
    hour = 3600 * SECOND
    times = pa.array([NOW_US + hour, NOW_US + hour + 1], pa.timestamp("us"))
    stream = wm.Stream(pa.table({"k": [1, 1], "ts": times}), time="ts", max_ahead="0 seconds")
    text = "SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND"
    now = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=NOW_US)
    got = wm.local.run(text, s=stream, late=True, now=now, timezone="Europe/Berlin")
    assert [m and m["reason"] for m in got.column("_late").to_pylist()] == [None, "ahead"]


def test_a_registry_in_process_has_the_bound_too():
    year = datetime.now(UTC) + timedelta(days=365)
    subs = wm.local.subscriptions(s=wm.Stream(wm.testing.table("k int, ts timestamp"), time="ts", max_ahead="1 hour"))
    subs.add("SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND")
    for rows in ([(1, 0), (1, year)], [(2, 1)]):
        subs.push({"s": wm.testing.table("k int, ts timestamp", rows)})
    assert subs.late == {"s": 1}


@pytest.mark.parametrize(
    ("how", "said"),
    [
        ({"now": datetime(2024, 1, 1)}, "give a datetime with a time zone"),
        ({"now": "noon"}, "give a datetime with a time zone"),
        ({"late": "yes"}, "late='yes': give True or False"),
    ],
)
def test_bad_arguments(how, said):
    case = one(BASE_US)
    with pytest.raises(wm.OptionError, match=said):
        wm.local.run(case.sql(), sources(case), **how)


def test_a_result_may_not_be_called_like_the_mark():
    case = one(0)
    with pytest.raises(wm.OptionError, match="_late"):
        wm.local.run(case.sql().replace("AS c0", "AS _late"), sources(case), late=True)
