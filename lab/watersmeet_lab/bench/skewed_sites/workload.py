"""Streams at sites, most of whose tuples have one key, and what a plan ships of them.

Invariant: the same seed has the same tuples; all plans are counted over the same batches.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property

import duckdb
import numpy as np
import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.plan.options import Options
from watersmeet.query.sites import Sites
from watersmeet.query.stream import StreamSpec
from watersmeet.runtime.across import AcrossSites
from watersmeet.runtime.local import LocalRun
from watersmeet.sites.letter import Letter
from watersmeet.sites.planning.model import LinearPlan
from watersmeet.sites.planning.trees import TreePlan
from watersmeet.sql.parse import parse
from watersmeet_lab.bench.data import START_US

LATENCY_S, BYTES_PER_S = 0.025, 128_000.0
"""The line of the paper's experiments."""
BATCHES, WARM, COUNTED = 64, 4, 10
"""Batches of a run; of a single plan those that are played before counting, and those that are counted."""

Pair = tuple[str, str]


@dataclass(frozen=True)
class Workload:
    """Streams of one seed."""

    seed: int
    streams: int
    sites: int
    is_rare: bool = False
    """Whether the hot key of a stream comes now and then in others, where it comes at all; else in every second."""

    @cached_property
    def where(self) -> dict[str, str]:
        """By alias."""
        return {alias: f"site{n % self.sites}" for n, alias in enumerate("abc"[: self.streams])}

    @cached_property
    def window_s(self) -> float:
        return float(self._chance(0).choice([0.5, 1.0, 2.0]))

    @property
    def text(self) -> str:
        first, *others = self.where
        columns = ", ".join(f"{a}.id AS {a}id, {a}.note AS {a}note" for a in self.where)
        equal = " AND ".join(f"{first}.k = {o}.k" for o in others)
        return f"SELECT {columns} FROM {', '.join(self.where)} WHERE {equal} WINDOW = {self.window_s:g} SECONDS"

    @cached_property
    def tables(self) -> dict[str, pa.Table]:
        """Of at least one stream most tuples have one key; three streams with the same hot key would have results without end."""
        chance = self._chance(1)
        values = int(chance.choice([200, 1000]))
        hot = set(chance.choice(list(self.where), chance.integers(1, 3), replace=False).tolist())
        rates, widths = ([30, 60, 120], [60, 200]) if len(hot) > 1 else ([100, 300, 900], [60, 200, 800])
        drawn = {alias: (int(chance.choice(rates)), int(chance.choice(widths))) for alias in self.where}
        return {alias: self._table(chance, values, *drawn[alias], alias in hot) for alias in self.where}

    def _table(self, chance: np.random.Generator, values: int, rate: int, width: int, is_hot: bool) -> pa.Table:
        own = int(values * chance.choice([0.3, 1.0, 3.0]))
        offset = int(values * chance.choice([0.0, 0.2, 0.4]))
        rows = rate * BATCHES
        key = chance.integers(offset, offset + max(own, 1), rows)
        share = chance.uniform(0.6, 0.9)
        if is_hot:
            key = np.where(chance.random(rows) < share, values // 2, key)
        else:
            # Where the hot key of another stream comes rarely, what is counted of it in a few batches is chance, for `auto` and for the best plan alike.
            key = np.where(key == values // 2, key + 1, key)
            key = np.where(
                chance.random(rows) < chance.choice([0.0, 0.004 if self.is_rare else 0.03]), values // 2, key
            )
        ts = np.sort(chance.integers(0, BATCHES * 1_000_000, rows))
        notes = [chance.bytes(width // 2).hex() for _ in range(rows)]
        stamps = pa.array(START_US + ts, pa.timestamp("us", tz="UTC"))
        return pa.table({"id": np.arange(rows), "k": key, "note": notes, "ts": stamps})

    def _chance(self, n: int) -> np.random.Generator:
        return np.random.default_rng([self.seed, self.streams, self.sites, n])

    @cached_property
    def run(self) -> LocalRun:
        """The query, under `auto`."""
        columns = {"id": "bigint", "k": "bigint", "note": "string", "ts": "timestamp"}
        specs = {a: StreamSpec(a, columns, "ts", 0) for a in self.where}
        sites = Sites(self.where, latency=f"{LATENCY_S * 1e3:g} ms", bandwidth=BYTES_PER_S)
        return LocalRun(parse(self.text, specs), self.tables, Options(units=1, sites=sites))

    def plan(self, given: LinearPlan | TreePlan | None) -> Plan:
        """The query under a plan that stays; None: under `auto`."""
        plan = self.run.plan
        assert plan.sites is not None
        return plan if given is None else replace(plan, sites=replace(plan.sites, plan=given, search=None))

    def count_results(self) -> int:
        """The number of results, by DuckDB."""
        first, *others = self.where
        pairs = [(x, y) for n, x in enumerate(self.where) for y in list(self.where)[n + 1 :]]
        near = " AND ".join(f"abs(epoch_us({x}.ts) - epoch_us({y}.ts)) <= {int(self.window_s * 1e6)}" for x, y in pairs)
        equal = " AND ".join(f"{first}.k = {o}.k" for o in others)
        with duckdb.connect() as connection:
            for alias, table in self.tables.items():
                connection.register(alias, table)
            found = connection.execute(
                f"SELECT count(*) FROM {', '.join(self.where)} WHERE {equal} AND {near}"
            ).fetchone()
        assert found is not None
        return int(found[0])


@dataclass
class Shipped:
    """What letters have carried in the counted batches, per second."""

    letters: dict[Pair, int] = field(default_factory=dict)
    sizes: dict[Pair, int] = field(default_factory=dict)
    kinds: dict[tuple[str, str, str], int] = field(default_factory=dict)
    batches: int = 0

    @property
    def seconds(self) -> float:
        """Of line per second of the streams."""
        return (LATENCY_S * sum(self.letters.values()) + sum(self.sizes.values()) / BYTES_PER_S) / self.batches

    @property
    def bytes_per_s(self) -> float:
        return sum(self.sizes.values()) / self.batches

    def add(self, letter: Letter) -> None:
        pair = letter.sender, letter.to
        self.letters[pair] = self.letters.get(pair, 0) + 1
        self.sizes[pair] = self.sizes.get(pair, 0) + len(letter.to_bytes())
        for kind, size in letter.sizes.items():
            key = *pair, kind.partition("/")[2]
            self.kinds[key] = self.kinds.get(key, 0) + size


@dataclass
class Played:
    """A run: what was shipped when it had settled, its results, and the plans."""

    shipped: Shipped
    results: int
    plan: str
    changes: list[str]


def play(workload: Workload, given: LinearPlan | TreePlan | None, begin: int = 0, *, finish: bool = False) -> Played:
    """Batches from `begin` on; the last ones are counted."""
    run, plan = workload.run, workload.plan(given)
    across, shipped, results = AcrossSites(plan, exact=True), Shipped(batches=COUNTED), 0
    for batch in range(begin, BATCHES):
        come = {
            name: max((len(w) for (_, to), w in across.lines.items() if to == name), default=0) for name in across.sites
        }
        for name, site in across.sites.items():
            aliases = [plan.aliases[n] for n in site.station.homes]
            wires = {a: _cut(run.wires[a], workload.tables[a], batch) for a in aliases}
            before = {pair: len(waiting) for pair, waiting in across.lines.items()}
            results += sum(t.num_rows for t in across.play(name, wires, most=come[name]))
            for (sender, receiver), waiting in across.lines.items():
                if sender == name and batch >= BATCHES - COUNTED:
                    for letter in waiting[before.get((sender, receiver), 0) :]:
                        shipped.add(letter)
    if finish:
        results += _finish(across)
    decider = across.sites[plan.site_names[0]].state
    now = plan.at(decider.epochs[-1].sequences if decider.epochs else {}).sites
    return Played(shipped, results, str(now and now.plan), list(decider.choice.changes))


def _finish(across: AcrossSites) -> int:
    found, quiet = 0, 0
    while quiet < 2:
        quiet = quiet + 1 if across.is_quiet else 0
        for name in across.sites:
            found += sum(t.num_rows for t in across.play(name, {}, ended=True))
    return found


def _cut(wire: pa.Table, table: pa.Table, batch: int) -> pa.Table:
    """A second of a stream."""
    ts = table.column("ts").cast(pa.int64()).to_numpy() - START_US
    first, end = np.searchsorted(ts, [batch * 1_000_000, (batch + 1) * 1_000_000])
    return wire.slice(int(first), int(end - first))
