"""`scaling=` from what batches measure to the routing of the next one: manifests and decisions are those of `start()`, the units run in process."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.dataflow.contract import stage_of
from watersmeet.errors import OptionError
from watersmeet.plan.options import Options
from watersmeet.query.scaling import Scaling
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.rounds.batch import Account
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.sources import source_of
from watersmeet.runtime.spark.allocation import Executors
from watersmeet.runtime.units import enter
from watersmeet.sql.parse import parse
from watersmeet.storage.manifest import BatchManifest, Identity, Intent, Manifest

RATES = (10, 120, 120, 120, 10, 10, 10, 10)


class ScalingRun(LocalRun):
    """A local run under the decisions of `start(scaling=)`; every batch goes through JSON, as a checkpoint would have it."""

    def __init__(
        self, text: str, tables: Mapping[str, pa.Table], options: Options, scaling: Scaling, cores: int
    ) -> None:
        given = {name: source_of(name, table) for name, table in tables.items()}
        join = parse(text, {name: spec for name, (_, spec) in given.items()})
        super().__init__(join, {name: table for name, (table, _) in given.items()}, options, cores=8)
        self.asked: list[int] = []
        self.decider = Decider(self.plan, scaling, cores=cores, executors=Executors(self.asked.append, 2))
        self.manifest = BatchManifest.fresh(Identity.of(self.plan), "query")
        self.said: list[tuple[int, str]] = []
        self.spread: list[int] = []
        self.decider.resume(self.manifest)

    def push(self, wires: Mapping[str, pa.Table], **how: Any) -> list[pa.Table]:
        before = BatchManifest.parse(self.manifest.to_json(), "a manifest")
        decided = {decision.name: decision.next(before) for decision in self.decider.taken}
        intent = Intent(before.batch + 1, "query", before.fingerprint, before.batch, {}, **decided)
        flow = self.flows.under(json.loads(json.dumps(decided)))
        seen, messages = enter(flow, wires, self.units.batch)
        out = self.units.play(flow, messages, seen)
        after = BatchManifest.parse(self.manifest.to_json(), "a manifest")
        after.batch, after.maxima = before.batch + 1, dict(self.units.maxima)
        for unit, state in self.units.states.items():
            after.put(unit, state.to_json())
        account = Account(reports=dict(self.units.reports))
        for decision in self.decider.taken:
            self.said += [(after.batch, word) for word in decision.settle(before, after, intent, account)]
        identity = Identity.of(self.plan)
        self.units.states = {u: Manifest.from_json(str(after.state_of(u)), identity) for u in after.units}
        self.manifest = after
        self.decider.after_commit(after)
        self.spread.append(len(after.spread.get("next", ())))
        return out


def tables_of(streams: str, rates: tuple[int, ...] = RATES, hot: float = 0.0) -> dict[str, pa.Table]:
    """Five seconds of event time in each of as many batches."""
    out = {}
    for seed, name in enumerate(streams):
        draw = np.random.default_rng(seed)
        ts = np.concatenate([5 * n + np.sort(draw.random(rows) * 5) for n, rows in enumerate(rates)])
        keys = np.where(draw.random(len(ts)) < hot, 7, draw.integers(0, 40, len(ts)))
        times = pa.array((ts * 1e6).astype(np.int64), pa.timestamp("us"))
        out[name] = pa.table({"k": keys, "v": np.arange(len(ts)), "ts": times})
    return out


def run(text: str, scaling: Scaling, options: Options, *, cores: int = 0, hot: float = 0.0) -> ScalingRun:
    """A run in batches of five seconds, its results equal to those of one unit."""
    tables = tables_of("stu" if "u c" in text else "st", hot=hot)
    made = ScalingRun(text, tables, options, scaling, cores)
    found = made.run(1000, 5_000_000)
    assert bag(found) == bag(wm.local.run(text, tables))
    assert found.num_rows > 50
    return made


def bag(table: pa.Table) -> Counter[Any]:
    return Counter(zip(*(column.to_pylist() for column in table.columns), strict=True))


def sizes(made: ScalingRun, stage: int = 0) -> int:
    return len({unit for unit in made.manifest.units if stage_of(unit) == stage})


def test_a_join_by_key_grows_and_shrinks() -> None:
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 3 SECONDS"
    made = run(text, Scaling("3 KB", confirm=2), Options(units=2))
    grown = [n for n, word in made.said if "all sides: 2 -> " in word]
    assert grown
    assert grown[0] <= 3
    assert any(n >= 5 and "units" in word for n, word in made.said), made.said
    assert sizes(made) <= 2
    assert made.asked[0] == 1
    assert max(made.asked) > 1
    assert made.asked[-1] == 1


def test_a_hypercube_of_three_streams_grows() -> None:
    text = "SELECT a.v AS x, b.v AS y, c.v AS z FROM s a, t b, u c WHERE a.k = b.k AND b.v = c.v WINDOW = 3 SECONDS"
    made = run(text, Scaling("3 KB", confirm=2), Options(units=2, routing="hypercube"))
    assert any("all sides" in word for _, word in made.said)


def test_every_join_of_a_pipeline_scales_by_itself() -> None:
    text = "SELECT a.v AS x, b.v AS y, c.v AS z FROM s a, t b, u c WHERE a.k = b.k AND abs(b.v - c.v) <= 2 WINDOW = 2 SECONDS"
    made = run(text, Scaling("3 KB", confirm=2), Options(units=2, routing="pipeline", order=("a", "b", "c")))
    assert any(word.startswith("all sides: 2 -> ") for _, word in made.said), "the grid grew"
    assert any(word.startswith("join 2, side ") for _, word in made.said), "so did the biclique"


def test_without_a_window_bicliques_hand_over_and_grids_are_dealt() -> None:
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE {}"
    by_key = run(text.format("a.k = b.k"), Scaling("5 KB", confirm=1), Options(units=2))
    assert sizes(by_key) > 2
    rows = [sum(Manifest.parse(by_key.manifest.state_of(u) or "", "").rows().values()) for u in by_key.manifest.units]
    assert max(rows) < 3 * sum(rows) / len(rows), "new units have their share of what is old"


def test_keys_are_spread_while_the_grid_grows() -> None:
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 3 SECONDS"
    made = run(text, Scaling("3 KB", confirm=2), Options(units=4), cores=8, hot=0.6)
    assert any("all sides" in word for _, word in made.said)
    assert max(made.spread) > 0


def test_what_was_scaled_stays_without_scaling() -> None:
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k"
    made = run(text, Scaling("5 KB", confirm=1), Options(units=2))
    kept = Decider(made.plan)
    kept.resume(made.manifest)
    [routing] = [d for d in kept.taken if d.name == "routing"]
    assert routing.next(made.manifest) == made.manifest.routing
    assert any("instead of 2" in line for line in kept.routing.explain(made.manifest))
    assert asdict(made.manifest)["routing"][0]["shares"][0] > 2


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("SELECT a.v AS x FROM s a LEFT JOIN t b ON a.k = b.k WINDOW (a, b) = 3 SECONDS", "is for inner joins"),
        ("SELECT a.v AS x FROM s a [ROWS 3], t b WHERE a.k = b.k", "ROWS windows do not go together"),
    ],
)
def test_what_cannot_be_scaled_is_refused(text: str, why: str) -> None:
    with pytest.raises(OptionError, match=why):
        ScalingRun(text, tables_of("st", (3,)), Options(units=2), Scaling("1 MB"), 0)
