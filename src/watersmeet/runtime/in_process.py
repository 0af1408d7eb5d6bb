"""A query in this process: its units with their states, the turns of a batch, and the run over whole tables.

A batch of a run takes the next `batch_rows` rows of every stream, in the order of the tables. The end of the tables is a watermark of infinity.

Invariant: batch by batch the same as on Spark: the same operators, clocks, late rows and expiry.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from watersmeet.columns.arrow import from_bytes, shrink, to_bytes
from watersmeet.columns.retype import retype_table
from watersmeet.dataflow.clock import Clock, Seen
from watersmeet.dataflow.contract import (
    Dataflow,
    Flows,
    Inbox,
    Message,
    Origin,
    Report,
    Rounds,
    Turn,
    count_orders,
    first_unit,
    put,
)
from watersmeet.expressions.evaluator import evaluate, mask
from watersmeet.expressions.lookup import look_up_results, schemas_by_alias
from watersmeet.kernels.instants import LAST
from watersmeet.operators.assemble import PlanFlows, make_keepers
from watersmeet.operators.finish.aggregate import GroupUnits
from watersmeet.operators.finish.distinct import KEPT
from watersmeet.operators.finish.project import project_rows, select_columns
from watersmeet.operators.finish.views import compute_values, empty_view, merge_views
from watersmeet.operators.join import ToKeepers
from watersmeet.operators.nearest import WAITING
from watersmeet.plan.build import build
from watersmeet.plan.model import ROWS_ONLY
from watersmeet.plan.options import Options
from watersmeet.plan.types import refuse_mismatches
from watersmeet.query.join import Join
from watersmeet.runtime.arrow_types import DuckDBTypes, normal
from watersmeet.runtime.counts import Counts
from watersmeet.runtime.wires import WireReader, set_aside
from watersmeet.sites.adapt import Adapting, SiteMemory
from watersmeet.sites.flow import SiteFlows
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.segment import Segment
from watersmeet.storage.stores import MemoryStore

_TIME, _SITES = "time.json", "sites.json"
"""Names of files of a saved state, besides those of units and segments."""


class InProcess:
    """The units of one query."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.states: dict[int, Manifest] = {}
        self.store = MemoryStore()
        self.maxima: dict[str, int] = {}
        self.batch = 0
        self.reports: dict[int, Report] = {}
        """Of the latest batch, by unit."""
        self._aside: dict[str, int] = {}

    def copy(self) -> InProcess:
        """The same units, apart: what happens to one does not happen to the other."""
        out = InProcess(self.identity)
        out.states, out.store, out.maxima = deepcopy(self.states), self.store.copy(), dict(self.maxima)
        out.batch, out._aside = self.batch, dict(self._aside)
        return out

    def save(self) -> dict[str, bytes]:
        """The state as contents of files: of every unit its manifest, of every segment its rows, and how far time is."""
        time = {"maxima": self.maxima, "batch": self.batch, "aside": self._aside}
        out = {_TIME: json.dumps(time).encode()}
        out |= {f"{unit}.json": state.to_json().encode() for unit, state in self.states.items()}
        return out | {f"{id}.arrow": to_bytes(segment.table) for id, segment in self.store.segments.items()}

    @classmethod
    def load(cls, saved: Mapping[str, bytes], identity: Identity) -> InProcess:
        """The units of a saved state; an error if it is of another query."""
        out, time = cls(identity), json.loads(saved[_TIME])
        out.maxima, out.batch, out._aside = time["maxima"], time["batch"], time["aside"]
        for name, content in saved.items():
            stem, kind = name.split(".")
            if kind == "arrow":
                out.store.segments[stem] = Segment(stem, from_bytes(content).combine_chunks())
            elif stem.isdigit():
                out.states[int(stem)] = Manifest.from_json(content.decode(), identity)
        return out

    def play(
        self, flow: Dataflow, messages: Iterable[Message], seen: Seen, *, ended: bool = False, wake_all: bool = False
    ) -> list[pa.Table]:
        """A batch: its results. `ended`: no more will come."""
        self.reports, out = {}, list[pa.Table]()
        clock = Clock(flow.streams, self.maxima, seen.highest)
        clock = clock.end() if ended else clock

        def carry(number: int, sent: list[Message], awake: range) -> Iterator[Message]:
            inboxes: dict[int, Inbox] = {unit: {} for unit in awake}
            for message in sent:
                put(inboxes, message)
            peers = {unit: state.snapshot() for unit, state in self.states.items()}
            for unit, inbox in sorted(inboxes.items()):
                state = self.states.setdefault(unit, Manifest.fresh(self.identity))
                state.maxima = dict(self.maxima)
                turn = Turn(unit, inbox, state, self.store, clock, number, self.batch, peers)
                for item in flow.operator(unit).step(turn):
                    if isinstance(item, Message):
                        yield item
                    elif isinstance(item, pa.Table):
                        out.append(item)
                self.reports.setdefault(unit, Report()).include(turn.report)

        rounds: Rounds[Message] = Rounds(flow, wake_all=wake_all)
        rounds.post(messages)
        rounds.play(carry)
        self._settle(flow, clock, seen)
        return out

    def _settle(self, flow: Dataflow, clock: Clock, seen: Seen) -> None:
        """After a batch: time has moved, and what is dead is dropped, also where no unit has run."""
        self.maxima = clock.reached
        self.batch += 1
        self.count_late(seen.aside)
        cuts = flow.cuts(clock)
        for state in self.states.values():
            state.maxima = dict(self.maxima)
            for kind, cut in cuts.items():
                infos = state.segments.get(kind, [])
                for info in infos:
                    if info.max_ts < cut:
                        self.store.remove(info)
                state.segments[kind] = [i for i in infos if i.max_ts >= cut]
        self.store = self.store.copy(
            {i.id for s in self.states.values() for infos in s.segments.values() for i in infos}
        )

    def count_late(self, rows: Mapping[str, int]) -> None:
        """Count rows that no unit has seen."""
        for stream, more in rows.items():
            self._aside[stream] = self._aside.get(stream, 0) + more

    @property
    def late(self) -> dict[str, int]:
        """Late rows by stream since the beginning, those that were set aside where they entered among them."""
        out = dict(self._aside)
        for state in self.states.values():
            for stream, rows in state.late.items():
                out[stream] = out.get(stream, 0) + rows
        return out


