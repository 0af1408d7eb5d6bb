"""The registry on disk, in the state folder: a file for every version, and now and then a snapshot of all queries.

    watersmeet/
        registry/41.json 42.json ...    what version 41 changed, what 42 changed
        snapshots/40.json               all queries of version 40, with the batches in which they took effect
        snapshots/units.json            how many units there are, and what engine: chosen at the first start
        snapshots/identity.json         a name that no other registry has

A snapshot is of a version that has been committed, so a replay asks for nothing older.

Invariant: a file is whole or absent, and never changes. JSON only.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from watersmeet.runtime.rounds.folder import StateFolder
from watersmeet.runtime.subscriptions.versions import Change, Snapshot, View
from watersmeet.units.subscriptions.block import Registered

REGISTRY, SNAPSHOTS = "registry", "snapshots"
MOST_CHANGES = 256
"""So many versions are kept apart before a snapshot is due."""
_UNITS, _IDENTITY = "units.json", "identity.json"


@dataclass(frozen=True)
class FolderLog:
    """Versions in a state folder."""

    folder: StateFolder

    def prepare(self) -> None:
        for kind in (REGISTRY, SNAPSHOTS):
            self.folder.system.create_dir(self.folder.path(kind), recursive=True)

    def identity(self) -> str:
        if _IDENTITY not in self.folder.names(SNAPSHOTS):
            self.folder.write(SNAPSHOTS, _IDENTITY, json.dumps({"registry": uuid.uuid4().hex}).encode(), durably=True)
        return str(json.loads(self.folder.read(SNAPSHOTS, _IDENTITY))["registry"])

    def placement(self, units: int, engine: str) -> tuple[int, str]:
        """How many units there are, and what engine: as chosen at first."""
        if _UNITS not in self.folder.names(SNAPSHOTS):
            said = json.dumps({"units": units, "engine": engine})
            self.folder.write(SNAPSHOTS, _UNITS, said.encode(), durably=True)
        found = json.loads(self.folder.read(SNAPSHOTS, _UNITS))
        return int(found["units"]), str(found.get("engine", "shared"))

    def latest(self, at_most: int | None = None) -> int:
        return max((n for n in self.folder.numbers(SNAPSHOTS) if at_most is None or n <= at_most), default=0)

    def snapshot(self, version: int) -> Snapshot:
        if version == 0:
            return Snapshot()
        raw = self.folder.read_json(SNAPSHOTS, version)
        return Snapshot(version, tuple(raw["queries"]), tuple(raw["refused"]), raw["feed"])

    def changes(self, after: int, up_to: int | None = None) -> Iterator[tuple[int, list[Change], int]]:
        last = max(self.folder.numbers(REGISTRY), default=0) if up_to is None else up_to
        for version in range(after + 1, last + 1):
            raw = self.folder.read_json(REGISTRY, version)
            yield version, raw["changes"], raw["feed"]

    def append(self, version: int, changes: list[Change], feed: int) -> None:
        self.folder.write_json(REGISTRY, version, {"changes": changes, "feed": feed})

    def is_due(self, version: int) -> bool:
        """Whether a snapshot of a version is due."""
        return version - self.latest(version) >= MOST_CHANGES

    def compact(self, snapshot: Snapshot) -> None:
        """Write a snapshot; the one before it stays, for workers that still read it."""
        self.folder.write_json(SNAPSHOTS, snapshot.version, asdict(snapshot))
        kept = sorted(self.folder.numbers(SNAPSHOTS))[-2:]
        for number in self.folder.numbers(SNAPSHOTS):
            if number < kept[0]:
                self.folder.delete(SNAPSHOTS, f"{number}.json")
        for number in self.folder.numbers(REGISTRY):
            if number <= kept[0]:
                self.folder.delete(REGISTRY, f"{number}.json")


_VIEWS: dict[str, View] = {}


@dataclass(frozen=True)
class FolderQueries:
    """The registry in a state folder, as units see it; a process keeps what it has read."""

    log: FolderLog

    @property
    def name(self) -> str:
        return self.log.folder.uri

    def at(self, queries: Mapping[str, Any]) -> Mapping[str, Registered]:
        return _VIEWS.setdefault(self.name, View(self.log)).at(queries)
