"""Sites in rounds, in process: what is shipped and what is not, statistics, changes of plan, and errors that say what to do."""

from __future__ import annotations

import json
from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.plan.shipping import PATIENCE
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of
from watersmeet.sites.adapt import SiteMemory, Sketch
from watersmeet.sites.planning.model import Algorithm
from watersmeet.sites.schedule import schedule
from watersmeet.sites.site import sample

US = 1_000_000
TEXT = "SELECT a.id AS x, b.id AS y, b.wide AS wide FROM s a, t b WHERE a.k = b.k WINDOW = 3 SECONDS"


def stream(keys: Any, *, wide: int = 4, rate: int = 100, **options: Any) -> wm.Stream:
    keys = np.asarray(keys)
    n = len(keys)
    table = pa.table(
        {
            "id": range(n),
            "k": keys,
            "wide": ["x" * wide] * n,
            "ts": pa.array(np.arange(n) * US // rate, pa.timestamp("us")),
        }
    )
    return wm.Stream(table, time="ts", **options)


def bag(found: pa.Table) -> Counter[Any]:
    return Counter(zip(*(c.to_pylist() for c in found.columns), strict=True))


def plain(text: str, streams: dict[str, wm.Stream]) -> Counter[Any]:
    return bag(wm.local.run(text, {n: wm.Stream(s.source, time="ts") for n, s in streams.items()}))


RNG = np.random.default_rng(5)
RARE = {
    "s": stream(RNG.integers(0, 1000, 1000), site="paris"),
    "t": stream(RNG.integers(0, 10_000, 1000), wide=1250, site="tokyo"),
}
"""One tuple of t in ten has a value that s can have."""


def test_every_algorithm_ships_what_it_should():
    expected = plain(TEXT, RARE)
    assert sum(expected.values()) > 20
    found, sent = {}, {}
    for name in ("SP-S", "SP-D", "SM-S1", "SM-S2", "SM-D1", "SM-D2", "SMB-S1", "SMB-S2", "SMB-D1", "SMB-D2"):
        found[name] = wm.local.run(
            TEXT, RARE, sites=wm.Sites(plan={"a": f"b {name}", "b": f"a {name}"}), batch_rows=100
        )
        assert bag(found[name]) == expected, name
        sent[name] = {
            pair: dict(zip(("shipments", "rows", "bytes"), c, strict=True))
            for pair, c in wm.local.counts(found[name]).shipped.items()
        }
    wide = 1250
    assert sent["SP-S"]["tokyo", "paris"]["rows"] == sent["SP-D"]["tokyo", "paris"]["rows"] == 1000
    assert sent["SP-S"]["tokyo", "paris"]["bytes"] > 1000 * wide
    for name in ("SM-S1", "SMB-S1", "SM-S2", "SMB-S2", "SM-D1", "SM-D2", "SMB-D1", "SMB-D2"):
        assert sent[name]["tokyo", "paris"]["bytes"] < 1000 * wide / 4, name
    assert sent["SMB-S1"]["paris", "tokyo"]["bytes"] < sent["SM-S1"]["paris", "tokyo"]["bytes"]


def test_nothing_is_shipped_twice():
    """Every tuple of t is asked for in many batches, and by two heads; a copy is there once."""
    streams = {
        "s": stream([0] * 300, site="paris"),
        "t": stream([0] * 300, site="tokyo"),
        "u": stream([0] * 300, site="paris"),
    }
    text = "SELECT a.id AS x, b.id AS y, c.id AS z FROM s a, t b, u c WHERE a.k = b.k AND b.k = c.k WINDOW = 50 MILLISECONDS"
    for name in ("SP-S", "SM-S1", "SM-S2", "SMB-S1", "SMB-S2"):
        plan = {"a": f"b {name}, c {name}", "b": "a SP-D, c SP-D", "c": f"b {name}, a {name}"}
        found = wm.local.run(text, streams, sites=wm.Sites(plan=plan), batch_rows=7)
        assert bag(found) == plain(text, streams)
        keys_and_tuples = wm.local.counts(found).shipped["tokyo", "paris"][1]
        # The head b sends its own rows, too, unless a whole copy of them is there: then they set out from it.
        assert keys_and_tuples <= 300 + (0 if name == "SP-S" else 300) + (60 if name == "SM-S2" else 0), name


def test_copies_expire_with_their_stream():
    streams = {"s": stream(np.arange(4000) % 50, site="paris"), "t": stream(np.arange(4000) % 50, site="tokyo")}
    text = "SELECT a.id AS x, b.id AS y FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND"
    for name in ("SP-S", "SM-S1", "SM-S2", "SM-D1"):
        specs = {n: source_of(n, s) for n, s in streams.items()}
        run = _prepared(text, specs, sites=wm.Sites(plan={"a": f"b {name}", "b": f"a {name}"}))
        assert run.run(100).num_rows == plain(text, streams).total()
        kept = {n: sum(i.rows for i in infos) for m in run.units.states.values() for n, infos in m.segments.items()}
        assert kept, name
        assert all(rows <= 100 * 1.1 + 200 for rows in kept.values()), (name, kept)


def _prepared(text: str, specs: dict[str, Any], **options: Any) -> LocalRun:
    from watersmeet.plan.options import Options
    from watersmeet.sql.parse import parse

    join = parse(text, {n: spec for n, (_, spec) in specs.items()})
    return LocalRun(join, {n: table for n, (table, _) in specs.items()}, Options(**options))


def shipped(found: pa.Table) -> int:
    return sum(c[2] for c in wm.local.counts(found).shipped.values())


def test_where_one_in_ten_matches_the_measured_plan_ships_a_quarter_of_the_cheapest_simple_one():
    """f_1 = 0.001, f_2 = 0.01, tuples of 1,250 bytes; what is shipped before the first change of plan is left out."""
    rng = np.random.default_rng(3)
    streams = {
        "s": stream(rng.integers(0, 1000, 4000), wide=1200, site="paris"),
        "t": stream(rng.integers(0, 100, 4000), wide=1200, site="tokyo"),
    }
    text = "SELECT a.id AS x, b.id AS y, a.wide AS v, b.wide AS w FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND"
    lines = wm.Sites(latency="1 ms", bandwidth=1e6)
    short = {n: wm.Stream(s.source.slice(0, 200), time="ts", site=s.site) for n, s in streams.items()}
    run = wm.local.run(text, streams, sites=lines, batch_rows=100)
    assert bag(run) == plain(text, streams)
    simple = min(
        shipped(wm.local.run(text, streams, sites=wm.Sites(plan={"a": f"b {x}", "b": f"a {y}"}), batch_rows=100))
        for x in ("SP-S", "SP-D")
        for y in ("SP-S", "SP-D")
    )
    begun = shipped(wm.local.run(text, short, sites=lines, batch_rows=100))
    assert len(wm.local.counts(run).changes) == 1
    assert shipped(run) - begun <= simple / 4


def drifting(rng: np.random.Generator) -> dict[str, wm.Stream]:
    """They hardly match at first; then every tuple does, many times."""
    s, t = (np.concatenate([rng.integers(0, 50_000, 1500), rng.integers(0, 10, 1500)]) for _ in range(2))
    return {"s": stream(s, wide=600, site="paris"), "t": stream(t, wide=600, site="tokyo")}


DRIFT = "SELECT a.id AS x, b.id AS y, a.wide AS v, b.wide AS w FROM s a, t b WHERE a.k = b.k WINDOW = 200 MILLISECONDS"


def test_statistics_drift_and_the_plan_follows():
    streams = drifting(np.random.default_rng(1))
    found = wm.local.run(DRIFT, streams, sites=wm.Sites(latency="1 ms", bandwidth=1e5), batch_rows=50)
    assert bag(found) == plain(DRIFT, streams)
    first, second, *more = wm.local.counts(found).changes
    assert "SM" in first
    assert "SP" in second
    assert "SM" not in second
    assert 2 + len(more) <= np.log2(wm.local.counts(found).batches / PATIENCE) + 1


def test_measured_statistics_are_those_of_the_streams():
    run = _prepared(TEXT, {n: source_of(n, s) for n, s in RARE.items()})
    run.run(100)
    assert run.sites is not None
    statistics = run.sites.memory.statistics(run.plan)
    assert statistics.streams["a"].rate == pytest.approx(100, rel=0.05)
    assert statistics.streams["a"].distinct["k"] == pytest.approx(1000, rel=0.6)
    assert statistics.streams["b"].full_bytes == pytest.approx(1250, rel=0.1)
    assert statistics.count_shared(("a", "k"), ("b", "k")) == pytest.approx(1000, rel=0.9)
    again = SiteMemory.of(json.loads(json.dumps(__import__("dataclasses").asdict(run.sites.memory))))
    assert again == run.sites.memory


@pytest.mark.parametrize("name", [a.value for a in Algorithm])
def test_measured_streams_are_priced_at_what_they_ship(name):
    """Formulas of ordered streams and other units of time: they need only be near."""
    rng = np.random.default_rng(4)
    streams = {
        n: stream(rng.integers(0, 1000, 6000), wide=100, rate=1000, site=site)
        for n, site in (("s", "paris"), ("t", "tokyo"))
    }
    text = (
        "SELECT a.id AS x, b.id AS y, a.wide AS v, b.wide AS w FROM s a, t b WHERE a.k = b.k WINDOW = 300 MILLISECONDS"
    )
    run = _prepared(
        text,
        {n: source_of(n, s) for n, s in streams.items()},
        sites=wm.Sites(plan={"a": f"b {name}", "b": f"a {name}"}),
    )
    run.run(300)
    assert run.sites is not None
    assert run.plan.sites is not None
    memory = run.sites.memory
    found = run.plan.sites.price(run.plan.sites.optimizer(memory.statistics(run.plan), memory.interval_us))
    assert found.bytes * 6 == pytest.approx(sum(c[2] for c in run.sites.shipped.values()), rel=0.4)
    assert found.shipments * 6 == pytest.approx(sum(c[0] for c in run.sites.shipped.values()), rel=0.6)


def test_sketches_tell_the_number_of_values_whether_few_or_many():
    for values in (3, 300, 30_000):
        sketch = Sketch()
        for batch in range(8):
            sketch.fade()
            found = sample(np.random.default_rng(batch).integers(0, values, 5000))
            sketch.add(5000, found["below"], found["counts"])
        assert sketch.distinct == pytest.approx(values, rel=0.25)
    few = sample(np.random.default_rng(9).integers(0, 5, 5000))
    for _ in range(25):
        sketch.fade()
        sketch.add(5000, few["below"], few["counts"])
    assert sketch.distinct == pytest.approx(5, rel=0.1)


def test_streams_that_no_equality_connects():
    streams = {
        "s": stream(range(60), site="paris"),
        "t": stream(range(60), site="tokyo"),
        "u": stream([1] * 60, site="rome"),
    }
    text = "SELECT a.id AS x, b.id AS y, c.id AS z FROM s a, t b, u c WHERE a.k < b.k AND b.k + 1 < c.id WINDOW = 100 MILLISECONDS"
    found = wm.local.run(text, streams, batch_rows=7)
    assert bag(found) == plain(text, streams)
    assert found.num_rows > 100


def test_one_site_for_all_ships_nothing():
    streams = {n: stream(s.source.column("k").to_numpy(), site="paris") for n, s in RARE.items()}
    found = wm.local.run(TEXT, streams, batch_rows=100)
    assert bag(found) == plain(TEXT, streams)
    assert wm.local.counts(found).shipped == {}


def test_rounds_follow_from_the_plan():
    def rounds(plan: dict[str, str]) -> int:
        return schedule(wm.sql(TEXT, **RARE, sites=wm.Sites(plan=plan)).plan).rounds

    assert rounds({"a": "b SP-D", "b": "a SP-D"}) == 2
    assert rounds({"a": "b SM-D2", "b": "a SP-D"}) == 4
    assert rounds({"a": "b SM-S2", "b": "a SM-S1"}) == 4


def test_explain_shows_sequences_algorithms_and_bytes():
    text = wm.sql(TEXT, **RARE, sites=wm.Sites(plan={"a": "b SM-S1", "b": "a SP-D"})).explain("full")
    assert "a at paris [3 s], b at tokyo [3 s]" in text
    assert "SM-S1  paris -> b at tokyo, results at paris" in text
    assert "kB/s" in text
    assert "assumed: 1,000 tuples/s" in text


BOTH = {"s": {"site": "a"}, "t": {"site": "b"}}


@pytest.mark.parametrize(
    ("streams", "options", "says"),
    [
        ({"s": {"site": "paris"}, "t": {}}, {}, "alias b of stream t has no site, and others have one"),
        ({"s": {}, "t": {}}, {"sites": wm.Sites()}, "alias a of stream s has no site, and sites= is given"),
        ({"s": {}, "t": {}}, {"sites": {"a": "paris"}}, "alias b of stream t has no site"),
        ({"s": {}, "t": {}}, {"sites": {"a": "paris", "x": "rome"}}, "no alias x in FROM"),
        ({"s": {}, "t": {}}, {"sites": {"a": "paris", "b": ""}}, "names of sites"),
        (BOTH, {"sites": {"a": "x"}}, "alias a is at x, and its stream says a"),
        (BOTH, {"sites": wm.Sites(plan="best")}, "'auto', 'greedy', 'exhaustive', or a sequence"),
        (BOTH, {"sites": wm.Sites(plan="a, b SP-S/SM-D1")}, "a tree is for the simulated network"),
        (BOTH, {"sites": wm.Sites(plan={"a": "b SP-D"})}, "one sequence for each of a, b"),
        (BOTH, {"routing": "hash"}, "tuples stay at their sites"),
        (BOTH, {"order": ["a", "b"]}, "says the order"),
        (BOTH, {"shipping": "semijoin"}, "says what is shipped"),
        (BOTH, {"kernel": "mw"}, "probe one stream at a time"),
        (BOTH, {"driver": "timestamp"}, "heads go in the order of FROM"),
        (BOTH, {"runtime": "stream"}, "start()"),
        (BOTH, {"sites": wm.Sites(lines={("a", "x"): wm.Line()})}, "a line ends at x"),
        (BOTH, {"sites": "fast"}, "a site for every alias"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(streams, options, says):
    made = {n: stream([1], **given) for n, given in streams.items()}
    with pytest.raises(wm.WatersmeetError, match=says.replace("(", r"\(").replace(")", r"\)")):
        wm.sql(TEXT, **made, **options).explain()


def test_sites_by_alias_are_the_same():
    plain_streams = {n: wm.Stream(s.source, time="ts") for n, s in RARE.items()}
    places = {"a": "paris", "b": "tokyo"}
    assert wm.sql(TEXT, **plain_streams, sites=places).explain() == wm.sql(TEXT, **RARE).explain()
    found = wm.local.run(TEXT, plain_streams, sites=wm.Sites(places), batch_rows=100)
    assert bag(found) == plain(TEXT, RARE)


def test_what_sites_cannot_do_is_said():
    with pytest.raises(wm.WatersmeetError, match="say it once"):
        wm.local.run(TEXT, RARE, sites={"a": "paris", "b": "tokyo"})
    with pytest.raises(wm.WatersmeetError, match="ROWS windows are numbered at one place"):
        wm.sql("SELECT a.id FROM s a [ROWS 3], t b WHERE a.k = b.k WINDOW = 1 SECOND", **RARE).explain()
    with pytest.raises(wm.WatersmeetError, match=r"use start\(sink"):
        wm.sql(TEXT, **RARE).dataframe()
    with pytest.raises(wm.WatersmeetError, match="leave network= out"):
        wm.local.run(TEXT, RARE, network=object())
    with pytest.raises(wm.WatersmeetError, match="site=''"):
        stream([1], site="")


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"latency": "soon"}, "not a span"),
        ({"bandwidth": 0}, "bytes per second"),
        ({"lines": {("a",): wm.Line()}}, "a pair of sites"),
        ({"lines": {("a", "b"): 5}}, "a pair of sites"),
        ({"lines": [1]}, "a dict"),
    ],
)
def test_lines_are_checked(given, says):
    with pytest.raises(wm.WatersmeetError, match=says):
        wm.Sites(**given)
