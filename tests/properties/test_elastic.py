"""Routing that changes between batches changes no result: units come and go, grids are dealt anew, keys become hot.

The units and the messages are those of the rounds runtime, run in process.
"""

from __future__ import annotations

import json
import random
import warnings
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import SECOND, All, Case, Col, bag, op, rows_of
from tests.properties.test_hot_keys import equals, skewed
from tests.properties.test_local import sources
from tests.strategies import BATCHES, cases, with_lateness
from watersmeet.dataflow.contract import first_unit, stage_of
from watersmeet.errors import OptionError
from watersmeet.operators import balance
from watersmeet.operators.assemble import resize_grids
from watersmeet.operators.balance import Balance, find_cut
from watersmeet.plan.options import Options
from watersmeet.routing.balance import Wanted
from watersmeet.routing.biclique import Biclique, Cells, Keys
from watersmeet.routing.epochs import Epochs
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.resize import Resized, write_grid
from watersmeet.routing.spread import HotKey
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of
from watersmeet.runtime.units import enter
from watersmeet.sql.parse import parse

EDGES = (-1.0, 0.0, 0.5, 1.0, 2.0, 1e300)


class ElasticRun(LocalRun):
    """A local run whose routing is drawn anew before every batch, and so are its hot keys, where there may be any."""

    def __init__(self, case: Case, routing: str, seed: int) -> None:
        given = {name: source_of(name, data) for name, data in sources(case).items()}
        join = parse(case.sql(), {name: spec for name, (_, spec) in given.items()})
        tables = {name: table for name, (table, _) in given.items()}
        super().__init__(join, tables, Options(routing=routing, units=5), cores=5)
        routings = {n: stage.routing for n, stage in enumerate(self.plan.stages)}
        self.epochs = {n: Epochs((r,)) for n, r in routings.items() if isinstance(r, Biclique)}
        self.grids = {n: r for n, r in routings.items() if isinstance(r, Hypercube)}
        self.draw, self.fresh = random.Random(seed), self.plan.units
        self.hot: list[dict[str, Any]] = []
        self.dealt, self.most_hot = 0, 0

    def push(self, wires: Mapping[str, pa.Table], **how: Any) -> list[pa.Table]:
        routing = [*self._scale_bicliques(), *self._deal_grids()]
        resized = {entry["stage"] for entry in routing if "was" in entry}
        self.hot = [one for one in self.balanced.hot if one["stage"] not in resized]
        decisions = json.loads(json.dumps({"routing": routing, "spread": self.hot}))
        flow = self.flows.under(decisions)
        seen, messages = enter(flow, wires, self.units.batch)
        out = self.units.play(flow, messages, seen)
        if self.plan.may_spread:
            self._balance(routing)
        return out

    def _scale_bicliques(self) -> list[dict[str, Any]]:
        out, now = [], self.units.maxima
        for number, epochs in self.epochs.items():
            mine = {u - first_unit(number): s for u, s in self.units.states.items() if stage_of(u) == number}
            occupied = {unit for unit, state in mine.items() if any(state.rows().values())}
            epochs = epochs.then(self._draw_biclique(epochs.current), max(now.values(), default=0))
            self.epochs[number] = epochs.prune(epochs.units - occupied, find_cut(self.plan, now, number))
            out += self.epochs[number].to_json(number)
        return out

    def _draw_biclique(self, routing: Biclique) -> Biclique:
        sides = [tuple(self._resized(units) for units in groups) for groups in routing.sides]
        changed = replace(routing, sides=(sides[0], sides[1]))
        if isinstance(changed.by, Keys) and self.draw.random() < 0.5:
            changed = changed.with_hot({*changed.by.hot, self.draw.randrange(3)})
        if isinstance(changed.by, Cells) and self.draw.random() < 0.5:
            edges = [tuple(sorted(self.draw.choices(EDGES, k=len(groups) - 1))) for groups in changed.sides]
            changed = replace(changed, by=replace(changed.by, edges=(edges[0], edges[1])))
        return changed

    def _resized(self, units: tuple[int, ...]) -> tuple[int, ...]:
        chance = self.draw.random()
        if chance < 0.3 and len(units) > 1:
            return tuple(self.draw.sample(units, len(units) - 1))
        if chance < 0.6 and len(units) < 4:
            self.fresh += 1
            return (*units, self.fresh - 1)
        return units

    def _deal_grids(self) -> list[dict[str, Any]]:
        out = []
        for number, grid in self.grids.items():
            made = replace(grid, shares=tuple(self.draw.randint(1, 4) for _ in grid.shares))
            if made == grid:
                made = replace(grid, shares=(*grid.shares[:-1], grid.shares[-1] % 4 + 1))
            if self.draw.random() < 0.5 or not self.dealt:
                hot = tuple(HotKey.from_json(one) for one in self.hot if one["stage"] == number)
                out.append(write_grid(number, Resized(*vars_of(made), was=grid.shares, hot=hot)))
                self.grids[number], self.dealt = made, self.dealt + 1
            else:
                out.append(write_grid(number, grid))
        return out

    def _balance(self, routing: list[dict[str, Any]]) -> None:
        kept, balance.find_wanted = balance.find_wanted, self._draw_hot
        try:
            made = Balance(resize_grids(self.plan, routing), 5)
            self.balanced = made.settle(self.hot, self.balanced.memory, self.units.reports, self.units.maxima)
        finally:
            balance.find_wanted = kept
        self.most_hot = max(self.most_hot, len(self.balanced.hot))

    def _draw_hot(self, counts: Any, share: int, cores: int, known: Mapping[int, HotKey]) -> dict[int, Wanted]:
        out = {}
        for key in sorted({*known, *map(int, counts.keys)}):
            sides = [n for n, rows in enumerate(counts.keys.get(str(key)) or ()) if rows]
            if share > 1 and self.draw.random() < 0.5 and (key in known or sides):
                anchor = known[key].anchor if key in known else self.draw.choice(sides)
                others = [c for c in range(share) if c != key % share]
                out[key] = Wanted(anchor, (key % share, *self.draw.sample(others, self.draw.randint(1, len(others)))))
        return out


