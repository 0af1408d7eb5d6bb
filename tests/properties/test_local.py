"""The local runtime equals the oracle, whatever the batches, the order of arrival, the units, the kernel and the plan.

A plain table's lateness is the disorder found in it, so nothing but NULL times is ever late there; declared lateness
makes rows late, which must cost exactly the oracle's results, be counted and be said.
"""

from __future__ import annotations

import math
import warnings
from contextlib import nullcontext, suppress
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from itertools import pairwise
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests import oracle
from tests.cases import BASE_US, NOW_US, SECOND, All, Case, Col, Data, Op, Pair, Path, bag, columns_of, op, rows_of
from tests.strategies import BATCHES, cases, shuffled, windows, with_lateness
from watersmeet.errors import OptionError
from watersmeet.operators.probing import tactics

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
FEW = max(1, settings.default.max_examples // 2)


def sources(case: Case) -> dict[str, Any]:
    """Plain tables where no lateness is declared, streams where it is."""
    found: dict[str, Any] = {}
    for name, data in case.data:
        found[name] = data.table()
        if data.lateness_us is not None:
            spans = {"lateness": data.lateness_us, "idle": data.idle_us, "max_ahead": data.max_ahead_us}
            declared = {n: timedelta(microseconds=us) for n, us in spans.items() if us is not None}
            found[name] = wm.Stream(data.table(), time="ts", **declared)
    return found


def local(case: Case, **options: Any) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return wm.local.run(case.sql(), sources(case), now=EPOCH + timedelta(microseconds=NOW_US), **options)


def check(case: Case, batch_rows: int, **options: Any) -> pa.Table:
    """The oracle's results, and a count of late rows within the oracle's bounds (which mostly coincide)."""
    want = case.expected(batch_rows)
    got = local(case, batch_rows=batch_rows, **options)
    assert bag(rows_of(got)) == bag(want.rows), case.sql()
    for stream, (least, most) in case.late_bounds(want).items():
        assert least <= wm.local.counts(got).late.get(stream, 0) <= most, case.sql()
    return got


def has_key_everywhere(case: Case) -> bool:
    """Whether equalities between two aliases alone connect all aliases: what a hash kernel needs."""
    edges = [
        p.aliases
        for p in case.predicates
        if isinstance(p, Op) and p.name == "=" and all(len(arg.aliases) == 1 for arg in p.args)
    ]
    reached, before = {case.names[0]}, set()
    while reached != before:
        before = set(reached)
        reached |= {alias for edge in edges if edge & reached for alias in edge}
    return reached == set(case.names)


def has_a_range(case: Case) -> bool:
    """Whether two aliases' numbers are surely compared, or ROWS compares sequence numbers: what a range probe needs."""
    compared = [p for p in case.predicates if isinstance(p, Op) and p.name in ("<", "<=", ">", ">=")]
    sides = [p.args for p in compared if all(len(arg.aliases) == 1 for arg in p.args) and len(p.aliases) == 2]
    return bool(case.rows) or any(c.name != "name" for args in sides for c in columns_of(args[0]))


# ---------------------------------------------------------------- results

NO_PAIR_PASSES_THE_BAND = Case(
    aliases=(("a", "s0"), ("b", "s0")),
    predicates=(
        op("<=", op("abs", op("-", Col("a", "v"), Col("b", "v"))), 0),
        op("or", op("<", Col("b", "ts"), Col("a", "ts")), op("=", Col("b", "n"), Col("a", "n"))),
    ),
    windows=(),
    select=(Col("a", "id"),),
    data=(
        (
            "s0",
            Data(
                (
                    (0, 0, 0, 0.0, 2.0, "x", 0),
                    (1, 0, None, 1.0, -1.0, "x", SECOND),
                    (2, 0, 0, 0.0, 1.0, "x", 7 * SECOND),
                )
            ),
        ),
    ),
)
"""Taking no rows from several segments raised ArrowInvalid."""

RULED_OUT_BY_ITS_KEYS = Case(
    aliases=(("a", "s0"), ("b", "s1"), ("c", "s2")),
    predicates=(
        op("=", Col("a", "k"), Col("b", "f")),
        op("=", Col("b", "f"), Col("c", "f")),
        op("=", Col("a", "f"), Col("c", "f")),
    ),
    windows=(All("WINDOW", 2 * SECOND),),
    select=(Col("a", "id"),),
    data=(("s0", Data(((0, 0, 0, 1.0, 0.0, "x", None),))), ("s1", Data()), ("s2", Data())),
)
"""The keys imply a.k = a.f, so this row would not have been stored and need not count as late."""

LAST_ROW_OF_A_CROSS_JOIN = Case(
    aliases=(("a", "s0"), ("b", "s1")),
    predicates=(),
    windows=(),
    select=(Col("b", "id"),),
    data=(
        ("s0", Data(((0, 1, 1, None, 0.3, "X", 7 * SECOND),))),
        ("s1", Data(((0, None, -1, 0.0, 0.1, "x", 3 * SECOND), (1, 0, 0, -0.0, 0.0, None, SECOND)))),
    ),
    rows=(("b", 1),),
    style="join",
)
"""[ROWS 1] was read and then ignored."""


@given(cases(), BATCHES)
@example(NO_PAIR_PASSES_THE_BAND, 2)
def test_equals_the_oracle(case, batch_rows):
    check(case, batch_rows)


@given(cases(equality=False), BATCHES)
@settings(max_examples=FEW)
def test_without_any_equality(case, batch_rows):
    check(case, batch_rows)


@given(st.data(), cases(), BATCHES, BATCHES)
@settings(max_examples=FEW)
def test_batches_and_arrival_change_nothing(data, case, first, second):
    again = data.draw(shuffled(case))
    assert bag(rows_of(local(case, batch_rows=first))) == bag(rows_of(local(again, batch_rows=second)))


@given(cases(rows=True), BATCHES)
@example(LAST_ROW_OF_A_CROSS_JOIN, 1)
def test_rows_windows(case, batch_rows):
    check(case, batch_rows)


@given(cases(null_ts=True), BATCHES)
@example(RULED_OUT_BY_ITS_KEYS, 1)
@settings(max_examples=FEW)
def test_a_null_time_is_late(case, batch_rows):
    check(case, batch_rows)


@given(st.data(), cases(forms=("interval", "mixed", "path"), satisfiable=False))
@settings(max_examples=FEW)
def test_windows_that_no_result_can_satisfy_are_an_error(data, case):
    names = case.names
    case = replace(case, windows=(*case.windows, *data.draw(windows(names, ("interval", "directed")))))
    try:
        oracle.widest(case.query())
    except oracle.Unsatisfiable:
        with pytest.raises(wm.WatersmeetError, match=r"(?i)window"):
            local(case)
    else:
        check(case, 1000)


# ---------------------------------------------------------------- lateness and retention


@given(st.data(), cases(null_ts=True), BATCHES)
def test_late_rows(data, case, batch_rows):
    check(data.draw(with_lateness(case)), batch_rows)


@given(st.data(), cases(rows=True), BATCHES)
@settings(max_examples=FEW)
def test_late_rows_do_not_count_in_rows_windows(data, case, batch_rows):
    check(data.draw(with_lateness(case)), batch_rows)


@given(st.data(), cases(null_ts=True), BATCHES)
@settings(max_examples=FEW)
def test_idle_streams_follow_the_others(data, case, batch_rows):
    check(data.draw(with_lateness(case, idle=True, ahead=True)), batch_rows)


@given(
    st.data(),
    cases(forms=("all", "pairs", "partial", "directed", "range", "mixed", "path")),
    st.sampled_from((1, 2, 3, 7)),
)
def test_retained_rows_obey_the_bound(data, case, batch_rows):
    """Dead rows go with their segment, so a tenth more than the living may be kept."""
    case = data.draw(with_lateness(case, idle=True))
    want = case.expected(batch_rows)
    assume(want.retained)
    kept = wm.local.counts(local(case, batch_rows=batch_rows, units=1)).retained
    assert kept.keys() == set(case.names)
    assert {alias: n for alias, n in kept.items() if 10 * n > 11 * want.most_retained()[alias]} == {}, (
        case.sql(),
        kept,
        want.most_retained(),
    )


@given(cases(), BATCHES)
@settings(max_examples=FEW)
def test_number_of_batches(case, batch_rows):
    longest = max(len(data.rows) for _, data in case.data)
    assume(longest)
    assert wm.local.counts(local(case, batch_rows=batch_rows)).batches == -(-longest // batch_rows)


# ---------------------------------------------------------------- choices change only the cost


@given(cases(), BATCHES, st.sampled_from((1, 2, 3, 4, 8, 13)))
def test_units_change_nothing(case, batch_rows, units):
    check(case, batch_rows, units=units)


def may_refuse(case: Case, kernel: str) -> bool:
    hashed, ranged = ("hw" in kernel or "xjoin" in kernel), "sorted" in kernel
    return (hashed and not has_key_everywhere(case)) or (ranged and not has_a_range(case))


KERNELS = ("nlw", "hw", "sorted", "mw", "lca", "ripple", "xjoin")


@pytest.mark.parametrize("kernel", [*KERNELS, *(f"gca({kernel})" for kernel in KERNELS)])
@given(case=cases(), batch_rows=BATCHES)
@settings(max_examples=FEW)
def test_kernels_change_nothing(kernel, case, batch_rows):
    with suppress(OptionError) if may_refuse(case, kernel) else nullcontext():
        check(case, batch_rows, kernel=kernel)


@pytest.mark.parametrize("probe_ns", [0.0, 22.0, 1e9])
@given(case=cases(), batch_rows=BATCHES)
@settings(max_examples=FEW)
def test_what_time_alone_decides_changes_nothing(probe_ns, case, batch_rows):
    """Always probe, choose by the sample, always sweep; and drop tuples without partners wherever one is sampled."""
    with pytest.MonkeyPatch.context() as patch:
        lookup_ns = tactics.LOOKUP_NS if probe_ns else 0.0
        for name, value in (("FEW", 1), ("PAYS", 1.0), ("PROBE_NS", probe_ns), ("LOOKUP_NS", lookup_ns)):
            patch.setattr(tactics, name, value)
        ran = wm.local.counts(check(case, batch_rows)).kernels
    assert probe_ns > 0 or "lca" not in ran


@given(
    st.data(),
    cases(forms=("path",), null_ts=True),
    BATCHES,
    st.sampled_from(("auto", "random", "pipeline", "hypercube")),
)
def test_paths_in_every_place(data, case, batch_rows, routing):
    """Bicliques, grids and pipelines, any order: in stages, too, a path keeps its direction."""
    case = data.draw(with_lateness(case, idle=True))
    check(case, batch_rows, routing=routing, units=4, order=data.draw(st.permutations(case.names)))


ROUTINGS = ("hash", "hypercube", "random", "range", "contrand", "contrand(2, 1)", "matrix", "pipeline")


@given(st.data(), cases(null_ts=True), BATCHES, st.sampled_from(ROUTINGS), st.sampled_from((3, 4, 9)))
def test_routings_change_nothing(data, case, batch_rows, routing, units):
    """What a routing cannot do it refuses when the query is bound; random routing and pipelines do everything."""
    case = data.draw(with_lateness(case, idle=True))
    kernel = data.draw(st.sampled_from(("auto", "auto", "nlw", "sorted", "mw", "lca", "ripple", "gca(mw)", "gca(nlw)")))
    refused = routing not in ("random", "pipeline", "hypercube") or may_refuse(case, kernel)
    with suppress(OptionError) if refused else nullcontext():
        check(case, batch_rows, routing=routing, units=units, kernel=kernel)


@given(st.data(), cases(), BATCHES, st.sampled_from(("random", "pipeline")))
def test_pipelines_in_any_order_change_nothing(data, case, batch_rows, routing):
    check(case, batch_rows, routing=routing, units=4, order=data.draw(st.permutations(case.names)))


@given(cases(equality=False), BATCHES)
def test_ranges_change_nothing(case, batch_rows):
    with suppress(OptionError) if may_refuse(case, "sorted") else nullcontext():
        check(case, batch_rows, kernel="sorted")


@given(st.data(), cases(), BATCHES)
def test_orders_change_nothing(data, case, batch_rows):
    check(case, batch_rows, order=data.draw(st.permutations(case.names)))


@given(st.data(), cases(rows=True, null_ts=True), BATCHES, st.sampled_from((1, 3, 4)))
@settings(max_examples=FEW)
def test_everything_at_once(data, case, batch_rows, units):
    case = data.draw(with_lateness(case, idle=True))
    kernel = data.draw(st.sampled_from(("nlw", "sorted", "mw", "lca", "gca(lca)", "ripple")))
    check(case, batch_rows, units=units, kernel=kernel, order=data.draw(st.permutations(case.names)))


# ---------------------------------------------------------------- by hand

KEY = (op("=", Col("a", "k"), Col("b", "k")),)


def row(ts: int | None, k: int | None = 0, i: int = 0) -> tuple[Any, ...]:
    return (i, k, 0, 0.0, 0.0, "x", ts)


def pair(left: tuple[Any, ...], right: tuple[Any, ...], **spans: Any) -> Case:
    data = (("s0", Data(left, **spans)), ("s1", Data(right, **spans)))
    return Case((("a", "s0"), ("b", "s1")), KEY, (All("WINDOW", SECOND),), (Col("a", "ts"), Col("b", "ts")), data)


def test_late_rows_are_said():
    late = pair((row(5 * SECOND), row(0)), (row(5 * SECOND),), lateness_us=SECOND)
    with pytest.warns(UserWarning, match=r"(?s)s0.*late|late.*s0"):
        result = wm.local.run(late.sql(), sources(late), batch_rows=1)
    assert rows_of(result) == [(BASE_US + 5 * SECOND, BASE_US + 5 * SECOND)]
    assert wm.local.counts(result).late.get("s0") == 1


def test_nothing_is_said_when_nothing_is_late():
    punctual = pair((row(5 * SECOND), row(0)), (row(5 * SECOND),))
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        wm.local.run(punctual.sql(), sources(punctual), batch_rows=1)


def test_state_does_not_grow_while_the_streams_advance():
    """Both streams advance by one second per batch: with a window of one second at most two rows stay."""
    rows = tuple(row(i * SECOND) for i in range(40))
    result = check(pair(rows, rows, lateness_us=0), 1, units=1)
    assert all(n <= 2 for n in wm.local.counts(result).retained.values())


def test_empty_streams_keep_the_schema():
    result = check(pair((), ()), 10)
    assert result.column_names == ["c0", "c1"]
    assert all(pa.types.is_timestamp(field.type) for field in result.schema)


@pytest.mark.parametrize("equality", [True, False])
def test_a_hash_kernel_for_a_band_join_is_an_error_that_says_what_can(equality):
    band = replace(
        pair((row(0),), (row(0),)),
        predicates=KEY if equality else (op("<=", op("abs", op("-", Col("a", "v"), Col("b", "v"))), 1),),
    )
    if equality:
        check(band, 10, kernel="hw")
        return
    with pytest.raises(OptionError, match=r"no equality.*'sorted', 'nlw'.* or 'auto'"):
        local(band, kernel="hw")


@pytest.mark.parametrize(
    "predicates", [KEY, (op("<", Col("a", "name"), Col("b", "name")),), (op("<>", Col("a", "n"), Col("b", "n")),)]
)
def test_a_range_probe_without_a_range_is_an_error_that_says_what_can(predicates):
    case = replace(pair((row(0),), (row(0),)), predicates=predicates)
    with pytest.raises(OptionError, match=r"no comparison or band.*'nlw'.* or 'auto'") as refused:
        local(case, kernel="sorted")
    assert ("'hw'" in str(refused.value)) == (predicates == KEY)


@pytest.mark.parametrize("kernel", ["auto", "sorted", "nlw"])
@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([-(2**63), -1, 0, 0, 2**63 - 1], pa.int64()),
        ([-128, 0, 127], pa.int8()),
        ([False, True, True], pa.bool_()),
        ([-1.5, -0.0, 0.0, math.inf, -math.inf, math.nan, math.nan], pa.float32()),
        ([Decimal("-99999999.99"), Decimal("0.00"), Decimal("12.50")], pa.decimal128(10, 2)),
        ([date(1969, 12, 31), date(1970, 1, 1), date(2024, 2, 29)], pa.date32()),
    ],
    ids=lambda v: "" if isinstance(v, list) else str(v),
)
def test_ranges_of_every_type(values, kind, kernel):
    streams = {"s": column([*values, None], kind)}
    run = {
        text: wm.local.run(f"SELECT a.k AS x, b.k AS y FROM s a, s b WHERE a.k {text} b.k", streams, kernel=kernel)
        for text in ("<", ">=")
    }
    want = {"<": oracle.less, ">=": lambda x, y: not oracle.less(x, y)}
    for text, result in run.items():
        assert bag(rows_of(result)) == bag((x, y) for x in values for y in values if want[text](x, y))


