"""Registered queries as a dataflow: one stage, whose units answer. The shared plan is one engine, see `registry.rjoin` for the other.

    round 0   tuples of all streams that some query reads -> every unit, which answers its share of the queries

Invariant: which queries a batch answers is what it has decided (`decisions["queries"]`), whatever the registry holds by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.dataflow.clock import Clock, Seen
from watersmeet.dataflow.contract import HERE, Dataflow, Flows, FlowStage, Message, Origin, Turn, Yielded
from watersmeet.registry.faults import blame_queries
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.shared.block import Registered
from watersmeet.registry.shared.compiled import find_compiled, unit_of
from watersmeet.registry.shared.unit import SharedPlan


class Queries(Protocol):
    """The registry as units see it. It travels to the workers, so it is small and reads what it needs there."""

    @property
    def name(self) -> str:
        """Tells registries apart within a process."""

    def at(self, queries: Mapping[str, Any]) -> Mapping[str, Registered]:
        """The queries of a batch, by what it has decided of them."""


@dataclass(frozen=True)
class SharedPlanFlows(Flows):
    """Every unit evaluates its share of the queries by one trie of probes."""

    plan: RegistryPlan
    registry: Queries

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        stage = FlowStage(Answer(self.plan, self.registry, decisions["queries"]), self.plan.units, wakes=True)
        entries = {stream: ToAll(stream, self.plan.units) for stream in decisions["read"]}
        return Dataflow(self.plan.streams, (stage,), entries, 1)


@dataclass(frozen=True)
class Answer:
    """A unit's answers to its share of a batch's queries."""

    plan: RegistryPlan
    registry: Queries
    queries: Mapping[str, Any]

    def step(self, turn: Turn) -> Iterator[Yielded]:
        return blame_queries(self._answer(turn))

    def cuts(self, clock: Clock) -> dict[str, int]:
        """All units run in every batch."""
        return {}

    def _answer(self, turn: Turn) -> Iterator[Yielded]:
        compiled = find_compiled(self.registry.name, turn.unit)
        if compiled.stands_for != self.queries:
            live = self.registry.at(self.queries)
            compiled.become({i: q for i, q in live.items() if unit_of(q.query.template, self.plan.units) == turn.unit})
            compiled.stands_for = dict(self.queries)
        yield from SharedPlan(self.plan, compiled, counts=turn.unit == 0).step(turn)


@dataclass(frozen=True)
class ToAll:
    """A stream's tuples to all units."""

    stream: str
    units: int
    stage: int = 0

    def read(self, wire: pa.Table, origin: Origin = HERE) -> tuple[Seen, Iterator[Message]]:
        return Seen(), (Message(unit, self.stream, wire) for unit in range(self.units))
