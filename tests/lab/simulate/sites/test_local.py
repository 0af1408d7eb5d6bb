"""`wm.local.run(..., sites=...)`: SQL across sites, what it says, and what it refuses."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.cases import bag, rows_of
from tests.sites.test_in_rounds import RARE, TEXT, plain
from tests.sites.test_in_rounds import bag as rounds_bag
from watersmeet.errors import OptionError, QueryError, StreamError, UnknownNameError, WindowError

TWO = "SELECT a.id, b.id AS other, a.payload, b.payload AS p FROM r a, s b WHERE a.k = b.k WINDOW = 2 SECONDS"
ROWS = "SELECT a.id FROM r a [ROWS 3], s b [ROWS 3] WHERE a.k = b.k"
PLACES = {"a": "Paris", "b": "Lima"}


def tables(rows: int = 400, seed: int = 1) -> dict[str, pa.Table]:
    rng = np.random.default_rng(seed)
    out = {}
    for name, values in (("r", 200), ("s", 20), ("t", 50)):
        out[name] = pa.table(
            {
                "id": np.arange(rows),
                "k": rng.integers(0, values, rows),
                "name": pa.array([f"n{v}" for v in rng.integers(0, values, rows)]),
                "v": rng.random(rows),
                "payload": pa.array(["x" * 500] * rows),
                "ts": pa.array(1_704_067_200_000_000 + np.arange(rows) * 10_000, pa.timestamp("us", tz="UTC")),
            }
        )
    return out


@pytest.mark.parametrize(
    "text",
    [
        TWO,
        "SELECT a.id, b.v + a.v AS sum FROM r a, s b WHERE a.k = b.k AND a.v < b.v AND abs(a.id - b.id) % 2 = 0 WINDOW = 2 SECONDS",
        "SELECT a.id, b.id AS x, c.id AS y FROM r a, s b, t c WHERE a.k = b.k AND b.name = c.name AND a.v > 0.5"
        " DWINDOW (a, b) = 1 SECOND AND WINDOW (b, c) = 500 MILLISECONDS",
        "SELECT a.id, b.id AS x, c.id AS y FROM s a, t b, s c WHERE a.k = b.k AND b.k = c.k PATH (a, b, c) = 300 MILLISECONDS",
        "SELECT DISTINCT b.k FROM r a, s b WHERE a.k = b.k WINDOW = 1 SECOND",
        "SELECT b.k, count(*) AS n, sum(a.v) AS s FROM r a, s b WHERE a.k = b.k WINDOW = 1 SECOND GROUP BY b.k",
        "SELECT a.id, b.id AS x FROM r a [ROWS 30], s b [ROWS 5] WHERE a.k = b.k",
        "SELECT a.id, b.id AS x FROM r a [ROWS 30], s b WHERE a.k = b.k AND b.v > 0.4 WINDOW = 1 SECOND",
        "SELECT a.id, b.id AS x FROM s a, s b WHERE a.k = b.k AND a.id < b.id WINDOW = 1 SECOND",
    ],
)
@pytest.mark.parametrize("bound", ["delta", "heartbeats"])
def test_results_are_those_without_sites(text, bound):
    data = tables()
    places = {a: a.upper() for a in "abc" if f" {a}" in text.split("FROM")[1].split("WHERE")[0]}
    network = wm.local.Network(wm.local.Link(latency_us=30_000))
    across = wm.local.run(text, data, sites=wm.local.Sites(places, bound=bound), network=network)
    plain = wm.local.run(text, data)
    assert across.schema.equals(plain.schema)
    assert rounded(across) == rounded(plain)
    assert across.num_rows > 0


def rounded(table: pa.Table) -> dict:
    return bag(tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows_of(table))


def test_counts_and_explain_say_what_is_shipped():
    data = tables(2000)
    forced = wm.local.Sites(PLACES, plan={"a": "b SP-D", "b": "a SP-D"})
    chosen, simple = (wm.local.counts(wm.local.run(TWO, data, sites=s)).simulated for s in (PLACES, forced))
    assert chosen["bytes"] < 0.9 * simple["bytes"]
    assert set(chosen["pairs"]) <= {"Paris > Lima", "Lima > Paris"}
    assert chosen["shipments"] == sum(n for n, _, _ in chosen["pairs"].values())
    assert "SM-" in chosen["plan"]
    seconds = 2000 * 0.01
    assert chosen["bytes"] / seconds == pytest.approx(chosen["expected_bytes_per_s"], rel=0.15)
    text = wm.local.explain(TWO, data, sites=PLACES)
    assert "from a" in text
    assert chosen["plan"].split()[2].rstrip(";") in text
    assert "results at" in text
    assert text.startswith("key        K0: a.k = b.k")
    assert (
        wm.local.explain(TWO, data, sites=wm.local.Sites(PLACES, plan="a, b SP-S/SP-D"))
        .splitlines()[4]
        .startswith("plan       tree")
    )
    assert "in process" in wm.local.explain(TWO, data)


@pytest.mark.parametrize("rows", [1, 3, 10])
def test_windows_of_rows_with_equal_times(rows):
    """Content breaks the tie; a tuple that others of its instant push out is in no result."""
    data = {
        n: t.set_column(
            5, "ts", pa.array([v // 40_000 * 40_000 for v in t["ts"].cast("int64").to_pylist()]).cast(t["ts"].type)
        )
        for n, t in tables(120).items()
    }
    text = f"SELECT a.id, b.id AS x FROM s a [ROWS {rows}], t b [ROWS 12] WHERE a.k = b.k"
    found = wm.local.run(text, data, sites=PLACES)
    assert bag(rows_of(found)) == bag(rows_of(wm.local.run(text, data)))
    assert found.num_rows > 0


def test_a_tree():
    data = tables()
    for plan in ("b, a SM-S1/SMB-D1", "tree"):
        tree = wm.local.Sites(PLACES, plan=plan)
        assert bag(rows_of(wm.local.run(TWO, data, sites=tree))) == bag(rows_of(wm.local.run(TWO, data)))


def test_nothing_arrives():
    data = tables()
    empty = {**data, "s": data["s"].slice(0, 0)}
    assert wm.local.run(TWO, empty, sites=PLACES).num_rows == 0
    assert "from a" in wm.local.explain(TWO, empty, sites=PLACES)
    assert (
        "count"
        in wm.local.run(
            "SELECT count(*) AS count FROM r a, s b WHERE a.k = b.k WINDOW = 1 SECOND", empty, sites=PLACES
        ).column_names
    )


def test_rows_without_a_time_are_late():
    data = tables()
    holes = pa.array(
        [None if i % 7 == 0 else t for i, t in enumerate(data["r"]["ts"].to_pylist())], data["r"]["ts"].type
    )
    data["r"] = data["r"].set_column(data["r"].column_names.index("ts"), "ts", holes)
    with pytest.warns(UserWarning, match="58 of r"):
        across = wm.local.run(TWO, data, sites=PLACES)
    with pytest.warns(UserWarning, match="58 of r"):
        plain = wm.local.run(TWO, data)
    assert bag(rows_of(across)) == bag(rows_of(plain))


@pytest.mark.parametrize(
    ("text", "given", "error", "said"),
    [
        (TWO, {"sites": {"a": "A"}}, OptionError, "where does b arrive"),
        (TWO, {"sites": {**PLACES, "z": "Z"}}, UnknownNameError, "no alias z"),
        (TWO.replace("WINDOW = 2 SECONDS", ""), {"sites": PLACES}, WindowError, "every stream needs a window"),
        (
            "SELECT a.id FROM r a, s b WHERE a.v < b.v WINDOW = 1 SECOND",
            {"sites": PLACES},
            QueryError,
            "no equality connects b with a",
        ),
        (TWO, {"sites": PLACES, "kernel": "hw"}, OptionError, "drop the option"),
        (
            TWO,
            {"sites": PLACES, "protocol": wm.local.Protocol(), "network": wm.local.Network()},
            OptionError,
            "is BiStream's",
        ),
        (TWO, {"sites": wm.local.Sites(PLACES, delta_us=-1)}, OptionError, "delta_us=-1"),
        (
            TWO,
            {"sites": wm.local.Sites(PLACES, plan="tree", bound="heartbeats")},
            OptionError,
            "close their intervals by delta",
        ),
        (ROWS, {"sites": wm.local.Sites(PLACES, plan="tree")}, OptionError, "use a linear plan"),
        (TWO, {"sites": wm.local.Sites(PLACES, plan="hope")}, OptionError, "search='hope'"),
        (
            TWO,
            {"sites": wm.local.Sites(PLACES, interval="1 microsecond", plan="greedy")},
            OptionError,
            "give a longer one",
        ),
        (TWO, {"sites": wm.local.Sites(PLACES, plan={"a": "b SP-D"})}, OptionError, "one sequence for each of a, b"),
    ],
)
def test_what_is_refused(text, given, error, said):
    with pytest.raises(error, match=said):
        wm.local.run(text, tables(50), **given)


def test_processing_is_typical_or_measured():
    data = tables(50)
    measured = wm.local.Sites(PLACES, processing="measured")
    assert rounded(wm.local.run(TWO, data, sites=measured)) == rounded(wm.local.run(TWO, data, sites=PLACES))
    with pytest.raises(OptionError, match="there are 'typical' and 'measured'"):
        wm.local.Sites(PLACES, processing="guessed")


def test_streams_out_of_order_are_refused():
    data = tables(50)
    data["s"] = data["s"].take(pa.array([*range(25, 50), *range(25)]))
    with pytest.raises(StreamError, match="stream s: across sites"):
        wm.local.run(TWO, data, sites=PLACES)


def test_sites_by_alias_are_the_same_as_in_rounds():
    streams = {n: wm.Stream(s.source, time="ts") for n, s in RARE.items()}
    found = wm.local.run(TEXT, streams, sites={"a": "paris", "b": "tokyo"})
    assert rounds_bag(found) == plain(TEXT, RARE)
