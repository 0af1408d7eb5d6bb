"""The registry on disk, in the state folder: a file for every version, and now and then a snapshot of all queries.

    watersmeet/
        registry/41.json 42.json ...    what version 41 changed, what 42 changed
        snapshots/40.json               all queries of version 40, with the batches in which they took effect
        schemas/40.json                 the columns of queries that had left by version 40, and not yet by the snapshot before
        snapshots/units.json            how many units there are, and what engine: chosen at the first start
        snapshots/identity.json         a name that no other registry has
        snapshots/head.json             the latest version and snapshot: written after them, so it never names what was not there
        snapshots/feed.json             the feed's query, the batch of it that was taken in last, and digests of its logs

A snapshot is of a version that has been committed, so a replay asks for nothing older.

Several processes may write versions: on Spark Connect the client adds and removes, and the server's workers feed and strike. Who finds a version taken reads it, and writes the next.

Invariant: a file is whole or absent; versions and snapshots never change, and name their registry. JSON only. What is missing, damaged or
another registry's is an error that names the file.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, TypeVar

from watersmeet.errors import CheckpointError
from watersmeet.registry.versions import Change, QueryVersion, Snapshot
from watersmeet.runtime.rounds.checkpoint import MANIFESTS, METADATA, OFFSETS, SparkLogs, StateFolder
from watersmeet.storage.document import REMEDY, Document

REGISTRY, SNAPSHOTS, SCHEMAS = "registry", "snapshots", "schemas"
FEED = "feed"
"""The feed's checkpoint in the other."""


@dataclass(frozen=True)
class RegistryName(Document):
    """Tells a registry from every other."""

    registry: str


@dataclass(frozen=True)
class Head(Document):
    """The latest version and the latest snapshot."""

    version: int = 0
    snapshot: int = 0


@dataclass(frozen=True)
class EngineChoice(Document):
    """How many units there are, and what engine."""

    units: int
    engine: str


@dataclass(frozen=True)
class Fed(Document):
    """What was taken in of the feed last: its query, the batch, digests of its logs."""

    query_id: str
    batch: int
    spark: dict[str, str]


@dataclass(frozen=True)
class VersionFile(Document):
    """What a version changed."""

    registry: str
    changes: list[Change]
    feed: int


@dataclass(frozen=True)
class Schemas(Document):
    """Queries that have left: [version, id, sql, columns], the latest last."""

    registry: str
    past: list[list[Any]]


V = TypeVar("V", VersionFile, Snapshot, Schemas)
MOST_CHANGES = 256
"""So many versions are kept apart before a snapshot is due."""
_UNITS, _IDENTITY, _HEAD, _FEED = "units", "identity", "head", "feed"


