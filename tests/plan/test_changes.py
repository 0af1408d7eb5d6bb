"""`explain(checkpoint=)`: what it calls kept goes on, and what it calls impossible is refused, by the same comparison that `start()` makes."""

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
from watersmeet.plan.changes import compare
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
    assert ("cannot go on from it" in explained) == (not told["goes_on"])
    assert told["goes_on"] == all(part["verdict"] == "kept" for part in told["parts"])


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        ({"seconds": 8}, "impossible  windows: s - r: -8 s to 8 s was -4 s to 4 s"),
        ({"more": " AND r.id > 3"}, "impossible  filters: r r.id > 3 is new"),
        ({"lateness": "1 second"}, "impossible  lateness= or idle=: r: 1 s was 0 s; s: 1 s was 0 s"),
        ({"select": "r.k AS k"}, "r r.id: bigint, stored as c1 is gone"),
        ({"units": 3}, "impossible  units= or routing="),
    ],
)
def test_what_differs_is_named_with_what_it_was(changed: dict[str, Any], said: str) -> None:
    assert said in query(**changed).explain(checkpoint=built("query", 6, "") / "ck")


def test_a_select_over_the_same_columns_goes_on() -> None:
    explained = query(select="s.id + r.id AS z").explain(checkpoint=built("query", 6, "") / "ck")
    assert "after batch 2: this query goes on from it" in explained
    assert "written by  SELECT r.id AS x, s.id AS y FROM r, s" in explained


@pytest.mark.parametrize(
    "other",
    [
        "SELECT a.id FROM r a LEFT JOIN s b ON a.k = b.k WINDOW = 4 SECONDS",
        "SELECT DISTINCT r.id FROM r, s WHERE r.k = s.k WINDOW = 4 SECONDS",
    ],
)
def test_any_two_descriptions_can_be_compared(other: str) -> None:
    rows = pa.Table.from_pylist([], schema=SCHEMA)
    plan = wm.sql(other, {n: wm.Stream(rows, time="ts") for n in "rs"}).plan
    mine = query().plan
    for one, two in ((plan, mine), (mine, plan)):
        assert any(c.verdict == "impossible" for c in compare(one.description(), two.description()))
        assert all(c.verdict == "kept" for c in compare(one.description(), one.description()))
