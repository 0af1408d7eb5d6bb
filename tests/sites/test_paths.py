"""Paths of plans across sites."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.sites.test_results_at import prepare
from watersmeet.runtime.across import AcrossSites
from watersmeet.sites.paths import Paths
from watersmeet.sites.planning.model import Algorithm
from watersmeet.sites.planning.placed import read_plan, write_plan
from watersmeet.sites.tree_paths import paths_of

ROWS = pa.table({"k": [1], "x": [1], "ts": pa.array([0], pa.timestamp("us"))})
PLACES = {"a": "paris", "b": "tokyo"}


def paths(select: str, plan: object, source: str = "FROM a, b") -> Paths:
    streams = {name: wm.Stream(ROWS, time="ts", site=site) for name, site in PLACES.items()}
    text = f"SELECT {select} {source} WHERE a.k = b.k WINDOW = 2 SECONDS"
    return paths_of(wm.sql(text, streams, sites=wm.Sites(plan=plan)).plan)


def test_queries_that_keep_the_same_have_paths_of_their_own() -> None:
    plan = {"a": "b SP-D", "b": "a SP-D"}
    outputs = [[leg.plan.output for leg in paths(select, plan).all] for select in ("a.k, b.k AS y", "b.k AS y, a.k")]
    assert outputs[0] != outputs[1]


def test_a_head_sets_out_from_the_copy_of_its_stream() -> None:
    first, second = paths("a.k", {"a": "b SP-D", "b": "a SP-S"}).all
    assert (first.head, first.how, first.at, first.there) == (0, None, 1, 1)
    assert (second.head, second.how, second.at) == (1, Algorithm.SP_S, 1)


def test_values_of_windows_of_rows_travel_as_filters() -> None:
    """Values are told once, and nobody knows when they will be gone."""
    legs = {leg.head: leg for leg in paths("a.k", {"a": "b SM-D1", "b": "a SM-D1"}, "FROM a [ROWS 3], b").all}
    assert (legs[0].is_bloom, legs[1].is_bloom) == (False, True)


@pytest.mark.parametrize("plan", ["SM-S1", "SM-D2", "SP-S", "SMB-S2"])
def test_windows_of_rows_forget_what_has_left_them(plan: str) -> None:
    """Copies, ends and sent bits, too."""
    streams = {}
    for alias, site in PLACES.items():
        times = pa.array(range(0, 400_000_000, 1_000_000), pa.timestamp("us"))
        streams[alias] = wm.Stream(pa.table({"k": [n % 3 for n in range(400)], "ts": times}), time="ts", site=site)
    run = prepare("SELECT a.k, b.ts FROM a [ROWS 5], b [ROWS 4] WHERE a.k = b.k", streams)
    sequences = write_plan(read_plan(run.plan.sites.query, {"a": [["b", plan]], "b": [["a", plan]]}))
    across = AcrossSites(run.plan.at(sequences))
    for begin in range(0, 400, 10):
        for alias, site in PLACES.items():
            across.play(site, {alias: run.reader.slice(alias, run.wires[alias], begin, 10)})
    for site in across.sites.values():
        kept = {name: n for state in site.units.states.values() for name, n in state.rows().items()}
        assert max(n for name, n in kept.items() if not name.startswith("@out")) <= 60, kept


def test_a_tree_is_refused_where_a_window_has_rows() -> None:
    with pytest.raises(wm.WatersmeetError, match="use a linear plan"):
        paths("a.k", "a, b SP-S/SP-D", "FROM a [ROWS 3], b")


def test_in_a_run_that_ends_tuples_without_partners_leave_too() -> None:
    text = "SELECT a.k, b.ts FROM a LEFT JOIN b ON a.k = b.k WINDOW (a, b) = 2 SECONDS"
    times = pa.array(range(0, 6_000_000, 1_000_000), pa.timestamp("us"))
    tables = {
        "a": pa.table({"k": [1, 2, 3, 1, 5, 6], "ts": times}),
        "b": pa.table({"k": [1, 9, 3, 3, 1, 7], "ts": times}),
    }
    at_sites = {name: wm.Stream(t, time="ts", site=PLACES[name]) for name, t in tables.items()}
    got, want = (wm.local.run(text, streams).to_pylist() for streams in (at_sites, tables))
    assert sorted(map(str, got)) == sorted(map(str, want))
    assert len(want) == 7
