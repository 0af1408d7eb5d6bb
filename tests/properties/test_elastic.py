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
from watersmeet.plan.build import Options
from watersmeet.routing.biclique import Biclique, Keys
from watersmeet.routing.epochs import Epochs
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.local_sources import source_of
from watersmeet.sql.parse import parse
from watersmeet.units.join_unit import Inbox, JoinUnit
from watersmeet.units.pack import Part, route, rows_kept
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.state import Manifest


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

    def _delivered(self, slices: Mapping[str, pa.Table]) -> list[Inbox]:
        self._rescale()
        stage, inboxes = self.plan.stages[0], [Inbox() for _ in self.units]
        for source in self.plan.inputs:
            wire = slices[source.alias].combine_chunks()
            if wire.num_rows == 0:
                continue
            kept, punctuation = rows_kept(source, wire)
            for inbox in inboxes:
                inbox.punctuate(source.stream, punctuation)
            rows = wire.take(pa.array(kept)).drop_columns([c for c in ("_pass",) if c in wire.column_names])
            parts: list[Part] = route(self.plan, stage, source.position, rows, self.epochs)
            for part in parts:
                for unit in part.units:
                    inboxes[unit].take(source.alias, part.role, part.table)
        return inboxes

    def _step(self, inboxes: list[Inbox]) -> Any:
        self.batches += 1
        for unit, inbox, manifest, store in zip(self.units, inboxes, self.manifests, self.stores, strict=True):
            yield from unit.step(inbox, manifest, store)

    def _rescale(self) -> None:
        routing, sides = self.epochs.current, []
        for groups in routing.sides:
            sides.append(tuple(self._resized(units) for units in groups))
        changed = replace(routing, sides=(sides[0], sides[1]))
        if isinstance(changed.by, Keys) and self.draw.random() < 0.5:
            changed = changed.with_hot({*changed.by.hot, self.draw.randrange(3)})
        occupied = {u.unit for u, m in zip(self.units, self.manifests, strict=True) if any(m.rows().values())}
        self.epochs = self.epochs.then(changed)
        self.epochs = self.epochs.pruned(self.epochs.units - occupied)
        self.most_routings = max(self.most_routings, len(self.epochs.routings))
        while len(self.units) <= max(self.epochs.units):
            self.units.append(JoinUnit(self.plan, len(self.units)))
            maxima = dict(self.manifests[0].maxima)
            self.manifests.append(replace(Manifest.fresh(self.plan), maxima=maxima))
            self.stores.append(MemoryStore())

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
        assert least <= run._late().get(stream, 0) <= most
