"""`wm.local.run(..., sites=..., network=...)`: letters of sites over simulated lines, which delay them, are narrow, and count."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.cases import bag, rows_of
from watersmeet.errors import OptionError
from watersmeet.runtime.local import Link, Network, Protocol

TWO = "SELECT a.id, b.id AS other, a.payload, b.payload AS p FROM r a, s b WHERE a.k = b.k WINDOW = 2 SECONDS"
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
                "payload": pa.array([rng.bytes(250).hex() for _ in range(rows)]),
                "ts": pa.array(1_704_067_200_000_000 + np.arange(rows) * 10_000, pa.timestamp("us", tz="UTC")),
            }
        )
    return out


def rounded(table: pa.Table) -> dict:
    return bag(tuple(round(v, 6) if isinstance(v, float) else v for v in row) for row in rows_of(table))


@pytest.mark.parametrize(
    ("text", "plan"),
    [
        (TWO, "auto"),
        (TWO, "b, a SM-S1/SMB-D1"),
        (
            "SELECT a.id, b.id AS x, c.id AS y FROM r a, s b, t c WHERE a.k = b.k AND b.name = c.name AND a.v > 0.5"
            " DWINDOW (a, b) = 1 SECOND AND WINDOW (b, c) = 500 MILLISECONDS",
            "auto",
        ),
        ("SELECT DISTINCT b.k FROM r a, s b WHERE a.k = b.k WINDOW = 1 SECOND", "auto"),
        ("SELECT b.k, count(*) AS n, sum(a.v) AS s FROM r a, s b WHERE a.k = b.k WINDOW = 1 SECOND GROUP BY b.k", "auto"),
        ("SELECT a.id, b.id AS x FROM r a [ROWS 30], s b WHERE a.k = b.k AND b.v > 0.4 WINDOW = 1 SECOND", "auto"),
    ],
)  # fmt: skip
def test_results_are_those_without_sites_whatever_the_lines(text, plan):
    data = tables()
    places = {a: a.upper() for a in "abc" if f" {a}" in text.split("FROM")[1].split("WHERE")[0]}
    sites = wm.Sites(places, plan=plan, results_at="B" if "DISTINCT" in text or "GROUP" in text else None)
    slow = Network(Link(latency_us=730_000, jitter_us=90_000, bytes_per_s=50_000, arrival="in order"), seed=3)
    across, plain = wm.local.run(text, data, sites=sites, network=slow), wm.local.run(text, data)
    assert across.schema.equals(plain.schema)
    assert rounded(across) == rounded(plain)
    assert across.num_rows > 0


def test_what_crosses_a_line_is_counted_and_takes_its_time():
    data, plan = tables(1000), {"a": "b SP-D", "b": "a SP-D"}
    runs = {
        latency_us: wm.local.counts(
            wm.local.run(TWO, data, sites=wm.Sites(PLACES, plan=plan), network=Network(Link(latency_us=latency_us)))
        ).simulated
        for latency_us in (1_000, 2_000_000)
    }
    for counts in runs.values():
        assert counts["pairs"].keys() == {"Paris > Lima", "Lima > Paris"}
        assert counts["shipments"] == sum(n for n, _, _ in counts["pairs"].values())
        assert counts["rows"] == 2000
        assert counts["bytes"] > 2000 * 250
    near, far = runs.values()
    assert near["latest_us"] < 1_000_000 < 2_000_000 < far["latest_us"]
    assert far["bytes"] < 1.5 * near["bytes"]


def test_a_longer_interval_means_fewer_letters():
    data, sites = tables(1000), wm.Sites(PLACES, plan={"a": "b SM-D2", "b": "a SM-S1"})
    often, rarely = (
        wm.local.counts(wm.local.run(TWO, data, sites=sites, network=Network(interval_us=us))).simulated
        for us in (100_000, 1_000_000)
    )
    assert rarely["shipments"] < often["shipments"] / 4
    assert often["intervals"] > 100


def test_nothing_arrives_and_rows_without_a_time_are_late():
    data = tables(50)
    empty = {**data, "s": data["s"].slice(0, 0)}
    assert wm.local.run(TWO, empty, sites=PLACES, network=Network()).num_rows == 0
    holes = pa.array(
        [None if i % 7 == 0 else t for i, t in enumerate(data["r"]["ts"].to_pylist())], data["r"]["ts"].type
    )
    data["r"] = data["r"].set_column(data["r"].column_names.index("ts"), "ts", holes)
    with pytest.warns(UserWarning, match="8 of r"):
        across = wm.local.run(TWO, data, sites=PLACES, network=Network())
    with pytest.warns(UserWarning, match="8 of r"):
        assert rounded(across) == rounded(wm.local.run(TWO, data))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"network": Network(Link(jitter_us=5))}, "reorders letters"),
        ({"network": Network(interval_us=1)}, "more than 1,000,000 intervals"),
        ({"network": Network(), "protocol": Protocol()}, "is BiStream's"),
        ({"network": Network(), "late": True}, "a simulation has none"),
    ],
)
def test_what_is_refused(given, said):
    with pytest.raises(OptionError, match=said):
        wm.local.run(TWO, tables(200), sites=PLACES, **given)


def test_intervals_are_checked():
    with pytest.raises(OptionError, match="interval_us=0"):
        Network(interval_us=0)
