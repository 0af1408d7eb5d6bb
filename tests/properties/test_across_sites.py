"""Sites that run at their own pace: whatever the plan, the units, the order of batches and the delays of letters, the oracle's results."""

from __future__ import annotations

import random
import warnings
from dataclasses import replace
from itertools import cycle
from typing import Any
from unittest.mock import patch

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import Col, bag, rounded, rows_of
from tests.properties.test_local import FEW
from tests.properties.test_sites_in_process import at_sites, prepared
from tests.sites.plans import linear_plans, tree_plans
from tests.strategies import BATCHES, cases, distinct_cases, grouped_cases
from watersmeet.runtime.across import AcrossSites
from watersmeet.runtime.local import LocalRun
from watersmeet.sites.plan_change import choice
from watersmeet.sites.planning.placed import write_plan

EVERYTHING = 10**9


class Pace:
    """A run in which chance decides who goes on, with how many letters, and whether all stop and start again; in the end all goes on."""

    def __init__(self, run: LocalRun, batch_rows: int, units: int, seed: int, plan: Any = None) -> None:
        self.run, self.batch_rows, self.chance = run, batch_rows, random.Random(seed)
        self.restarts = self.chance.choice((0.0, 0.3))
        self.options: dict[str, Any] = {"units": units, "measures_first": self.chance.random() < 0.5}
        self.across = AcrossSites(run.plan if plan is None else run.plan.at(write_plan(plan)), **self.options)
        self.found: list[pa.Table] = []
        self.written: dict[str, int] = {}

    def play(self) -> pa.Table:
        left = {name: self._batches(name) for name in self.across.sites}
        while any(left.values()):
            name = self.chance.choice(list(left))
            wires = left[name].pop(0) if left[name] and self.chance.random() < 0.8 else {}
            self._play(name, wires)
        quiet = 0
        while quiet < 2:
            quiet = quiet + 1 if self.across.is_quiet else 0
            for name in self.chance.sample(list(left), len(left)):
                self._play(name, {}, ended=True)
        return self.run.rows_of(self.found)

    def _batches(self, name: str) -> list[dict[str, pa.Table]]:
        reader, homes = self.run.reader, [self.run.plan.aliases[n] for n in self.across.sites[name].station.homes]
        wires = {alias: self.run.wires[alias] for alias in homes}
        rows = max(reader.count(a, wire) for a, wire in wires.items())
        return [
            {a: reader.slice(a, wire, begin, self.batch_rows) for a, wire in wires.items()}
            for begin in range(0, rows, self.batch_rows)
        ]

    def _restart(self) -> None:
        """All sites from what they have saved, and the letters on their way."""
        again = AcrossSites(self.across.plan, **self.options)
        again.resume(self.across.save())
        self.across = again

    def _play(self, name: str, wires: dict[str, pa.Table], *, ended: bool = False) -> None:
        if self.chance.random() < self.restarts:
            self._restart()
        most = self.chance.choice((0, 1, 2, None)) if not ended or self.chance.random() < 0.5 else None
        found = self.across.play(name, wires, ended=ended, most=most)
        self.found += found
        self.written[name] = self.written.get(name, 0) + sum(table.num_rows for table in found)


UNITS, SEEDS = st.sampled_from((1, 1, 3)), st.integers(0, 10**6)


@st.composite
def any_plans(draw: Any, query: Any) -> Any:
    return draw(tree_plans(query) if draw(st.booleans()) else linear_plans(query))


@given(st.data(), cases(far=False), BATCHES, UNITS, SEEDS)
@settings(max_examples=FEW)
def test_every_plan_equals_the_oracle(data: Any, case: Any, batch_rows: int, units: int, seed: int) -> None:
    streams = data.draw(at_sites(case))
    run = prepared(case, streams)
    plan = data.draw(any_plans(run.plan.sites.query))
    got = Pace(run, batch_rows, units, seed, plan).play()
    assert bag(rows_of(got)) == bag(case.expected(EVERYTHING).rows), (case.sql(), str(plan))


