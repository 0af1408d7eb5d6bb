"""Everything that can be known of a checkpoint's files, looked at: every document, every byte of every segment, Spark's own logs, and what nobody names.

    damage      a restart would be refused, or stopped when the file is read
    unreachable nobody needs the file: attempts that failed have left it, and the next run deletes it

`start()` compares what a restart needs and stops at the first thing that is wrong; a segment's bytes are compared when a unit reads them. This looks at all of it, at every batch that is
kept, and goes on.

Invariant: nothing is written. A file that a restart from the latest batch would read, and that is not what was written, is named.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from watersmeet.columns.arrow import from_bytes
from watersmeet.errors import CheckpointError
from watersmeet.registry.versions import read_version
from watersmeet.runtime.checkpoints.stored import open_folder
from watersmeet.runtime.rounds.check import find_latest
from watersmeet.runtime.rounds.checkpoint import (
    COMMITS,
    INTENTS,
    LETTERS,
    MAIL,
    MANIFESTS,
    METADATA,
    OFFSETS,
    SEGMENTS,
    UPGRADES,
    SparkLogs,
    StateFolder,
)
from watersmeet.runtime.rounds.upgrades import UpgradeRecord, list_held
from watersmeet.runtime.sites.mailbox import TAKEN, list_waiting, read_run, read_sent, read_taken
from watersmeet.runtime.subscriptions.log import REGISTRY, SNAPSHOTS, FolderLog
from watersmeet.storage.document import Document
from watersmeet.storage.manifest import BatchManifest, Intent, check_query
from watersmeet.storage.segment import Segment, SegmentInfo

_OWN = {MANIFESTS: BatchManifest, INTENTS: Intent}


@dataclass(frozen=True)
class Finding:
    """Something about a file of a checkpoint."""

    file: str
    """Its path below the checkpoint."""
    problem: str
    is_harmless: bool = False
    """Whether the query goes on exactly, whatever is in the file."""

    def __str__(self) -> str:
        return f"{self.file}: {self.problem}"


def verify(checkpoint: Any) -> list[Finding]:
    """What is wrong with a checkpoint of `start()`, damage first; an empty list: nothing.

    >>> from watersmeet.runtime.checkpoints.verify import verify
    >>> [f for f in verify("checkpoints/q") if not f.is_harmless]  # doctest: +SKIP
    []
    """
    found = list(dict.fromkeys(_Verification(open_folder(checkpoint)).run()))
    return sorted(found, key=lambda finding: finding.is_harmless)


class _Verification:
    """One look at a checkpoint."""

    def __init__(self, folder: StateFolder) -> None:
        self.folder, self.logs = folder, SparkLogs.beside(folder)
        self.root = folder.beside()
        self.query_id: str | None = None

    def run(self) -> Iterator[Finding]:
        yield from self._ask(METADATA, self._find_query)
        yield from self._ask(METADATA, lambda: find_latest(self.folder, self.logs, self.query_id))
        yield from (f for kind in (OFFSETS, COMMITS) for f in self._ask(kind, lambda k=kind: self.logs.latest(k)))  # type: ignore[misc]
        documents = [(kind, n) for kind in _OWN for n in self.folder.numbers(kind)]
        for kind, number in documents:
            yield from self._ask(_name(kind, number), lambda k=kind, n=number: self._check_document(k, n))  # type: ignore[misc]
        if self.folder.names(SNAPSHOTS) or self.folder.names(REGISTRY):
            yield from self._check_registry(FolderLog(self.folder))
        latest = max(self.folder.numbers(MANIFESTS), default=-1)
        for number in self.folder.numbers(MANIFESTS):
            yield from self._check_state(number, is_latest=number == latest)
        if self.folder.names(LETTERS):
            yield from self._check_letters(latest)
        for number in self.folder.numbers(UPGRADES):
            yield from self._ask(_name(UPGRADES, number), lambda n=number: self._check_upgrade(n))  # type: ignore[misc]
        yield from self._find_unreachable()

    def _find_query(self) -> None:
        """Whose state it is; if several documents agree on another query than Spark's file, that file is the stranger."""
        self.query_id = self.logs.query_id()
        others = [document.query_id for document in self._documents()]
        if self.query_id is not None and len(others) > 1 and {self.query_id}.isdisjoint(others) and len({*others}) == 1:
            named, self.query_id = self.query_id, others[0]
            raise CheckpointError(
                f"{self.logs.path(METADATA)} names Spark's query {named}, and all that is beside it is of {self.query_id}"
            )

    def _documents(self) -> Iterator[BatchManifest | Intent]:
        """Those that can be read."""
        for kind, of in _OWN.items():
            for number in self.folder.numbers(kind):
                with suppress(CheckpointError):
                    yield self.folder.load(kind, number, of)  # type: ignore[misc]

    def _ask(self, file: str, check: Callable[[], Any], *, is_harmless: bool = False) -> Iterator[Finding]:
        """What a check raises, as a finding about the file that it names."""
        try:
            check()
        except CheckpointError as error:
            text = str(error).partition("\n")[0]
            named = text.partition(f"{self.root}/")[2].split(" ")[0].rstrip(":;,")
            yield Finding(named or file, text.replace(f"{self.root}/{named} ", "", 1), is_harmless)

    def _check_document(self, kind: str, number: int) -> None:
        """That it is whole, of this query, and agrees with Spark's logs, as far as these must still be there."""
        document: Document = self.folder.load(kind, number, _OWN[kind])
        assert isinstance(document, BatchManifest | Intent)
        if self.query_id is not None:
            check_query(document.query_id, self.query_id, self.folder.path(kind, f"{number}.json"))
        if number >= max(self.folder.numbers(MANIFESTS), default=-1):
            self.logs.check(document.spark)

    def _check_registry(self, log: FolderLog) -> Iterator[Finding]:
        """That all its files are whole and its own, from the oldest snapshot on, and that the latest batch's queries can be read."""
        latest = max(self.folder.numbers(MANIFESTS), default=None)
        checks: list[Callable[[], Any]] = [log.check, log.check_feed]
        checks += [lambda n=n: log.snapshot(n) for n in self.folder.numbers(SNAPSHOTS)]  # type: ignore[misc]
        checks += [lambda n=n: list(log.changes(n - 1, n)) for n in self.folder.numbers(REGISTRY)]  # type: ignore[misc]
        checks.append(lambda: list(log.past()))
        if latest is not None:
            checks.append(lambda: read_version(log, self.folder.load(MANIFESTS, latest, BatchManifest).queries))
        for check in checks:
            yield from self._ask(self._below(SNAPSHOTS), check)

    def _check_state(self, number: int, *, is_latest: bool) -> Iterator[Finding]:
        try:
            manifest = self.folder.load(MANIFESTS, number, BatchManifest)
        except CheckpointError:
            return  # named already
        for _, _, info in manifest.segments():
            name = f"{self._below(SEGMENTS)}/{info.file}"
            yield from self._ask(name, lambda i=info: self._check_segment(i), is_harmless=not is_latest)  # type: ignore[misc]

    def _check_letters(self, latest: int) -> Iterator[Finding]:
        """That a site has the letters that others have not taken yet, and those that a batch has taken that is not committed."""
        checks: list[Callable[[], Any]] = [lambda: read_run(self.folder)]
        with suppress(CheckpointError):  # named already
            intents = [self.folder.load(INTENTS, number, Intent) for number in self.folder.numbers(INTENTS)]
            me = next((str(intent.plan["at"]) for intent in intents), "")
            waiting = {} if latest < 0 or not me else list_waiting(self.folder.load(MANIFESTS, latest, BatchManifest))
            checks += [lambda t=t, n=n: read_sent(self.folder, me, t, n) for t, wait in waiting.items() for n in wait]  # type: ignore[misc]
            taken = [one for intent in intents if intent.batch > latest for one in intent.sites[TAKEN]]
            checks += [lambda s=s, n=n: read_taken(self.folder, s, me, n) for s, n in taken]  # type: ignore[misc]
        for check in checks:
            yield from self._ask(self._below(LETTERS), check)

    def _check_upgrade(self, number: int) -> None:
        """That its record is whole, and carried out."""
        if not self.folder.load(UPGRADES, number, UpgradeRecord).is_done:
            path = self.folder.path(UPGRADES, f"{number}.json")
            raise CheckpointError(f"{path} is not carried out: the process died; the next start does it")

    def _check_segment(self, info: SegmentInfo) -> None:
        """That its bytes are those that were written, and hold what the manifest says."""
        segment = Segment(info.id, from_bytes(self.folder.read_segment(info)).combine_chunks())
        said, held = (info.rows, info.min_ts, info.max_ts), (segment.rows, segment.min_ts, segment.max_ts)
        if said != held:
            path = self.folder.path(SEGMENTS, info.file)
            raise CheckpointError(f"{path} holds (rows, oldest, newest) {held}, and the manifest says {said}")

    def _find_unreachable(self) -> Iterator[Finding]:
        """Files that no document names."""
        named: set[str] = set()
        for number in self.folder.numbers(MANIFESTS):
            try:
                named |= self.folder.load(MANIFESTS, number, BatchManifest).files()
            except CheckpointError:
                return  # what it names is not known
        with suppress(CheckpointError):
            named |= set[str]().union(*(files for _, files in list_held(self.folder).values()))
        left = [(SEGMENTS, name) for name in self.folder.names(SEGMENTS) if name not in named]
        left += [(MAIL, name) for name in self.folder.names(MAIL)]
        for kind in _OWN:
            left += [(kind, n) for n in self.folder.names(kind) if not n.removesuffix(".json").isdigit()]
        for kind, name in left:
            yield Finding(f"{self._below(kind)}/{name}", "unreachable: nobody names it; the next run deletes it", True)

    def _below(self, kind: str) -> str:
        return self.folder.path(kind).removeprefix(f"{self.root}/")


def _name(kind: str, number: int) -> str:
    return f"watersmeet/{kind}/{number}.json"
