"""One site chooses plans by what all have measured: hot keys are known, what is expected is what is counted, and what does not pay is taken back."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import OptionError
from watersmeet.runtime.across import AcrossSites
from watersmeet.runtime.local import LocalRun
from watersmeet.sites.plan_change.choice import MOST_HELD, Change, Choice, name_plan
from watersmeet.sites.plan_change.survey import Survey
from watersmeet.sites.planning.key_sample import ALL, KeySample
from watersmeet.sites.planning.letters import OneWay, Step
from watersmeet.sites.planning.model import Algorithm, LinearPlan
from watersmeet.sites.planning.values import KeyShares, Sketch, Values
from watersmeet.sites.site_state import SiteState
from watersmeet_lab.bench.data import START_US
from watersmeet_lab.bench.skewed_sites.workload import Workload

HOT = Workload(77, 2, 2)
"""Two streams at two sites, one key with most of the tuples."""


def batches(run: LocalRun, across: AcrossSites, tables: Any, count: int, begin: int = 0) -> Iterator[int]:
    """Play seconds of event time; letters are taken in the batch after."""
    for second in range(begin, begin + count):
        for name, site in across.sites.items():
            aliases = [run.plan.aliases[n] for n in site.station.homes]
            wires = {}
            for alias in aliases:
                ts = tables[alias].column("ts").cast(pa.int64()).to_numpy() - START_US
                first, end = np.searchsorted(ts, [second * 1_000_000, (second + 1) * 1_000_000])
                wires[alias] = run.wires[alias].slice(int(first), int(end - first))
            across.play(name, wires, most=1)
        yield second


def sample(hashes: Iterable[int], below: int = ALL) -> KeySample:
    """Values that have come once."""
    found = np.array(sorted(hashes), np.int64)
    return KeySample.of(found, np.ones(len(found), np.int64), below)


def test_a_hot_key_outside_the_sample_is_known() -> None:
    sketch, light = Sketch(), sample(range(100, 228), 228)
    sketch.add(1000, light.write(), [[ALL - 1, 600], *([n, 1] for n in range(100, 110))])
    assert dict(sketch.to_shares().heavy)[ALL - 1] == pytest.approx(0.6)
    other = KeyShares(sample(range(100, 164), 228).write(), 200)
    values = Values.of({"a": sketch.to_shares(), "b": other})
    for alias in "ab":
        assert float((values.count * values.share[alias]).sum()) == pytest.approx(1, rel=0.01)
    assert values.share["a"].max() == pytest.approx(0.6)


def test_a_watched_value_that_does_not_come_has_no_share() -> None:
    sketch = Sketch()
    for _ in range(4):
        sketch.add(100, sample(range(100), 1000).write(), [])
        sketch.watch(100, [[5000, 0]])
    assert dict(sketch.to_shares().heavy)[5000] == 0.0
    hot = KeyShares(heavy=[[5000, 0.8]])
    values = Values.of({"a": hot, "b": sketch.to_shares()})
    assert values.share["a"][0] == pytest.approx(1.0, abs=0.21)
    assert values.share["b"][0] == 0.0


@pytest.mark.parametrize("how", [a.value for a in Algorithm])
def test_what_is_expected_is_what_is_counted(how: str) -> None:
    """Within a factor of two, for every algorithm, under skew; corrections do the rest."""
    run, tables = HOT.run, HOT.tables
    assert run.plan.sites is not None
    linear = LinearPlan.of(run.plan.sites.query, {"a": f"b {how}", "b": f"a {how}"})
    across = AcrossSites(replace(run.plan, sites=replace(run.plan.sites, plan=linear)))
    for site in across.sites.values():
        site.state.choice.waits = 1e9  # measure, and do not change
    before = {}
    for second in batches(run, across, tables, 24):
        if second == 11:
            before = {pair: sums[2] for pair, sums in across.shipped.items()}
    decider = across.sites[run.plan.site_names[0]]
    outlook = decider.station.look(decider.state)
    facts = outlook.facts()
    assert facts is not None
    expected = outlook.search(facts, corrected=False).price(linear).bytes
    counted = sum(sums[2] - before.get(pair, 0) for pair, sums in across.shipped.items()) / 12
    assert 0.5 < (expected + 400) / counted < 2.0


def begin_badly() -> tuple[Any, AcrossSites]:
    """A run of `auto` whose first plan ships whole tuples both ways."""
    assert HOT.run.plan.sites is not None
    linear = LinearPlan.of(HOT.run.plan.sites.query, {"a": "b SP-D", "b": "a SP-D"})
    plan = replace(HOT.run.plan, sites=replace(HOT.run.plan.sites, plan=linear))
    return plan, AcrossSites(plan)


def test_auto_settles_on_a_plan_that_ships_less_and_says_why() -> None:
    (_, across), at = begin_badly(), dict[int, int]()
    for second in batches(HOT.run, across, HOT.tables, 40):
        at[second] = sum(size for _, _, size in across.shipped.values())
    assert across.changes
    assert at[39] - at[33] < 0.7 * (at[6] - at[0])
    text = "\n".join(across.explain())
    assert "expected" in text
    assert "counted" in text
    assert across.changes[-1] in text


def test_a_batch_that_is_repeated_chooses_alike() -> None:
    plan, one = begin_badly()
    for second in batches(HOT.run, one, HOT.tables, 16):
        if second == 4:
            states = {name: json.loads(json.dumps(site.state.to_json())) for name, site in one.sites.items()}
            again = AcrossSites(plan)
            again.lines = deepcopy(one.lines)
            for name, site in again.sites.items():
                site.state, site.units = SiteState.of(states[name]), one.sites[name].units.copy()
    for _ in batches(HOT.run, again, HOT.tables, 11, begin=5):
        pass
    assert one.changes
    for name, site in one.sites.items():
        assert again.sites[name].state.to_json() == site.state.to_json()


def test_nothing_sets_out_before_a_plan_by_what_was_measured() -> None:
    """The bad first plan ships nothing; what is found is the same."""
    plan, bad = begin_badly()
    across = AcrossSites(plan, measures_first=True)
    begun: int | None = None
    for second in batches(HOT.run, across, HOT.tables, 40):
        rows = sum(rows for _, rows, _ in across.shipped.values())
        begun = second if begun is None and rows else begun
        assert bool(rows) <= bool(across.changes)
    assert begun is not None
    assert begun < 12
    assert across.changes[0].startswith("begins with ")
    for _ in batches(HOT.run, bad, HOT.tables, 40):
        pass
    sums = [sum(size for _, _, size in one.shipped.values()) for one in (across, bad)]
    assert sums[0] < 0.8 * sums[1]


def test_streams_wait_for_a_first_plan_so_long_and_no_longer() -> None:
    """One site hears nothing of the other's streams: after some batches it lets its tuples out under the first plan."""
    plan, _ = begin_badly()
    across = AcrossSites(plan, measures_first=True)
    lone = next(reversed(across.sites))
    aliases = [plan.aliases[n] for n in across.sites[lone].station.homes]
    for second in range(MOST_HELD + 1):
        assert across.sites[lone].state.is_held
        wires = {}
        for alias in aliases:
            ts = HOT.tables[alias].column("ts").cast(pa.int64()).to_numpy() - START_US
            first, end = np.searchsorted(ts, [second * 1_000_000, (second + 1) * 1_000_000])
            wires[alias] = HOT.run.wires[alias].slice(int(first), int(end - first))
        across.play(lone, wires)
        if second + 1 == MOST_HELD:
            break
    assert not across.sites[lone].state.is_held
    across.play(lone, {})
    assert sum(rows for _, rows, _ in across.shipped.values()) > 0