def test_keys_that_only_a_double_confuses_are_not_transitive():
    """2**53 and 2**53 + 1 both equal 2.0**53 as doubles, and yet differ: b = c does not follow from a = b and a = c."""
    big = 2**53
    rows = {
        "s0": ((0, 0, 0, float(big), 0.0, "x", 0),),
        "s1": ((0, big, 0, 0.0, 0.0, "x", 0),),
        "s2": ((0, big + 1, 0, 0.0, 0.0, "x", 0),),
    }
    edges = (op("=", Col("a", "f"), Col("b", "k")), op("=", Col("a", "f"), Col("c", "k")))
    case = Case(
        (("a", "s0"), ("b", "s1"), ("c", "s2")),
        edges,
        (),
        (Col("b", "k"), Col("c", "k")),
        tuple((s, Data(r)) for s, r in rows.items()),
    )
    assert len(rows_of(check(case, 10))) == 1
    assert rows_of(check(replace(case, predicates=(*edges, op("=", Col("b", "k"), Col("c", "k")))), 10)) == []


def column(values: list[Any], kind: pa.DataType) -> dict[str, pa.Table]:
    times = pa.array([BASE_US] * len(values), pa.timestamp("us", tz="UTC"))
    return pa.table({"k": pa.array(values, kind), "ts": times})


