"""What the latest committed batch of a state folder keeps, read while other batches may run.

    manifest n -> queries of n -> segments that n names          batch n + 1 commits: still whole
                                                                 batch n + 2 commits: files of n may be gone, begin again

Files are collected when neither of the last two manifests names them. So what is missing has been replaced, or the folder is
damaged: if there is a newer manifest, all is read again from that one, else the error is what it says.

Invariant: everything comes from one manifest and the version of the registry that it names. Nothing is written or cached.
"""

from __future__ import annotations

import threading

import pyarrow as pa

from watersmeet.errors import CheckpointError
from watersmeet.query.join import Join
from watersmeet.registry.kept import find_needs
from watersmeet.registry.placement import read_placement
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.versions import RegistryView
from watersmeet.runtime.rounds.checkpoint import MANIFESTS, StateFolder
from watersmeet.runtime.rounds.files import FileStore
from watersmeet.runtime.subscriptions.ask import read_kept
from watersmeet.runtime.subscriptions.log import FolderLog
from watersmeet.storage.manifest import BatchManifest, Identity, refuse
from watersmeet.storage.segment import SegmentInfo

TRIES = 20


class Latest:
    """The kept tuples of a state folder; may be asked from any thread."""

    def __init__(self, plan: RegistryPlan, folder: StateFolder) -> None:
        self.plan, self.folder = plan, folder
        self._view, self._lock = RegistryView(FolderLog(folder)), threading.Lock()

    def tables(self, join: Join) -> dict[str, pa.Table]:
        """The kept tuples of a query's streams, after the latest batch that has been committed."""
        for _ in range(TRIES):
            batch = max(self.folder.numbers(MANIFESTS), default=None)
            if batch is None:
                return read_kept(self.plan, join, {}, lambda unit, stream: [], 0)
            try:
                return self._after(batch, join)
            except CheckpointError:
                if max(self.folder.numbers(MANIFESTS), default=None) == batch:
                    raise
        raise CheckpointError(
            f"{TRIES} times two micro-batches were committed while the tuples of one were read; ask again, or give batches a longer trigger"
        )

    def _after(self, batch: int, join: Join) -> dict[str, pa.Table]:
        manifest, where = (
            self.folder.load(MANIFESTS, batch, BatchManifest),
            self.folder.path(MANIFESTS, f"{batch}.json"),
        )
        if manifest.fingerprint != self.plan.fingerprint():
            refuse(manifest.fingerprint, manifest.query, manifest.parts, Identity.of(self.plan), where)
        with self._lock:
            units = len(read_placement(manifest.routing, self.plan.units).stored)
            needs = find_needs(self.plan, self._view.at(manifest.queries), manifest.maxima, units)
        found: dict[tuple[int, str], list[SegmentInfo]] = {}
        for unit, kind, info in manifest.segments():
            found.setdefault((unit, kind), []).append(info)
        store = FileStore(self.folder, "")
        return read_kept(
            self.plan, join, needs, lambda unit, stream: map(store.table, found.get((unit, stream), [])), units
        )
