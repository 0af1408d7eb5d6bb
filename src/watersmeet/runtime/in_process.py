"""A query in this process: its batches, and the run over whole tables.

A batch of a run takes the next `batch_rows` rows of every stream, in the order of the tables, or those of the next span of event time, so that bursty streams burst. The end of the tables is a watermark of infinity.

Invariant: batch by batch the same as on Spark: the same operators, clocks, late rows and expiry.
"""

from __future__ import annotations

import json
import warnings
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from typing import Any

import pyarrow as pa

from watersmeet.columns.arrow import shrink
from watersmeet.columns.retype import retype_table
from watersmeet.dataflow.clock import Seen, watermarks
from watersmeet.dataflow.contract import Dataflow, Message, first_unit
from watersmeet.dataflow.report import Report, count_orders
from watersmeet.expressions.evaluator import evaluate, mask
from watersmeet.expressions.lookup import look_up_results, schemas_by_alias
from watersmeet.kernels.instants import LAST
from watersmeet.operators.assemble import PlanFlows, make_keepers
from watersmeet.operators.balance import Balance, Balanced, BicliqueBalance, BicliqueMemory
from watersmeet.operators.finish.aggregate import GroupUnits
from watersmeet.operators.finish.distinct import KEPT
from watersmeet.operators.finish.project import project_rows, select_columns
from watersmeet.operators.finish.views import compute_values, empty_view, merge_views
from watersmeet.operators.nearest import WAITING
from watersmeet.operators.onward import ToKeepers
from watersmeet.plan.build import build
from watersmeet.plan.model import ROWS_ONLY
from watersmeet.plan.options import Options
from watersmeet.plan.types import refuse_mismatches
from watersmeet.query.join import Join
from watersmeet.runtime.across import AcrossSites
from watersmeet.runtime.arrow_types import DuckDBTypes, normal
from watersmeet.runtime.counts import Counts
from watersmeet.runtime.units import InProcess, enter
from watersmeet.runtime.wires import WireReader, set_aside
from watersmeet.storage.manifest import Identity