def vars_of(grid: Hypercube) -> tuple[Any, Any, Any]:
    return grid.dimensions, grid.shares, grid.classes_of


def check(case: Case, batch_rows: int, routing: str, seed: int) -> ElasticRun:
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
    return run


@given(
    st.data(), cases(aliases=2, null_ts=True), BATCHES,
    st.sampled_from(("random", "contrand(2, 1)", "range", "hash", "matrix", "auto")), st.integers(0, 2**32),
)  # fmt: skip
def test_scaling_changes_nothing(data: Any, case: Case, batch_rows: int, routing: str, seed: int) -> None:
    check(data.draw(with_lateness(case)), batch_rows, routing, seed)


@given(
    st.data(), cases(null_ts=True), BATCHES, st.sampled_from(("pipeline", "hypercube", "random", "auto")),
    st.integers(0, 2**32),
)  # fmt: skip
def test_scaling_pipelines_and_hypercubes_changes_nothing(
    data: Any, case: Case, batch_rows: int, routing: str, seed: int
) -> None:
    check(data.draw(with_lateness(case)), batch_rows, routing, seed)


SHAPES = {
    "pair": (("a", "b"), (equals("a", "b", "k"),)),
    "three": (("a", "b", "c"), (equals("a", "b", "k"), equals("b", "c", "k"))),
    "grid": (("a", "b", "c"), (equals("a", "b", "k"), equals("b", "c", "n"))),
    "pipeline": (("a", "b", "c"), (equals("a", "b", "k"), op("<", Col("b", "v"), Col("c", "v")))),
}


@given(st.integers(0, 2**32), st.sampled_from((1, 3, 5)), st.sampled_from(sorted(SHAPES)))
def test_grids_are_dealt_anew_while_keys_are_hot(seed: int, batch_rows: int, shape: str) -> None:
    draw, (names, predicates) = random.Random(seed), SHAPES[shape]
    case = Case(
        aliases=tuple((name, f"s{n}") for n, name in enumerate(names)),
        predicates=predicates,
        windows=(All("WINDOW", draw.choice((2, 4)) * SECOND),),
        select=tuple(Col(name, "id") for name in names),
        data=tuple((f"s{n}", skewed(draw, 30 if shape == "pair" else 16)) for n in range(len(names))),
    )
    run = check(case, batch_rows, "auto", seed)
    assert run.dealt
    assert run.most_hot or batch_rows > 1
