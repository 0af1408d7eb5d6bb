"""The oracle on hand-made inputs whose answers are known: who tests the tester."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from tests.oracle import (
    Arrival,
    OracleQuery,
    Predicate,
    Unsatisfiable,
    aggregate,
    batches_of,
    both,
    closure,
    disorder,
    either,
    less,
    negated,
    run,
    same,
    widest,
)

NAN = math.nan


def tuples(*times: int | None, **columns: Any) -> list[dict[str, Any]]:
    """Rows with the given times; a column is a list or one value for all."""
    return [
        {"ts": ts} | {c: v[i] if isinstance(v, list) else v for c, v in columns.items()} for i, ts in enumerate(times)
    ]


def times_of(*aliases: str) -> Any:
    return lambda env: tuple(env[a]["ts"] for a in aliases)


def on_key(x: str, y: str) -> Predicate:
    return Predicate(frozenset({x, y}), lambda env: same(env[x]["k"], env[y]["k"]))


def binary(windows: Any = (), predicates: Any = (), rows: Any = None, tumbling: str = "") -> OracleQuery:
    names = frozenset(tumbling)
    return OracleQuery([("a", "s"), ("b", "t")], predicates, windows, times_of("a", "b"), rows or {}, names)


def whole(**streams: list[dict[str, Any]]) -> dict[str, Arrival]:
    return {name: Arrival([rows]) for name, rows in streams.items()}


def test_equality_is_sparks():
    assert same(NAN, NAN) is True
    assert same(0.0, -0.0) is True
    assert same(None, None) is None
    assert same(1, 1.0) is True
    assert same(2**53 + 1, float(2**53)) is True
    assert same(2**53 + 1, 2**53) is False
    assert same("x", "x ") is False


def test_order_is_sparks():
    assert less(1.0, NAN) is True
    assert less(math.inf, NAN) is True
    assert less(NAN, 1.0) is False
    assert less(NAN, NAN) is False
    assert less(None, 1) is None


def test_three_valued_logic():
    assert both(None, False) is False
    assert both(None, True) is None
    assert either(None, True) is True
    assert either(None, False) is None
    assert negated(None) is None


def test_both_ends_of_a_window_are_inclusive():
    outcome = run(binary([("a", "b", -5, 5)]), whole(s=tuples(10), t=tuples(4, 5, 10, 15, 16)))
    assert outcome.rows == [(10, 5), (10, 10), (10, 15)]


def test_directed_window():
    outcome = run(binary([("a", "b", 0, 5)]), whole(s=tuples(10), t=tuples(9, 10, 15, 16)))
    assert outcome.rows == [(10, 10), (10, 15)]


def test_null_and_nan_keys():
    outcome = run(
        binary(predicates=[on_key("a", "b")]),
        whole(s=tuples(1, 2, 3, k=[None, NAN, 0.0]), t=tuples(1, 2, 3, k=[None, NAN, -0.0])),
    )
    assert outcome.rows == [(2, 2), (3, 3)]


def test_unknown_is_not_true():
    unknown = Predicate(frozenset({"a", "b"}), lambda env: negated(same(env["a"]["k"], env["b"]["k"])))
    assert run(binary(predicates=[unknown]), whole(s=tuples(1, k=None), t=tuples(1, k=1))).rows == []


def test_a_condition_on_no_alias():
    for truth, count in ((True, 1), (False, 0), (None, 0)):
        constant = Predicate(frozenset(), lambda env, truth=truth: truth)
        assert len(run(binary(predicates=[constant]), whole(s=tuples(1), t=tuples(1))).rows) == count


def test_duplicates_are_a_bag():
    assert (
        run(binary(predicates=[on_key("a", "b")]), whole(s=tuples(1, 1, k=7), t=tuples(2, 2, 2, k=7))).rows
        == [(1, 2)] * 6
    )


def test_self_join_pairs_a_tuple_with_itself():
    query = OracleQuery([("a", "s"), ("b", "s")], [], [("a", "b", 0, 1)], times_of("a", "b"))
    assert run(query, whole(s=tuples(1, 2, 4))).rows == [(1, 1), (1, 2), (2, 2), (4, 4)]


def test_three_streams_and_an_implied_window():
    query = OracleQuery(
        [("a", "s"), ("b", "t"), ("c", "u")], [], [("a", "b", 0, 5), ("b", "c", 0, 7)], times_of("a", "b", "c")
    )
    assert run(query, whole(s=tuples(0), t=tuples(5, 6), u=tuples(12, 13))).rows == [(0, 5, 12)]


def test_rows_counts_up_to_the_youngest_member():
    """Of times 1 2 3 the last two up to 2 are 1 and 2; up to 3 they are 2 and 3."""
    outcome = run(binary(rows={"a": 2}), whole(s=tuples(3, 1, 2), t=tuples(2, 9)))
    assert sorted(outcome.rows) == [(1, 2), (2, 2), (2, 9), (3, 2), (3, 9)]


def test_blocks_of_rows_begin_with_the_first():
    """Of times 1 2 3 the blocks of two are 1 2 and 3: up to 2 the present one is the first, up to 3 the second."""
    outcome = run(binary(rows={"a": 2}, tumbling="a"), whole(s=tuples(3, 1, 2), t=tuples(2, 9)))
    assert sorted(outcome.rows) == [(1, 2), (2, 2), (3, 2), (3, 9)]


def test_rows_counts_before_where():
    odd = Predicate(frozenset({"a"}), lambda env: env["a"]["ts"] % 2 == 1)
    assert run(binary(predicates=[odd], rows={"a": 1}), whole(s=tuples(1, 2), t=tuples(2))).rows == []


def test_rows_refuses_ties():
    with pytest.raises(AssertionError, match="content hash"):
        run(binary(rows={"a": 1}), whole(s=tuples(1, 1), t=tuples(2)))


def test_lateness_is_measured_against_earlier_batches_only():
    """50 is 50 behind the 100 of its own batch, which is no matter; in the next batch 89 is late and 90 is not."""
    outcome = run(
        binary(),
        {"s": Arrival([tuples(100, 50), tuples(89, 90)], lateness_us=10), "t": Arrival([tuples(1)], lateness_us=0)},
    )
    assert sorted(outcome.rows) == [(50, 1), (90, 1), (100, 1)]
    assert outcome.late == {"s": 1, "t": 0}


def test_null_time_is_late_once_per_stream():
    query = OracleQuery([("a", "s"), ("b", "s")], [], [], times_of("a", "b"))
    outcome = run(query, {"s": Arrival([tuples(None, 1)])})
    assert (outcome.rows, outcome.late) == ([(1, 1)], {"s": 1})


def test_late_tuples_do_not_count_for_rows():
    outcome = run(
        binary(rows={"a": 1}),
        {"s": Arrival([tuples(10), tuples(5)], lateness_us=0), "t": Arrival([tuples(7), tuples(11)], lateness_us=0)},
    )
    assert sorted(outcome.rows) == [(10, 7), (10, 11)]


def test_idle_lets_a_silent_stream_follow_the_others():
    arrivals = {
        "s": Arrival([tuples(100), tuples()], lateness_us=0),
        "t": Arrival([tuples(), tuples(60, 70)], lateness_us=0, idle_us=30),
    }
    outcome = run(binary(), arrivals)
    assert (outcome.rows, outcome.late) == ([(100, 70)], {"s": 0, "t": 1})


def test_a_result_belongs_to_the_batch_of_its_last_member():
    arrivals = {
        "s": Arrival([tuples(1), tuples(2)], lateness_us=0),
        "t": Arrival([tuples(), tuples(1), tuples(2)], lateness_us=0),
    }
    outcome = run(binary([("a", "b", 0, 0)]), arrivals)
    assert [outcome.in_batch(n) for n in range(3)] == [[], [(1, 1)], [(2, 2)]]


def test_disorder_is_the_deepest_step_back():
    assert disorder([tuples(5, 9), tuples(None, 3, 4)]) == 6
    assert disorder([tuples(), tuples(1, 2, 2)]) == 0


def test_a_plain_table_is_never_late():
    arrivals = {"s": Arrival(batches_of(tuples(9, 1, 5), 1)), "t": Arrival([tuples(1)])}
    assert run(binary(), arrivals).late == {"s": 0, "t": 0}


def test_expiry_needs_the_others_watermark_beyond_the_bound():
    """a may wait for b up to 5 younger: at watermark 15 of t the a of time 10 stays, at 16 it goes."""
    for mark, kept in ((15, 1), (16, 0)):
        outcome = run(binary([("a", "b", 0, 5)]), {"s": Arrival([tuples(10)], 0), "t": Arrival([tuples(mark)], 0)})
        assert outcome.retained[0]["a"] == kept


def test_expiry_waits_for_every_other_alias():
    query = OracleQuery(
        [("a", "s"), ("b", "t"), ("c", "u")], [], [("a", "b", -5, 5), ("b", "c", -5, 5)], times_of("a", "b", "c")
    )
    arrivals = {"s": Arrival([tuples(10)], 0), "t": Arrival([tuples(99)], 0), "u": Arrival([tuples(20), tuples(21)], 0)}
    outcome = run(query, arrivals)
    assert [kept["a"] for kept in outcome.retained] == [1, 0]
    assert outcome.most_retained()["a"] == 1


def test_full_history_keeps_everything():
    assert run(binary(), whole(s=tuples(1, 2, 3), t=tuples(10**9))).retained[-1] == {"a": 3, "b": 1}


def test_closure():
    bounds = closure("abc", [("a", "b", 0, 5), ("b", "c", None, 7)])
    assert bounds == {("a", "a"): 0, ("a", "b"): 5, ("a", "c"): 12, ("b", "a"): 0, ("b", "b"): 0, ("b", "c"): 7,
                      ("c", "a"): math.inf, ("c", "b"): math.inf, ("c", "c"): 0}  # fmt: skip


def test_closure_of_a_negative_cycle():
    with pytest.raises(Unsatisfiable):
        closure("ab", [("a", "b", 5, None), ("a", "b", None, 4)])


def path(hops: tuple[int, ...], windows: Any = ()) -> OracleQuery:
    return OracleQuery(
        [("a", "s"), ("b", "t"), ("c", "u")], (), windows, times_of("a", "b", "c"), paths=[("abc", hops)]
    )


@pytest.mark.parametrize(
    ("times", "windows", "count"),
    [
        ((1, 3, 5), (), 1),
        ((5, 3, 1), (), 1),
        ((3, 3, 3), (), 1),  # both ways, and yet once
        ((1, 1, 4), (), 0),
        ((1, 3, 2), (), 0),
        ((3, 5, 3), (), 0),
        ((1, 6, 7), (), 0),
        ((1, 3, 5), [("a", "c", -3, 3)], 0),
    ],
)
def test_a_path_is_travelled_in_either_direction(times, windows, count):
    streams = whole(**{stream: tuples(ts) for stream, ts in zip("stu", times, strict=True)})
    assert len(run(path((4, 2), windows), streams).rows) == count


def test_the_widest_bounds_of_a_path():
    bounds = widest(path((4, 2), [("a", "b", -3, 3)]))
    assert [bounds[pair] for pair in (("a", "b"), ("b", "a"), ("a", "c"), ("c", "a"))] == [3, 3, 5, 5]
    assert widest(path((4, 2), [("a", "b", 1, None)]))["b", "a"] == -1
    with pytest.raises(Unsatisfiable):
        widest(path((4, 2), [("a", "b", 1, None), ("c", "b", 1, None)]))


def constant(windows: Any = (), **changes: Any) -> OracleQuery:
    """Results that are all the same row."""
    return replace(binary(windows), select=lambda env: ("x",), **changes)


@pytest.mark.parametrize(
    ("windows", "left", "right", "count"),
    [
        ([("a", "b", -10, 10)], (5, 12), (5, 9, 10, 19, 22), 3),  # the youngest lie in [0, 10), [10, 20) and [20, 30)
        ([("a", "b", 0, 0)], (5, 5, 6), (5, 6), 2),  # no horizon: every instant by itself
        ([("a", "b", 1, None)], (5,), (6, 6, 9), 2),  # the only bound is a - b <= -1
        ([("a", "b", 0, None)], (5,), (5, 6, 6), 2),
        ([], (5, 6), (5, 600), 1),
    ],
)
def test_distinct_is_once_per_bucket_of_the_youngest(windows, left, right, count):
    streams = whole(s=tuples(*left), t=tuples(*right))
    assert len(run(constant(windows, distinct=True), streams).rows) == count


def test_distinct_rows_may_be_forgotten_when_every_watermark_has_passed_their_bucket():
    batches = [tuples(5), tuples(9), tuples(10), tuples(11)]
    arrivals = {name: Arrival(batches, lateness_us=0) for name in "st"}
    outcome = run(constant([("a", "b", -10, 10)], distinct=True), arrivals)
    assert outcome.results == [(0, ("x",)), (2, ("x",))]
    assert outcome.kept == [1, 1, 1, 1]
    assert run(constant([], distinct=True), arrivals).kept == [1, 1, 1, 1]


def test_aggregates_skip_null_and_put_nan_last():
    values = [None, 2.0, NAN, 1.0]
    assert [aggregate(f, values) for f in ("count", "min")] == [3, 1.0]
    assert math.isnan(aggregate("max", values))
    assert [aggregate(f, [None]) for f in ("count", "sum", "avg", "min")] == [0, None, None, None]
    assert (aggregate("sum", [1, 2]), aggregate("avg", [1, 2])) == (3, 1.5)


def test_groups_change_batch_by_batch():
    query = replace(
        binary([("a", "b", 0, 0)]),
        select=lambda env: (env["a"]["k"], env["b"]["v"]),
        keys=1,
        aggregates=[("count", None), ("sum", 1)],
    )
    left = Arrival([tuples(1, 2, k=[0.0, None]), tuples(3, k=-0.0)])
    right = Arrival([tuples(1, 2, v=[5, 7]), tuples(3, v=1)])
    outcome = run(query, {"s": left, "t": right})
    assert outcome.results == [(0, (0.0, 1, 5)), (0, (None, 1, 7)), (1, (0.0, 2, 6))]
    assert outcome.final == [(0.0, 2, 6), (None, 1, 7)]
    assert run(replace(query, keys=0), whole(s=[], t=[])).final == [(0, None)]