_HOT = "hot.json"
"""The file of a saved state that has the hot keys."""


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
        cores: int = 1,
    ) -> None:
        """`cores`: how many units are taken to run at a time. In this process they take turns, so spreading keys gains nothing, and nobody watches for hot ones."""
        refuse_mismatches(join)
        self.schemas = {name: table.schema for name, table in tables.items()}
        self.types = DuckDBTypes(schemas_by_alias(join, self.schemas))
        plan = build(join, self.types, options, "everything")
        self.plan = plan if cores > 1 else replace(plan, may_spread=False)
        conditions = (*join.filters, *self.plan.inside, *join.after)
        self.types.evaluate_nothing((*conditions, *(output.expr for output in join.select)))
        self.late = late
        self.reader = WireReader(self.plan, tables, late=late)
        self.wires = self.read(tables, now_us)
        self.flows = PlanFlows(self.plan)
        self.units = InProcess(Identity.of(self.plan))
        self.across = None if self.plan.sites is None else AcrossSites(self.plan, max(1, self.plan.units_wanted))
        self.batches = 0
        self.lost: list[pa.Table] = []
        """By batch the rows that were dropped, in the schema of `operators.late`; none without `late`."""
        self.retained = dict.fromkeys(self.plan.aliases, 0)
        """The most rows kept after any batch, by alias."""
        self.sides, self.sided = BicliqueBalance.of(self.plan, cores), BicliqueMemory()
        self._holders = {} if self.across else {alias: self._find_holders(alias) for alias in self.plan.aliases}
        self.ran = Report()
        self.drivers: Counter[str] = Counter()
        """In which order drivers ran, and in how many turns of units."""
        self._kept = 0
        """The most rows that were kept apart after any batch."""
        self.balance = Balance(self.plan, cores) if self.plan.may_spread else None
        self.balanced = Balanced([], {}, [])
        """The hot keys of the next batch."""

    def run(self, batch_rows: int, batch_us: int | None = None) -> pa.Table:
        """All batches, of so many rows or of a span of event time, then the projection."""
        results = [t for batch in self._batches(batch_rows, batch_us) for t in batch]
        counts = Counts(
            late=self.count_late(),
            retained=self.retained,
            batches=self.batches,
            kernels=dict(self.ran.kernels),
            pruned=self.ran.pruned,
            drivers=dict(self.drivers.most_common()),
            shipped={} if self.across is None else self.across.shipped,
            changes=() if self.across is None else tuple(self.across.changes),
            set_aside=dict(self.units.broken),
        )
        return self._finish(results, counts)

    def finish(self, results: list[pa.Table], simulated: dict[str, Any]) -> pa.Table:
        """What a simulation joined from these wires, with its counts; DISTINCT and GROUP BY see all results at once."""
        if self.plan.finish is not None and self.across is None:
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

    def _batches(self, batch_rows: int, batch_us: int | None) -> Iterator[list[pa.Table]]:
        reader, wires = self.reader, self.wires
        cut = reader.cut_by_rows(wires, batch_rows) if batch_us is None else reader.cut_by_time(wires, batch_us)
        yield from (self.push(batch, settles=False) for batch in cut)
        if self.across or self.plan.sequenced or self.plan.parts or self.plan.join.group_window is not None:
            yield self.push({}, ended=True)

    def save(self) -> dict[str, bytes]:
        """The state between two batches, as contents of files."""
        own = {**self.units.save(), _HOT: json.dumps([asdict(self.balanced), asdict(self.sided)]).encode()}
        return {**own, **(self.across.save() if self.across else {})}

    def resume(self, saved: Mapping[str, bytes]) -> None:
        """Go on from a saved state; an error if it is of another query."""
        self.units = InProcess.load({n: c for n, c in saved.items() if "/" not in n}, self.units.identity)
        if _HOT in saved:
            hot, sided = json.loads(saved[_HOT])
            self.balanced, self.sided = Balanced(**hot), BicliqueMemory(**sided)
        if self.across:
            self.across.resume({n: c for n, c in saved.items() if "/" in n})

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
        self,
        wires: Mapping[str, pa.Table],
        *,
        ended: bool = False,
        reached: Mapping[str, int] | None = None,
        settles: bool = True,
    ) -> list[pa.Table]:
        """One batch of wire rows, and what of it leaves; streams have `reached` these times besides. Sites go on until no letter is on its way, if it `settles`."""
        if self.across:
            out = self._push_to_sites(self.across, wires, ended=ended, reached=reached, settles=settles or ended)
        else:
            out = self._push_to_units(wires, ended=ended, reached=reached)
        self.batches += 1
        self._count()
        return out

    def _push_to_units(
        self, wires: Mapping[str, pa.Table], *, ended: bool, reached: Mapping[str, int] | None
    ) -> list[pa.Table]:
        flow = self.flows.under({"spread": self.balanced.hot, "routing": self.sided.routing})
        if self.late:
            wires, lost = set_aside(self.plan, flow.clock(self.units.maxima, {}), wires, self.units.batch)
            self.lost.append(lost)
        seen, messages = enter(flow, wires, self.units.batch)
        seen.include(Seen(dict(reached or {})))
        out = self.units.play(flow, messages, seen, ended=ended, wake_all=True)
        if self.late:
            self.lost += self.units.lost
        if self.balance is not None:
            now = self.balanced
            self.balanced = self.balance.settle(now.hot, now.memory, self.units.reports, self.units.maxima)
        if self.sides is not None:
            self.sided, _ = self.sides.settle(self.sided, self.units.reports, self.units.maxima)
        return out

    def _push_to_sites(
        self,
        across: AcrossSites,
        wires: Mapping[str, pa.Table],
        *,
        ended: bool,
        reached: Mapping[str, int] | None,
        settles: bool,
    ) -> list[pa.Table]:
        if self.late:
            wires, lost = across.set_aside(wires, self.units.batch)
            self.lost.append(lost)
        self.units.batch += 1
        return across.push(wires, ended=ended, reached=reached, settles=settles)

    def count_late(self) -> dict[str, int]:
        """The late rows since the beginning, by stream."""
        late = self.across.late if self.across else self.units.late
        return {stream: late.get(stream, 0) for stream in self.plan.join.streams}

    @property
    def watermarks(self) -> dict[str, int]:
        """By stream, after the latest batch."""
        return self.across.watermarks if self.across else watermarks(self.plan.join.streams, self.units.maxima)

    def _count(self) -> None:
        """Take a batch's reports into the counts."""
        reports = list(self.across.reports if self.across else self.units.reports.values())
        for report in reports:
            self.ran.include(report)
        self.drivers.update(count_orders(report.drivers for report in reports))
        for alias, rows in self.stored.items():
            self.retained[alias] = max(self.retained[alias], rows)
        if self.plan.finish is not None:
            self._count_kept()

    @property
    def stored(self) -> dict[str, int]:
        """The rows in state, by alias, each counted once."""
        if self.across:
            return self.across.stored
        out = {}
        for alias, units in self._holders.items():
            held = [state.rows() for unit, state in self.units.states.items() if units is None or unit in units]
            out[alias] = sum(rows.get(alias, 0) + rows.get(WAITING + alias, 0) for rows in held)
        return out

    def _find_holders(self, alias: str) -> set[int] | None:
        """The units that hold each of an alias' tuples once; None: all units, also those that are added while it runs."""
        stage, side = self.plan.entry(alias)
        if self.sides is not None:
            return None
        entry = None if self.plan.sequenced else self.flows.under({}).entries.get(alias)
        first = first_unit(1 if entry is None else entry.stage)
        return {first + u for u in range(stage.units) if stage.routing.is_primary(side, u)}

    def _count_kept(self) -> None:
        if self.plan.join.distinct or self.plan.join.group_window is not None:
            self._kept = max(self._kept, sum(s.rows().get(KEPT, 0) for s in self._keepers.states.values()))

    @property
    def _keepers(self) -> InProcess:
        """The units that keep rows and groups, among others."""
        return self.across.finishing if self.across else self.units

    @property
    def _updates_groups(self) -> bool:
        """Whether groups leave whenever they change."""
        return self.plan.join.grouping is not None and self.plan.join.group_window is None

    def _all_groups(self) -> pa.Table:
        """All groups with their values."""
        aggregate, keepers = GroupUnits(self.plan), self._keepers
        states = [state for state in keepers.states.values() if KEPT in state.segments]
        views = [aggregate.groups(state, keepers.store) for state in states]
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