@dataclass(frozen=True)
class FolderLog:
    """Versions in a state folder."""

    folder: StateFolder

    @property
    def name(self) -> str:
        return self.folder.uri

    def prepare(self) -> None:
        for kind in (REGISTRY, SNAPSHOTS, SCHEMAS):
            self.folder.make_folder(kind)

    def identity(self) -> str:
        if not self._has(_IDENTITY):
            left = sorted([*self.folder.names(REGISTRY), *map(str, self.folder.numbers(SNAPSHOTS))])
            if left:
                self.folder.load(SNAPSHOTS, _IDENTITY, RegistryName)
            self.folder.save(SNAPSHOTS, _HEAD, Head())
            self.folder.save(SNAPSHOTS, _IDENTITY, RegistryName(uuid.uuid4().hex))
        return self.folder.load(SNAPSHOTS, _IDENTITY, RegistryName).registry

    def check(self) -> None:
        """Raise if one of its files without a number is missing or damaged, or if the latest version cannot be read from the latest snapshot on; nothing is written."""
        for name, kind in ((_IDENTITY, RegistryName), (_UNITS, EngineChoice), (_HEAD, Head)):
            self.folder.load(SNAPSHOTS, name, kind)
        self.snapshot(self.latest())
        for _ in self.changes(self.latest()):
            pass

    def placement(self, units: int, engine: str) -> tuple[int, str]:
        """How many units there are, and what engine: as chosen at first."""
        if not self._has(_UNITS) and not self._has(_IDENTITY) and not self.folder.numbers(MANIFESTS):
            self.folder.save(SNAPSHOTS, _UNITS, EngineChoice(units, engine))
        found = self.folder.load(SNAPSHOTS, _UNITS, EngineChoice)
        return found.units, found.engine

    def latest(self, at_most: int | None = None) -> int:
        if at_most is None:
            return max(self._head().snapshot, *self.folder.numbers(SNAPSHOTS), 0)
        return max((n for n in self.folder.numbers(SNAPSHOTS) if n <= at_most), default=0)

    def snapshot(self, version: int) -> Snapshot:
        return self._own(SNAPSHOTS, version, self.identity(), Snapshot) if version else Snapshot()

    def changes(self, after: int, up_to: int | None = None) -> Iterator[tuple[int, list[Change], int]]:
        last = max(self._head().version, *self.folder.numbers(REGISTRY), 0) if up_to is None else up_to
        registry = self.identity()
        for version in range(after + 1, last + 1):
            found = self._own(REGISTRY, version, registry, VersionFile)
            yield version, found.changes, found.feed

    def is_behind(self, version: int) -> bool:
        return self.folder.has(REGISTRY, version + 1) or self._head().version > version

    def append(self, version: int, changes: list[Change], feed: int) -> bool:
        if not self.folder.create(REGISTRY, version, VersionFile(self.identity(), changes, feed)):
            return False
        self.folder.save(SNAPSHOTS, _HEAD, replace(self._head(), version=version))
        return True

    def read_fed(self) -> Fed | None:
        """What was taken in of the feed last; None before the first batch."""
        return self.folder.load(SNAPSHOTS, _FEED, Fed) if self._has(_FEED) else None

    @cached_property
    def feed_logs(self) -> SparkLogs:
        """Spark's own logs of the feed."""
        return SparkLogs.beside(self.folder, FEED)

    def check_feed(self) -> None:
        """Raise if the feed's checkpoint is not the one that the registry has been fed from."""
        fed, logs, base = self.read_fed(), self.feed_logs, self.latest()
        taken = max([self.snapshot(base).feed, *(feed for _, _, feed in self.changes(base))])
        query_id, begun = logs.query_id(), logs.latest(OFFSETS)
        if fed is not None and query_id != fed.query_id:
            said = self.folder.path(SNAPSHOTS, f"{_FEED}.json")
            raise CheckpointError(
                f"{logs.path(METADATA)} names Spark query {query_id}, and {said} says that the registry was fed by {fed.query_id}; {REMEDY}"
            )
        if taken >= 0 and (begun is None or begun < taken):
            raise CheckpointError(
                f"{logs.path(f'{OFFSETS}/{taken}')} is missing, and the registry has taken that batch in; {REMEDY}"
            )
        logs.check({} if fed is None else fed.spark)

    def note_fed(self, fed: Fed) -> None:
        self.folder.save(SNAPSHOTS, _FEED, fed)

    def _head(self) -> Head:
        return self.folder.load(SNAPSHOTS, _HEAD, Head)

    def _own(self, kind: str, version: int, registry: str, of: type[V]) -> V:
        """A version's file, which must be of this registry."""
        found = self.folder.load(kind, version, of)
        if found.registry != registry:
            raise CheckpointError(
                f"{self.folder.path(kind, f'{version}.json')} is of registry {found.registry}, and "
                f"{self.folder.path(SNAPSHOTS, f'{_IDENTITY}.json')} names {registry}; {REMEDY}"
            )
        return found

    def _has(self, name: str) -> bool:
        return f"{name}.json" in self.folder.names(SNAPSHOTS)

    def is_due(self, version: int) -> bool:
        """Whether a snapshot of a version is due."""
        return version - self.latest(version) >= MOST_CHANGES

    def past(self) -> Iterator[QueryVersion]:
        registry = self.identity()
        for number in reversed(self.folder.numbers(SCHEMAS)):
            for version, id, sql, columns in reversed(self._own(SCHEMAS, number, registry, Schemas).past):
                yield QueryVersion(id, version, sql, tuple((name, kind) for name, kind in columns))

    def compact(self, snapshot: Snapshot, past: Sequence[QueryVersion]) -> None:
        """Write a snapshot, and what has left since the one before, which stays, for workers that still read it."""
        if past:
            left = [[p.version, p.id, p.sql, p.columns] for p in past]
            self.folder.save(SCHEMAS, snapshot.version, Schemas(self.identity(), left))
        self.folder.save(SNAPSHOTS, snapshot.version, replace(snapshot, registry=self.identity()))
        self.folder.save(SNAPSHOTS, _HEAD, replace(self._head(), snapshot=snapshot.version))
        kept = sorted(self.folder.numbers(SNAPSHOTS))[-2:]
        for number in self.folder.numbers(SNAPSHOTS):
            if number < kept[0]:
                self.folder.delete(SNAPSHOTS, f"{number}.json")
        for number in self.folder.numbers(REGISTRY):
            if number <= kept[0]:
                self.folder.delete(REGISTRY, f"{number}.json")