@pytest.mark.parametrize(
    ("left", "right", "count"),
    [
        (([1, 2, None], pa.int32()), ([1, 2, None], pa.int64()), 2),
        (([1, -1], pa.int8()), ([1, -1], pa.float32()), 2),
        (([0.1, 0.5], pa.float32()), ([0.1, 0.5], pa.float64()), 1),
        (([True, False, None], pa.bool_()), ([True, True, None], pa.bool_()), 2),
        (([b"\x00", b""], pa.binary()), ([b"\x00", b"", b"\x00\x00"], pa.binary()), 2),
        (([19000, 19001], pa.date32()), ([19000, 19000], pa.date32()), 2),
        ((["x", "y"], pa.large_string()), (["x", "x"], pa.string()), 2),
        ((["x", "y", None], pa.dictionary(pa.int32(), pa.string())), (["x", None, "y"], pa.string()), 2),
        (([BASE_US], pa.timestamp("us", tz="UTC")), ([BASE_US, BASE_US + 1], pa.timestamp("us", tz="UTC")), 1),
    ],
    ids=lambda side: str(side[1]) if isinstance(side, tuple) else None,
)
def test_key_types(left, right, count):
    tables = {"s": column(*left), "t": column(*right)}
    streams = {name: wm.Stream(table, time="ts") for name, table in tables.items()}
    for rows in (1, 100):
        assert (
            wm.local.run(
                "SELECT a.k AS x, b.k AS y FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", streams, batch_rows=rows
            ).num_rows
            == count
        )


