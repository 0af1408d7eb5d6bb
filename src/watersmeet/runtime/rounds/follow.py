"""A query of Spark Connect, followed from its client.

    client                     server
    start(): Protocol --copy--> a Python worker runs the batches, and writes manifests and progress/n.json
    Handle  <------------------ the checkpoint

The server's workers share nothing with the client but files. So the client must see the checkpoint under the address that the server knows it by; `check_shared` asks
before the query runs.

Invariant: what is said of a batch is what was written when it was over. Nothing is written here.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pyspark.sql import functions as F

from watersmeet.errors import CheckpointError, OptionError
from watersmeet.runtime.progress import Figures, Progress
from watersmeet.runtime.rounds.checkpoint import MANIFESTS, PROGRESS, StateFolder
from watersmeet.runtime.rounds.sinks import ConsoleSink, MemorySink, Sink
from watersmeet.runtime.spark.versions import is_connect
from watersmeet.storage.manifest import BatchManifest

POLL_SECONDS = 0.2
TRIES = 20


class Followed:
    """The batches of a run, as its checkpoint tells them."""

    error: BaseException | None = None
    """Stays None: what a batch raised comes as Spark's text."""

    def __init__(self, folder: StateFolder, since: int, query: Any) -> None:
        """since: the latest batch that was committed before this run."""
        self.folder, self.since, self.query = folder, since, query
        self._call: Callable[[Progress], None] | None = None
        self._known: dict[int, Figures] = {}
        """By batch what has been read, of batches that are still told of: a page asks four times a second."""

    @property
    def told(self) -> list[Figures]:
        """What the last batches of this run did."""
        known: dict[int, Figures] = {}
        for number in self.folder.numbers(PROGRESS):
            if number > self.since:
                known |= {number: self._known[number]} if number in self._known else self._read(number)
        self._known = known
        return list(known.values())

    def _read(self, number: int) -> Mapping[int, Figures]:
        try:
            return {number: self.folder.load(PROGRESS, number, Figures)}
        except CheckpointError:
            if self.folder.has(PROGRESS, number):
                raise
            return {}  # a later batch has deleted it

    @property
    def latest(self) -> BatchManifest | None:
        """What is true after the latest batch."""
        for _ in range(TRIES):
            number = max(self.folder.numbers(MANIFESTS), default=None)
            if number is None:
                return None
            try:
                return self.folder.load(MANIFESTS, number, BatchManifest)
            except CheckpointError:
                if self.folder.has(MANIFESTS, number):
                    raise
        raise CheckpointError(f"{TRIES} manifests were replaced while they were read; give batches a longer trigger")

    @property
    def on_batch(self) -> Callable[[Progress], None] | None:
        """Is called with every batch from now on, in a thread of its own."""
        return self._call

    @on_batch.setter
    def on_batch(self, call: Callable[[Progress], None] | None) -> None:
        begun, self._call = self._call is not None, call
        if call is not None and not begun:
            threading.Thread(
                target=self._tell, args=(max(self.folder.numbers(PROGRESS), default=-1),), daemon=True
            ).start()

    def _tell(self, last: int) -> None:
        runs = True
        while runs:
            runs = bool(self.query.isActive)
            for number in (n for n in self.folder.numbers(PROGRESS) if n > max(last, self.since)):
                for figures in self._read(number).values():
                    if self._call is not None:
                        self._call(figures.progress())
                last = number
            time.sleep(POLL_SECONDS)


@dataclass
class _Sees:
    """Whether a worker has a folder under the address that the client has it by."""

    folder: StateFolder

    def __call__(self, _: int) -> bool:
        if self.folder.is_local:
            return os.path.isdir(self.folder.path(MANIFESTS))
        self.folder.names(MANIFESTS)  # raises what stands in the way
        return True


def check_shared(spark: Any, folder: StateFolder) -> None:
    """Raise if a server does not see the checkpoint that this client sees."""
    seen = F.udf(_Sees(folder), "boolean", useArrow=False)
    if not spark.range(0, 1, 1, 1).select(seen("id")).collect()[0][0]:
        raise OptionError(
            f"checkpoint={folder.beside()!r}: the Spark Connect server does not see this folder of the client's; "
            "give one that both reach by the same address, such as a shared path or an object store"
        )


def check_sinks(spark: Any, *sinks: Sink | None) -> None:
    """Raise if a sink would keep, or show, results in a server's process."""
    for to in sinks:
        if is_connect(spark) and isinstance(to, MemorySink | ConsoleSink):
            name = "memory" if isinstance(to, MemorySink) else "console"
            raise OptionError(
                f"{name!r} is in the process that runs the batches, and on Spark Connect that is a worker of the server's: "
                "give a folder or a function (rows, batch_id), or use a classic session"
            )