def enter(flow: Dataflow, wires: Mapping[str, pa.Table], batch: int = 0) -> tuple[Seen, list[Message]]:
    """Wire rows by alias: what they bring, and their messages."""
    seen, messages, first = Seen(), list[Message](), 0
    for alias, wire in wires.items():
        if alias in flow.entries and wire.num_rows:
            brought, sent = flow.entries[alias].read(wire, Origin(batch, 0, first))
            seen.include(brought)
            messages += sent
            first += wire.num_rows
    return seen, messages


class LocalRun:
    """One run of one query; with `late`, what it loses is kept. `now_us` is the time of its batches, for streams with `max_ahead`."""

    def __init__(
        self,
        join: Join,
        tables: Mapping[str, pa.Table],
        options: Options,
        *,
        late: bool = False,
        now_us: int = LAST,
    ) -> None:
        refuse_mismatches(join)
        self.schemas = {name: table.schema for name, table in tables.items()}
        self.types = DuckDBTypes(schemas_by_alias(join, self.schemas))
        self.plan = build(join, self.types, options, "everything")
        conditions = (*join.filters, *self.plan.inside, *join.after)
        self.types.evaluate_nothing((*conditions, *(output.expr for output in join.select)))
        self.late = late
        self.reader = WireReader(self.plan, tables, late=late)
        self.wires = self.read(tables, now_us)
        self.flows: Flows = PlanFlows(self.plan) if self.plan.sites is None else SiteFlows(self.plan)
        self.units = InProcess(Identity.of(self.plan))
        self.batches = 0
        self.lost: list[pa.Table] = []
        """By batch the rows that were dropped, in the schema of `operators.late`; none without `late`."""
        self.retained = dict.fromkeys(self.plan.aliases, 0)
        """The most rows kept after any batch, by alias."""
        self._holders = {alias: self._find_holders(alias) for alias in self.plan.aliases}
        self.ran = Report()
        self.drivers: Counter[str] = Counter()
        """In which order drivers ran, and in how many turns of units."""
        self._kept = 0
        """The most rows that were kept apart after any batch."""
        self.sites = None if self.plan.sites is None else Adapting(self.plan)

    def run(self, batch_rows: int) -> pa.Table:
        """All batches, then the projection."""
        results = [t for batch in self._batches(batch_rows) for t in batch]
        counts = Counts(
            late={s: self.units.late.get(s, 0) for s in self.plan.join.streams},
            retained=self.retained,
            batches=self.batches,
            kernels=dict(self.ran.kernels),
            pruned=self.ran.pruned,
            drivers=dict(self.drivers.most_common()),
            shipped={} if self.sites is None else self.sites.shipped,
            changes=() if self.sites is None else tuple(self.sites.changes),
        )
        return self._finish(results, counts)

    def finish(self, results: list[pa.Table], simulated: dict[str, Any]) -> pa.Table:
        """What a simulation joined from these wires, with its counts; DISTINCT and GROUP BY see all results at once."""
        if self.plan.finish is not None:
            flow = Dataflow(self.plan.join.streams, tuple(make_keepers(self.plan)), {}, 1)
            messages = [m for m in ToKeepers(self.plan, 0)(iter(results)) if isinstance(m, Message)]
            results = self.units.play(flow, messages, Seen(), ended=True)
            self._count_kept()
        elif results:
            results = [pa.concat_tables(results)]
        own = {name: value for name, value in simulated.items() if name != "late"}
        return self._finish(results, Counts(late=simulated["late"], simulated=own))

    def _finish(self, results: list[pa.Table], counts: Counts) -> pa.Table:
        """All results as one table, with the counts; late rows are said, unless they are kept."""
        out = self._all_groups() if self._updates_groups else self.rows_of(results)
        if any(counts.late.values()) and not self.late:
            said = ", ".join(f"{n} of {s}" for s, n in counts.late.items() if n)
            warnings.warn(
                f"watersmeet dropped late rows: {said}; raise the streams' lateness to keep them",
                UserWarning,
                stacklevel=4,
            )
        return replace(counts, kept=self._kept).attach(out)

    def _batches(self, batch_rows: int) -> Iterator[list[pa.Table]]:
        reader = self.reader
        for begin in range(0, max(reader.count(a, wire) for a, wire in self.wires.items()), batch_rows):
            yield self.push({a: reader.slice(a, wire, begin, batch_rows) for a, wire in self.wires.items()})
        if self.plan.sequenced or self.plan.parts or self.plan.join.group_window is not None:
            yield self.push({}, ended=True)

    def save(self) -> dict[str, bytes]:
        """The state between two batches, as contents of files."""
        if self.sites is None:
            return self.units.save()
        decided = {"memory": asdict(self.sites.memory), "sequences": self.sites.sequences}
        return {**self.units.save(), _SITES: json.dumps(decided).encode()}

    def resume(self, saved: Mapping[str, bytes]) -> None:
        """Go on from a saved state; an error if it is of another query."""
        self.units = InProcess.load(saved, self.units.identity)
        if self.sites is not None:
            decided = json.loads(saved[_SITES])
            self.sites.memory, self.sites.sequences = SiteMemory.of(decided["memory"]), decided["sequences"]

    def read(self, tables: Mapping[str, pa.Table], now_us: int = LAST) -> dict[str, pa.Table]:
        """Rows by stream, which arrive when the clock shows `now_us`, as wire rows by alias."""
        return self.reader.read(tables, now_us)

    def rows_of(self, results: list[pa.Table]) -> pa.Table:
        """Results as rows of the query: combinations, distinct rows, or groups."""
        if self.plan.finish is None:
            found = [self._project(t) for t in (*results, self._empty())]
        elif self.plan.join.distinct:
            found = [self._rename(t) for t in (*results, project_rows(self.plan, self._empty()))]
        else:
            empty = compute_values(self.plan, empty_view(self.plan))
            found = [self._select_of_groups(t) for t in (*results, empty)]
        schema = shrink(found[-1]).schema
        return pa.concat_tables([retype_table(shrink(r), schema) for r in found])

    def push(
        self, wires: Mapping[str, pa.Table], *, ended: bool = False, reached: Mapping[str, int] | None = None
    ) -> list[pa.Table]:
        """One batch of wire rows, and what of it leaves; streams have `reached` these times besides."""
        flow = self.flows.under({} if self.sites is None else {"sites": self.sites.sequences})
        if self.late:
            wires, lost = set_aside(self.plan, flow.clock(self.units.maxima, {}), wires, self.units.batch)
            self.lost.append(lost)
        seen, messages = enter(flow, wires, self.units.batch)
        seen.include(Seen(dict(reached or {})))
        before = self.units.maxima
        out = self.units.play(flow, messages, seen, ended=ended, wake_all=True)
        self.batches += 1
        if self.sites is not None:
            self.sites.settle(self.units.reports, before, self.units.maxima)
        self._count()
        return out

    def _count(self) -> None:
        """Take a batch's reports into the counts."""
        reports = self.units.reports
        for report in reports.values():
            self.ran.include(report)
        self.drivers.update(count_orders(report.drivers for report in reports.values()))
        for alias, rows in self.stored.items():
            self.retained[alias] = max(self.retained[alias], rows)
        if self.plan.finish is not None:
            self._count_kept()

    @property
    def stored(self) -> dict[str, int]:
        """The rows in state, by alias, each counted once."""
        out = {}
        for alias, units in self._holders.items():
            held = [self.units.states[unit].rows() for unit in units if unit in self.units.states]
            out[alias] = sum(rows.get(alias, 0) + rows.get(WAITING + alias, 0) for rows in held)
        return out

    def _find_holders(self, alias: str) -> list[int]:
        """The units that hold each of an alias' tuples once."""
        stage, side = self.plan.entry(alias)
        entry = None if self.plan.sequenced else self.flows.under({}).entries.get(alias)
        first = first_unit(1 if entry is None else entry.stage)
        return [first + u for u in range(stage.units) if stage.routing.is_primary(side, u)]

    def _count_kept(self) -> None:
        if self.plan.join.distinct or self.plan.join.group_window is not None:
            self._kept = max(self._kept, sum(s.rows().get(KEPT, 0) for s in self.units.states.values()))

    @property
    def _updates_groups(self) -> bool:
        """Whether groups leave whenever they change."""
        return self.plan.join.grouping is not None and self.plan.join.group_window is None

    def _all_groups(self) -> pa.Table:
        """All groups with their values."""
        aggregate, states = GroupUnits(self.plan), self.units.states.values()
        views = [aggregate.groups(state, self.units.store) for state in states if KEPT in state.segments]
        return self._select_of_groups(
            compute_values(self.plan, merge_views(self.plan, views or [empty_view(self.plan)]))
        )

    def _select_of_groups(self, groups: pa.Table) -> pa.Table:
        """SELECT over groups and their values, of those that satisfy HAVING."""
        grouping = self.plan.join.grouping
        assert grouping is not None
        if grouping.having is not None:
            text = grouping.having.duckdb(lambda r: r.column)
            groups = groups.filter(pa.array(mask(groups, text, f"HAVING {grouping.having}", self.plan.timezone)))
        texts = [o.expr.duckdb(lambda r: r.column) for o in grouping.select]
        return self._rename(normal(evaluate(groups, texts, "SELECT", self.plan.timezone)))

    def _rename(self, table: pa.Table) -> pa.Table:
        return table.rename_columns([o.name for o in self.plan.join.results])

    def _empty(self) -> pa.Table:
        if not self.plan.output:
            return pa.schema([pa.field(ROWS_ONLY, pa.bool_())]).empty_table()
        types = [self.types.schemas[ref.alias].field(ref.column).type for ref in self.plan.output]
        return pa.schema([(f"o{n}", kind) for n, kind in enumerate(types)]).empty_table()

    def _project(self, table: pa.Table) -> pa.Table:
        """SELECT over combinations, with what tables say of them."""
        at = {ref: f"o{n}" for n, ref in enumerate(self.plan.output)}
        table, at = look_up_results(table, self.plan.join, self.reader.tables, at)
        columns = select_columns(self.plan, table, at, normal)
        return pa.Table.from_arrays(columns, names=[o.name for o in self.plan.join.select])