def test_chunked_and_sliced_tables():
    whole = pair(
        tuple(row(i * SECOND, i % 3, i) for i in range(12)), tuple(row(i * SECOND, i % 3, i) for i in range(12))
    )
    want = bag(whole.expected().rows)
    pieces = {
        name: pa.concat_tables([table.slice(0, 5), table.slice(5, 0), table.slice(5)])
        for name, table in whole.tables().items()
    }
    offset = {
        name: pa.concat_tables([table, table]).combine_chunks().slice(12) for name, table in whole.tables().items()
    }
    for tables in (pieces, offset):
        assert bag(rows_of(wm.local.run(whole.sql(), tables, batch_rows=4))) == want


def test_times_without_a_zone_and_of_other_precision():
    case = replace(
        pair((row(0), row(SECOND), row(3 * SECOND)), (row(0), row(2 * SECOND))), select=(Col("a", "id"), Col("b", "id"))
    )
    want = bag(case.expected().rows)
    for kind in (
        pa.timestamp("us"),
        pa.timestamp("ms"),
        pa.timestamp("ns", tz="UTC"),
        pa.timestamp("us", tz="Europe/Athens"),
    ):
        tables = {
            name: table.set_column(table.schema.get_field_index("ts"), "ts", table["ts"].cast(kind))
            for name, table in case.tables().items()
        }
        assert bag(rows_of(wm.local.run(case.sql(), tables, batch_rows=2))) == want, kind


