"""The registry as a runtime needs it: which queries a batch answers, what they read, and which of them it has to do without.

    intend      a new batch: the version of the registry
    amend       a batch that is repeated: its own version, less the queries that have failed or were removed since
    strike      a query that breaks the batch

Invariant: a batch that is repeated answers the queries of its intent, or fewer; never one that was added since.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.registry.rjoin.shape import Shape, index_columns
from watersmeet.registry.shared.block import Registered
from watersmeet.registry.subscription import Subscription
from watersmeet.runtime.spark.failures import STRUCK
from watersmeet.runtime.subscriptions.registry import Registry
from watersmeet.runtime.subscriptions.versions import LEAVES, RegistryView


class Answered:
    """A registry, as those who run batches see it."""

    def __init__(self, registry: Registry) -> None:
        self.registry, self._view = registry, RegistryView(registry.log)
        self._read: tuple[Mapping[str, Any], dict[str, list[str]]] = {}, {}
        self._live: Mapping[str, Registered] = {}

    def intend(self, before: Mapping[str, Any], batch: int) -> dict[str, Any]:
        return self.registry.intend(before, batch)

    def amend(self, queries: Mapping[str, Any], *, is_written: bool) -> dict[str, Any]:
        """What a batch that is repeated answers. One that has been written keeps queries that were removed: their answers are out."""
        gone = self.registry.find_gone(queries["version"], ("fail",) if is_written else LEAVES)
        return self._without(queries, [id for id in self.ids(queries) if id in gone]) if gone else dict(queries)

    def ids(self, queries: Mapping[str, Any]) -> Sequence[str]:
        return list(self._view.at(queries))

    def strike(self, queries: Mapping[str, Any], id: str, reason: str) -> dict[str, Any]:
        self.registry.fail(id, reason, queries["version"])
        return self._without(queries, [id])

    def read(self, queries: Mapping[str, Any]) -> dict[str, list[str]]:
        if self._read[0] != queries:
            self._live = self._view.at(queries)
            self._read = dict(queries), index_columns(Shape.of(q.query) for q in self._live.values())
        return self._read[1]

    def commit(self, queries: Mapping[str, Any]) -> dict[str, Any]:
        return self.registry.commit(queries, compacts=self.registry.log.is_due(queries["version"]))

    def find(self, id: str) -> Subscription:
        """A query of the batch that runs."""
        return self._live[id].query

    @property
    def answered(self) -> int:
        return len(self._live)

    @property
    def refusals(self) -> Mapping[str, str]:
        return self.registry.reasons("refuse")

    @property
    def failures(self) -> Mapping[str, str]:
        return self.registry.reasons("fail")

    def _without(self, queries: Mapping[str, Any], ids: Sequence[str]) -> dict[str, Any]:
        struck = [*queries.get(STRUCK, ()), *ids]
        return {**queries, STRUCK: struck} if struck else dict(queries)
