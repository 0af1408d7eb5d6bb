"""All sites in one process: what is shipped and what is not, changes of plan, restarts, and errors that say what to do."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of

US = 1_000_000
TEXT = "SELECT a.id AS x, b.id AS y, b.wide AS wide FROM s a, t b WHERE a.k = b.k WINDOW = 3 SECONDS"


def stream(keys: Any, *, wide: int = 4, rate: int = 100, **options: Any) -> wm.Stream:
    """Payloads are noise: letters are compressed."""
    keys, noise = np.asarray(keys), np.random.default_rng(wide)
    n = len(keys)
    table = pa.table(
        {
            "id": range(n),
            "k": keys,
            "wide": [noise.bytes(wide).hex()[:wide] for _ in range(n)],
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
    rows, sizes = {}, {}
    for name in ("SP-S", "SP-D", "SM-S1", "SM-S2", "SM-D1", "SM-D2", "SMB-S1", "SMB-S2", "SMB-D1", "SMB-D2"):
        plan = {"a": f"b {name}", "b": f"a {name}"}
        found = wm.local.run(TEXT, RARE, sites=wm.Sites(plan=plan), batch_rows=100)
        assert bag(found) == expected, name
        shipped = wm.local.counts(found).shipped
        assert shipped.keys() == {("paris", "tokyo"), ("tokyo", "paris")}
        rows[name], sizes[name] = ({pair: c[n] for pair, c in shipped.items()} for n in (1, 2))
        assert all(letters <= 2 * 11 for letters, _, _ in shipped.values()), "a batch of a site has one letter"
    wide = 1250 / 2  # hexadecimal digits are half a byte
    for name in ("SP-S", "SP-D"):
        assert rows[name]["tokyo", "paris"] == 1000
        assert sizes[name]["tokyo", "paris"] > 1000 * wide
    for name in ("SM-S1", "SMB-S1", "SM-S2", "SMB-S2", "SM-D1", "SM-D2", "SMB-D1", "SMB-D2"):
        assert sizes[name]["tokyo", "paris"] < 1000 * wide / 3, name
    assert sizes["SMB-S1"]["paris", "tokyo"] < sizes["SM-S1"]["paris", "tokyo"]


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
        # 300 tuples of the copy, 300 rows of the head b, and by batch a value, a filter, or nothing.
        assert wm.local.counts(found).shipped["tokyo", "paris"][1] <= 600 + 2 * 45, name


def test_what_sites_keep_expires():
    streams = {"s": stream(np.arange(4000) % 50, site="paris"), "t": stream(np.arange(4000) % 50, site="tokyo")}
    text = "SELECT a.id AS x, b.id AS y FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND"
    expected = plain(text, streams).total()
    for name in ("SP-S", "SM-S1", "SM-S2", "SM-D1"):
        run = prepare(
            text,
            {n: source_of(n, s) for n, s in streams.items()},
            sites=wm.Sites(plan={"a": f"b {name}", "b": f"a {name}"}),
        )
        most, across = Counter[str](), run.across
        assert across is not None
        found = []
        for begin in range(0, 4000, 100):
            found += run.push({a: wire.slice(begin, 100) for a, wire in run.wires.items()})
            for site in across.sites.values():
                for state in site.units.states.values():
                    most |= Counter({k: sum(i.rows for i in infos) for k, infos in state.segments.items()})
        found += run.push({}, ended=True)
        assert run.rows_of(found).num_rows == expected
        assert {"a", "b"} <= most.keys()
        assert all(rows <= 100 * 1.1 + 300 for rows in most.values()), (name, most)


def prepare(text: str, specs: dict[str, Any], **options: Any) -> LocalRun:
    from watersmeet.plan.options import Options
    from watersmeet.sql.parse import parse

    join = parse(text, {n: spec for n, (_, spec) in specs.items()})
    return LocalRun(join, {n: table for n, (table, _) in specs.items()}, Options(**options))


def count_bytes(found: pa.Table) -> int:
    return sum(c[2] for c in wm.local.counts(found).shipped.values())


def test_where_one_in_ten_matches_the_chosen_plan_ships_a_fraction_of_the_cheapest_simple_one():
    """f_1 = 0.001, f_2 = 0.01; what is shipped under the first plan, by assumed statistics, is left out."""
    rng = np.random.default_rng(3)
    streams = {
        "s": stream(rng.integers(0, 1000, 4000), wide=1200, site="paris"),
        "t": stream(rng.integers(0, 100, 4000), wide=1200, site="tokyo"),
    }
    text = "SELECT a.id AS x, b.id AS y, a.wide AS v, b.wide AS w FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND"
    lines = wm.Sites(latency="1 ms", bandwidth=1e6)
    short = {n: wm.Stream(s.source.slice(0, 1500), time="ts", site=s.site) for n, s in streams.items()}
    run = wm.local.run(text, streams, sites=lines, batch_rows=100)
    assert bag(run) == plain(text, streams)
    simple = min(
        count_bytes(wm.local.run(text, streams, sites=wm.Sites(plan={"a": f"b {x}", "b": f"a {y}"}), batch_rows=100))
        for x in ("SP-S", "SP-D")
        for y in ("SP-S", "SP-D")
    )
    begun = count_bytes(wm.local.run(text, short, sites=lines, batch_rows=100))
    assert wm.local.counts(run).changes
    assert (count_bytes(run) - begun) / 2500 <= simple / 4000 / 3


def test_one_plan_follows_another_while_streams_change():
    """They hardly match at first; then every tuple does, many times."""
    rng = np.random.default_rng(1)
    s, t = (np.concatenate([rng.integers(0, 50_000, 1500), rng.integers(0, 10, 1500)]) for _ in range(2))
    streams = {"s": stream(s, wide=600, site="paris"), "t": stream(t, wide=600, site="tokyo")}
    text = (
        "SELECT a.id AS x, b.id AS y, a.wide AS v, b.wide AS w FROM s a, t b WHERE a.k = b.k WINDOW = 200 MILLISECONDS"
    )
    found = wm.local.run(text, streams, sites=wm.Sites(latency="1 ms", bandwidth=1e5), batch_rows=50)
    assert bag(found) == plain(text, streams)
    assert len(wm.local.counts(found).changes) >= 2


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
    assert sum(bag(found).values()) == sum(plain(TEXT, streams).values())
    assert wm.local.counts(found).shipped == {}


def test_groups_with_a_window_leave_when_no_result_can_fall_into_them():
    text = "SELECT count(*) AS n, window(b.ts, '10 seconds').end AS until FROM s a, t b WHERE a.k = b.k WINDOW = 2 SECONDS GROUP BY window(b.ts, '10 seconds')"
    declared = {
        n: wm.Stream(wm.testing.table("k int, ts timestamp"), time="ts", site=at)
        for n, at in (("s", "paris"), ("t", "rome"))
    }
    test = wm.testing.QueryTest(wm.sql(text, **declared, sites=wm.Sites(results_at="rome")))
    test.batch(s=[(1, 1), (1, 8)], t=[(1, 2), (1, 9)]).check()
    test.advance(s=30).check()  # t may still have tuples of that time
    test.restart().advance(t=15).check({"n": 2, "until": 10})
    test.batch(s=[(1, 30)], t=[(1, 31)]).check().end().check({"n": 1, "until": 40})


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
        (BOTH, {"sites": wm.Sites(plan="best")}, "'auto', 'greedy', 'exhaustive', 'tree', or a sequence"),
        (BOTH, {"sites": wm.Sites(plan="a, b SP-S")}, "write a stream, then streams with two algorithms"),
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
        wm.local.run(TEXT, RARE, sites={"a": "rome", "b": "tokyo"})
    with pytest.raises(wm.WatersmeetError, match=r"use start\(at='paris', exchange="):
        wm.sql(TEXT, **RARE).dataframe()
    with pytest.raises(wm.WatersmeetError, match=r"start\(at='paris', exchange=...\) here.*without site= of streams"):
        wm.sql(TEXT, **RARE).start(sink="noop", checkpoint="never")
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


@pytest.mark.parametrize("join", ["JOIN d ON d.k = a.k AND d.x = b.x", "LEFT JOIN d ON d.k = a.k"])
def test_tables_are_joined_as_without_sites(join: str) -> None:
    rows = pa.table({"k": [1, 2, 1], "x": [1, 2, 3], "ts": pa.array([0, 1, 2], pa.timestamp("us"))})
    given = {"a": rows, "b": rows, "d": wm.Table(pa.table({"k": [1, 3], "x": [3, 2], "v": [2, 7]}))}
    text = f"SELECT a.k, b.x, d.v FROM a JOIN b ON a.k = b.k {join} WINDOW = 1 SECOND"
    plain, apart = (wm.local.run(text, given, **more) for more in ({}, {"sites": {"a": "p", "b": "q"}}))
    assert plain.num_rows
    assert sorted(map(str, apart.to_pylist())) == sorted(map(str, plain.to_pylist()))
