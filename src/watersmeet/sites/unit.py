"""A unit of a site in one round of a batch: new tuples into windows, the one-way joins of every plan that is under way, and what leaves.

    new tuples --> window --> `sites.joins`, once for each plan: a plan holds for heads of a span of time
                                 `--> results, rows for other units, and what other sites are to be sent

What a letter of another site brings, the site's driver has dealt to its units: tuples and rows by their keys, codes and filters to all.

Invariant: what a unit does depends on its state, its inbox as a set, the clock and what was told. What other sites are sent is state until they have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import to_bytes
from watersmeet.dataflow.contract import Message, Turn
from watersmeet.operators.join import on_time
from watersmeet.plan.model import TIME, Plan
from watersmeet.sites.joins import OneWayJoins, Span
from watersmeet.sites.kept import NUMBER, Kept, name_out

BATCH_BITS = 32
"""A tuple's number: its batch, and so many bits for its row."""
FOUND = "found"
"""The kind of messages that hold results until the last round."""
KIND, BODY = "kind", "body"
"""Columns of what is to be sent: the kind, and a table as bytes."""


class SiteUnit:
    """One unit's turn in one round."""

    def __init__(self, plan: Plan, homes: Sequence[int], spans: Sequence[Span], turn: Turn, last: int) -> None:
        self.plan, self.homes, self.spans, self.turn, self.last = plan, homes, spans, turn, last
        self.kept = Kept(turn.state, turn.store)
        self.results: list[Iterator[pa.Table]] = [iter(turn.inbox.pop(FOUND, []))]
        """Of this round; they are made when they leave: they are many more than the tuples."""
        self.mail: list[Message] = []
        self._out: dict[int, dict[str, list[pa.Table]]] = {}

    def step(self) -> Iterator[pa.Table | Message]:
        """Everything that leaves in this round."""
        if self.turn.round == 0:
            for n in self.homes:
                self._arrive(n)
        for span in self.spans:
            OneWayJoins(self, span).run()
        self._write_out()
        yield from self.mail
        for table in chain.from_iterable(self.results):
            yield Message(self.turn.unit, FOUND, table, self.last) if self.turn.round < self.last else table

    def _arrive(self, n: int) -> None:
        """New tuples into the window of their stream."""
        (stage,) = self.plan.stages
        alias = self.plan.aliases[n]
        arrived = on_time(self.turn, self.plan, stage.sides[n], alias, counts=True)
        if arrived is not None:
            table = arrived.table.select([c.name for c in self.plan.inputs[n].columns])
            first = self.turn.batch << BATCH_BITS
            numbers = np.arange(first, first + table.num_rows)
            self.kept.add(alias, table.append_column(NUMBER, pa.array(numbers, pa.int64())))

    def send(self, site: int, kind: str, table: pa.Table) -> None:
        """Have another site get a table with this batch's letter."""
        if table.num_rows:
            self._out.setdefault(site, {}).setdefault(kind, []).append(table)

    def _write_out(self) -> None:
        for site, kinds in sorted(self._out.items()):
            bodies = [(kind, to_bytes(pa.concat_tables(tables).combine_chunks())) for kind, tables in kinds.items()]
            columns = {
                TIME: pa.array([self.turn.batch] * len(bodies), pa.int64()),
                KIND: pa.array([kind for kind, _ in bodies], pa.string()),
                BODY: pa.array([body for _, body in bodies], pa.large_binary()),
            }
            self.kept.add(name_out(site), pa.table(columns))
