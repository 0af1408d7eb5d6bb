"""Queries with tables under test: a table's rows come with a batch and stay."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm

ORDERS = wm.Stream(wm.testing.table("id int, user int, ts timestamp"), time="ts")
PAYMENTS = wm.Stream(wm.testing.table("id int, ts timestamp"), time="ts")
USERS = wm.Table(wm.testing.table("id int, country string"))


def test_columns_travel_with_the_row_that_was_looked_up() -> None:
    """The table changes between an order and its payment: the result has what was true when the order came."""
    text = """SELECT o.id, u.country FROM orders o LEFT JOIN users u ON u.id = o.user JOIN payments p ON p.id = o.id
              WINDOW (o, p) = 1 MINUTE"""
    test = wm.testing.QueryTest(wm.sql(text, orders=ORDERS, payments=PAYMENTS, users=USERS))
    test.batch(users=[(7, "FR"), (7, "PT")], orders=[(1, 7, 0), (2, 8, 0)]).check().check_state(o=3)
    test.batch(users=[(7, "DE")], payments=[(1, 1), (2, 1)], orders=[(3, 7, 1)])
    test.check((1, "FR"), (1, "PT"), (2, None)).batch(payments=[(3, 2)]).check((3, "DE"))


def test_results_are_looked_up_when_they_leave() -> None:
    text = """SELECT o.id, u.country FROM orders o JOIN payments p ON p.id = o.id JOIN users u ON u.id = o.user + p.id
              WINDOW (o, p) = 1 MINUTE"""
    test = wm.testing.QueryTest(wm.sql(text, orders=ORDERS, payments=PAYMENTS, users=USERS))
    test.batch(users=[(8, "FR")], orders=[(1, 7, 0)]).check()
    test.batch(users=[(8, "DE"), (8, "NL")], payments=[(1, 1)]).check((1, "DE"), (1, "NL"))


def test_a_row_that_finds_nothing_moves_the_watermark_and_a_late_row_counts_once() -> None:
    test = wm.testing.QueryTest(
        wm.sql("SELECT o.id FROM orders o JOIN users u ON u.id = o.user", orders=ORDERS, users=USERS)
    )
    test.batch(users=[(7, "FR"), (7, "PT")], orders=[(1, 9, 100)]).check().check_watermarks(orders=100)
    test.batch(orders=[(2, 7, 5), (3, 9, 5), (4, 7, None)]).check().check_late(orders=2)
    assert test.state == {"o": 0}


def test_a_self_join_counts_a_late_row_once() -> None:
    text = "SELECT a.id FROM orders a JOIN users u ON u.id = a.user JOIN orders b ON b.id = a.id WINDOW = 1 MINUTE"
    test = wm.testing.QueryTest(wm.sql(text, orders=ORDERS, users=USERS))
    test.batch(users=[(7, "FR"), (7, "PT")], orders=[(1, 7, 100)]).check((1,), (1,))
    test.batch(orders=[(2, 7, 5), (3, 9, 5)]).check().check_late(orders=2)


def test_a_late_row_counts_under_the_alias_whose_table_knows_it() -> None:
    text = """SELECT a.id FROM orders a JOIN users u ON u.id = a.user AND u.country = 'FR'
              JOIN orders b ON b.id = a.id JOIN users v ON v.id = b.user AND v.country = 'DE' WINDOW = 1 MINUTE"""
    test = wm.testing.QueryTest(wm.sql(text, orders=ORDERS, users=USERS))
    test.batch(users=[(7, "FR"), (8, "DE"), (8, "DE"), (9, "PT")], orders=[(1, 7, 100)]).check()
    test.batch(orders=[(2, 7, 5), (3, 8, 5), (4, 9, 5), (5, 9, None)]).check().check_late(orders=3)


def test_batches_are_cut_by_the_streams_rows() -> None:
    """However many rows of the table a row finds, it comes in one batch: no copy of it is late."""
    orders = pa.table({"user": [7, 7, 7], "ts": pa.array([0, 5, 9], pa.timestamp("s"))})
    users = wm.Table(pa.table({"id": [7] * 5}))
    found = wm.local.run(
        "SELECT o.ts FROM orders o JOIN users u ON u.id = o.user",
        {"orders": wm.Stream(orders, time="ts"), "users": users},
        batch_rows=1,
    )
    assert found.num_rows == 15
    assert wm.local.counts(found).late == {"orders": 0}


def test_names() -> None:
    test = wm.testing.QueryTest(
        wm.sql("SELECT o.id FROM orders o JOIN users u ON u.id = o.user", orders=ORDERS, users=USERS)
    )
    with pytest.raises(wm.StreamError, match="'users' is a table and has no time"):
        test.advance(users=5)


def test_what_shows_tables() -> None:
    query = (
        wm.join(o=ORDERS, p=PAYMENTS, u=USERS)
        .left("u")
        .on("p.id = o.id", "u.id = o.user")
        .window("o", "p", "1 minute")
        .select("o.id", "u.country")
    )
    assert "tables     LEFT JOIN u ON u.id = o.user: joined to o before its units" in query.explain()
    assert "tables   u (id, country)" in repr(query.query())
    assert query.explain().to_dict()["tables"][0].startswith("LEFT JOIN u")
    parts = query.query().plan.description()["tables"]
    assert parts == [["o", ["u", "u", "left", ["u.id = o.user"]]]]


def test_a_subscription_takes_no_table() -> None:
    with pytest.raises(wm.StreamError, match=r"users=wm\.Table: subscriptions\(\) takes streams only"):
        wm.local.subscriptions({"orders": ORDERS, "users": USERS})
    with pytest.raises(wm.StreamError, match=r"users=wm\.Table: subscriptions\(\) takes streams only"):
        wm.subscriptions({"orders": ORDERS, "users": USERS}, checkpoint="c", sink="s")


def test_a_dropped_row_is_there_once_as_its_stream_had_it() -> None:
    """Late, without a time or too far ahead: whatever the table says of it."""
    orders = wm.Stream(wm.testing.table("id int, user int, ts timestamp"), time="ts", max_ahead="1 minute")
    text = "SELECT o.id, u.country FROM orders o JOIN users u ON u.id = o.user"
    test = wm.testing.QueryTest(wm.sql(text, orders=orders, users=USERS))
    test.clock(0).batch(users=[(7, "FR"), (7, "PT")], orders=[(1, 7, 50)]).check((1, "FR"), (1, "PT"))
    test.batch(orders=[(2, 7, 5), (3, 9, 6), (4, 7, None), (5, 9, 1000)]).check().check_late(orders=3)
    assert test.watermarks == test.batch(orders=[]).watermarks
    found = [(row["reason"], row["row"]) for row in test.late_rows]
    assert [reason for reason, _ in found] == ["late", "no time", "ahead"]
    assert all("country" not in row for _, row in found)
