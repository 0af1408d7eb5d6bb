"""Versions of a registry: what each one changed, snapshots of all queries, and the queries of a version as units see them.

Invariant: a version never changes, so whoever reads it, whenever, finds the same queries with the same effects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from watersmeet.errors import CheckpointError
from watersmeet.registry.shared.block import Registered
from watersmeet.registry.subscription import Subscription
from watersmeet.runtime.spark.failures import STRUCK
from watersmeet.storage.manifest import REMEDY, Document

KEPT_REFUSALS = 1_000

Change = dict[str, Any]
"""{"action": "add", "id", "sql", "query"}, {"action": "remove", "id"}, or {"action", "id", "sql", "reason"}: "refuse" for what was never
taken in, "fail" for a query that has broken a batch."""
LEAVES = ("remove", "fail")
"""The actions by which a query leaves."""
Since = Sequence[Sequence[int]]
"""(batch, version) of the batches in which the version changed, ascending."""


@dataclass
class Snapshot(Document):
    """All queries of a version, with their effects."""

    version: int = 0
    queries: tuple[dict[str, Any], ...] = ()
    """{"id", "sql", "effect", "query"}."""
    refused: tuple[Change, ...] = ()
    """What was refused or has failed lately."""
    feed: int = -1
    """The last batch of the feed that has been taken in."""
    registry: str = ""
    """Whose it is, where it is kept."""

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "queries": tuple(raw["queries"]), "refused": tuple(raw["refused"])}


class Log(Protocol):
    """Where versions are kept."""

    def identity(self) -> str:
        """Tells registries apart, also one that was begun anew in the same place."""

    def latest(self, at_most: int | None = None) -> int:
        """The version of the latest snapshot, of this version or before; 0 without one."""

    def snapshot(self, version: int) -> Snapshot:
        """The snapshot of a version; that of version 0 is empty."""

    def changes(self, after: int, up_to: int | None = None) -> Iterable[tuple[int, list[Change], int]]:
        """(version, changes, batch of the feed) of later versions, ascending."""

    def append(self, version: int, changes: list[Change], feed: int) -> None:
        """Write a version."""

    def is_due(self, version: int) -> bool:
        """Whether a snapshot of a version is due."""

    def compact(self, snapshot: Snapshot) -> None:
        """Write a snapshot; what came before it will not be asked for."""


class MemoryLog:
    """Versions in this process."""

    def __init__(self) -> None:
        self._changes: dict[int, tuple[list[Change], int]] = {}

    def identity(self) -> str:
        return "in memory"

    def latest(self, at_most: int | None = None) -> int:
        return 0

    def snapshot(self, version: int) -> Snapshot:
        return Snapshot()

    def changes(self, after: int, up_to: int | None = None) -> Iterable[tuple[int, list[Change], int]]:
        last = max(self._changes, default=0) if up_to is None else up_to
        return [(v, *self._changes[v]) for v in range(after + 1, last + 1)]

    def append(self, version: int, changes: list[Change], feed: int) -> None:
        self._changes[version] = changes, feed

    def is_due(self, version: int) -> bool:
        return False

    def compact(self, snapshot: Snapshot) -> None:
        raise AssertionError("nothing asks for it")


def effect_of(version: int, since: Since) -> int:
    """The first batch that has a version."""
    found = next((batch for batch, has in since if has >= version), None)
    if found is None:
        raise CheckpointError(
            f"no batch is known from which on version {version} of the registry was answered; {REMEDY}"
        )
    return found


def base_of(log: Log, queries: Mapping[str, Any]) -> int:
    """The version of the snapshot that a batch's queries are read from: the latest, which must not be older than the one meant."""
    return max(log.latest(queries["version"]), queries.get("snapshot", 0))


def note(said: dict[str, Change], change: Change) -> None:
    """Keep what was refused or has failed, by id, until something else is said of that id."""
    said.pop(change["id"], None)
    if "reason" in change:
        said[change["id"]] = change


def find_gone(log: Log, version: int, actions: Sequence[str]) -> set[str]:
    """The ids of queries that have left after a version by one of some actions."""
    later = (change for _, changes, _ in log.changes(version) for change in changes)
    return {change["id"] for change in later if change["action"] in actions}


def replay(log: Log, queries: Mapping[str, Any]) -> Snapshot:
    """The queries of a batch that has been committed, as a snapshot."""
    found = log.snapshot(base_of(log, queries))
    live = {q["id"]: q for q in found.queries}
    refused = {r["id"]: r for r in found.refused}
    feed = found.feed
    for version, changes, fed in log.changes(found.version, queries["version"]):
        feed = fed
        for change in changes:
            if change["action"] == "add":
                live[change["id"]] = {
                    "id": change["id"],
                    "sql": change["sql"],
                    "effect": effect_of(version, queries["since"]),
                    "query": change["query"],
                }
            elif change["action"] in LEAVES:
                live.pop(change["id"], None)
            note(refused, change)
    kept = list(refused.values())[-KEPT_REFUSALS:]
    return Snapshot(queries["version"], tuple(live.values()), tuple(kept), feed)


class RegistryView:
    """The registry as units see it: the queries of one version at a time, read from the log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._registry: str | None = None
        self._version = -1
        self._queries: dict[str, Registered] = {}

    def at(self, queries: Mapping[str, Any]) -> Mapping[str, Registered]:
        """The queries of a batch, by what its intent says of them."""
        found, struck = self._at(queries), frozenset(queries.get(STRUCK, ()))
        return {id: q for id, q in found.items() if id not in struck} if struck else found

    def _at(self, queries: Mapping[str, Any]) -> Mapping[str, Registered]:
        """The queries of a version."""
        version, since = int(queries["version"]), queries["since"]
        if queries["registry"] != self._registry:
            self._registry, self._version = queries["registry"], -1
        if version == self._version:
            return self._queries
        latest = base_of(self.log, queries)
        if not latest <= self._version <= version:
            found = self.log.snapshot(latest)
            self._queries = {
                q["id"]: Registered(q["id"], q["effect"], Subscription.from_json(q["query"])) for q in found.queries
            }
            self._version = latest
        for number, changes, _ in self.log.changes(self._version, version):
            for change in changes:
                if change["action"] == "add":
                    query = Subscription.from_json(change["query"])
                    self._queries[change["id"]] = Registered(change["id"], effect_of(number, since), query)
                elif change["action"] in LEAVES:
                    self._queries.pop(change["id"], None)
        self._version = version
        return self._queries


@dataclass(frozen=True)
class MemoryQueries:
    """A registry in this process, as units see it."""

    name: str
    view: RegistryView

    def at(self, queries: Mapping[str, Any]) -> Mapping[str, Registered]:
        return self.view.at(queries)
