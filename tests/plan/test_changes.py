"""`explain(checkpoint=)`: what it says of a changed query, part by part. That it is what happens is tested in `tests/rounds/test_upgrades.py`."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.rounds.test_damage import built
from tests.rounds.test_subscriptions import SCHEMA
from watersmeet.errors import CheckpointError
from watersmeet.plan.changes import find_differences_of
from watersmeet.runtime.rounds.check import check_checkpoint
from watersmeet.runtime.rounds.checkpoint import StateFolder

PAIR = "SELECT {select} FROM {first}, {second} WHERE r.k = s.k{more} WINDOW = {seconds} SECONDS"
SAME: dict[str, Any] = {"select": "r.id AS x, s.id AS y", "first": "r", "second": "s", "more": "", "seconds": 4}
SAME |= {"lateness": "0 seconds", "units": 2}


def query(**changed: Any) -> wm.Query:
    """The query of `tests.rounds.lives`, or one that differs."""
    how = SAME | changed
    rows = pa.Table.from_pylist([], schema=SCHEMA)
    streams = {n: wm.Stream(rows, time="ts", lateness=how["lateness"]) for n in "rs"}
    return wm.sql(PAIR.format(**how), streams, units=how["units"])


def goes_on(plan: Any) -> bool:
    """Whether `start()` would take the checkpoint."""
    try:
        check_checkpoint(plan, StateFolder.under(str(built("query", 6, "") / "ck")))
        return True
    except CheckpointError:
        return False


@given(
    st.fixed_dictionaries(
        {},
        optional={
            "select": st.sampled_from(
                ("r.id AS x, s.id AS y", "s.id + r.id AS z", "r.k AS k", "r.id AS x, s.id AS y, s.k AS k")
            ),
            "more": st.sampled_from(("", " AND r.id < s.id", " AND r.id > 3", " AND s.id > 3 AND r.id < s.id")),
            "seconds": st.sampled_from((3, 4, 8)),
            "lateness": st.sampled_from(("0 seconds", "1 second")),
            "units": st.sampled_from((1, 2, 3)),
        },
    )
)
@example({"select": "s.id + r.id AS z"})
@example({"seconds": 8})
@settings(max_examples=60)
def test_what_is_said_is_what_happens(changed: dict[str, Any]) -> None:
    asked = query(**changed)
    explained = asked.explain(checkpoint=built("query", 6, "") / "ck")
    told = explained.to_dict()["checkpoint"]
    assert told["goes_on"] == goes_on(asked.plan)
    assert ("with start(upgrade=True)" in explained) == (not told["goes_on"])
    assert told["goes_on"] == all(part["verdict"] == "kept" and not part["why"] for part in told["parts"])
    assert ("complete    for rows from" in explained) == (told["complete_from"] is not None)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {"seconds": 8},
            "refilled    windows: s - r: -8 s to 8 s was -4 s to 4 s: rows of r are stored from 2023-11-14 22:13:26 on",
        ),
        ({"seconds": 3}, "kept        windows: s - r: -3 s to 3 s was -4 s to 4 s"),
        ({"more": " AND r.id > 3"}, "kept        filters: r.id > 3 is new"),
        (
            {"lateness": "1 second"},
            "refilled    lateness= or idle=: r: 1 s was 0 s; s: 1 s was 0 s: rows were counted late by another measure",
        ),
        ({"select": "r.k AS k"}, "r.id (bigint, stored as c1) is gone"),
        ({"units": 3}, "kept        units= or routing=: hash over 3 units (K0:3) was hash over 2 units (K0:2)"),
    ],
)
def test_what_differs_is_named_with_what_it_was(changed: dict[str, Any], said: str) -> None:
    assert said in query(**changed).explain(checkpoint=built("query", 6, "") / "ck")


def test_every_part_has_its_own_time_and_the_query_the_latest() -> None:
    told = query(seconds=8, lateness="1 second").explain(checkpoint=built("query", 6, "") / "ck")
    facts = told.to_dict()["checkpoint"]
    times = {part["part"]: part["why"].rpartition("complete from ")[2] for part in facts["parts"] if part["why"]}
    assert set(times) == {"windows", "lateness= or idle="}
    assert times["windows"] < times["lateness= or idle="] == f"{facts['complete_from']} on"


def test_who_is_refused_hears_of_upgrades() -> None:
    folder = StateFolder.under(str(built("query", 6, "") / "ck"))
    with pytest.raises(
        CheckpointError, match=r"what differs: windows(?s:.*)hand its state over with start\(upgrade=True\)"
    ):
        check_checkpoint(query(seconds=8).plan, folder)


def test_a_select_over_the_same_columns_goes_on() -> None:
    explained = query(select="s.id + r.id AS z").explain(checkpoint=built("query", 6, "") / "ck")
    assert "after batch 2: this query goes on from it" in explained
    assert "written by  SELECT r.id AS x, s.id AS y FROM r, s" in explained


@pytest.mark.parametrize(
    ("other", "said"),
    [
        (
            "SELECT a.id FROM r a LEFT JOIN s b ON a.k = b.k WINDOW = 4 SECONDS",
            "who has met a partner cannot be computed",
        ),
        ("SELECT r.k, count(*) AS n FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS GROUP BY r.k", "groups would miss"),
        ("SELECT DISTINCT r.id FROM r, s WHERE r.k = s.k", "a row leaves once for ever"),
        ("SELECT r.id FROM r [ROWS 3], s WHERE r.k = s.k WINDOW = 4 SECONDS", "numbered from the beginning on"),
        (
            "SELECT r.id FROM r [TUMBLING 3 ROWS], s WHERE r.k = s.k WINDOW = 4 SECONDS",
            "numbered from the beginning on",
        ),
        ("SELECT q.id FROM r q, s WHERE q.k = s.k WINDOW = 4 SECONDS", "r is gone, or reads another stream"),
        (
            "SELECT r.id FROM r, s, r q WHERE r.k = s.k AND q.k = r.k WINDOW = 4 SECONDS",
            "q reads a stream that is read already",
        ),
    ],
)
def test_what_is_impossible_says_why(other: str, said: str) -> None:
    rows = pa.Table.from_pylist([], schema=SCHEMA)
    asked = wm.sql(other, {n: wm.Stream(rows, time="ts") for n in "rs"}, units=2)
    explained = asked.explain(checkpoint=built("query", 6, "") / "ck")
    assert "this query cannot go on from it" in explained
    assert said in explained


OTHERS = (
    "SELECT r.id FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS",
    "SELECT DISTINCT r.id FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS",
    "SELECT r.id FROM r LEFT JOIN s ON r.k = s.k WINDOW = 4 SECONDS",
    "SELECT r.id FROM r LEFT JOIN s ON r.k = s.k WINDOW = 5 SECONDS",
    "SELECT r.id FROM r FULL JOIN s ON r.k = s.k WINDOW = 4 SECONDS",
    "SELECT r.id FROM r ASOF JOIN s ON r.k = s.k AND r.ts >= s.ts WINDOW = 4 SECONDS",
    "SELECT r.id FROM r ASOF JOIN s ON r.k = s.k AND r.ts > s.ts WINDOW = 4 SECONDS",
    "SELECT r.id FROM r, s, u WHERE r.k = s.k AND u.k = r.k WINDOW = 4 SECONDS",
    "SELECT r.id FROM r, s LEFT JOIN u ON u.k = r.k WHERE r.k = s.k WINDOW = 4 SECONDS",
    "SELECT r.k, count(*) AS n FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS GROUP BY r.k",
    "SELECT r.k, sum(s.id) AS n FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS GROUP BY r.k",
    "SELECT r.k, count(*) AS n FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS GROUP BY r.k, window(r.ts, '10 seconds')",
    "SELECT r.k, count(*) AS n FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS GROUP BY r.k, window(r.ts, '20 seconds')",
    "SELECT r.id FROM r, s WHERE r.id < s.id WINDOW = 4 SECONDS",
    "SELECT r.id FROM r, s WHERE abs(r.id - s.id) <= 3 WINDOW = 4 SECONDS",
    "SELECT r.id FROM r [ROWS 3], s WHERE r.k = s.k WINDOW = 4 SECONDS",
    "SELECT r.id FROM r [TUMBLING 3 ROWS], s WHERE r.k = s.k WINDOW = 4 SECONDS",
    "SELECT r.id FROM r, s WHERE r.k = s.k AND DWINDOW (r, s) = 4 SECONDS",
    "SELECT r.id FROM r, s, u WHERE r.k = s.k AND u.k = r.k AND PATH (r, s, u) = 4 SECONDS",
    "SELECT r.id, t.id AS tid FROM r JOIN s ON r.k = s.k LEFT JOIN t ON t.id = r.id WINDOW = 4 SECONDS",
)


def plans() -> list[Any]:
    """Plans of which no two are alike."""
    rows = pa.Table.from_pylist([], schema=SCHEMA)
    streams = {n: wm.Stream(rows, time="ts") for n in "rsu"}
    found = []
    for text in OTHERS:
        given = streams | ({"t": wm.Table(rows)} if " t ON" in text else {})
        found.append(wm.sql(text, {n: s for n, s in given.items() if f" {n}" in text}, units=3).plan)
    ahead = {n: wm.Stream(rows, time="ts", max_ahead="1 hour") for n in "rs"}
    return [*found, wm.sql(OTHERS[0], ahead, units=3).plan]


def test_any_two_descriptions_can_be_compared_in_words() -> None:
    """Whatever differs is named, and not as it is stored."""
    made = plans()
    for one in made:
        assert not any(find_differences_of(one.description(), one.description()).values())
        for two in made:
            if one is not two:
                said = [why for why in find_differences_of(one.description(), two.description()).values() if why]
                assert said
                assert not [why for why in said if '["' in why or "{" in why or '": ' in why]


def test_what_words_leave_out_is_named_as_it_is_stored() -> None:
    before, after = ({"finish": {**PARTIALS, "partials": [[name, None, "bigint"]]}} for name in ("count", "sum"))
    said = find_differences_of(before, after)["DISTINCT or GROUP BY"]
    assert '"count"' in said.partition(" was ")[2]
    assert '"sum"' in said.partition(" was ")[0]


def test_a_stream_more_is_no_other_order_of_filters() -> None:
    two, three = (plans()[n].description() for n in (0, 7))
    assert {part for part, why in find_differences_of(two, three).items() if why} == {
        "streams and aliases",
        "columns and their types",
        "lateness= or idle=",
        "keys",
        "windows",
    }


PARTIALS = {"kind": "group", "columns": [["r.k", "bigint"]], "keys": 1, "units": 2}
