"""`wm.testing`: what a test of a query sees, and that it fails in words when something else happens than it says."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.testing import QueryTest, table

ORDERS = table("id int, ts timestamp")
PAYMENTS = table("id int, paid double, ts timestamp")
LEFT = "SELECT o.id, p.paid FROM orders o LEFT JOIN payments p ON p.id = o.id DWINDOW (o, p) = 10 SECONDS"


def query(text: str = LEFT, lateness: str = "0 seconds", **options: object) -> wm.Query:
    streams = {"orders": wm.Stream(ORDERS, time="ts"), "payments": wm.Stream(PAYMENTS, time="ts", lateness=lateness)}
    return wm.sql(text, streams, **options)


def started(text: str = LEFT, lateness: str = "0 seconds", **options: object) -> QueryTest:
    return QueryTest(query(text, lateness, **options))


def test_a_query_from_beginning_to_end():
    test = started(lateness="5 seconds")
    test.batch(orders=[(1, 0), (2, 3)]).check().check_state(o=2).check_watermarks(orders=3)
    test.batch(payments=[(1, 9.5, 10)]).check((1, 9.5)).check_watermarks(orders=3, payments=5).check_late()
    test.batch(payments=[(7, 1.0, 4)], orders=[(3, 10)]).check().check_late(payments=1)
    test.advance(payments=18.5).check((2, None)).check_state(o=1, p=1)
    test.advance(orders=10.001).check().check_state(o=1).end().check((3, None)).check_state()
    with pytest.raises(wm.DataError, match=r"no batch can follow end\(\)"):
        test.batch()


def test_the_builder_and_other_ways_to_write_rows():
    orders, payments = (wm.Stream(t, time="ts") for t in (ORDERS, PAYMENTS))
    test = QueryTest(wm.join(o=orders, p=payments).on("o.id = p.id").window("o", "p", "10s").select("o.ts, p.paid"))
    at = datetime(1970, 1, 1, 0, 0, 7)
    test.batch({"o": [{"id": 1, "ts": at}, {"ts": "1970-01-01 00:00:08"}]}, p=table("id int, paid double, ts timestamp", [(1, 2, 7)]))  # fmt: skip
    test.check({"ts": "1970-01-01T00:00:07+00:00", "paid": 2})
    assert test.watermarks == {"o": datetime(1970, 1, 1, 0, 0, 8, tzinfo=UTC), "p": at.replace(tzinfo=UTC)}


def test_answers_stay_until_they_are_checked():
    test = started().batch(orders=[(1, 0)], payments=[(1, 2.0, 1)]).batch(payments=[(1, 3.0, 2)])
    assert test.answers == [(1, 2.0), (1, 3.0)]
    assert test.check((1, 3.0), (1, 2.0)).answers == []


def test_a_restart_has_only_what_was_saved():
    test = started(units=3).batch(orders=[(n, n) for n in range(9)], payments=[(3, 1.0, 9), (5, None, None)])
    run = test._run
    test.restart().check((3, 1.0)).check_late(payments=1).check_watermarks(orders=8, payments=9)
    assert test._run is not run
    assert not {id(s) for s in run.units.store.segments.values()} & {id(s) for s in test._run.units.store.segments.values()}  # fmt: skip
    test.batch(payments=[(4, 1.0, 10)]).check((4, 1.0))
    test.restart().end().check(*((n, None) for n in (0, 1, 2, 5, 6, 7, 8))).check_late(payments=1)


def test_a_restart_refuses_the_state_of_another_query():
    test = started().batch(orders=[(1, 0)])
    with pytest.raises(wm.CheckpointError, match="another query"):
        test.restart(query(LEFT.replace("10 SECONDS", "20 SECONDS")))
    test.restart(query()).end().check((1, None))


@pytest.mark.parametrize(("text", "first", "second"), [
    ("SELECT o.id, count(*) AS n, sum(p.paid) AS paid FROM orders o JOIN payments p ON o.id = p.id WITHIN 10 SECONDS GROUP BY o.id", [(1, 1, 2.0)], [(1, 2, 5.0)]),
    ("SELECT o.id, count(*) AS n FROM orders o JOIN payments p ON o.id = p.id WITHIN 10 SECONDS GROUP BY window(o.ts, '1 day'), o.id", [], []),
    ("SELECT DISTINCT o.id FROM orders o JOIN payments p ON o.id = p.id WITHIN 10 SECONDS", [(1,)], []),
])  # fmt: skip
def test_groups_that_change_and_distinct_rows_are_answers(text, first, second):
    test = started(text).batch(orders=[(1, 0)], payments=[(1, 2.0, 1)]).check(*first).restart()
    test.batch(payments=[(1, 3.0, 2)]).check(*second)


def test_a_time_zone():
    text = "SELECT hour(o.ts) AS h FROM orders o JOIN payments p ON o.id = p.id WITHIN 10 SECONDS"
    QueryTest(query(text), timezone="Asia/Kolkata").batch(orders=[(1, 0)], payments=[(1, 2.0, 1)]).check((5,))


def test_rows_without_a_time_and_rows_that_filters_drop():
    test = started(LEFT.replace(" DWINDOW", " WHERE o.id < 5 DWINDOW"))
    test.batch(orders=[(9, 100), (1, None)]).check().check_state().check_late(orders=1).check_watermarks(orders=100)


def test_late_rows_and_rows_ahead_of_the_clock():
    orders = wm.Stream(ORDERS, time="ts", max_ahead="10 seconds")
    test = QueryTest(wm.sql(LEFT, orders=orders, payments=wm.Stream(PAYMENTS, time="ts")))
    test.clock(100).batch(orders=[(1, 110), (2, 111)], payments=[(1, 1.0, 112)]).check((1, 1.0))
    test.batch(orders=[(3, 109), (4, None)]).check_watermarks(orders=110, payments=112).check_late(orders=3)
    test.clock(101).batch(orders=[(5, 111)]).check_late(orders=3).check_state(o=2, p=1)
    assert [(row["reason"], row["batch"]) for row in test.late_rows] == [("ahead", 0), ("late", 1), ("no time", 1)]


def test_streams_at_sites_go_on_after_a_restart():
    text = "SELECT o.id FROM orders o, payments p WHERE o.id = p.id WITHIN 10 SECONDS"
    orders, payments = (wm.Stream(t, time="ts", site=at) for t, at in ((ORDERS, "paris"), (PAYMENTS, "rome")))
    test = QueryTest(wm.sql(text, orders=orders, payments=payments))
    test.batch(orders=[(1, 0)], payments=[(2, 1.0, 1)]).check()
    test.restart().batch(orders=[(2, 3)], payments=[(1, 2.0, 2)]).check().check_state(o=2, p=2)
    test.restart().advance(payments=3).check((1,))  # results wait for the watermarks of all sites
    test.advance(4).check((2,)).advance(20).advance(21).check_state()


def test_differences_are_shown():
    test = started().batch(orders=[(1, 0), (2, 0), (2, 0)], payments=[(1, 2.0, 1)]).advance(payments=60)
    with pytest.raises(AssertionError) as shown:
        test.check((1, 2.0), (1, 3.0))
    assert str(shown.value).splitlines() == [
        "after batch 1 the answers are not those expected; columns: id, paid",
        "  missing      (1, 3.0)",
        "  unexpected   (2, None)   2 times",
        "  as expected  (1, 2.0)",
    ]
    with pytest.raises(AssertionError, match=r"rows in state are not those expected\n  o  expected 4, found 0\n  p  as expected, 1"):  # fmt: skip
        test.check_state(o=4, p=1)
    with pytest.raises(AssertionError, match=r"late rows are .*\n.*\n  payments  expected 2, found 0"):
        test.check_late(payments=2)
    with pytest.raises(AssertionError, match=r"watermarks are .*\n  orders  expected None, found 1970"):
        test.check_watermarks(payments=60)


@pytest.mark.parametrize(("step", "words"), [
    (lambda t: t.batch(order=[(1, 0)]), "the query has no stream 'order'; it has orders, payments"),
    (lambda t: t.advance(order=7), "no stream 'order'"),
    (lambda t: t.batch(orders=[(1,)]), r"row 1 of orders has 1 values, \(1,\), and there are 2 columns: id, ts"),
    (lambda t: t.batch(orders=[(1, 0), ("x", 0)]), "row 2 of orders: id is 'x', which is no int32"),
    (lambda t: t.batch(orders=[(1, "noon")]), "row 1 of orders: ts is 'noon', which is no timestamp"),
    (lambda t: t.batch(orders=[{"idd": 1}]), "row 1 of orders: no column 'idd'; the columns are id, ts"),
    (lambda t: t.batch(orders=[7]), "row 1 of orders is 7: give a tuple"),
    (lambda t: t.check((1, 2, 3)), "has 3 values"),
    (lambda t: t.check_state(orders=1), "there is no 'orders'; there are o, p"),
    (lambda t: table("id"), "column 'id': write a name and a type"),
    (lambda t: table("id bigger"), "column id: no type 'bigger'"),
    (lambda t: QueryTest(wm.sql(LEFT, orders=wm.Stream(table("id int, ts timestamp", [(1, 0)]), time="ts"), payments=wm.Stream(PAYMENTS, time="ts"))), "stream orders has 1 rows"),
])  # fmt: skip
def test_what_is_given_wrongly_is_named(step, words):
    with pytest.raises(wm.WatersmeetError, match=words):
        step(started())


def test_dataframes_are_refused():
    class Frame:
        isStreaming, dtypes, columns, schema = True, [("id", "int"), ("ts", "timestamp")], ["id", "ts"], pa.schema([])

    made = query()
    made._used["orders"] = wm.Stream(Frame(), time="ts")
    with pytest.raises(wm.StreamError, match=r"stream orders is a Frame: .*wm\.testing\.table"):
        QueryTest(made)


def test_dropped_rows_are_shown_with_their_reasons_also_after_a_restart():
    stream = wm.Stream(wm.testing.table("id int, ts timestamp"), time="ts", max_ahead="10 seconds")
    test = QueryTest(wm.sql("SELECT a.id FROM s a, s b WHERE a.id = b.id WINDOW = 1 SECOND", s=stream)).clock(100)
    test.batch(s=[(1, 110), (2, 111)]).check((1,)).restart().clock(101).batch(s=[(3, 109), (4, 111), (5, None)]).check(
        (4,)
    )
    found = [(row["batch"], row["reason"], row["lag_us"], row["row"]) for row in test.late_rows]
    assert found == [
        (0, "ahead", None, '{"id":2,"ts":"1970-01-01T00:01:51.000000Z"}'),
        (1, "late", 1_000_000, '{"id":3,"ts":"1970-01-01T00:01:49.000000Z"}'),
        (1, "no time", None, '{"id":5,"ts":null}'),
    ]
    test.check_late(s=3)
