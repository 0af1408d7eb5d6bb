"""Sites that run at their own pace: whatever the plan, the units, the order of batches and the delays of letters, the oracle's results."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import bag, rows_of
from tests.properties.test_local import FEW
from tests.properties.test_sites_in_rounds import at_sites, prepared
from tests.sites.plans import linear_plans
from tests.strategies import BATCHES, cases
from watersmeet.runtime.across import AcrossSites
from watersmeet.runtime.local import LocalRun
from watersmeet.sites.planning.placed import write_plan

EVERYTHING = 10**9


class Pace:
    """A run in which chance decides who goes on, with how many letters; in the end all goes on."""

    def __init__(self, run: LocalRun, batch_rows: int, units: int, seed: int) -> None:
        self.run, self.batch_rows, self.chance = run, batch_rows, random.Random(seed)
        self.across = AcrossSites(run.plan, units)
        self.found: list[pa.Table] = []

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

    def _play(self, name: str, wires: dict[str, pa.Table], *, ended: bool = False) -> None:
        most = self.chance.choice((0, 1, 2, None)) if not ended or self.chance.random() < 0.5 else None
        self.found += self.across.play(name, wires, ended=ended, most=most)


UNITS, SEEDS = st.sampled_from((1, 1, 3)), st.integers(0, 10**6)


@given(st.data(), cases(far=False), BATCHES, UNITS, SEEDS)
@settings(max_examples=FEW)
def test_every_plan_equals_the_oracle(data: Any, case: Any, batch_rows: int, units: int, seed: int) -> None:
    streams = data.draw(at_sites(case))
    plan = data.draw(linear_plans(prepared(case, streams).plan.sites.query))
    run = prepared(case, streams, sites=wm.Sites(plan=plan))
    got = Pace(run, batch_rows, units, seed).play()
    assert bag(rows_of(got)) == bag(case.expected(EVERYTHING).rows), (case.sql(), str(plan))


class ChangingPace(Pace):
    """The plan changes now and then: the first site proposes, and all agree by letters."""

    def __init__(self, *args: Any, plans: list[Any]) -> None:
        super().__init__(*args)
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
    plans = data.draw(st.lists(linear_plans(run.plan.sites.query), min_size=1, max_size=3))
    got = ChangingPace(run, batch_rows, units, seed, plans=list(plans)).play()
    assert bag(rows_of(got)) == bag(case.expected(EVERYTHING).rows), (case.sql(), [*map(str, plans)])
