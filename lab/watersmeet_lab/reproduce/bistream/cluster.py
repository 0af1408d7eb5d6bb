"""A model's units in this process: everything that arrives, is stored, probed and produced is counted, per unit and batch.

    streams -> routed by the plan -> one inbox per unit -> a turn of the join, timed -> results, stored segments

Units run one after the other, and a unit's seconds are CPU seconds: those of a unit with a core of its own, whatever else
the machine does. There is no network and no JVM: shipped bytes are those of the Arrow tables that the router hands to units.

Invariant: counts depend on the feed, the model and the number of batches alone; only seconds differ between two runs.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.columns.spark_types import spark_name
from watersmeet.dataflow.clock import Seen
from watersmeet.dataflow.contract import PROBE, Dataflow, Inbox, Message, Turn, put
from watersmeet.operators.assemble import dataflow_of
from watersmeet.plan.model import TIME, Plan
from watersmeet.plan.options import Options
from watersmeet.plan.source_sql import PASS
from watersmeet.query.stream import StreamSpec
from watersmeet.routing.epochs import Epochs
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.units import enter
from watersmeet.sql.parse import parse
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.stores import MemoryStore
from watersmeet_lab.reproduce.bistream.models import Model
from watersmeet_lab.reproduce.bistream.queries import START_US, Feed


@dataclass
class Batch:
    """What one batch did; arrays have an entry per unit."""

    volume: int
    """Input tuples so far."""
    route_s: float
    service_s: np.ndarray
    entered: np.ndarray
    """Rows that the router sent to be stored."""
    shipped_rows: np.ndarray
    shipped_bytes: np.ndarray
    stored_rows: np.ndarray
    stored_bytes: np.ndarray
    segments: np.ndarray
    probes: np.ndarray
    candidates: np.ndarray
    results: np.ndarray


@dataclass
class Outcome:
    """One run of one model over one feed."""

    feed: Feed
    model: Model
    batches: list[Batch] = field(default_factory=list)
    tables: list[tuple[int, int, pa.Table]] = field(default_factory=list)
    """(batch, unit, results), with the columns of the query's SELECT; local views if the feed is grouped."""
    kept: list[dict[str, int]] = field(default_factory=list)
    """For every unit the rows of each alias that it stores at the end."""

    def over_time(self, what: str) -> np.ndarray:
        """A field of all batches: batches x units."""
        return np.array([getattr(b, what) for b in self.batches])

    def total(self, what: str) -> float:
        """A flow, summed over batches and units."""
        return float(self.over_time(what).sum())

    def per_unit(self, what: str) -> np.ndarray:
        """A flow, summed over batches."""
        return np.asarray(self.over_time(what).sum(axis=0))

    def last(self, what: str) -> float:
        """A level at the end, summed over units."""
        return float(getattr(self.batches[-1], what).sum())

    @property
    def results(self) -> pa.Table:
        return pa.concat_tables([t for _, _, t in self.tables]) if self.tables else pa.table({})


