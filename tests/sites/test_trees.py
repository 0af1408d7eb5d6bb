"""Trees as plans of a query: as the user writes them, as JSON, as explain shows them, and what streams they make."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.plan.explain.explanation import explain
from watersmeet.sites.planning.model import Algorithm, SiteQuery
from watersmeet.sites.planning.placed import read_plan, write_plan
from watersmeet.sites.planning.trees import TreePlan
from watersmeet.sites.tree_paths import YOUNGEST, paths_of

ROWS = pa.table({"k": [1], "x": [1], "ts": pa.array([0], pa.timestamp("us"))})
TEXT = "SELECT a.k, b.x FROM a, b, c WHERE a.k = b.k AND b.x = c.x WINDOW = 2 SECONDS"
TREE = "a, b SM-S1/SM-D1, c SP-S/SM-D2"


def query(plan: str, text: str = TEXT) -> wm.Query:
    places = {"a": "paris", "b": "tokyo", "c": "rome"}
    streams = {name: wm.Stream(ROWS, time="ts", site=site) for name, site in places.items()}
    return wm.sql(text, streams, sites=wm.Sites(plan=plan))


def test_a_tree_is_read_as_it_was_written():
    sites = SiteQuery.of({"a": "A", "b": "B", "c": "C"}, ["a.k = b.k", "b.x = c.x"], window_us=1)
    tree = TreePlan.of(sites, TREE)
    assert read_plan(sites, write_plan(tree)) == tree
    assert write_plan(tree) == {"": [["a"], ["b", "SM-S1", "SM-D1"], ["c", "SP-S", "SM-D2"]]}


def test_a_tree_is_given_or_searched_for_and_explained():
    plan = query(TREE).plan
    assert str(plan.sites.plan) == "((a, b SM-S1/SM-D1), c SP-S/SM-D2)"
    text = str(explain(plan, "rounds", "full"))
    assert "plan       tree; expected per second" in text
    assert "  a, b with c" in text
    found = query("tree").plan.sites
    assert isinstance(found.plan, TreePlan)
    assert found.search == "tree"


def test_results_of_a_level_are_a_stream_at_the_site_where_they_arise():
    plan = query(TREE).plan
    paths, names = paths_of(plan), plan.site_names
    assert (len(paths.homes), names[paths.homes[3]], paths.sides[3].aliases) == (4, "tokyo", ("a", "b"))
    assert paths.sides[3].reference == YOUNGEST
    downward, upward = paths.legs[3][0], paths.legs[2][0]
    assert (downward.to, upward.to) == (2, 3)
    # c gets a copy of all results of the level, so they set out from there, and nothing is asked for.
    assert (downward.how, names[downward.at], upward.how) == (None, "rome", Algorithm.SP_S)
    assert {leg.into for leg in paths.legs[0] + paths.legs[1]} == {3}


@pytest.mark.parametrize(
    ("window", "heads"), [("DWINDOW (a, b) = 2 SECONDS", {1}), ("WINDOW (a, b) = 2 SECONDS", {0, 1})]
)
def test_a_level_has_no_leg_from_a_stream_that_is_never_the_younger(window: str, heads: set[int]):
    plan = query(TREE, f"SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.x = c.x {window} WINDOW (b, c) = 1 SECOND").plan
    assert {leg.head for leg in paths_of(plan).all if leg.into == 3} == heads


def test_a_row_from_below_that_went_one_way_of_a_path_is_not_joined_another():
    times = {"a": 4, "b": 5, "c": 6}
    streams = {
        n: wm.Stream(pa.table({"k": [1], "ts": pa.array([s * 1_000_000], pa.timestamp("us"))}), time="ts", site=n)
        for n, s in times.items()
    }
    text = "SELECT a.ts FROM {} WHERE a.k = b.k AND a.k = c.k PATH ({}) = 2 SECONDS"
    for stops, found in (("b, a, c", 0), ("a, b, c", 1), ("c, b, a", 1)):
        given = wm.Sites(plan="a, b SP-D/SP-S, c SP-D/SP-S")
        assert wm.local.run(text.format("a, b, c", stops), streams, sites=given).num_rows == found
