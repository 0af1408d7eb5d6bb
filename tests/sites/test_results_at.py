"""Results at one site: what the price and explain say of it, groups that leave once, and what is refused."""

from __future__ import annotations

import random
from collections.abc import Mapping

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.cases import bag, rows_of
from tests.properties.test_across_sites import Pace
from watersmeet.plan.explain.explanation import explain
from watersmeet.plan.options import Options
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of
from watersmeet.sql.parse import parse

PLACES = {"a": "paris", "b": "tokyo", "c": "rome"}
JOIN = "FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW = 2 SECONDS"


def stream(chance: random.Random, site: str | None) -> wm.Stream:
    times = sorted(chance.randrange(0, 12_000_000, 500_000) for _ in range(12))
    rows = {"k": [chance.choice((1, 2)) for _ in times], "ts": pa.array(times, pa.timestamp("us"))}
    return wm.Stream(pa.table(rows), time="ts", site=site)


def prepare(text: str, streams: Mapping[str, wm.Stream], **options: object) -> LocalRun:
    specs = {name: source_of(name, s) for name, s in streams.items()}
    join = parse(text, {name: spec for name, (_, spec) in specs.items()})
    return LocalRun(join, {name: table for name, (table, _) in specs.items()}, Options(units=1, **options))


@pytest.mark.parametrize("seed", range(6))
def test_groups_over_windows_of_time_leave_once_when_all_sites_are_past_them(seed: int) -> None:
    text = f"SELECT window.start, a.k, count(*) AS n {JOIN} GROUP BY window(b.ts, '3 seconds'), a.k"
    streams = {name: stream(random.Random(seed * 10 + n), site) for n, (name, site) in enumerate(PLACES.items())}
    pace = Pace(prepare(text, streams, sites=wm.Sites(results_at="rome")), 3, 1 + 2 * (seed % 2), seed)
    got = pace.play()
    plain = {name: wm.Stream(s.source, time="ts") for name, s in streams.items()}
    assert bag(rows_of(got)) == bag(rows_of(wm.local.run(text, plain)))
    assert {name for name, rows in pace.written.items() if rows} <= {"rome"}


def query(**options: object) -> wm.Query:
    streams = {name: stream(random.Random(1), site) for name, site in PLACES.items()}
    return wm.sql(f"SELECT a.k {JOIN}", streams, sites=wm.Sites(**options))


def test_explain_says_where_results_are_and_what_shipping_them_costs() -> None:
    plan = {"a": "b SP-D, c SP-D", "b": "a SP-S, c SP-D", "c": "b SP-S, a SP-S"}
    there, elsewhere = (
        str(explain(query(plan=plan, results_at=at).plan, "rounds", "full")) for at in ("rome", "paris")
    )
    assert "all are shipped to rome, which writes them" in there
    assert "results shipped to one site" not in there
    assert "results shipped to one site" in elsewhere
    assert "each at the site that finds it" in str(explain(query(plan=plan).plan, "rounds", "full"))


def test_the_first_plan_lets_results_arise_where_they_are_wanted() -> None:
    for site in PLACES.values():
        placed = query(results_at=site, bandwidth=1e4).plan.sites
        assert {placed.plan.places(head)[-1] for head in placed.query.aliases} == {site}


@pytest.mark.parametrize(
    ("results_at", "says"), [("lima", "results_at='lima', and no stream arrives there"), (3, "give the name of a site")]
)
def test_a_site_that_is_none_is_refused(results_at: object, says: str) -> None:
    with pytest.raises(wm.WatersmeetError, match=says):
        _ = query(results_at=results_at).plan
