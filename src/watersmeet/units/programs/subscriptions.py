"""Registered queries on a runtime of rounds. An engine is a program over a catalogue and a registry; the shared plan is one.

    round 0   tuples of all streams that some query reads -> every unit, which answers its share of the queries

Invariant: which queries a batch answers is what its intent says (`Call.queries`), whatever the registry holds by now.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.plan.catalogue import Catalogue
from watersmeet.units.faults import blame_queries
from watersmeet.units.program import Call, Mail
from watersmeet.units.subscriptions.block import Registered
from watersmeet.units.subscriptions.compiled import compiled_in_process, unit_of
from watersmeet.units.subscriptions.unit import Arrived, SharedPlan


class Queries(Protocol):
    """The registry as units see it. It travels to the workers, so it is small and reads what it needs there."""

    @property
    def name(self) -> str:
        """Tells registries apart within a process."""

    def at(self, queries: Mapping[str, Any]) -> Mapping[str, Registered]:
        """The queries of a batch, by what its intent says of them."""


@dataclass(frozen=True)
class SharedPlanProgram:
    """Every unit evaluates its share of the queries by one trie of probes."""

    plan: Catalogue
    registry: Queries

    @property
    def rounds(self) -> int:
        return 1

    @property
    def wakes(self) -> bool:
        return True

    def entrance(self) -> None:
        return None

    def address(self, stream: str, columns: Sequence[str], wire: pa.Table, first: int) -> Iterator[Mail]:
        yield from (Mail(unit, stream, wire) for unit in range(self.plan.units))

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        return blame_queries(self._answer(call))

    def _answer(self, call: Call) -> Iterator[pa.Table | Mail]:
        compiled = compiled_in_process(self.registry.name, call.unit)
        if compiled.stands_for != call.queries:
            live = self.registry.at(call.queries)
            compiled.become({i: q for i, q in live.items() if unit_of(q.query.template, self.plan.units) == call.unit})
            compiled.stands_for = dict(call.queries)
        unit = SharedPlan(self.plan, compiled)
        counts = frozenset(self.plan.join.streams) if call.unit == 0 else frozenset[str]()
        yield from unit.step(Arrived(call.batch, call.inbox, call.seen, counts), call.manifest, call.store)
        call.report.include(unit.report)

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        return {}