def test_a_missing_pair_gets_the_bound_that_the_others_imply():
    """|a - b| <= 1 and |b - c| <= 1 keep a row of `a` for two seconds after it, not for ever."""
    names = ("a", "b", "c")
    rows = tuple(row(i * SECOND) for i in range(30))
    keys = (op("=", Col("a", "k"), Col("b", "k")), op("=", Col("b", "k"), Col("c", "k")))
    chain = (Pair("WINDOW", "a", "b", SECOND), Pair("WINDOW", "b", "c", SECOND))
    case = Case(
        tuple((x, f"s{i}") for i, x in enumerate(names)),
        keys,
        chain,
        tuple(Col(x, "ts") for x in names),
        tuple((f"s{i}", Data(rows, 0)) for i in range(3)),
    )
    assert wm.local.counts(check(case, 1, units=1)).retained["a"] <= 3


def stops(*times: tuple[int, ...], hops: tuple[int, ...] = (SECOND, SECOND)) -> Case:
    """One stream for each stop of a path, one key; of every tuple of times one row in each."""
    names = "abcd"[: len(hops) + 1]
    keys = tuple(op("=", Col(x, "k"), Col(y, "k")) for x, y in pairwise(names))
    data = tuple((f"s{x}", Data(tuple(row(t[n] * SECOND) for t in times))) for n, x in enumerate(names))
    return Case(
        tuple((x, f"s{x}") for x in names), keys, (Path(tuple(names), hops),), tuple(Col(x, "ts") for x in names), data
    )


@pytest.mark.parametrize(
    "options", [{}, {"kernel": "nlw"}, {"routing": "pipeline", "units": 4}, {"routing": "random", "units": 6}]
)
def test_a_path_at_one_instant_comes_once(options):
    assert len(rows_of(check(stops((3, 3, 3), (5, 5, 5)), 1, **options))) == 2


@pytest.mark.parametrize("batch_rows", [1, 100])
@pytest.mark.parametrize("kernel", ["hw", "nlw", "mw", "lca", "ripple", "xjoin", "gca(hw)", "gca(lca)"])
def test_a_path_does_not_turn_round(kernel, batch_rows):
    """There are 1, 2, 1 and 3, 2, 3 too, which go back."""
    found = check(stops((1, 2, 3), (3, 2, 1)), batch_rows, kernel=kernel)
    seen = sorted(tuple((t - BASE_US) // SECOND for t in r) for r in rows_of(found))
    assert seen == [(1, 2, 3), (1, 2, 3), (3, 2, 1), (3, 2, 1)]
