"""Routing that changes between batches changes no result: units come and go, keys become hot, nothing is migrated.

The units and the messages are those of the rounds runtime, run in process.
"""

from __future__ import annotations

import random
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import Case, bag, rows_of
from tests.properties.test_local import sources
from tests.strategies import BATCHES, cases, with_lateness
from watersmeet.errors import OptionError
from watersmeet.operators.balance import find_cut
from watersmeet.plan.options import Options
from watersmeet.routing.biclique import Biclique, Cells, Keys
from watersmeet.routing.epochs import Epochs
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of
from watersmeet.runtime.units import enter
from watersmeet.sql.parse import parse

EDGES = (-1.0, 0.0, 0.5, 1.0, 2.0, 1e300)


class ElasticRun(LocalRun):
    """A local run whose routing is drawn anew before every batch."""

    def __init__(self, case: Case, routing: str, seed: int) -> None:
        given = {name: source_of(name, data) for name, data in sources(case).items()}
        join = parse(case.sql(), {name: spec for name, (_, spec) in given.items()})
        super().__init__(join, {name: table for name, (table, _) in given.items()}, Options(routing=routing, units=5))
        planned = self.plan.stages[0].routing
        assert isinstance(planned, Biclique)
        self.epochs, self.draw, self.fresh = Epochs((planned,)), random.Random(seed), planned.units
        self.most_routings = 1

    def push(self, wires: Mapping[str, pa.Table], **how: Any) -> list[pa.Table]:
        self._rescale()
        flow = self.flows.under({"routing": self.epochs.to_json()})
        seen, messages = enter(flow, wires, self.units.batch)
        return self.units.play(flow, messages, seen)

    def _rescale(self) -> None:
        routing, sides = self.epochs.current, []
        for groups in routing.sides:
            sides.append(tuple(self._resized(units) for units in groups))
        changed = replace(routing, sides=(sides[0], sides[1]))
        if isinstance(changed.by, Keys) and self.draw.random() < 0.5:
            changed = changed.with_hot({*changed.by.hot, self.draw.randrange(3)})
        if isinstance(changed.by, Cells) and self.draw.random() < 0.5:
            edges = [tuple(sorted(self.draw.choices(EDGES, k=len(groups) - 1))) for groups in changed.sides]
            changed = replace(changed, by=replace(changed.by, edges=(edges[0], edges[1])))
        occupied = {unit for unit, state in self.units.states.items() if any(state.rows().values())}
        now = self.units.maxima
        self.epochs = self.epochs.then(changed, max(now.values(), default=0))
        self.epochs = Epochs.from_json(self.epochs.to_json())
        self.epochs = self.epochs.prune(self.epochs.units - occupied, find_cut(self.plan, now))
        self.most_routings = max(self.most_routings, len(self.epochs.routings))

    def _resized(self, units: tuple[int, ...]) -> tuple[int, ...]:
        chance = self.draw.random()
        if chance < 0.3 and len(units) > 1:
            return tuple(self.draw.sample(units, len(units) - 1))
        if chance < 0.6 and len(units) < 4:
            self.fresh += 1
            return (*units, self.fresh - 1)
        return units


@given(
    st.data(), cases(aliases=2, null_ts=True), BATCHES, st.sampled_from(("random", "contrand(2, 1)", "range")),
    st.integers(0, 2**32),
)  # fmt: skip
def test_scaling_changes_nothing(data: Any, case: Case, batch_rows: int, routing: str, seed: int) -> None:
    case = data.draw(with_lateness(case))
    try:
        run = ElasticRun(case, routing, seed)
    except OptionError:  # a routing that this query cannot have
        run = ElasticRun(case, "random", seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        found = run.run(batch_rows)
    want = case.expected(batch_rows)
    assert bag(rows_of(found)) == bag(want.rows), case.sql()
    for stream, (least, most) in case.late_bounds(want).items():
        assert least <= run.units.late.get(stream, 0) <= most
