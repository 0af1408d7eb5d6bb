"""DISTINCT and GROUP BY in process equal the oracle, whatever the batches, the order of arrival, the units and the kernel."""

from __future__ import annotations

from contextlib import nullcontext, suppress
from dataclasses import replace
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import BASE_US, SECOND, Agg, All, Case, Col, Data, Interval, bag, op, rounded, rows_of
from tests.properties.test_local import ROUTINGS, local, may_refuse
from tests.strategies import BATCHES, distinct_cases, grouped_cases, shuffled, with_lateness
from watersmeet.errors import OptionError

FEW = max(1, settings.default.max_examples // 4)
UNITS = st.sampled_from((1, 2, 3, 8))


def answer(case: Case, **options: Any) -> dict[tuple[Any, ...], int]:
    return bag(rounded(rows_of(local(case, **options))))


def expected(case: Case, batch_rows: int) -> dict[tuple[Any, ...], int]:
    outcome = case.expected(batch_rows)
    return bag(rounded(outcome.final if case.aggregates else outcome.rows))


# ---------------------------------------------------------------- DISTINCT


@given(distinct_cases(), BATCHES, UNITS)
@settings(max_examples=2 * FEW)
def test_distinct_equals_the_oracle(case, batch_rows, units):
    assert answer(case, batch_rows=batch_rows, units=units) == expected(case, batch_rows), case.sql()


@given(st.data(), distinct_cases(), BATCHES, BATCHES, UNITS)
@settings(max_examples=FEW)
def test_distinct_does_not_depend_on_batches_and_arrival(data, case, first, second, units):
    again = data.draw(shuffled(case))
    assert answer(case, batch_rows=first) == answer(again, batch_rows=second, units=units)


@given(st.data(), distinct_cases(null_ts=True), BATCHES, UNITS)
@settings(max_examples=FEW)
def test_distinct_with_late_rows(data, case, batch_rows, units):
    case = data.draw(with_lateness(case, idle=True))
    assert answer(case, batch_rows=batch_rows, units=units) == expected(case, batch_rows), case.sql()


@given(distinct_cases(rows=True), BATCHES, UNITS)
@settings(max_examples=FEW)
def test_distinct_over_rows_windows(case, batch_rows, units):
    assert answer(case, batch_rows=batch_rows, units=units) == expected(case, batch_rows), case.sql()


@given(st.data(), distinct_cases(forms=("all", "pairs", "directed", "mixed")), st.sampled_from((1, 2, 3, 7)))
@settings(max_examples=FEW)
def test_rows_are_forgotten_when_their_bucket_is_over(data, case, batch_rows):
    """Dead rows go with their segment, so a tenth more than the living may be kept."""
    case = data.draw(with_lateness(case, idle=True))
    kept = wm.local.counts(local(case, batch_rows=batch_rows, units=1)).kept
    assert kept <= 1.1 * max(case.expected(batch_rows).kept, default=0), case.sql()


# ---------------------------------------------------------------- GROUP BY


@given(grouped_cases(), BATCHES, UNITS)
@settings(max_examples=2 * FEW)
def test_groups_equal_the_oracle(case, batch_rows, units):
    assert answer(case, batch_rows=batch_rows, units=units) == expected(case, batch_rows), case.sql()


@given(st.data(), grouped_cases(), BATCHES, BATCHES, UNITS)
@settings(max_examples=FEW)
def test_groups_do_not_depend_on_batches_and_arrival(data, case, first, second, units):
    again = data.draw(shuffled(case))
    assert answer(case, batch_rows=first) == answer(again, batch_rows=second, units=units)


@given(st.data(), grouped_cases(rows=True, null_ts=True), BATCHES, UNITS)
@settings(max_examples=FEW)
def test_groups_over_late_rows_and_rows_windows(data, case, batch_rows, units):
    case = data.draw(with_lateness(case, idle=True))
    assert answer(case, batch_rows=batch_rows, units=units) == expected(case, batch_rows), case.sql()


# ---------------------------------------------------------------- choices change only the cost


@given(st.data(), distinct_cases() | grouped_cases(), BATCHES, st.sampled_from(("nlw", "hw", "sorted")), UNITS)
@settings(max_examples=2 * FEW)
def test_kernels_orders_and_units_change_nothing(data, case, batch_rows, kernel, units):
    order = data.draw(st.permutations(case.names))
    with suppress(OptionError) if may_refuse(case, kernel) else nullcontext():
        found = answer(case, batch_rows=batch_rows, kernel=kernel, order=order, units=units)
        assert found == expected(case, batch_rows), case.sql()


@given(distinct_cases() | grouped_cases(), BATCHES, st.sampled_from(ROUTINGS), st.sampled_from((3, 4, 9)))
@settings(max_examples=2 * FEW)
def test_routings_change_nothing(case, batch_rows, routing, units):
    with suppress(OptionError) if routing not in ("random", "pipeline", "hypercube") else nullcontext():
        found = answer(case, batch_rows=batch_rows, routing=routing, units=units)
        assert found == expected(case, batch_rows), case.sql()


# ---------------------------------------------------------------- by hand

KEY = (op("=", Col("a", "k"), Col("b", "k")),)


def pair(left: list[float], right: list[float], *windows: Any, **changes: Any) -> Case:
    """Rows of one key at these seconds; the result is the key."""
    rows = [tuple((i, 0, 0, 0.0, 0.0, "x", int(t * SECOND)) for i, t in enumerate(times)) for times in (left, right)]
    data = (("s0", Data(rows[0])), ("s1", Data(rows[1])))
    case = Case((("a", "s0"), ("b", "s1")), KEY, windows, (Col("a", "k"),), data, distinct=True)
    return replace(case, **changes)


def test_a_row_leaves_once_per_horizon_of_the_youngest_member():
    """Buckets of two seconds: the youngest members are at 1, 2, 3 and 5."""
    assert BASE_US % (2 * SECOND) == 0
    case = pair([0, 2, 3, 4], [1, 2, 3, 5], All("WINDOW", 2 * SECOND))
    assert answer(case, batch_rows=1) == {(0,): 3}


def test_without_a_horizon_a_row_leaves_once_for_every_instant():
    case = pair([0, 0, 1, 3], [0, 1, 1, 3], Interval("a", "b", 0, 0))
    assert answer(case, batch_rows=1) == {(0,): 3}


def test_in_full_history_a_row_leaves_once():
    assert answer(pair([0, 1, 2], [0, 10, 20]), batch_rows=1, units=3) == {(0,): 1}


def test_only_a_negative_bound_makes_every_instant_a_bucket():
    case = pair([0, 1], [5, 6, 6], Interval("a", "b", 5 * SECOND, None))
    assert answer(case, batch_rows=2) == expected(case, 2) == {(0,): 2}


def test_the_state_of_distinct_does_not_grow_while_the_streams_advance():
    seconds = [float(i) for i in range(60)]
    case = pair(seconds, seconds, All("WINDOW", SECOND), select=(Col("a", "ts"), Col("b", "ts")))
    case = replace(case, data=tuple((s, replace(d, lateness_us=0)) for s, d in case.data))
    assert wm.local.counts(local(case, batch_rows=1)).kept <= 6


def tables(**columns: Any) -> dict[str, pa.Table]:
    rows = len(next(iter(columns.values())))
    ts = pa.array([BASE_US] * rows, pa.timestamp("us", tz="UTC"))
    return {
        "s": pa.table({"i": list(range(rows)), **columns, "ts": ts}),
        "t": pa.table({"i": list(range(rows)), "ts": ts}),
    }


def grouped(select: str, by: str = "", **columns: Any) -> list[tuple[Any, ...]]:
    text = f"SELECT {select} FROM s a, t b WHERE a.i = b.i WINDOW = 1 SECOND {by}"
    return sorted(rows_of(wm.local.run(text, tables(**columns), batch_rows=2, units=3)), key=repr)


def test_expressions_over_aggregates_and_keys():
    found = grouped(
        "upper(a.g) AS g, sum(a.v) / count(*) + 1 AS m, max(a.v) - min(a.v) AS spread, count(a.v) > 1 AS many",
        "GROUP BY upper(a.g)",
        g=["x", "X", "y", None],
        v=[1.0, 4.0, None, 8.0],
    )
    assert found == [("X", 3.5, 3.0, True), ("Y", None, None, False), (None, 9.0, 0.0, False)]


def test_keys_by_number_and_by_name():
    columns = {"g": [1, 1, 2], "v": [1, 2, 3]}
    assert grouped("a.g + 1 AS h, sum(a.v) AS s", "GROUP BY 1", **columns) == [(2, 3), (3, 3)]
    assert grouped("a.g + 1 AS h, sum(a.v) AS s", "GROUP BY h", **columns) == [(2, 3), (3, 3)]


def test_groups_without_an_aggregate():
    assert grouped("a.g", "GROUP BY a.g", g=[1, None, 1]) == [(1,), (None,)]


def test_nothing_has_a_count_and_no_groups():
    assert grouped("count(*) AS n, sum(a.v) AS s, avg(a.v) AS m", v=pa.array([], pa.int64())) == [(0, None, None)]
    assert grouped("a.v, count(*) AS n", "GROUP BY a.v", v=pa.array([], pa.int64())) == []


def test_nan_is_the_largest_and_zeros_are_one_group():
    nan = float("nan")
    assert grouped("min(a.v) AS l, max(a.v) AS h, count(*) AS n", v=[nan, 1.0, None])[0][0] == 1.0
    found = grouped("a.g, count(*) AS n", "GROUP BY a.g", g=[0.0, -0.0, nan, nan])
    assert [n for _, n in found] == [2, 2]


@pytest.mark.parametrize(
    ("kind", "total", "mean"),
    [
        (pa.int8(), pa.int64(), pa.float64()),
        (pa.int64(), pa.int64(), pa.float64()),
        (pa.float32(), pa.float64(), pa.float64()),
        (pa.decimal128(10, 2), pa.decimal128(20, 2), pa.decimal128(14, 6)),
        (pa.decimal128(38, 3), pa.decimal128(38, 3), pa.decimal128(38, 7)),
    ],
    ids=str,
)
def test_types_are_sparks(kind, total, mean):
    text = (
        "SELECT sum(a.v) AS s, avg(a.v) AS m, min(a.v) AS l, count(a.v) AS n FROM s a, t b WHERE a.i = b.i WINDOW = 1 s"
    )
    found = wm.local.run(text, tables(v=pa.array([1, 2, 2], pa.int8()).cast(kind)))
    assert found.schema.types == [total, mean, kind, pa.int64()]


def test_the_mean_of_decimals_is_rounded_as_spark_rounds():
    cents = pa.array([Decimal("0.01"), Decimal("0.01"), Decimal("-0.03")], pa.decimal128(10, 2))
    assert grouped("avg(a.v) AS m", v=cents) == [(Decimal("-0.003333"),)]
    assert grouped("avg(a.v) AS m", v=cents.slice(1)) == [(Decimal("-0.010000"),)]
    halves = pa.array([Decimal("0.000001"), Decimal("0.000002"), None], pa.decimal128(12, 6))
    assert grouped("avg(a.v) AS m", v=halves) == [(Decimal("0.0000015000"),)]


def test_overflow_is_an_error():
    with pytest.raises(wm.WatersmeetError, match="aggregate"):
        grouped("sum(a.v) AS s", v=[2**62, 2**62, 1])


@pytest.mark.parametrize("column", [["x"], [True]])
def test_a_sum_of_what_is_no_number_is_an_error(column):
    with pytest.raises(wm.WatersmeetError, match=r"sum\(a.v\).*cast"):
        grouped("sum(a.v) AS s", v=column)


@pytest.mark.parametrize("item", ["a.v", "max(a.v)", "max(a.ts - b.ts)"])
def test_groups_of_what_is_not_plain_are_an_error(item):
    with pytest.raises(wm.WatersmeetError, match="plain types only; cast it"):
        grouped(f"{item} AS x, count(*) AS n", "" if "max" in item else "GROUP BY a.v", v=[[1]])


def test_distinct_tells_nested_values_apart():
    columns = {"v": [[1, 2], [1, 2], [2, 1], None]}
    text = "SELECT DISTINCT a.v FROM s a, t b WHERE a.i = b.i WINDOW = 1 SECOND"
    found = wm.local.run(text, tables(**columns), batch_rows=1, units=3).column("v").to_pylist()
    assert sorted(map(repr, found)) == ["None", "[1, 2]", "[2, 1]"]


def test_updates_of_the_oracle_end_in_its_final_values():
    case = pair(
        [0, 1, 2],
        [0, 1, 2],
        All("WINDOW", SECOND),
        distinct=False,
        aggregates=(Agg("count"), Agg("max", Col("b", "ts"))),
    )
    outcome = case.expected(1)
    assert [n for _, (_, n, _) in outcome.results] == [1, 4, 7]
    assert outcome.results[-1][1] == outcome.final[0]
