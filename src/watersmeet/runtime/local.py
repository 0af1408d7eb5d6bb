"""The local runtime: the same plan and the same units, in process, no JVM.

A batch takes the next `batch_rows` rows of every stream, in the order of the tables. The end of the tables is a
watermark of infinity.

Invariant: results are those of the streaming runtimes on the same arrivals; nothing depends on `batch_rows` as long as
no tuple is late.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from watersmeet.errors import OptionError, StreamError
from watersmeet.plan.allowed import refuse_mismatches
from watersmeet.plan.build import Options, build
from watersmeet.plan.explain import Detail
from watersmeet.plan.explain import explain as explain_plan
from watersmeet.plan.model import InputPlan, Plan
from watersmeet.plan.options import changed
from watersmeet.plan.source_sql import condition, items
from watersmeet.query.join import Join
from watersmeet.query.session import UTC
from watersmeet.query.sites import Sites as AtSites
from watersmeet.query.stream import Stream, StreamSpec
from watersmeet.runtime.arrow_types import normal
from watersmeet.runtime.duckdb_types import DUCKDB, DuckDBTypes, session_in
from watersmeet.runtime.local_finish import SecondStage
from watersmeet.runtime.local_rounds import SiteRounds
from watersmeet.runtime.local_sites import AcrossSites, Sites
from watersmeet.runtime.local_sources import source_of
from watersmeet.runtime.network import Link, Network
from watersmeet.runtime.progress import orders_of
from watersmeet.runtime.simulated import Protocol, SimulatedRun
from watersmeet.runtime.subscriptions.local import LocalSubscriptions
from watersmeet.sql.parse import parse
from watersmeet.units.blocks import enlarge, shrink
from watersmeet.units.evaluator import evaluate
from watersmeet.units.join_unit import ROWS_ONLY, Inbox, JoinUnit, StepReport
from watersmeet.units.leave import leaving
from watersmeet.units.pack import CONTENT, PASS, Part, route, split, split_for_sequencer
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.sequencer import Sequencer
from watersmeet.units.state import Manifest

__all__ = ["Link", "LocalRun", "LocalSubscriptions", "Network", "Protocol", "Sites", "explain", "run", "subscriptions"]


def run(
    text: str,
    tables: Mapping[str, pa.Table | Stream],
    *,
    batch_rows: int = 10_000,
    network: Network | None = None,
    protocol: Protocol | None = None,
    sites: Mapping[str, str] | Sites | AtSites | None = None,
    timezone: str = UTC,
    **options: Any,
) -> pa.Table:
    """Run a query over Arrow tables.

    A plain table's time is its only timestamp column, or the one named ts, and its lateness is the disorder found in
    it; a `Stream` says both itself. The result's schema metadata holds counts under b"watersmeet" as JSON. With a
    `Network` there are no batches: tuples travel one by one, under a `Protocol`, and the counts are those of the traffic.
    With `sites` (a site for every alias) streams arrive far apart, and are joined by shipping keys first where that pays; if streams
    have sites themselves, or with `wm.Sites`, that happens in the rounds of `start()`, batch by batch. Times are local times of
    `timezone`, as they are in Spark of the session's.

    >>> t = pa.table({"k": [1, 2], "ts": pa.array([0, 5], pa.timestamp("us"))})
    >>> run("SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND", {"s": t}).column("k").to_pylist()
    [1, 2]
    """
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise OptionError(f"batch_rows={batch_rows!r}: give a whole number of 1 or more")
    if protocol is not None and network is None:
        raise OptionError("protocol= says how tuples travel over a simulated network; give network= too")
    sources = {name: source_of(name, given) for name, given in tables.items()}
    options, sites = _in_rounds(sources, sites, network, options)
    prepared = _prepared(text, sources, timezone, options)
    if sites is not None:
        return prepared.run_across(_sites(sites, protocol, options), network)
    return prepared.run(batch_rows) if network is None else prepared.run_on(network, protocol or Protocol())


def explain(
    text: str,
    tables: Mapping[str, pa.Table | Stream],
    *,
    sites: Mapping[str, str] | Sites | AtSites | None = None,
    network: Network | None = None,
    detail: Detail = "short",
    timezone: str = UTC,
    **options: Any,
) -> str:
    """The plan that `run` would follow, as text, in short or in full; across sites, with what each one-way join is expected to ship.

    >>> t = pa.table({"k": [1, 2], "ts": pa.array([0, 5], pa.timestamp("us"))})
    >>> text = "SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND"
    >>> print(explain(text, {"s": t}, sites={"a": "here", "b": "there"}).splitlines()[1])
    sites      a at here [1 s], b at there [1 s]
    """
    sources = {name: source_of(name, given) for name, given in tables.items()}
    options, sites = _in_rounds(sources, sites, network, options)
    prepared = _prepared(text, sources, timezone, options)
    if sites is None:
        return explain_plan(prepared.plan, "local, in process", detail)
    return AcrossSites(prepared.plan, prepared.wires, _sites(sites, None, options), network).explain()


def _prepared(
    text: str, sources: Mapping[str, tuple[pa.Table, StreamSpec]], timezone: str, options: dict[str, Any]
) -> LocalRun:
    join = parse(text, {name: spec for name, (_, spec) in sources.items()}, session_in(timezone))
    return LocalRun(join, {name: table for name, (table, _) in sources.items()}, changed(Options(units=1), options))


def _in_rounds(
    sources: Mapping[str, tuple[pa.Table, StreamSpec]],
    sites: Mapping[str, str] | Sites | AtSites | None,
    network: Network | None,
    options: dict[str, Any],
) -> tuple[dict[str, Any], Mapping[str, str] | Sites | None]:
    """Options of a run whose sites join in the rounds of `start()`, or the sites of the simulated network."""
    having = [name for name, (_, spec) in sources.items() if spec.site is not None]
    if sites is not None and not isinstance(sites, AtSites):
        if having:
            raise OptionError(f"sites= says where aliases arrive, and stream {having[0]} says it, too: say it once")
        return options, sites
    if (sites is not None or having) and network is not None:
        raise OptionError(
            "network= and sites in rounds: messages take no time there, and are counted without it; leave network= out, or"
            " simulate it with sites={'a': 'paris', ...} and no site= of streams"
        )
    return ({**options, "sites": sites} if sites is not None else options), None


def _sites(sites: Mapping[str, str] | Sites, protocol: Protocol | None, options: dict[str, Any]) -> Sites:
    if protocol is not None:
        raise OptionError("protocol= is BiStream's; across sites say Sites(bound=..., delta_us=...)")
    if options:
        raise OptionError(f"{', '.join(options)}: across sites the plan is Sites(plan=...); drop the option")
    return sites if isinstance(sites, Sites) else Sites(sites)


class LocalRun:
    """One run of one query."""

    def __init__(self, join: Join, tables: Mapping[str, pa.Table], options: Options) -> None:
        refuse_mismatches(join)
        schemas = {i.alias: tables[i.stream].schema for i in join.inputs}
        self.plan = build(join, DuckDBTypes(schemas), options, "everything")
        self.wires = {i.alias: _wire(self.plan, i, tables[i.stream]) for i in self.plan.inputs}
        self.units = [JoinUnit(self.plan, u) for u in range(self.plan.units)]
        self.manifests = [Manifest.fresh(self.plan) for _ in self.units]
        self.stores = [MemoryStore() for _ in self.units]
        self.retained = dict.fromkeys(self.plan.aliases, 0)
        self.batches = 0
        self.ran = StepReport()
        self.drivers: Counter[str] = Counter()
        """In which order drivers ran, and in how many steps of units."""
        self.sequencer = Sequencer(self.plan) if self.plan.sequenced else None
        self.sequence = Manifest.fresh(self.plan), MemoryStore()
        self.second = SecondStage(self.plan) if self.plan.finish is not None else None
        self.sites = None if self.plan.sites is None else SiteRounds(self.plan, self.manifests, self.stores)

    def run(self, batch_rows: int) -> pa.Table:
        """All batches, then the projection."""
        results = [self._project(t) if self.second is None else t for t in self._batches(batch_rows)]
        counts: dict[str, Any] = {"late": self._late(), "retained": self.retained, "batches": self.batches}
        counts |= {"kernels": self.ran.kernels, "pruned": self.ran.pruned, "drivers": dict(self.drivers.most_common())}
        if self.sites is not None:
            counts |= {"shipped": self.sites.shipped, "changes": self.sites.changes}
        return self._finished(results, counts)

    def run_on(self, network: Network, protocol: Protocol) -> pa.Table:
        """Tuple by tuple over a simulated network; DISTINCT and GROUP BY see all results at once."""
        simulated = SimulatedRun(self.plan, self.wires, network, protocol)
        results = list(simulated.run())
        if self.second is not None:
            found = list(self.second.step(leaving(self.plan, iter(results)), {}))
        else:
            found = [self._project(pa.concat_tables(results))] if results else []
        return self._finished(found, simulated.counts.json())

    def run_across(self, sites: Sites, network: Network | None) -> pa.Table:
        """Stream by stream at sites; DISTINCT and GROUP BY see all results at once."""
        results, counts = AcrossSites(self.plan, self.wires, sites, network).run()
        if self.second is not None:
            found = list(self.second.step(leaving(self.plan, iter(results)), {}))
        else:
            found = [self._project(pa.concat_tables(results))] if results else []
        return self._finished(found, counts)

    def _finished(self, results: list[pa.Table], counts: dict[str, Any]) -> pa.Table:
        """All results as one table, with the counts; late rows are said."""
        if self.second is None:
            results.append(self._project(self._empty()))
        else:
            results.append(self.second.last(self._empty()))
            counts["kept"] = self.second.kept
        late = counts["late"]
        if any(late.values()):
            said = ", ".join(f"{n} of {s}" for s, n in late.items() if n)
            warnings.warn(
                f"watersmeet dropped late rows: {said}; raise the streams' lateness to keep them",
                UserWarning,
                stacklevel=4,
            )
        schema = shrink(results[-1]).schema
        out = pa.concat_tables([shrink(r).cast(schema) for r in results])
        return out.replace_schema_metadata({b"watersmeet": json.dumps(counts).encode()})

    def _batches(self, batch_rows: int) -> Iterator[pa.Table]:
        longest = max(w.num_rows for w in self.wires.values())
        for begin in range(0, longest, batch_rows):
            slices = {alias: wire.slice(begin, batch_rows) for alias, wire in self.wires.items()}
            if self.sequencer is None:
                yield from self._step(self._delivered(slices))
            else:
                yield from self._step(self._sequenced(slices, last=False))
        if self.sequencer is not None:
            yield from self._step(self._sequenced({}, last=True))

    def _delivered(self, slices: Mapping[str, pa.Table]) -> list[Inbox]:
        inboxes = [Inbox() for _ in self.units]
        for source in self.plan.inputs:
            self._deliver(source, slices[source.alias], inboxes)
        return inboxes

    def _sequenced(self, slices: Mapping[str, pa.Table], *, last: bool) -> list[Inbox]:
        """What the sequencer releases after it has seen these rows."""
        assert self.sequencer is not None
        arrived = Inbox()
        for alias, wire in slices.items():
            if wire.num_rows:
                source = self.plan.input(alias)
                punctuation, table = split_for_sequencer(source, wire)
                arrived.punctuate(source.stream, punctuation)
                arrived.tables[alias] = [table]
        release = self.sequencer.step(arrived, *self.sequence, last=last)
        inboxes = [Inbox(marks=release.marks, cuts=release.cuts) for _ in self.units]
        for alias, parts in release.tables.items():
            for unit, table in parts:
                inboxes[unit].tables.setdefault(alias, []).append(table)
        return inboxes

    def _deliver(self, source: InputPlan, wire: pa.Table, inboxes: list[Inbox]) -> None:
        if wire.num_rows == 0:
            return
        punctuation, parts = split(self.plan, source, wire)
        for inbox in inboxes:
            inbox.punctuate(source.stream, punctuation)
        _post(parts, source.alias, inboxes)

    def _step(self, inboxes: list[Inbox]) -> Iterator[pa.Table]:
        """One batch, and what of it leaves."""
        self.batches += 1
        left = self._joined(inboxes)
        if self.second is None:
            yield from left
        else:
            tables = list(left)
            yield from self.second.step(tables, self.units[-1].report.watermarks)
        self.drivers.update(orders_of(unit.report.drivers for unit in self.units))
        for alias in self.retained:
            stage, side = self.plan.entry(alias)
            kept = sum(self.units[u].report.retained[alias] for u in stage.units if stage.is_primary(side, u))
            self.retained[alias] = max(self.retained[alias], kept)

    def _joined(self, inboxes: list[Inbox]) -> Iterator[pa.Table]:
        """Stage by stage: what a stage binds together goes on to the next, and leaves the last. Sites: round by round."""
        if self.sites is not None:
            yield from leaving(self.plan, self.sites.step(inboxes))
            for unit, report in self.sites.reports.items():
                self.units[unit].report = report
            return
        for number, stage in enumerate(self.plan.stages):
            following = self.plan.stages[number + 1 :][:1]
            for u in stage.units:
                results = self.units[u].step(inboxes[u], self.manifests[u], self.stores[u])
                if not following:
                    yield from leaving(self.plan, results)
                else:
                    for table in results:
                        _post(route(self.plan, following[0], 0, table), following[0].sides[0].name, inboxes)
                self.ran.include(self.units[u].report)

    def _late(self) -> dict[str, int]:
        return {s: sum(m.late.get(s, 0) for m in (*self.manifests, self.sequence[0])) for s in self.plan.join.streams}

    def _empty(self) -> pa.Table:
        if not self.plan.output:
            return pa.schema([pa.field(ROWS_ONLY, pa.bool_())]).empty_table()
        fields = [
            pa.field(f"o{n}", self.wires[r.alias].schema.field(self.plan.input(r.alias).column(r)).type)
            for n, r in enumerate(self.plan.output)
        ]
        return pa.schema(fields).empty_table()

    def _project(self, table: pa.Table) -> pa.Table:
        """SELECT over combinations: plain columns as they are, the rest by the evaluator."""
        at = {ref: f"o{n}" for n, ref in enumerate(self.plan.output)}
        select = self.plan.join.select
        computed = [n for n, o in enumerate(select) if o.expr.duckdb_template != "{0}"]
        texts = [select[n].expr.duckdb(lambda r: f'"{at[r]}"') for n in computed]
        values = normal(evaluate(table, texts, "SELECT", self.plan.timezone)) if computed else None
        columns = [
            values.column(computed.index(n))
            if values is not None and n in computed
            else table.column(at[o.expr.columns[0]])
            for n, o in enumerate(select)
        ]
        return pa.Table.from_arrays(columns, names=[o.name for o in select])


def _post(parts: list[Part], side: str, inboxes: list[Inbox]) -> None:
    for part in parts:
        for unit in part.units:
            inboxes[unit].take(side, part.role, part.table)


def _wire(plan: Plan, source: InputPlan, table: pa.Table) -> pa.Table:
    """A source's table as wire rows."""
    columns: dict[str, pa.ChunkedArray] = {}
    computed: dict[str, str] = {}
    plain = {c.name: c.expr.columns[0].column for c in source.columns if c.expr.duckdb_template == "{0}" and not c.cast}
    for name, text in items(plan, source, DUCKDB, wrap_plain=False):
        if name in plain:
            columns[name] = table.column(plain[name])
        else:
            computed[name] = text
            columns[name] = None
    passes = condition(source, DUCKDB)
    if passes is not None:
        computed[PASS] = f"coalesce({passes}, false)"
    if computed:
        values = normal(
            evaluate(table, list(computed.values()), f"a condition or key of {source.alias}", plan.timezone)
        )
        for n, name in enumerate(computed):
            columns[name] = values.column(n)
    if source.rows is not None:
        columns |= {CONTENT + name: table.column(name) for name in table.column_names}
    return enlarge(pa.table(columns))


def subscriptions(
    streams: Mapping[str, pa.Table | Stream], *, units: int = 1, engine: str = "shared", timezone: str = UTC
) -> LocalSubscriptions:
    """A registry of queries in process: `add`, `remove`, `list`, and `push` for batches of tuples.

    The tables say the schemas; the tuples come by `push`. Of a plain table the lateness is 0. `timezone` is as for `run`.

    >>> t = pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))})
    >>> subs = subscriptions({"s": t.slice(0, 0)})
    >>> id = subs.add("SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND")
    >>> subs.push({"s": t}).column("answer").to_pylist()
    ['{"k":1}']
    """
    sources = {name: source_of(name, given) for name, given in streams.items()}
    if not sources:
        raise StreamError("subscriptions need a stream: subscriptions({'clicks': table, ...})")
    return LocalSubscriptions(
        {n: s for n, (_, s) in sources.items()}, {n: t.schema for n, (t, _) in sources.items()}, units, engine, timezone
    )
