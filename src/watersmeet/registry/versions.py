"""Versions of a registry: what each one changed, snapshots of all queries, and the queries of a version.

    version   1: add q1     2: add q2, q3     3: remove q1     4: ...
    batch     0: version 2                    1: version 2     2: version 3

A batch answers the queries of one version, which its intent names. A query takes effect in the first batch whose version has
it, and sees the tuples that arrive from then on.

A process keeps what it has read and compiled of registries from one batch to the next; that is lost without harm.

Invariant: a version never changes, so whoever reads it, whenever, finds the same queries with the same effects. A thing that a process
keeps is made once for each registry and key, and forgotten with its registry.
Implements: Idreos, Liarou, Koubarakis (2008), section 2: a query sees tuples published at or after its insertion, insertion
being the beginning of the first batch that has it.
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, TypeVar

from watersmeet.errors import CheckpointError
from watersmeet.registry.subscription import NOT_YET, Registered, Subscription
from watersmeet.storage.document import REMEDY, Document

_KEPT_REFUSALS = 1_000

Change = dict[str, Any]
"""{"action": "add", "id", "sql", "query"}, with "backfill" if it sees what is kept; {"action": "remove", "id"}; or {"action", "id", "sql", "reason"}: "refuse" for what was never
taken in, "fail" for a query that has broken a batch, "suspend" for one that took more than its quota."""
BREAKS = ("fail", "suspend")
"""The actions by which a query leaves because of what it did."""
LEAVES = ("remove", *BREAKS)
"""The actions by which a query leaves."""
Since = Sequence[Sequence[int]]
"""(batch, version) of the batches in which the version changed, ascending."""
STRUCK = "struck"
"""In an intent: the queries of its version that the batch does not answer."""
BEFORE = "before"
"""In an intent whose batch answers queries from stored tuples first: what the batch before said of its queries."""

T = TypeVar("T")


@dataclass
class Snapshot(Document):
    """All queries of a version, with their effects."""

    version: int = 0
    queries: tuple[dict[str, Any], ...] = ()
    """{"id", "sql", "effect", "query", "version", "backfill"}."""
    refused: tuple[Change, ...] = ()
    """What was refused or has failed lately."""
    feed: int = -1
    """The last batch of the feed that has been taken in."""
    registry: str = ""
    """Whose it is, where it is kept."""

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> dict[str, Any]:
        return {**raw, "queries": tuple(raw["queries"]), "refused": tuple(raw["refused"])}


@dataclass(frozen=True)
class QueryVersion:
    """A query that has left the registry: what is needed to read its answers."""

    id: str
    version: int
    sql: str
    columns: tuple[tuple[str, str], ...]
    """Names and Spark types."""

    @classmethod
    def of(cls, known: Registered) -> QueryVersion:
        return cls(known.id, known.version, known.sql, tuple((o.name, o.type) for o in known.query.outputs))


class Log(Protocol):
    """Where versions are kept. It travels to the workers, so it is small and reads what it needs there."""

    @property
    def name(self) -> str:
        """Tells registries apart within a process."""

    def identity(self) -> str:
        """Tells registries apart, also one that was begun anew in the same place."""

    def latest(self, at_most: int | None = None) -> int:
        """The version of the latest snapshot, of this version or before; 0 without one."""

    def snapshot(self, version: int) -> Snapshot:
        """The snapshot of a version; that of version 0 is empty."""

    def changes(self, after: int, up_to: int | None = None) -> Iterable[tuple[int, list[Change], int]]:
        """(version, changes, batch of the feed) of later versions, ascending."""

    def is_behind(self, version: int) -> bool:
        """Whether there are later versions than this."""

    def append(self, version: int, changes: list[Change], feed: int) -> bool:
        """Write a version; False if another process has written one of that number."""

    def is_due(self, version: int) -> bool:
        """Whether a snapshot of a version is due."""

    def compact(self, snapshot: Snapshot, past: Sequence[QueryVersion]) -> None:
        """Write a snapshot, and the queries that have left since the one before; of older versions nothing else will be asked for."""

    def past(self) -> Iterable[QueryVersion]:
        """The queries that had left before the latest snapshot, the latest first."""


class MemoryLog:
    """Versions in this process."""

    def __init__(self) -> None:
        self.name = uuid.uuid4().hex
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

    def is_behind(self, version: int) -> bool:
        return version + 1 in self._changes

    def append(self, version: int, changes: list[Change], feed: int) -> bool:
        if version in self._changes:
            return False
        self._changes[version] = changes, feed
        return True

    def is_due(self, version: int) -> bool:
        return False

    def compact(self, snapshot: Snapshot, past: Sequence[QueryVersion]) -> None:
        raise AssertionError("nothing asks for it")

    def past(self) -> Iterable[QueryVersion]:
        return ()


class RegistryState:
    """A registry at one version; it goes on to the next ones."""

    def __init__(self, found: Snapshot) -> None:
        self.version, self.feed = found.version, found.feed
        self.queries = {q["id"]: _read_query(q, q["effect"], q["version"]) for q in found.queries}
        self.past: list[QueryVersion] = []
        """What has left since the snapshot."""
        self.waiting = {id for id, known in self.queries.items() if known.effect == NOT_YET}
        """The queries that no batch has answered."""
        self.said = {change["id"]: change for change in found.refused}
        """What was refused or has failed lately, until something else is said of the id."""

    def apply(self, version: int, changes: Iterable[Change], feed: int, since: Since | None = None) -> None:
        """Become a later version; since: in which batches versions took effect, if that is known."""
        for change in changes:
            id = change["id"]
            self.said.pop(id, None)
            if change["action"] in LEAVES and (known := self.queries.pop(id, None)) is not None:
                self.past.append(QueryVersion.of(known))
                self.waiting.discard(id)
            if change["action"] == "add":
                effect = NOT_YET if since is None else effect_of(version, since)
                self.queries[id] = _read_query(change, effect, version)
                (self.waiting.add if effect == NOT_YET else self.waiting.discard)(id)
            if "reason" in change:
                self.said[id] = change
        for old in list(self.said)[: max(0, len(self.said) - _KEPT_REFUSALS)]:
            del self.said[old]
        self.version, self.feed = version, feed

    def take_effect(self, version: int, since: Since) -> None:
        """Queries of a version have been answered."""
        answered = {i for i in self.waiting if self.queries[i].version <= version}
        for id in answered:
            self.queries[id] = replace(self.queries[id], effect=effect_of(self.queries[id].version, since))
        if answered:
            self.waiting = self.waiting - answered

    def to_snapshot(self) -> Snapshot:
        queries = tuple(
            {
                "id": q.id,
                "sql": q.sql,
                "effect": q.effect,
                "query": q.query.to_json(),
                "version": q.version,
                "backfill": q.backfill,
            }
            for q in self.queries.values()
        )
        return Snapshot(self.version, queries, tuple(self.said.values()), self.feed)


def _read_query(said: Mapping[str, Any], effect: int, version: int) -> Registered:
    query, backfill = Subscription.from_json(said["query"]), bool(said.get("backfill", False))
    return Registered(said["id"], effect, query, said["sql"], version, backfill)


def effect_of(version: int, since: Since) -> int:
    """The first batch that has a version."""
    found = next((batch for batch, has in since if has >= version), None)
    if found is None:
        raise CheckpointError(
            f"no batch is known from which on version {version} of the registry was answered; {REMEDY}"
        )
    return found


def read_version(log: Log, queries: Mapping[str, Any], known: RegistryState | None = None) -> RegistryState:
    """The registry at the version of a batch, read from the latest snapshot on, or from a state that is known."""
    version, base = int(queries["version"]), max(log.latest(queries["version"]), queries.get("snapshot", 0))
    state = known if known is not None and base <= known.version <= version else RegistryState(log.snapshot(base))
    for number, changes, feed in log.changes(state.version, version):
        state.apply(number, changes, feed, queries["since"])
    return state


class RegistryView:
    """The queries of one version at a time, read from the log."""

    def __init__(self, log: Log) -> None:
        self.log = log
        self._registry: str | None = None
        self._state: RegistryState | None = None

    def at(self, queries: Mapping[str, Any]) -> Mapping[str, Registered]:
        """The queries of a batch, by what its intent says of them."""
        if queries["registry"] != self._registry:
            self._registry, self._state = queries["registry"], None
        if self._state is None or self._state.version != queries["version"]:
            self._state = read_version(self.log, queries, self._state)
        struck = frozenset(queries.get(STRUCK, ()))
        return {id: q for id, q in self._state.queries.items() if id not in struck} if struck else self._state.queries


_HELD: dict[str, dict[Hashable, Any]] = {}
_FEW_GONE = 16
_LOCK = threading.RLock()


def get_or_make(registry: str, key: Hashable, make: Callable[[], T]) -> T:
    """A registry's thing under a key; made now if there is none.

    >>> get_or_make("r", "list", list) is get_or_make("r", "list", list)
    True
    >>> forget("r")
    """
    with _LOCK:
        mine = _HELD.setdefault(registry, {})
        if key not in mine:
            mine[key] = make()
        return mine[key]  # type: ignore[no-any-return]


def forget_gone(registry: str, is_mine: Callable[[Hashable], bool], living: Collection[Hashable]) -> None:
    """Let go of a registry's things of one kind that are not among the living, once there are more of them: a batch that is tried with fewer queries finds the others again.

    >>> for n in range(40):
    ...     _ = get_or_make("r", ("run", n), list)
    >>> forget_gone("r", lambda key: key[0] == "run", {("run", 3)})
    >>> list(_HELD["r"])
    [('run', 3)]
    >>> forget("r")
    """
    with _LOCK:
        mine = _HELD.get(registry, {})
        found = [key for key in mine if is_mine(key)]
        if len(found) > 2 * len(living) + _FEW_GONE:
            for key in found:
                if key not in living:
                    del mine[key]


def forget(registry: str) -> None:
    """Let go of all that is kept of a registry."""
    with _LOCK:
        _HELD.pop(registry, None)


@dataclass(frozen=True)
class Queries:
    """A registry as units see it; a process keeps what it has read."""

    log: Log

    @property
    def name(self) -> str:
        return self.log.name

    def at(self, queries: Mapping[str, Any]) -> Mapping[str, Registered]:
        """The queries of a batch, by what it has decided of them."""
        return get_or_make(self.name, "view", lambda: RegistryView(self.log)).at(queries)
