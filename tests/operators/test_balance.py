"""Hot keys are found, spread, and cool down, without being asked for; what is remembered of them does not grow."""

from __future__ import annotations

import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.compute
import pytest

from watersmeet.dataflow.report import Report
from watersmeet.operators import join
from watersmeet.operators.balance import Balance, Balanced, BicliqueBalance
from watersmeet.plan.options import Options
from watersmeet.routing.balance import MOST_COUNTED, KeyCounts, find_wanted
from watersmeet.routing.epochs import Epochs
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of
from watersmeet.sql.parse import parse

PAIR = "SELECT a.id AS x, b.id AS y FROM a, b WHERE a.k = b.k WINDOW = {} MILLISECONDS"
THREE = "SELECT a.id AS x, b.id AS y, c.id AS z FROM a, b, c WHERE a.k = b.k AND b.k = c.k WINDOW = {} MILLISECONDS"
GRID = "SELECT a.id AS x, b.id AS y, c.id AS z FROM a, b, c WHERE a.k = b.k AND b.j = c.j WINDOW = {} MILLISECONDS"


def rows(number: int, share: float, seed: int, hot: int = 7, begin: int = 0) -> pa.Table:
    """Tuples a millisecond apart, of which a share has the hot key."""
    draw = np.random.default_rng(seed)
    keys = np.where(draw.random(number) < share, hot, draw.integers(100, 10_000, number))
    id = begin + np.arange(number)
    ts = pa.array(id * 1000, pa.timestamp("us"))
    return pa.table({"id": id, "k": keys, "j": draw.integers(0, 5000, number), "ts": ts})


class Watched(LocalRun):
    """A run that remembers how busy the busiest unit was."""

    def __init__(self, text: str, tables: dict[str, pa.Table], **options: object) -> None:
        given = {name: source_of(name, table) for name, table in tables.items()}
        join = parse(text, {name: spec for name, (_, spec) in given.items()})
        own = {name: table for name, (table, _) in given.items()}
        super().__init__(join, own, Options(**options), cores=8)  # type: ignore[arg-type]
        self.busiest: list[float] = []
        self.spread: list[int] = []
        self.bytes: list[int] = []

    def push(self, *given: object, **how: object) -> list[pa.Table]:
        out = super().push(*given, **how)  # type: ignore[arg-type]
        loads = [sum(report.rows_in.values()) for report in self.units.reports.values()]
        self.busiest.append(max(loads) * self.plan.units / max(sum(loads), 1))
        self.spread.append(max((len(hot["spread"]) for hot in self.balanced.hot), default=1))
        self.bytes.append(len(json.dumps(self.balanced.hot)) + len(json.dumps(self.balanced.memory)))
        return out


@pytest.mark.parametrize(("text", "names"), [(PAIR, "ab"), (THREE, "abc")])
def test_half_of_the_tuples_on_one_key(text, names):
    tables = {name: rows(6000, 0.5 if name == "a" else 0.1, seed) for seed, name in enumerate(names)}
    auto, plain = (Watched(text.format(40), tables, units=8, routing=r) for r in ("auto", "hash"))
    found, want = auto.run(500), plain.run(500)
    assert sorted(zip(*found.to_pydict().values(), strict=True)) == sorted(zip(*want.to_pydict().values(), strict=True))
    assert min(plain.busiest[5:]) > 2
    assert max(auto.busiest[5:]) <= 1.3
    assert plain.balanced.hot == []


def test_small_batches_count_too():
    tables = {name: rows(400, 0.5, seed) for seed, name in enumerate("ab")}
    run = Watched(PAIR.format(20), tables, units=8)
    run.run(20)
    assert run.spread[15] > 1


def test_in_a_dimension_of_a_hypercube():
    tables = {name: rows(3000, 0.5 if name != "c" else 0.0, seed) for seed, name in enumerate("abc")}
    auto, plain = (Watched(GRID.format(20), tables, units=8, routing=r) for r in ("auto", "hypercube"))
    assert auto.run(300).num_rows == plain.run(300).num_rows
    assert max(auto.spread) > 1
    assert max(auto.busiest[5:]) < max(plain.busiest[5:])


def test_a_key_cools_down_within_a_window():
    hot, cold = (
        {n: rows(3000, share, seed, begin=begin) for seed, n in enumerate("ab")}
        for share, begin in ((0.5, 0), (0, 3000))
    )
    tables = {name: pa.concat_tables([hot[name], cold[name]]) for name in "ab"}
    run = Watched(PAIR.format(1000), tables, units=8)
    run.run(250)
    assert run.spread[11] == 8
    assert run.spread[-1] == 1
    window = 1000 // 250
    assert run.spread[12 + window] == 1  # no tuple goes elsewhere
    assert run.balanced.hot == []  # and no copies


def test_a_uniform_workload_is_left_alone():
    run = Watched(PAIR.format(40), {name: rows(6000, 0.0, seed) for seed, name in enumerate("ab")}, units=8)
    run.run(500)
    assert set(run.spread) == {1}


def test_a_key_that_becomes_hot_after_a_calm_time_is_found_at_once(monkeypatch):
    looks, count = [], join.count_frequent
    monkeypatch.setattr(join, "count_frequent", lambda *given: looks.append(1) or count(*given))
    calm, hot = (
        {n: rows(number, share, seed, begin=begin) for seed, n in enumerate("ab")}
        for number, share, begin in ((20_000, 0.0, 0), (5_000, 0.5, 20_000))
    )
    run = Watched(PAIR.format(40), {name: pa.concat_tables([calm[name], hot[name]]) for name in "ab"}, units=4)
    run.run(1000)
    assert set(run.spread[:20]) == {1}
    assert run.spread[20] > 1
    assert max(run.busiest[22:]) <= 1.3
    assert len(looks) < 0.6 * 25 * 4 * 2, "units that find nothing look less often"


