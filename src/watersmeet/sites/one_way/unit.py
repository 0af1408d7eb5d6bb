"""A unit of a site in one round of a batch: new tuples into windows, the one-way joins of every plan that is under way, and what leaves.

    new tuples --> window --> `sites.one_way.joins`, once for each plan: a plan holds for heads of a span of time
                                 `--> results, rows for other units, and what other sites are to be sent

What a letter of another site brings, the site's driver has dealt to its units: tuples and rows by their keys, codes and filters to all.

Invariant: what a unit does depends on its state, its inbox as a set, the clock and what was told. What other sites are sent is state until they have it, or is handed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain

import pyarrow as pa

from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Message, Turn
from watersmeet.operators.enter import LONE
from watersmeet.operators.join import on_time
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.plan.source_sql import PASS
from watersmeet.sites.letter import Item
from watersmeet.sites.one_way.at_unit import BATCH_BITS, Span, number_rows
from watersmeet.sites.one_way.joins import OneWayJoins
from watersmeet.sites.one_way.kept import NUMBER, Kept, name_out
from watersmeet.sites.one_way.preserved import MET, PreservedStream, list_preserved
from watersmeet.sites.one_way.rows_windows import RowsWindow, number_arrivals
from watersmeet.sites.plan_change.measure import Measured, measure
from watersmeet.sites.results import RESULTS
from watersmeet.storage.segment import Segment

FOUND = "found"
"""The kind of messages that hold results until the last round."""
KIND, ROWS, BODY = "kind", "rows", "body"
"""Columns of what is to be sent: an item of a letter."""
Outbox = dict[int, list[Item]]
"""By site what is sent there in a batch, where that need not be state: units and letters are in one process."""


class SiteUnit:
    """One unit's turn in one round."""

    def __init__(
        self, plan: Plan, homes: Sequence[int], spans: Sequence[Span], turn: Turn, last: int, results_to: int | None
    ) -> None:
        self.plan, self.homes, self.spans, self.turn, self.last = plan, homes, spans, turn, last
        self.results_to = results_to
        """The site that results are shipped to; None: they leave here."""
        self.asked = Measured()
        """What is measured of new tuples."""
        self.kept = Kept(turn.state, turn.store)
        self.results: list[Iterator[pa.Table]] = [iter(turn.inbox.pop(FOUND, []))]
        """Of this round; they are made when they leave: they are many more than the tuples."""
        self.mail: list[Message] = []
        self.preserved = {n: PreservedStream(plan, n) for n in list_preserved(plan)}
        self.fates: Mapping[str, Sequence[int]] = {}
        """By preserved alias the span of time in which waits are over since the batch before."""
        self.ended: dict[int, pa.Table] = {}
        """By stream with a ROWS window the tuples that have ended in this turn."""
        self.outbox: Outbox | None = None
        self._out: dict[int, dict[str, list[pa.Table]]] = {}

    def step(self) -> Iterator[pa.Table | Message]:
        """Everything that leaves in this round."""
        if self.turn.round == 0:
            for one in self.preserved.values():
                self._settle_preserved(one)
            for n in self.homes:
                self._arrive(n)
                self._number(n)
        for span in self.spans:
            OneWayJoins(self, span).run()
        if self.results_to is not None:
            for table in chain.from_iterable(self.results):
                self.send(self.results_to, RESULTS, table)
            self.results = []
        self._write_out()
        yield from self.mail
        for table in chain.from_iterable(self.results):
            if self.turn.round < self.last:
                yield Message(self.turn.unit, FOUND, table, self.last)
            else:
                self.turn.report.results += table.num_rows
                yield table

    def _arrive(self, n: int) -> None:
        """New tuples into the window of their stream."""
        (stage,) = self.plan.stages
        alias = self.plan.aliases[n]
        arrived = on_time(self.turn, self.plan, stage.sides[n], alias, counts=True)
        source = self.plan.inputs[n]
        if arrived is not None and source.rows is not None:
            self._arrive_counted(n, source, arrived.table)
        elif arrived is not None:
            table = arrived.table.select([c.name for c in source.columns])
            table = self.preserved[n].put_hashes(table) if n in self.preserved else table
            if self.plan.sites is not None and self.plan.sites.search is not None:
                self.turn.report.measured[alias] = measure(self.plan, n, Segment.of(table), self.asked)
            self.kept.add(alias, number_rows(table, self.turn.batch << BATCH_BITS))

    def _settle_preserved(self, one: PreservedStream) -> None:
        """Tuples that leave without a partner, since their waits are over or they can have none; and notes that have come."""
        if one.number not in self.homes:
            return
        (stage,) = self.plan.stages
        notes = self.turn.inbox.pop(f"{MET} {one.number}", [])
        self.results.append(iter(list(one.take_notes(self.kept, notes))))
        self.results.append(iter(list(one.leave(self.kept, *self.fates.get(one.alias, (NEVER, NEVER))))))
        lone = on_time(self.turn, self.plan, stage.sides[one.number], LONE + one.alias, counts=True)
        if lone is not None and one.kind != "semi":
            self.results.append(iter([one.extend(lone.table)]))

    def _arrive_counted(self, n: int, source: InputPlan, table: pa.Table) -> None:
        """New tuples of a stream with a ROWS window: all of them count, and those that may join are stored."""
        table = number_arrivals(table, self.turn.batch << BATCH_BITS)
        RowsWindow(self.kept, n, source.rows or 1, source.rows_tumble).arrive(table)
        may_join = table.filter(table.column(PASS)).select([*(c.name for c in source.columns), NUMBER])
        self.kept.add(source.alias, may_join)

    def _number(self, n: int) -> None:
        """Number what the watermark has passed; what has ended by that is told by every plan."""
        source = self.plan.inputs[n]
        if source.rows is not None and self.spans:
            window = RowsWindow(self.kept, n, source.rows, source.rows_tumble)
            found = window.release(self.spans[0].frontiers.of(n))
            if found is not None:
                self.ended[n] = found

    def send(self, site: int, kind: str, table: pa.Table) -> None:
        """Have another site get a table with this batch's letter."""
        if table.num_rows:
            self._out.setdefault(site, {}).setdefault(kind, []).append(table)

    def _write_out(self) -> None:
        for site, kinds in sorted(self._out.items()):
            items = [Item.of(kind, pa.concat_tables(tables)) for kind, tables in kinds.items()]
            if self.outbox is not None:
                self.outbox.setdefault(site, []).extend(items)
            else:
                self.kept.add(name_out(site), write_out(items, self.turn.batch))


def write_out(items: Sequence[Item], batch: int) -> pa.Table:
    """What a unit sends another site in a batch, as state."""
    columns = {
        TIME: pa.array([batch] * len(items), pa.int64()),
        KIND: pa.array([item.kind for item in items], pa.string()),
        ROWS: pa.array([item.rows for item in items], pa.int64()),
        BODY: pa.array([item.body for item in items], pa.large_binary()),
    }
    return pa.table(columns)


def read_out(outs: Iterable[pa.Table]) -> list[Item]:
    """What the units of a site send another, in an order that does not depend on theirs."""
    columns = ([table.column(name).to_pylist() for name in (KIND, ROWS, BODY)] for table in outs)
    items = (Item(*values) for found in columns for values in zip(*found, strict=True))
    return sorted(items, key=lambda item: (item.kind, item.body))