def test_what_does_not_pay_is_taken_back_and_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A price that is ten times too low lures `auto` once."""
    right = OneWay.price

    def price(self: OneWay, how: Algorithm) -> Step:
        step = right(self, how)
        return step._replace(rows=step.rows / 10) if how is Algorithm.SP_D else step

    monkeypatch.setattr(OneWay, "price", price)
    across = AcrossSites(HOT.run.plan)
    decider, plans = across.sites[HOT.run.plan.site_names[0]], list[str]()
    for _ in batches(HOT.run, across, HOT.tables, 40):
        now = str(decider.station.look(decider.state).plan.sites.plan)  # type: ignore[union-attr]
        plans += [now] if not plans or plans[-1] != now else []
    lured = "a: b SP-D; b: a SP-D"
    assert plans.count(lured) == 1
    assert plans[-1] != lured


def test_surveys_stay_small_over_a_thousand_batches() -> None:
    chance, survey, told, sizes, asked = np.random.default_rng(5), Survey(), 0, [], 0
    for batch in range(1000):
        is_asked = "a" not in survey.find_measured().asleep
        asked += is_asked
        hashes = np.where(chance.random(200) < 0.7, 12345, chance.integers(0, ALL, 200))
        values, counts = np.unique(hashes, return_counts=True)
        seen, top = KeySample.of(values, counts), np.argsort(-counts)[:48]
        key = {
            "sample": seen.write(),
            "heavy": np.column_stack([values[top], counts[top]]).tolist(),
        }
        measured = {
            "rows": 200,
            "low": 0,
            "high": 1,
            "each": 100.0,
            "item": 500.0,
            "keys": {"0": {**key, "code": 4.0, "watched": [[12345, 140]]}} if is_asked else {},
        }
        survey.note([{"a": measured}], {"a": batch * 1_000_000}, 10.0)
        survey.follow(0, -1, batch * 1_000_000, 1_000_000, 10e6)
        survey.count("tokyo", {"0/rows 0 0": 5000}, 5200)
        told += len(json.dumps(survey.tell()))
        sizes.append(len(json.dumps(Survey.of(json.loads(json.dumps(survey, default=vars))), default=vars)))
    assert max(sizes[500:]) < 1.1 * max(sizes[100:500])
    assert max(sizes) < 20_000
    assert told / 1000 < 60  # bytes per batch, before compression
    assert 200 < asked < 400


def test_keys_that_are_seldom_measured_are_measured_at_once_when_the_stream_changes() -> None:
    survey, time = Survey(), iter(range(10_000))
    seen = {"sample": sample(range(100)).write(), "heavy": [], "watched": [], "code": 4.0}

    def note(rows: int) -> bool:
        """A batch; whether its keys were asked for."""
        is_asked = "a" not in survey.find_measured().asleep
        keys = {"0": seen} if is_asked else {}
        measured = {"rows": rows, "low": 0, "high": 1, "each": 100.0, "item": 500.0, "keys": keys}
        survey.note([{"a": measured}], {"a": next(time) * 1_000_000}, 5.0)
        survey.tell()
        return is_asked

    def wait(rows: int) -> int:
        """Batches until keys are asked for."""
        waited = 0
        while not note(rows):
            waited += 1
        return waited

    assert all(note(100) for _ in range(40))
    for rows, least, most in ((100, 25, 30), (1000, 1, 12)):
        for _ in range(2):  # whenever that happens
            assert sum(note(100) for _ in range(80)) == 20
        while note(100):
            pass
        assert least <= wait(rows) <= most
    while note(1000):
        pass
    survey.watch({"0": [7]}, survey.wanted)
    assert note(1000)


@pytest.mark.parametrize("decider", ["rome", "", 3])
def test_a_decider_that_is_no_site_is_refused(decider: Any) -> None:
    table = pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))})
    streams = {name: wm.Stream(table, time="ts", site=site) for name, site in (("s", "paris"), ("t", "tokyo"))}
    text = "SELECT a.k FROM s a, t b WHERE a.k = b.k WINDOW = 3 SECONDS"
    with pytest.raises(OptionError, match="decider="):
        wm.sql(text, streams, sites=wm.Sites(decider=decider)).explain()


def test_lines_that_are_given_are_used_as_they_are() -> None:
    run = HOT.run
    across = AcrossSites(run.plan)
    decider = across.sites[run.plan.site_names[0]]
    here, there = run.plan.site_names
    for _ in range(10):
        for size in (1_000, 100_000, 400_000):
            decider.state.survey.time(here, there, size, 0.5 + size / 1e5)
    assert decider.station.look(decider.state).line(here, there).bytes_per_s == 128_000.0
    assert run.plan.sites is not None
    free = replace(run.plan, sites=replace(run.plan.sites, lines=wm.Sites(HOT.where)))
    seen = replace(decider.station.look(decider.state), plan=free).line(here, there)
    assert 0.6e5 < seen.bytes_per_s < 1.6e5
    assert 0.25 < seen.latency_s < 1.0


def test_two_plans_that_cost_about_the_same_do_not_follow_each_other() -> None:
    """What was counted may take back the first change; after that a plan must be clearly cheaper."""
    _, across = begin_badly()
    for _ in batches(HOT.run, across, HOT.tables, 12):
        pass
    decider = across.sites[HOT.run.plan.site_names[0]]
    outlook = decider.station.look(decider.state)
    facts = outlook.facts()
    assert facts is not None
    query = outlook.plan.sites.query  # type: ignore[union-attr]
    search = outlook.search(facts)
    one, other = (
        replace(search.price(LinearPlan.of(query, {"a": f"b {how}", "b": f"a {how}"})), seconds=seconds)
        for how, seconds in (("SM-D1", 1.0), ("SM-D2", 0.95))
    )
    decider.state.choice.factors = {item.name: [1.0, 0.0] for item in (*one.items, *other.items)}
    decider.state.choice.left = {}
    assert outlook.pays(other, one)
    decider.state.choice.left = {name_plan(one): 0.0, name_plan(other): 0.0}
    assert not outlook.pays(other, one)
    assert outlook.pays(replace(other, seconds=0.85), one)


def test_a_change_that_is_withdrawn_is_not_noted_and_the_next_one_is_further_ahead() -> None:
    made = Choice()
    made.propose(3, Change({}, {}, "to another plan"))
    made.follow(2)
    assert (made.changes, made.ahead) == ([], 2 * Choice().ahead)
    made.propose(4, Change({}, {}, "to another plan", ("this", 7.0)))
    made.follow(4)
    assert (made.changes, made.left) == (["to another plan"], {"this": 7.0})
    made.follow(4)
    assert len(made.changes) == 1


def test_surveys_of_an_earlier_form_are_begun_anew() -> None:
    raw = SiteState(survey=Survey(batches=9)).to_json()
    del raw["survey"]["wanted"]
    raw["survey"]["streams"] = {"a": {"keys": {"0": {"below": 7, "sample": {"5": 1.0}}}}}
    raw["choice"]["heard"] = {"tokyo": {"streams": {"b": {"keys": {"0": {"below": 7, "sample": [[5, 1.0]]}}}}}}
    state = SiteState.of(json.loads(json.dumps(raw)))
    assert (state.survey, state.choice) == (Survey(), Choice())
