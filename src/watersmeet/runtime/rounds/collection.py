"""The files of a state folder that are needed, and the end of those that are not.

What the last `keep` manifests name stays, and what an upgrade that can be undone has replaced. A batch deletes by name what it has made superfluous. Now and then the
whole folder is looked through, for what attempts that failed have left: after a start, after a batch that was repeated, and every SWEEP_EVERY batches.

Invariant: without a sweep nothing is deleted but files of batches before the last `keep`, and of the attempt that has ended mail and segments that its manifest does not name. A sweep is for who knows that its own manifest is there.
"""

from __future__ import annotations

from collections.abc import Set
from contextlib import suppress

from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.checkpoint import INTENTS, MAIL, MANIFESTS, SEGMENTS, UPGRADES, StateFolder
from watersmeet.runtime.rounds.upgrades import list_held
from watersmeet.storage.manifest import BatchManifest

SWEEP_EVERY = 100
"""After so many batches the whole folder is looked through for files of attempts that failed."""


class Collection:
    """Of one run of a query."""

    def __init__(self, folder: StateFolder) -> None:
        self.folder = folder
        self.is_untidy = True
        """Whether attempts may have failed of which nobody knows the files."""
        self._kept: dict[int, set[str]] = {}
        """Files that the manifests name which have not been deleted, by batch."""
        self._held: dict[int, tuple[int, set[str]]] = {}
        """Upgrades that can be undone, see `upgrades.list_held`."""

    def sweeps(self, batch: int) -> bool:
        """Whether the folder is looked through after a batch."""
        return self.is_untidy or batch % SWEEP_EVERY == 0

    def collect(
        self, before: BatchManifest, after: BatchManifest, keep: int, attempt: str, written: Set[str] = frozenset()
    ) -> None:
        """Delete what none of the last `keep` manifests names, of what the attempt has written, too; and its mail, whose names begin with it."""
        number, sweeps = after.batch, self.sweeps(after.batch)
        if before.batch not in self._kept:
            self._kept[before.batch] = before.files()
        self._kept[number] = after.files()
        if self.is_untidy:
            self._kept |= self._name_older(before.batch, keep)
            self._held = list_held(self.folder)
        self.is_untidy = False
        gone = {batch: self._kept.pop(batch) for batch in [*self._kept] if batch <= number - keep}
        old = set[str]().union(written, *gone.values(), *self._let_go(number - keep))
        needed = set[str]().union(*self._kept.values(), *(files for _, files in self._held.values()))
        for name in (set(self.folder.names(SEGMENTS)) if sweeps else old) - needed:
            self.folder.delete(SEGMENTS, name)
        self._delete_mail("" if sweeps else attempt)
        for kind in (INTENTS, MANIFESTS):
            living = {f"{batch}.json" for batch in self._kept}
            for name in set(self.folder.names(kind)) - living if sweeps else {f"{batch}.json" for batch in gone}:
                self.folder.delete(kind, name)  # older, or a part that was never renamed

    def _delete_mail(self, begin: str) -> None:
        for name in self.folder.names(MAIL):
            if name.removeprefix(".").startswith(begin):
                self.folder.delete(MAIL, name)

    def _let_go(self, batch: int) -> list[set[str]]:
        """Forget upgrades that a batch follows from so far that they can be undone no more; the files that they held."""
        gone = [number for number, (after, _) in self._held.items() if after <= batch]
        for number in gone:
            self.folder.delete(UPGRADES, f"{number}.json")
        return [self._held.pop(number)[1] for number in gone]

    def _name_older(self, last: int, keep: int) -> dict[int, set[str]]:
        """What the manifests name that an earlier run has kept; one that cannot be read is not kept."""
        found: dict[int, set[str]] = {}
        for batch in self.folder.numbers(MANIFESTS):
            if last - keep < batch < last:
                with suppress(CheckpointError):
                    found[batch] = self.folder.load(MANIFESTS, batch, BatchManifest).files()
        return found
