"""RJoin over a registry of queries, on a runtime of rounds: a unit is a node of the ring.

    round 0   tuples --> nodes that own one of their keys
    round k   rewritten queries and their tuples --> nodes that own their next key; complete ones --> their owner

Invariant: as for the shared plan (`programs.subscriptions`): the same queries, the same answers.
Implements: Idreos, Liarou, Koubarakis (2008), see `units.rjoin`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from watersmeet.plan.catalogue import Catalogue
from watersmeet.units.faults import blame_queries
from watersmeet.units.program import Call, Mail
from watersmeet.units.programs.subscriptions import Queries
from watersmeet.units.ring_unit import RingOptions
from watersmeet.units.rjoin.index import ID, Index
from watersmeet.units.rjoin.memory import memory_in_process, passing
from watersmeet.units.rjoin.node import Node
from watersmeet.units.rjoin.templates import templates_in_process
from watersmeet.units.subscriptions.compiled import compiled_in_process, unit_of

OPTIONS = RingOptions("known", delta=0, levels="value", rate_period=1)
"""The clock counts batches: attribute level keeps tuples for the batch in which they arrive."""
_AFTER_ALL = 2**63 - 1


@dataclass(frozen=True)
class RJoinProgram:
    """Every unit rewrites what waits at its keys."""

    plan: Catalogue
    registry: Queries
    options: RingOptions = OPTIONS

    @property
    def rounds(self) -> None:
        return None

    @property
    def wakes(self) -> bool:
        return True

    @cached_property
    def index(self) -> Index:
        return Index(self.plan)

    def entrance(self) -> None:
        return None

    def address(self, stream: str, columns: Sequence[str], wire: pa.Table, first: int) -> Iterator[Mail]:
        ids = pa.array(range(first, first + wire.num_rows), pa.int64())
        for unit, table in self.index.sent(stream, columns, wire.append_column(ID, ids)):
            yield Mail(unit, stream, table)

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        return blame_queries(self._answer(call))

    def _answer(self, call: Call) -> Iterator[pa.Table | Mail]:
        templates = templates_in_process(self.registry.name, self.index)
        compiled = compiled_in_process(self.registry.name, call.unit)
        if call.queries and (templates.stands_for != call.queries or compiled.stands_for != call.queries):
            live = self.registry.at(call.queries)
            if templates.stands_for != call.queries:
                templates.become(live)
                templates.stands_for = dict(call.queries)
            share = {i: q for i, q in live.items() if unit_of(q.query.template, self.plan.units) == call.unit}
            compiled.become(share)
            compiled.stands_for = dict(call.queries)
        memory = memory_in_process(self.registry.name, templates, call.unit, self.options)
        node = Node(self.plan, templates, compiled, memory)
        yield from node.step(call)
        call.report.include(node.report)

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        return {passing(stream): _AFTER_ALL for stream in self.plan.join.streams}
