"""Lives of a site over its checkpoint, without a JVM: the other site plays along, and letters pass through a folder.

    checkpoint's folder/
        ck          the checkpoint of paris, whose life it is
        tokyo       that of the other
        exchange    what they send each other

File n holds four rows of each stream. After the last a row of the far future releases all that waits, and further files hold nothing: a batch comes anyway, as by a tick.
"""

from __future__ import annotations

import os
from collections import Counter
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa

from tests.rounds.lives import FILES, PAIR, Played
from tests.rounds.mini_spark import FolderSink, MiniSpark
from tests.rounds.stage import Rows, prepared
from tests.rounds.test_subscriptions import SCHEMA, SECOND, SPECS, batch_of
from watersmeet import Sites, Stream
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.rounds import files, posting
from watersmeet.runtime.rounds.check import check_checkpoint
from watersmeet.runtime.rounds.checkpoint import LETTERS, StateFolder
from watersmeet.runtime.rounds.entering import Entrance
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.sites.folder import FolderExchange
from watersmeet.runtime.sites.letters import Correspondence
from watersmeet.runtime.sites.start import SiteDecider, SiteIntake, introduce
from watersmeet.sites.dataflow import SiteFlows
from watersmeet.sites.station import Station
from watersmeet.storage.cache import CACHE
from watersmeet.storage.manifest import Identity

TICKS = 3
"""Files without rows, in which the last letters are taken."""
PLACES = {"r": "paris", "s": "tokyo"}
PLAN = {"r": "s SM-S1", "s": "r SP-S"}


class CutLine(FolderExchange):
    """An exchange that takes no letters while its line is cut."""

    is_cut = False

    def put(self, sender: str, to: str, number: int, blob: bytes) -> None:
        if self.is_cut:
            raise OSError("the line is cut")
        super().put(sender, to, number, blob)


@cache
def wires(seconds: int) -> LocalRun:
    """A plan, and all the wire rows of both streams, the end with them."""
    end = pa.table({"id": [-1], "k": [-1], "ts": [2_000_000_000 * SECOND]}, SCHEMA)
    whole = {n: pa.concat_tables([*(batch_of(f)[n] for f in range(FILES)), end]) for n in SPECS}
    streams = {n: Stream(t, time="ts", site=PLACES[n]) for n, t in whole.items()}
    return prepared(PAIR.format(seconds), streams, sites=Sites(plan=PLAN))


class PlayedSite(Played):
    """Supersteps of one site."""

    def __init__(self, flows: SiteFlows, run: LocalRun, folder: StateFolder) -> None:
        super().__init__(run.plan, run, folder)
        self.plan, self.flows = flows.plan, flows  # type: ignore[assignment]
        self.wires = {a: w for a, w in run.wires.items() if a in flows.plan.by_alias}  # type: ignore[attr-defined]
        self.task = Rows(None, flows, Identity.of(flows.plan), None, folder, None, Entrance())  # type: ignore[arg-type]


class Site:
    """One site's process, from its start on."""

    def __init__(self, at: str, checkpoint: Path, sink: Path, exchange: Path, seconds: int) -> None:
        self.folder, self.sink = StateFolder.under(str(checkpoint)), FolderSink(str(sink), "json")
        self.folder.prepare(LETTERS)
        run = wires(seconds)
        station = Station(run.plan, run.plan.site_names.index(at))
        intake = SiteIntake(run.plan, station)
        self.line = CutLine(os.fspath(exchange))
        letters = Correspondence(station, self.line, self.folder, introduce(station))
        letters.begin()
        self.steps: Any = PlayedSite(SiteFlows(station, intake), run, self.folder)
        self.protocol = Protocol(intake, self.steps, self.folder, self.sink, SiteDecider(run.plan, letters))
        check_checkpoint(intake, self.folder, self.sink.folder)
        self.spark = MiniSpark(checkpoint, most=1)

    def run(self, there: int, dies: str = "", *, is_cut: bool = False) -> None:
        """Batches, until none of the files is left."""
        for module in (files, posting):
            module.TaskContext = self.steps  # type: ignore[attr-defined]
        self.sink.dies, self.line.is_cut = dies, is_cut
        play = lambda taken, batch, _: self.protocol(SimpleNamespace(files=taken), batch)  # noqa: E731
        self.spark.run(play, there, dies == "before Spark's commit")


class AtSite:
    """A site's part of a query, as a `Life`; its last letters have not left when it ends, and the other site goes on beside it."""

    def __init__(self, checkpoint: Path, sink: Path, seconds: int = 4) -> None:
        CACHE._segments.clear()
        root = checkpoint.parent
        self.paris = Site("paris", checkpoint, sink, root / "exchange", seconds)
        self.tokyo = Site("tokyo", root / "tokyo", root / "tokyo out", root / "exchange", seconds)

    def run(self, files: int, dies: str = "") -> None:
        ends = files < FILES
        last = files if ends else FILES + 1 + TICKS
        for there in range(1, last + 1):
            is_last = ends and there == last
            self.paris.run(there, dies if is_last else "", is_cut=is_last)
            self.tokyo.run(there)

    def rows(self) -> Counter[Any]:
        """What both sites have found."""
        return self.paris.sink.rows() + self.tokyo.sink.rows()
