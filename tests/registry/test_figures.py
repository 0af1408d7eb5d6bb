"""What is told of each registered query: answers, share of the cost, lag, last answer, state; and the ten dearest."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import pytest

import watersmeet as wm
from tests.properties.test_subscriptions import PAIR, stream, two
from tests.rounds.test_subscriptions import Life, Sink
from watersmeet.runtime.progress import moment

DISTINCT = "SELECT DISTINCT r.k FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS"


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@pytest.mark.parametrize("units", [1, 3])
def test_answers_are_counted_and_the_latest_is_told(engine: str, units: int) -> None:
    subs = two(engine=engine, units=units)
    subs.add_all({"pair": PAIR, "once": DISTINCT, "none": PAIR.replace("WHERE", "WHERE r.id < 0 AND")})
    assert [e.figures for e in subs.list()] == [None] * 3
    found: Counter[str] = Counter()
    for n in range(4):
        out = subs.push({"r": stream((n, n % 2, n)), "s": stream((n, 0, n))})
        found.update(out["query"].to_pylist())
        told = {e.id: e.figures for e in subs.list()}
        assert {id: f.answers for id, f in told.items()} == {"pair": found["pair"], "once": found["once"], "none": 0}
        in_batch = Counter(out["query"].to_pylist())
        assert all(f.batch_answers == in_batch[f.id] for f in subs.dearest)
    assert found["once"] < found["pair"]
    assert told["pair"].last_answer == moment(3_000_000)
    assert told["none"].last_answer is None
    shares = [f.cost_share for f in subs.dearest]
    assert shares == sorted(shares, reverse=True)
    assert sum(shares) == pytest.approx(1.0)


def test_a_query_that_comes_again_under_its_id_begins_at_zero() -> None:
    subs = two()
    subs.add(PAIR, id="q")
    subs.push({"r": stream((1, 1, 0)), "s": stream((1, 1, 0))})
    subs.replace("q", PAIR)
    subs.push({"r": stream((1, 1, 1))})
    (entry,) = subs.list()
    assert (entry.figures.answers, entry.figures.last_answer, entry.version) == (0, None, 2)


def test_lag_and_state_are_those_of_the_querys_own_streams_and_windows() -> None:
    schema = stream().schema
    subs = wm.local.subscriptions({s: wm.Stream(schema.empty_table(), time="ts") for s in "rst"})
    subs.add(PAIR.replace("10 SECONDS", "2 SECONDS"), id="narrow")
    subs.add(PAIR.replace("10 SECONDS", "90 SECONDS"), id="wide")
    subs.add("SELECT t.id FROM t, r WHERE t.k = r.k WINDOW = 2 SECONDS", id="other")
    for n in range(8):
        subs.push({"r": stream((n, 1, 10 * n)), "s": stream((n, 1, 10 * n)), "t": stream((n, 1, 70))})
    told = {e.id: e.figures for e in subs.list()}
    assert (told["wide"].lag_us, told["other"].lag_us) == (0, 0)
    assert told["narrow"].state_rows < told["wide"].state_rows == 16
    subs.push({"t": stream((9, 1, 90))})
    assert subs.list()[0].figures.lag_us == 20_000_000


def test_who_joins_more_costs_more_and_at_most_ten_are_told() -> None:
    subs = two()
    cheap = {f"cheap {n}": f"SELECT r.id FROM r WHERE r.id = {n}" for n in range(30)}
    subs.add_all({"dear": "SELECT r.id, s.id AS y FROM r, s WHERE r.k = s.k", **cheap})
    subs.push({"r": stream(*((n, 1, 0) for n in range(400))), "s": stream(*((n, 1, 0) for n in range(400)))})
    assert len(subs.dearest) == 10
    assert subs.dearest[0].id == "dear"
    assert subs.dearest[0].cost_share > 0.9
    assert subs.dearest[0].batch_answers == 160_000
    assert {e.id for e in subs.list() if e.figures.answers} == {"dear", *cheap}


def test_figures_stand_in_the_progress(tmp_path: Path) -> None:
    life = Life(tmp_path, Sink())
    life.registry.add_all([("007", "SELECT r.id FROM r, s WHERE r.k = s.k")])
    life.batch(0)
    (told,) = life.last.dearest
    assert (told.id, told.cost_share) == ("007", 1.0)
    assert told.answers == told.batch_answers > 0
    assert "dearest" in repr(life.last)
    assert json.dumps(life.last.dearest, default=str)


def test_queries_that_share_nothing_are_told_of() -> None:
    subs, apart = two(), PAIR.replace("r.k = s.k", "r.id < s.id")
    subs.add_all(
        {
            "one": apart,
            "same": apart,
            "sums": "SELECT r.k, count(*) AS n FROM r GROUP BY r.k, window(r.ts, '2 seconds')",
        }
    )
    found: Counter[str] = Counter()
    for n in range(4):
        found.update(subs.push({"r": stream((n, 0, n)), "s": stream((n + 1, 0, n))})["query"].to_pylist())
    told = {e.id: e.figures for e in subs.list()}
    assert {id: f.answers for id, f in told.items()} == dict(found)
    assert found["one"] == found["same"] == 10
    assert found["sums"] == 1
    assert told["one"].last_answer == moment(3_000_000)
    assert told["sums"].last_answer == moment(2_000_000)
    assert told["one"].state_rows == told["same"].state_rows == 8
    assert told["sums"].state_rows > 0
    assert {f.id for f in subs.dearest} == {"one", "same", "sums"}
    assert sum(f.cost_share for f in subs.dearest) == pytest.approx(1.0)
    assert all(f.cost_share > 0 for f in told.values())
