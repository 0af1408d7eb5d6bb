"""Who drives when: order, early results, released buffers, measured statistics."""

from __future__ import annotations

import json
import weakref
from collections.abc import Iterator
from itertools import permutations
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.dataflow.contract import Inbox, Turn, put
from watersmeet.errors import OptionError
from watersmeet.operators.probing.driving import (
    DriverMeasures,
    OrderEstimate,
    WaitingInput,
    cheapest,
    mjoin_selectivity,
    order,
    ranks,
)
from watersmeet.operators.probing.side import VisibleSide
from watersmeet.plan.model import EARLY
from watersmeet.plan.options import POLICIES, Options
from watersmeet.query.stream import StreamSpec
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.units import enter
from watersmeet.sql.parse import parse
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment

SQL = "SELECT a.v AS av, b.v AS bv, c.v AS cv FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW = 1 HOUR"
WIDTH = 1000


def table(rows: int, keys: int, seed: int) -> pa.Table:
    draw = np.random.default_rng(seed)
    return pa.table(
        {
            "k": draw.integers(0, keys, rows),
            "v": pa.array([f"{n:0{WIDTH}}" for n in range(rows)]),
            "ts": pa.array(np.sort(draw.integers(0, 10**9, rows)), pa.timestamp("us")),
        }
    )


TABLES = {"a": table(400, 50, 1), "b": table(200, 50, 2), "c": table(800, 50, 3)}


def prepared(driver: str) -> LocalRun:
    schema = {"k": "bigint", "v": "string", "ts": "timestamp_ntz"}
    join = parse(SQL, {name: StreamSpec(name, schema, "ts", 0) for name in TABLES})
    return LocalRun(join, TABLES, Options(units=1, driver=driver, kernel="hw"))  # type: ignore[arg-type]


def turn_of(run: LocalRun, begin: int, rows: int) -> Turn:
    """A batch's buffers, each in pieces, as they come from several source tasks."""
    flow, inboxes = run.flows.under({}), dict[int, Inbox]()
    seen, messages = enter(flow, {a: w.slice(begin, rows) for a, w in run.wires.items()})
    while messages:
        put(inboxes, messages.pop())
    for tables in inboxes[0].values():
        [whole] = tables
        half = whole.num_rows // 2
        tables[:] = [
            pa.concat_tables([part]).take(pa.array(range(part.num_rows)))
            for part in (whole.slice(0, half), whole.slice(half))
        ]
    state = run.units.states.setdefault(0, Manifest.fresh(run.units.identity))
    return Turn(0, inboxes[0], state, run.units.store, flow.clock(state.maxima, seen.highest))


def results_of(run: LocalRun, turn: Turn) -> Iterator[pa.Table]:
    return (item for item in run.flows.under({}).operator(0).step(turn) if isinstance(item, pa.Table))


def first_batch(run: LocalRun) -> None:
    list(results_of(run, turn_of(run, 0, 100)))


@pytest.mark.parametrize("driver", [p for p in POLICIES if p not in ("timestamp", "round_robin")])
def test_a_buffer_is_released_when_it_is_consumed_and_its_results_are_out_before_the_next(driver):
    run = prepared(driver)
    first_batch(run)
    unit = turn_of(run, 100, 300)
    alive = {side: [weakref.ref(t) for t in tables] for side, tables in unit.inbox.items()}
    made: dict[str, int] = {}
    for result in results_of(run, unit):
        turn = unit.report.drivers[-1]
        made[turn] = made.get(turn, 0) + result.num_rows
        for side, refs in alive.items():
            consumed = side in unit.report.drivers
            assert [r() is None for r in refs] == [consumed] * len(refs), (turn, side)
            assert (side in unit.inbox) is not consumed
    assert sorted(unit.report.drivers) == ["a", "b", "c"]
    assert unit.report.policy == driver
    assert sum(made.values()) == unit.report.results > 0
    assert len(made) == 3, "every driver has results of its own"


def test_open_buffers_take_room_for_one_copy_only():
    run = prepared("consumption_rate")
    turn = turn_of(run, 0, 800)
    sizes = [sum(t.nbytes for t in tables) for tables in turn.inbox.values()]
    before, peak = pa.total_allocated_bytes(), 0
    for result in results_of(run, turn):
        peak = max(peak, pa.total_allocated_bytes() - before - result.nbytes)
    assert peak < max(sizes) < sum(sizes) / 1.5


@pytest.mark.parametrize("driver", POLICIES)
def test_statistics_are_measured_and_kept_in_the_manifest(driver):
    run = prepared(driver)
    result = run.run(100)
    memory = json.loads(run.units.states[0].to_json())["driving"]
    assert set(memory) == {"results", "combinations", "tuples a", "tuples b", "tuples c"}
    exact = result.num_rows / np.prod([t.num_rows for t in TABLES.values()])
    assert mjoin_selectivity(memory["results"], memory["combinations"]) == pytest.approx(exact, rel=0.5)


