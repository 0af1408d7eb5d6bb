"""The price of shipping, and the choice."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import defer_payloads, offers
from watersmeet.plan.shipping import MARGIN, NETWORK, PATIENCE, ROUND, STORE, Traffic, choose, price


def plan(**options: object) -> Plan:
    table = pa.table(
        {
            "k": pa.array([], pa.int64()),
            "v": pa.array([], pa.string()),
            "ts": pa.array([], pa.timestamp("us", tz="UTC")),
        }
    )
    text = "SELECT a.v AS v, b.v AS u, a.k AS k FROM s a, t b WHERE a.k = b.k WINDOW = 2 SECONDS"
    made = wm.sql(text, s=wm.Stream(table, time="ts"), t=wm.Stream(table, time="ts"), **options).plan
    return defer_payloads(made, offers(made))


def traffic(rows: int, payload: int, results: float, batches: int = PATIENCE) -> Traffic:
    each = dict.fromkeys("ab", float(rows))
    return Traffic(
        rows=dict(each),
        first=dict.fromkeys("ab", 24.0 * rows),
        late=dict.fromkeys("ab", float(payload * rows)),
        kept=dict(each),
        results=results,
        batches=batches,
    )


def test_a_batch_of_whole_tuples_is_sent_and_stored_once() -> None:
    found = price(plan(), traffic(1000, 100, 50), (), NETWORK)
    assert (found.rounds, found.sent, found.stored) == (1, 2 * 124_000, 2 * 124_000)
    assert found.seconds == pytest.approx(ROUND + 248_000 / NETWORK + 248_000 / STORE)


def test_later_payloads_are_stored_once_and_sent_with_results() -> None:
    found = price(plan(), traffic(1000, 100, 50), ("a", "b"), NETWORK)
    visits = 50 * (8 + 2 * 16) + 50 * (8 + 100 + 16)
    assert (found.rounds, found.sent) == (3, 2 * 40_000 + visits)
    assert found.stored == 2 * (40_000 + 100_000)
    one = price(plan(), traffic(1000, 100, 50), ("b",), NETWORK)
    assert (one.rounds, one.sent) == (2, 124_000 + 40_000 + 50 * (8 + 100 + 16))


def test_copies_are_counted() -> None:
    spread = plan(routing="random", units=8)
    whole = price(spread, traffic(1000, 100, 0), (), NETWORK)
    assert whole.sent == 5 * 2 * 124_000, "stored once, and probing four units of the other side"
    assert whole.stored == 2 * 124_000


def test_wide_payloads_and_rare_matches_follow_later() -> None:
    assert choose(plan(), traffic(100_000, 1000, 1000), (), NETWORK)[0] == ("a", "b")
    assert choose(plan(), traffic(100_000, 1000, 1_000_000), (), NETWORK)[0] == ()
    assert choose(plan(), traffic(100, 1000, 1), (), NETWORK)[0] == (), "a round costs more than a small batch"


def test_it_changes_back_when_matches_become_frequent() -> None:
    assert choose(plan(), traffic(100_000, 1000, 1_000_000), ("a", "b"), NETWORK)[0] == ()


def test_changes_need_patience_and_a_margin() -> None:
    assert choose(plan(), traffic(100_000, 1000, 1000, batches=PATIENCE - 1), (), NETWORK)[0] == ()
    tried = traffic(100_000, 1000, 1000, batches=PATIENCE)
    tried.changes = 2
    assert not tried.is_enough, "after every change it waits twice as long"
    rows = 1000
    while choose(plan(), traffic(rows, 1000, 0), (), NETWORK)[0] == ():
        rows += 100
    here = traffic(rows, 1000, 0)
    way = choose(plan(), here, (), NETWORK)[0]
    cheaper, dearer = (price(plan(), here, w, NETWORK).seconds for w in (way, ()))
    assert 0.95 * MARGIN * dearer < cheaper <= MARGIN * dearer


def test_bandwidth_is_checked() -> None:
    for wrong in (0, -1.0, "fast", True):
        with pytest.raises(wm.WatersmeetError, match="bandwidth"):
            plan(bandwidth=wrong)
