"""What users do with a registry: add, replace and remove queries, and list them; in process and on Spark alike.

Invariant: a query that is refused leaves the registry as it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.errors import OptionError
from watersmeet.registry.limits import check_text
from watersmeet.registry.versions import QueryVersion
from watersmeet.runtime.subscriptions.entries import Entry
from watersmeet.runtime.subscriptions.registry import Registry
from watersmeet.sql.parameters import fill_in


class RegistryFront:
    """What users do with a registry, in process and on Spark alike."""

    _registry: Registry

    def add(
        self, sql: str, id: str | None = None, params: Mapping[str, Any] | None = None, *, backfill: bool = False
    ) -> str:
        """Register a query; its id. It sees tuples from the next batch on. A bad query is refused: the error says why.

        `params` has the values of its parameters: `o.total > :limit` with {"limit": 500}. With `backfill=True` it also sees the tuples that are kept by then, those
        that `ask` would look at: the next batch answers from these first.
        """
        self._check_alive()
        return self._registry.add_all([(id, _fill_in(sql, params))], backfill)[0]

    def _check_alive(self) -> None:
        """Raise if a query that is added now would wait for a job that has failed."""

    def add_each(self, sql: str, params: Mapping[str, Mapping[str, Any]]) -> list[str]:
        """Register one query with parameters for many subscribers at once, all or none: their ids, each with the values of its parameters."""
        self._check_alive()
        return self._registry.add_all([(id, _fill_in(sql, values)) for id, values in params.items()])

    def replace(self, id: str, sql: str, params: Mapping[str, Any] | None = None, *, backfill: bool = False) -> None:
        """Put another query in the place of one, in one step: no batch answers both, or none. It sees what `add` would let it see."""
        self._registry.replace(id, _fill_in(sql, params), backfill)

    def add_all(self, queries: Sequence[str] | Mapping[str, str]) -> list[str]:
        """Register many queries at once, all or none; a mapping gives their ids."""
        if isinstance(queries, str):
            raise OptionError("give a list of queries, or a mapping of ids to queries; add() takes one")
        self._check_alive()
        named = queries.items() if isinstance(queries, Mapping) else ((None, sql) for sql in queries)
        return self._registry.add_all(list(named))

    def remove(self, id: str) -> None:
        """Remove a query: from the next batch on it is not answered, nor in one that is repeated after a restart."""
        self._registry.remove(id)

    def versions(self, id: str) -> Sequence[QueryVersion]:
        """The queries that have been registered under an id, the latest first: those that were removed or replaced, too. Answers have the version of their query."""
        return self._registry.versions(id)

    def list(self) -> list[Entry]:
        """All registered queries, then what the feed was refused, what has failed and what was suspended lately."""
        return self._registry.list()


def _fill_in(sql: str, params: Mapping[str, Any] | None) -> str:
    if params is None:
        return sql
    check_text(sql)
    return fill_in(sql, params)