def test_policies_agree_in_results_and_say_their_order():
    orders, bags = {}, {}
    for driver in POLICIES:
        found = wm.local.run(SQL, TABLES, batch_rows=100, driver=driver)
        orders[driver] = wm.local.counts(found).drivers
        bags[driver] = sorted(zip(*(c.to_pylist() for c in found.columns), strict=True))
    assert all(bag == bags["auto"] for bag in bags.values())
    assert orders["timestamp"].keys() == {"a | b | c", "a | c", "c"}
    assert all(" | " not in order for driver in POLICIES[3:] for order in orders[driver])


def side(name: str, times: list[int]) -> VisibleSide:
    class Spec:
        pass

    spec: Any = Spec()
    spec.name = name
    return VisibleSide(spec, [], Segment.of(pa.table({"_ts": pa.array(times, pa.int64())})))


def test_ranks():
    sides = [side("a", [5, 1, 9]), side("b", [1, 9])]
    assert {n: r.tolist() for n, r in ranks(sides, in_turn=False).items()} == {"a": [2, 0, 3], "b": [1, 4]}
    assert {n: r.tolist() for n, r in ranks(sides, in_turn=True).items()} == {"a": [2, 0, 4], "b": [1, 3]}


@pytest.mark.parametrize("seed", range(20))
def test_auto_is_as_cheap_as_the_cheapest_order(seed):
    draw = np.random.default_rng(seed)
    names = "abcde"[: draw.integers(2, 6)]
    inputs = [WaitingInput(n, int(draw.integers(0, 1000)), int(draw.integers(0, 10_000))) for n in names]
    sigma = {}
    measured = DriverMeasures(
        1e3,
        1e9,
        dict.fromkeys(names, 10.0),
        lambda bound, y: sigma.setdefault((bound, y), 10.0 ** -draw.integers(1, 6)),
    )
    estimate = OrderEstimate(inputs, measured)
    least = min(estimate.total(order) for order in permutations(names))
    assert least <= estimate.total(cheapest(inputs, measured)) <= least * (1 + EARLY) + 1e-9


def test_with_many_inputs_the_order_is_greedy_and_still_a_permutation():
    inputs = [WaitingInput(f"s{n}", 10 + n, 100 * n) for n in range(9)]
    assert sorted(cheapest(inputs, DriverMeasures())) == sorted(i.name for i in inputs)


def test_an_unknown_policy_is_refused():
    with pytest.raises(OptionError, match=r"driver='fastest'.*'output_rate'"):
        wm.local.run(SQL, TABLES, driver="fastest")


def test_explain_says_which_policy_and_why():
    streams = {name: wm.Stream(t, time="ts") for name, t in TABLES.items()}
    text = wm.sql(SQL, **streams, driver="output_rate").explain("full")
    assert "drivers    output_rate (forced): most results expected per tuple first" in text
    assert wm.sql(SQL, **streams).plan.fingerprint() == wm.sql(SQL, **streams, driver="timestamp").plan.fingerprint()


def test_without_results_so_far_sizes_decide():
    inputs = [WaitingInput("a", 10, 1000), WaitingInput("b", 10, 10), WaitingInput("c", 30, 1000)]
    fruitless = DriverMeasures(0.0, 1e9, {"a": 1000.0, "b": 10.0, "c": 100.0})
    assert order("initial_output_size", inputs, fruitless) == ("b", "c", "a")
    assert order("consumption_rate", inputs, fruitless) == ("a", "c", "b")


@pytest.mark.parametrize("first", ["a", "b"])
def test_rounding_breaks_no_tie(first):
    """0.1 + 0.2 is a bit more than 0.3."""
    inputs = [WaitingInput(name, 10, 30) for name in "ab"]
    measured = DriverMeasures(1e6 / 3, 1e6, selectivity=lambda bound, y: 0.1 + 0.2 if y == first else 0.3)
    for policy in ("auto", "initial_output_size", "output_rate"):
        assert order(policy, inputs, measured) == ("a", "b")


def test_a_forced_driver_is_not_swept_away():
    def table(rows, spacing_us):
        ts = pa.array([n * spacing_us for n in range(rows)], pa.timestamp("us"))
        return pa.table({"k": [n % 5 for n in range(rows)], "ts": ts})

    tables = {"a": table(2000, 1000), "b": table(2000, 1000), "c": table(2, 1_000_000)}
    text = "SELECT a.k FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW = 2 MILLISECONDS"
    swept, ordered = (wm.local.run(text, tables, driver=driver) for driver in ("auto", "output_rate"))
    assert set(wm.local.counts(swept).drivers) == {"a | b | c"}
    assert all("|" not in drivers for drivers in wm.local.counts(ordered).drivers)
    assert ordered.num_rows == swept.num_rows
