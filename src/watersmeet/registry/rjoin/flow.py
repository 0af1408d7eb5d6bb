"""RJoin over a registry of queries as a dataflow of rounds: a unit is a node of the ring.

    round 0   tuples --> nodes that own one of their keys, and nodes with queries that share nothing and read them
    round k   rewritten queries and their tuples --> nodes that own their next key; complete ones --> their owner

Invariant: as for the shared plan (`registry.shared.flow`): the same queries, the same answers.
Implements: Idreos, Liarou, Koubarakis (2008), see `registry.rjoin`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import Clock, Seen
from watersmeet.dataflow.contract import HERE, Dataflow, Flows, FlowStage, Message, Origin, Turn, Yielded
from watersmeet.errors import WatersmeetError
from watersmeet.registry.faults import blame_queries
from watersmeet.registry.placement import Placement, read_placement
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.rjoin.arcs import take_arc
from watersmeet.registry.rjoin.index import ID, Index
from watersmeet.registry.rjoin.memory import RingMemory, kind_of_dead
from watersmeet.registry.rjoin.node import RingNode
from watersmeet.registry.rjoin.templates import Templates
from watersmeet.registry.shared.compiled import Compiled, compile_share
from watersmeet.registry.shared.flow import OwnAnswers
from watersmeet.registry.shared.handover import list_handed, take_answered
from watersmeet.registry.versions import Queries, get_or_make

_AFTER_ALL = 2**63 - 1


@dataclass(frozen=True)
class RJoinFlows(Flows):
    """Every unit rewrites what waits at its keys."""

    plan: RegistryPlan
    registry: Queries
    own: OwnAnswers

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        placement = read_placement(decisions.get("routing") or (), self.plan.units)
        index = Index(self.plan, placement.places)
        operator = Rewrite(self.plan, self.registry, self.own, index, decisions["queries"], placement)
        places: Mapping[str, Sequence[int]] = decisions["whole"]
        whole = {stream: {place % placement.units for place in found} for stream, found in places.items()}
        entries = {s: ByKeys(s, columns, index, whole.get(s, set())) for s, columns in decisions["read"].items()}
        return Dataflow(self.plan.streams, (FlowStage(operator, placement.awake, wakes=True),), entries, None)


@dataclass(frozen=True)
class Rewrite:
    """A node's turn."""

    plan: RegistryPlan
    registry: Queries
    own: OwnAnswers
    index: Index
    queries: Mapping[str, Any]
    placement: Placement

    def step(self, turn: Turn) -> Iterator[Yielded]:
        return blame_queries(self._answer(turn))

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Tuples that pass are gone when the batch is over."""
        return {kind_of_dead(stream): _AFTER_ALL for stream in self.plan.streams}

    def _answer(self, turn: Turn) -> Iterator[Yielded]:
        name = self.registry.name
        templates = get_or_make(name, "templates", lambda: Templates(self.index))
        templates.take_places(self.index)
        if templates.stands_for != self.queries:
            templates.become(self.registry.at(self.queries))
            templates.stands_for = dict(self.queries)
        compiled = compile_share(self.registry, self.queries, turn.unit, self.placement.units)
        memory = get_or_make(name, ("memory", turn.unit), lambda: RingMemory(templates, turn.unit))
        if self.placement.before and turn.round == 0:
            self._take_over(turn, templates, compiled)
            memory.forget()
        if turn.unit < self.placement.units:
            node = RingNode(self.plan, templates, compiled, memory, self.placement)
            yield from node.step(turn)
            if turn.round == 0:
                yield from self.own.answer(turn, compiled.own, node.new)

    def _take_over(self, turn: Turn, templates: Templates, compiled: Compiled) -> None:
        """The first batch of a ring: a node has what lies under its keys, and what its own queries have answered."""
        handed, before = list_handed(compiled, turn.batch), len(self.placement.before)
        own = {id: known for id, known in handed.items() if known.query.own is not None}
        take_arc(turn, templates, self.placement, own)
        take_answered(turn, handed, before)
        self.own.take_over(turn, own, before)


@dataclass(frozen=True)
class ByKeys:
    """A stream's tuples to the nodes that own one of their keys, or take the whole of it, each under a number that no other tuple of the checkpoint has."""

    stream: str
    columns: Sequence[str]
    index: Index
    whole: Collection[int] = ()
    stage: int = 0

    def read(self, wire: pa.Table, origin: Origin = HERE) -> tuple[Seen, Iterator[Message]]:
        first = id_of(origin.batch, origin.task, origin.row)
        ids = pa.array(range(first, first + wire.num_rows), pa.int64())
        sent = self.index.route(self.stream, self.columns, wire.append_column(ID, ids), self.whole)
        return Seen(), (Message(unit, self.stream, table) for unit, table in sent)


def id_of(batch: int, task: int, row: int) -> int:
    """A number for the row of a source task's batch.

    >>> id_of(1, 0, 5) - id_of(1, 0, 0), id_of(0, 1, 0) > id_of(0, 0, 2**26 - 1), id_of(1, 0, 0) > id_of(0, 2**12 - 1, 0)
    (5, True, True)
    """
    if row >= 2**26 or task >= 2**12:
        raise WatersmeetError(
            f"row {row} of task {task} in one micro-batch: RJoin numbers 2^26 rows of 2^12 tasks; limit what a trigger reads (maxFilesPerTrigger, maxOffsetsPerTrigger)"
        )
    return batch << 38 | task << 26 | row