@given(st.data(), cases(far=False) | distinct_cases(far=False) | grouped_cases(far=False), BATCHES, UNITS, SEEDS)
@settings(max_examples=FEW)
def test_results_come_together_at_one_site(data: Any, case: Any, batch_rows: int, units: int, seed: int) -> None:
    """There they may be made distinct, and grouped: of a group the last row counts."""
    streams = data.draw(at_sites(case))
    site = data.draw(st.sampled_from(sorted({s.site for s in streams.values()})))
    run = prepared(case, streams, sites=wm.Sites(results_at=site))
    pace = Pace(run, batch_rows, units, seed, data.draw(any_plans(run.plan.sites.query)))
    got = pace.play()
    assert all(not rows for name, rows in pace.written.items() if name != site)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        plain = {name: wm.Stream(s.source, time="ts", lateness="1 day") for name, s in streams.items()}
        expected = wm.local.run(case.sql(), plain)
    keys = len(case.select) if case.aggregates else None
    if keys == 0 and got.num_rows == 0:  # in a run that ends, an aggregate of nothing is a row
        assert not replace(case, aggregates=(), select=(Col("a", "id"),)).expected(EVERYTHING).rows
        return
    assert settled(got, keys) == settled(expected, keys), case.sql()


def settled(table: pa.Table, keys: int | None) -> Any:
    """Rows; of groups, the last of every group."""
    rows = rounded(rows_of(table))
    return bag(rows) if keys is None else bag({repr(row[:keys]): row for row in rows}.values())


@given(st.data(), cases(rows=True, far=False), BATCHES, UNITS, SEEDS)
@settings(max_examples=FEW)
def test_rows_windows(data: Any, case: Any, batch_rows: int, units: int, seed: int) -> None:
    """Mixed with windows of time, and while plans change."""
    streams = data.draw(at_sites(case))
    run = prepared(case, streams)
    plans = data.draw(st.lists(linear_plans(run.plan.sites.query), min_size=1, max_size=3))
    got = ChangingPace(run, batch_rows, units, seed, plans=plans[1:], plan=plans[0]).play()
    assert bag(rows_of(got)) == bag(case.expected(EVERYTHING).rows), (case.sql(), [*map(str, plans)])


class ChangingPace(Pace):
    """The plan changes now and then: the first site proposes, and all agree by letters."""

    def __init__(self, *args: Any, plans: list[Any], plan: Any = None) -> None:
        super().__init__(*args, plan)
        self.plans = plans

    def _play(self, name: str, wires: dict[str, pa.Table], *, ended: bool = False) -> None:
        super()._play(name, wires, ended=ended)
        decider = next(iter(self.across.sites.values()))
        if self.plans and self.chance.random() < 0.3:
            ahead = self.chance.choice((0, 1, 1_000_000, 10_000_000))
            decider.station.propose(decider.state, write_plan(self.plans[-1]), ahead)
            if decider.state.agreement.proposed is not None:
                self.plans.pop()


@given(st.data(), cases(far=False), BATCHES, UNITS, SEEDS)
@settings(max_examples=FEW)
def test_the_plan_may_change(data: Any, case: Any, batch_rows: int, units: int, seed: int) -> None:
    streams = data.draw(at_sites(case))
    run = prepared(case, streams)
    plans = data.draw(st.lists(any_plans(run.plan.sites.query), min_size=1, max_size=3))
    got = ChangingPace(run, batch_rows, units, seed, plans=list(plans)).play()
    assert bag(rows_of(got)) == bag(case.expected(EVERYTHING).rows), (case.sql(), [*map(str, plans)])


class ChoosingPace(Pace):
    """The deciding site changes the plan as often as it can, to any plan."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        for site in self.across.sites.values():
            site.state.choice.waits = 1


@given(st.data(), cases(far=False), st.sampled_from((1, 2, 3)), SEEDS)
@settings(max_examples=FEW)
def test_what_is_chosen_changes_no_result(data: Any, case: Any, batch_rows: int, seed: int) -> None:
    streams = data.draw(at_sites(case))
    run = prepared(case, streams)
    plans = cycle(data.draw(st.lists(any_plans(run.plan.sites.query), min_size=1, max_size=3)))
    eager = patch.multiple(choice, MARGIN=1e9, COUNTED_MARGIN=1e9, PAYBACK=1e18, MOST_WAITING=0, RARER=1.0)
    with eager, patch.object(choice.PlanSearch, "find", lambda self, *_, **__: self.price(next(plans))):
        got = ChoosingPace(run, batch_rows, 1, seed).play()
    assert bag(rows_of(got)) == bag(case.expected(EVERYTHING).rows), case.sql()
