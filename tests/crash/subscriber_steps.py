"""The subscriber, keeping a journal, and killed by its own hand at a moment that nobody can hit from outside.

`python -m tests.crash.subscriber_steps MOMENT COUNT ...` followed by the subscriber's own arguments: it dies when the moment comes
for the COUNT-th time in this life, at "never" not at all. Moments:

    half a version    a registry file is written by half
    version           the file is there, and the call that wrote it has not returned
    before take-in    the feed has planned a batch, and the registry has not heard of it
    after take-in     the registry has the batch's rows, and the feed has not committed it
    snapshot          a snapshot is there, and the files that it replaces, too

Invariant: journal/ has all that was ever decided: N-PID.json is the intent of batch N as a life took it, N.offsets what Spark put
into the batch, and registry files are linked there before they are deleted. Snapshots are due after MOST_CHANGES versions, so that there are some.
"""

from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tests.crash import subscriber
from watersmeet.runtime.rounds.checkpoint import StateFolder
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.systems import ArrowFiles
from watersmeet.runtime.subscriptions import log
from watersmeet.runtime.subscriptions.registry import Registry

NEVER = "never"
MOMENTS = ("half a version", "after take-in", "snapshot", "version", "before take-in")
MOST_CHANGES = 12

Reach = Callable[[str], bool]


def kill() -> None:
    """This process and its JVM."""
    os.killpg(0, signal.SIGKILL)


def watch(method: Callable[..., Any], before: Callable[..., None], after: Callable[..., None]) -> Callable[..., Any]:
    """A method with something before it and something after it, which get its arguments; `after` gets its value as well."""

    def watched(self: Any, *args: Any, **named: Any) -> Any:
        before(self, *args)
        out = method(self, *args, **named)
        after(out, self, *args)
        return out

    return watched


def nothing(*_: Any) -> None:
    pass


def keep(path: Path, text: str) -> None:
    """Write a file; there at once, or not at all."""
    path.with_suffix(".part").write_text(text)
    path.with_suffix(".part").rename(path)


def journalled(journal: Path) -> None:
    """Have intents and registry files kept."""
    journal.mkdir(exist_ok=True)
    (journal / log.REGISTRY).mkdir(exist_ok=True)

    def intended(intent: Any, protocol: Protocol, *_: Any) -> None:
        offsets = Path(protocol.folder.path()).parent / "offsets" / str(intent.batch)
        keep(journal / f"{intent.batch}.offsets", offsets.read_text())
        keep(journal / f"{intent.batch}-{os.getpid()}.json", json.dumps(intent.queries))

    def compacting(self: log.FolderLog, *_: Any) -> None:
        for file in Path(self.folder.path(log.REGISTRY)).glob("[0-9]*.json"):
            kept = journal / log.REGISTRY / file.name
            if not kept.exists():
                os.link(file, kept)

    log.MOST_CHANGES = MOST_CHANGES
    Protocol.intend = watch(Protocol.intend, nothing, intended)  # type: ignore[method-assign]
    log.FolderLog.compact = watch(log.FolderLog.compact, compacting, nothing)  # type: ignore[method-assign]


def mortal(moment: str, count: int) -> None:
    """Have the process killed at a moment."""
    reached: Counter[str] = Counter()

    def dies(at: str) -> bool:
        reached[at] += 1
        return at == moment and reached[at] == count

    def die(at: str) -> None:
        if dies(at):
            kill()

    def writing(self: ArrowFiles, path: str, blob: bytes, durably: bool) -> None:
        if f"/{log.REGISTRY}/" in path and dies("half a version"):
            write(self, path, blob[: len(blob) // 2], durably)
            kill()

    def written(_: None, self: StateFolder, kind: str, name: str, *rest: Any) -> None:
        if kind == log.REGISTRY:
            die("version")
        elif kind == log.SNAPSHOTS and name[0].isdigit():
            die("snapshot")

    write = ArrowFiles._write_beside
    ArrowFiles._write_beside = watch(write, writing, nothing)  # type: ignore[method-assign]
    StateFolder.write = watch(StateFolder.write, nothing, written)  # type: ignore[method-assign]
    Registry.take_in = watch(  # type: ignore[method-assign]
        Registry.take_in, lambda *_: die("before take-in"), lambda *_: die("after take-in")
    )


def main(moment: str, count: str, *arguments: str) -> None:
    """Wrap what is to be watched, and run the subscriber."""
    *_, checkpoint, _, _ = arguments
    journalled(Path(checkpoint).parent / "journal")
    mortal(moment, int(count))
    subscriber.main(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