def test_keys_that_become_hot_in_turn_leave_nothing_behind():
    """1,500 batches, of which every ten have another key with most of the tuples."""
    plan = Watched(PAIR.format(300), {name: rows(10, 0.0, 1) for name in "ab"}, units=8).plan
    balance, now, sizes, most = Balance(plan, 8), Balanced([], {}, []), list[int](), 0
    for batch in range(1500):
        key = batch // 10
        reports = {unit: Report(rows_in={"a": 50, "b": 50}) for unit in range(8)}
        hot = reports[key % 8]
        hot.rows_in = {"a": 650, "b": 650}
        hot.frequent = {name: {"0": [[key, 600]]} for name in "ab"}
        now = balance.settle(now.hot, now.memory, reports, {"a": batch * 100_000, "b": batch * 100_000})
        most = max(most, len(now.hot))
        sizes.append(len(json.dumps(now.hot)) + len(json.dumps(now.memory)))
    assert 1 <= most <= 3
    assert max(sizes[100:]) <= 1.1 * max(sizes[:100]) < 5_000
    assert len(now.memory["0.0"]["keys"]) <= MOST_COUNTED


def test_a_forced_routing_is_not_changed():
    tables = {name: rows(2000, 0.5, seed) for seed, name in enumerate("ab")}
    run = Watched(PAIR.format(20), tables, units=8, routing="hash")
    run.run(200)
    assert run.balance is None


def test_copies_that_cost_more_than_they_save_are_not_made():
    """On two cores, tuples of a key that is hot on both sides are copied only where they find many partners."""
    share, rows_of_each = 8, [1000.0, 1000.0]
    fruitless, fruitful = (KeyCounts(rows_of_each, {"16": [500.0, 500.0]}, found) for found in (0.0, 100_000.0))
    assert len(find_wanted(fruitful, share, 2, {})[16].spread) == share
    assert 16 not in find_wanted(fruitless, share, 2, {})
    assert len(find_wanted(fruitless, share, share, {})[16].spread) == share


AGES = "SELECT a.id AS x, b.id AS y FROM a, b WHERE abs(a.age - b.age) <= {} WINDOW = 20 MILLISECONDS"


def ages(number: int, seed: int, distinct: int = 100) -> pa.Table:
    id = np.arange(number)
    age = np.random.default_rng(seed).integers(0, distinct, number)
    return pa.table({"id": id, "age": age, "ts": pa.array(id * 1000, pa.timestamp("us"))})


@pytest.mark.parametrize(("width", "distinct", "kind"), [(50, 100, "range"), (3, 2, "random")])
def test_ranges_follow_the_data(width, distinct, kind):
    tables = {name: ages(2400, seed, distinct) for seed, name in enumerate("ab")}
    auto, plain = (Watched(AGES.format(width), tables, units=8, routing=r) for r in ("auto", "range"))
    assert auto.run(400).num_rows == plain.run(400).num_rows
    assert max(auto.busiest[2:]) <= 1.3 < 2 < min(plain.busiest[2:])
    epochs = Epochs.from_json(auto.sided.routing)
    assert (epochs.current.kind, len(epochs.routings)) == (kind, 1)  # the first routing's tuples are dead


def test_even_ranges_are_left_alone():
    run = Watched(AGES.format(1), {name: ages(2400, seed, 10_000) for seed, name in enumerate("ab")}, units=8)
    run.run(400)
    assert run.sided.routing == []


LESS = "SELECT a.id AS x, b.id AS y FROM a, b WHERE {} WINDOW = 30 MILLISECONDS"


@pytest.mark.parametrize("condition", ["a.age < b.age - 90", "(a.age * b.age) % 7 = 1"])
def test_the_sides_of_a_biclique_follow_the_rates(condition):
    """Twenty tuples of a for one of b, then the other way round: the slow side has one unit of eight, and nothing is lost or doubled."""
    slow = ages(4000, 1)
    slow = slow.filter(pa.compute.equal(pa.compute.bit_wise_and(slow["id"], 15), 0))
    later = {name: _move(table, 4_000_000) for name, table in {"a": slow, "b": ages(4000, 3)}.items()}
    tables = {name: pa.concat_tables([t, later[name]]) for name, t in {"a": ages(4000, 2), "b": slow}.items()}
    auto, plain = (Watched(LESS.format(condition), tables, units=8, routing=r) for r in ("auto", "random"))
    for run in (auto, plain):
        run.sides = run.sides and BicliqueBalance(run.plan, 2)
    posted = {}
    for name, run in (("auto", auto), ("plain", plain)):
        found = [run.push(batch) for batch in run.reader.cut_by_time(run.wires, 500_000)] + [run.push({}, ended=True)]
        posted[name] = run.rows_of([t for batch in found for t in batch])
    got, want = (Counter(zip(*posted[name].to_pydict().values(), strict=True)) for name in ("auto", "plain"))
    assert got == want
    epochs = Epochs.from_json(auto.sided.routing)
    assert [len(members) for members in epochs.current.members] == [1, 7]
    assert epochs.current.units > 8, "numbers are not used again"
    assert not plain.sided.routing, "what was asked for stays"


def _move(table: pa.Table, us: int) -> pa.Table:
    moved = pa.compute.add(table["ts"].cast(pa.int64()), us).cast(pa.timestamp("us"))
    return table.set_column(table.column_names.index("ts"), "ts", moved)


def test_memory_counts_indexes():
    run = Watched(PAIR.format(400), {name: rows(3000, 0.0, seed) for seed, name in enumerate("ab")}, units=2)
    run.run(500)
    for report in run.units.reports.values():
        assert 1.5 * report.bytes < report.memory < 6 * report.bytes
