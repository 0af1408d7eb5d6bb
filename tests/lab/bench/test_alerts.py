"""Alerts in process: answers are checked, and queries of new forms are new."""

from __future__ import annotations

from random import Random

import watersmeet as wm
from watersmeet.sql.forms import cut_form
from watersmeet_lab.bench import alerts, registration


def test_answers_of_all_alerts_are_those_of_duckdb() -> None:
    found = alerts.run(alerts.make_alerts(40, 3), alerts.make_streams(4, 800, 3), 40)
    assert (found.checked, found.right, found.tuples) == (40, True, 3_200)
    assert found.answers > 0


def test_an_answer_that_is_missing_is_found() -> None:
    batches, made = alerts.make_streams(4, 800, 3), alerts.make_alerts(40, 3)
    assert not alerts.check(made, batches, {str(n) for n in range(40)}, {})


def test_every_query_is_registered_and_has_a_form_of_its_own() -> None:
    chance, subs, seen = Random(3), wm.local.subscriptions(registration.make_streams()), {None}
    texts = [sql for kind in registration.KINDS for sql in registration.write_queries(chance, kind, 12, seen)]
    forms = {cut[0] for sql in texts if (cut := cut_form(sql)) is not None}
    assert len(subs.add_all(texts)) == len(forms) == 12 * len(registration.KINDS)


def test_kinds_say_what_is_shared() -> None:
    chance, subs, seen = Random(4), wm.local.subscriptions(registration.make_streams()), {None}
    for kind in registration.KINDS:
        ids = [subs.add(sql) for sql in registration.write_queries(chance, kind, 6, seen)]
        known = subs._registry._state.queries
        assert {known[id].query.own is None for id in ids} == {kind not in ("aggregate", "apart")}


def test_times_are_of_every_kind() -> None:
    found = registration.measure(2, 5, {"beside": "SELECT o.id FROM orders o WHERE o.total > 5"})
    assert [(one.kind, one.queries) for one in found] == [(kind, 2) for kind in registration.KINDS]
    assert all(0 < one.median <= one.p90 <= one.worst for one in found)