class Cluster:
    """The units of a model, and a router in front of them."""

    def __init__(self, feed: Feed, model: Model) -> None:
        self.feed, self.model = feed, model
        tables = dict(zip(feed.query.files, feed.tables, strict=True))
        schemas = {name: {f.name: spark_name(f.type) for f in t.schema} for name, t in tables.items()}
        join = parse(feed.text, {name: StreamSpec(name, schema, "ts") for name, schema in schemas.items()})
        run = LocalRun(join, tables, Options(units=model.units, routing=model.routing))
        self.plan: Plan = run.plan
        self.wires = [_select_rows(run.wires[alias]) for alias in feed.query.aliases]
        self.times = [integers(w.column(TIME).combine_chunks()) for w in self.wires]
        self.manifests: list[Manifest] = []
        self.store, self.maxima, self.volume = MemoryStore(), dict[str, int](), 0
        self.grow(self.plan.units)

    @property
    def units(self) -> range:
        return range(len(self.manifests))

    def grow(self, units: int) -> None:
        """Have at least so many units; new ones are empty."""
        self.manifests += [Manifest.fresh(Identity.of(self.plan)) for _ in range(len(self.manifests), units)]

    @property
    def tuple_bytes(self) -> list[float]:
        """Bytes of a tuple of each stream on the wire."""
        return [w.nbytes / max(w.num_rows, 1) for w in self.wires]

    def run(self, batches: int) -> Outcome:
        """The whole feed in equal slices of time."""
        outcome = Outcome(self.feed, self.model)
        for number, slices in enumerate(self.slices(batches)):
            batch, tables = self.step(slices)
            outcome.batches.append(batch)
            outcome.tables.extend((number, unit, self._pick_columns(t)) for unit, t in tables)
        outcome.kept = [m.rows() for m in self.manifests]
        return outcome

    def slices(self, batches: int) -> Iterator[list[pa.Table]]:
        """Both streams, cut into equal slices of time."""
        edges = START_US + np.linspace(0, self.feed.seconds * 1e6, batches + 1).astype(np.int64)
        edges[-1] += 1
        cuts = [np.searchsorted(t, edges) for t in self.times]
        for n in range(batches):
            yield [w.slice(c[n], c[n + 1] - c[n]) for w, c in zip(self.wires, cuts, strict=True)]

    def enter(self, slices: Sequence[pa.Table], routing: Epochs | None = None) -> tuple[Dataflow, Seen, list[Message]]:
        """What the router makes of rows of both streams."""
        flow = dataflow_of(self.plan, keeps=False, routing={} if routing is None else {0: routing})
        return flow, *enter(flow, dict(zip(self.feed.query.aliases, slices, strict=True)))

    def step(
        self, slices: Sequence[pa.Table], routing: Epochs | None = None
    ) -> tuple[Batch, list[tuple[int, pa.Table]]]:
        """One batch through the router and all units."""
        entered, rows, sizes = np.zeros((3, len(self.units)), np.int64)
        inboxes: dict[int, Inbox] = {unit: {} for unit in self.units}
        begun = time.process_time()
        flow, seen, messages = self.enter(slices, routing)
        for message in messages:
            put(inboxes, message)
            entered[message.to] += 0 if message.kind.startswith(PROBE) else message.table.num_rows
            rows[message.to] += message.table.num_rows
            sizes[message.to] += message.table.nbytes
        routed = time.process_time() - begun
        self.volume += sum(t.num_rows for t in slices)
        clock = flow.clock(self.maxima, seen.highest)
        self.maxima = clock.reached
        turns = [Turn(u, inboxes[u], self.manifests[u], self.store, clock) for u in self.units]
        return self._join(flow, turns, routed, (entered, rows, sizes))

    def _join(
        self, flow: Dataflow, turns: Sequence[Turn], routed: float, sent: tuple[np.ndarray, np.ndarray, np.ndarray]
    ) -> tuple[Batch, list[tuple[int, pa.Table]]]:
        service, results = np.zeros(len(self.units)), np.zeros(len(self.units), np.int64)
        probes, candidates = np.zeros(len(self.units)), np.zeros(len(self.units))
        out = []
        for u, turn in enumerate(turns):
            before, begun = _fanout(turn.state), time.process_time()
            for item in flow.operator(u).step(turn):
                if isinstance(item, pa.Table):
                    out.append((u, item))
                    results[u] += item.num_rows
            service[u] = time.process_time() - begun
            probes[u], candidates[u] = np.maximum(_fanout(turn.state) - before / 2, 0)
        levels = [np.array(level) for level in zip(*map(_levels, self.manifests), strict=True)]
        stored = dict(zip(("stored_rows", "stored_bytes", "segments"), levels, strict=True))
        done = Batch(
            self.volume, routed, service, *sent, **stored, probes=probes, candidates=candidates, results=results
        )
        return done, out

    def _pick_columns(self, table: pa.Table) -> pa.Table:
        if self.feed.grouped:
            return table
        at = {f"{r.alias}.{r.column}": n for n, r in enumerate(self.plan.output)}
        columns = [table.column(at[c]) for c in self.feed.query.select]
        return pa.Table.from_arrays(columns, names=list(self.feed.query.names))


def _select_rows(wire: pa.Table) -> pa.Table:
    """The rows that the alias' selections let through."""
    return wire.filter(wire.column(PASS)).drop_columns([PASS]) if PASS in wire.column_names else wire


def _fanout(manifest: Manifest) -> np.ndarray:
    """Probes and candidates that a unit remembers: those of its last batch, and half of what it remembered before."""
    return np.array([sum(v[i] for v in manifest.fanout.values()) for i in (0, 1)])


def _levels(manifest: Manifest) -> tuple[int, int, int]:
    """Rows, bytes and segments that a unit stores."""
    return sum(manifest.rows().values()), manifest.bytes(), sum(len(s) for s in manifest.segments.values())
