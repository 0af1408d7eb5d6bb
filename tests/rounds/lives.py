"""Lives of a process over a checkpoint, without a JVM: a query by itself, and registered queries.

Protocol, programs, segments, mail, orders and reports are the runtime's own; `mini_spark` plays Spark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable
from functools import cache
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest

from tests.rounds.mini_spark import FolderSink, MiniSpark, plain
from tests.rounds.stage import Stage, prepared
from tests.rounds.test_subscriptions import SPECS, InProcess, batch_of, once, sql
from watersmeet import Stream
from watersmeet.registry import versions
from watersmeet.registry.plan import RegistryPlan
from watersmeet.registry.versions import Queries
from watersmeet.runtime.checkpoints.upgrade import Sinks, end_upgrade, upgrade
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.rounds import files, posting, running, sinks, systems
from watersmeet.runtime.rounds.batch import Account, Batch
from watersmeet.runtime.rounds.check import check_checkpoint
from watersmeet.runtime.rounds.checkpoint import StateFolder
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.running import Running
from watersmeet.runtime.subscriptions import log as log_module
from watersmeet.runtime.subscriptions.engines import engine_of
from watersmeet.runtime.subscriptions.feed import TakeIn
from watersmeet.runtime.subscriptions.log import FEED, FolderLog
from watersmeet.runtime.subscriptions.registry import Registry
from watersmeet.storage.cache import CACHE

FILES = 6
"""Of each stream; a batch takes up to two."""
HERE = pytest.mark.parametrize("here", [(), (1, 2, 4)], ids=["by jobs", "now and then in the driver"])
"""The batches whose rounds run in the driver."""
PAIR = "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = {} SECONDS"


class Rows:
    """Results of a batch, as `FolderSink` takes them."""

    sparkSession = None

    def __init__(self, run: Callable[[], Iterable[pa.RecordBatch]]) -> None:
        self._run = run

    def __call__(self) -> list[list[Any]]:
        return plain(pa.Table.from_batches([batch]) for batch in self._run())


@cache
def wires(seconds: int, count: int = FILES) -> LocalRun:
    """A plan, and all the wire rows of both streams: what file n holds are four of them."""
    whole = {n: pa.concat_tables([batch_of(f)[n] for f in range(count)]) for n in SPECS}
    return prepared(PAIR.format(seconds), {n: Stream(t, time="ts") for n, t in whole.items()}, units=2)


class Played(Stage):
    """Supersteps of a query by itself."""

    batches_here: Collection[int] = ()
    """The batches whose rounds run in the driver."""

    def over(self, hosts: list[str], step: Any, orders: str) -> Any:
        return Rows(super().over(hosts, step, orders))

    def run(self, batch: Batch, deliver: Any) -> Account:
        self.joins_here = batch.state.batch in self.batches_here
        wires = {a: pa.concat_tables([w.slice(4 * f, 4) for f in batch.entered.files]) for a, w in self.wires.items()}
        batch.entered = self.taken(wires, batch.decisions, batch.attempt)
        return Running(self, batch, deliver).run()  # type: ignore[arg-type]


class Life:
    """A process, from its start on. What `start()` would refuse, this refuses."""

    def __init__(self, checkpoint: Path, sink: Path, seconds: int = 4, count: int = FILES) -> None:
        CACHE._segments.clear()
        versions._HELD.clear()
        self.folder, self.sink = StateFolder.under(str(checkpoint)), FolderSink(str(sink), "json")
        self.checkpoint, self.count = checkpoint, count
        self.folder.prepare()
        self.protocol = self.made(seconds)
        end_upgrade(self.folder)
        check_checkpoint(self.protocol.plan, self.folder, self.sink.folder)

    @staticmethod
    def sink_of(path: Path) -> SinkFolder:
        return FolderSink(str(path), "json").folder

    def made(self, seconds: int) -> Protocol:
        run = wires(seconds, self.count)
        steps: Any = Played(run.plan, run, self.folder)
        for module in (files, posting):
            module.TaskContext = steps  # type: ignore[attr-defined]
        return Protocol(run.plan, steps, self.folder, self.sink, Decider(run.plan))

    def run(self, files: int, dies: str = "") -> None:
        """Join what there is; dies: where, in the last batch."""
        spark = MiniSpark(self.checkpoint, most=2)

        def call(taken: list[int], batch: int, id: str) -> None:
            self.sink.dies = dies if max(taken) == files - 1 else ""
            self.protocol(self.frame(taken), batch)

        spark.run(call, files, dies == "before Spark's commit")

    def frame(self, taken: list[int]) -> Any:
        return SimpleNamespace(files=taken)

    def rows(self) -> Counter[Any]:
        """All that has been found."""
        return self.sink.rows()


class Registered(Life):
    """The same of registered queries."""

    def made(self, seconds: int) -> Protocol:
        log = FolderLog(self.folder)
        log.prepare()
        plan = RegistryPlan(SPECS, *log.placement(2, "shared"))
        registry = Registry(SPECS, log)
        if not registry.list():
            for n in range(4):  # so that a snapshot is due
                registry.add_all([(f"q{n}", sql(seconds + n)), (f"once{n}", once(10 + 2 * n))])
        steps: Any = InProcess(plan, engine_of(plan, Queries(log)), self.folder)
        return Protocol(plan, steps, self.folder, self.sink, registered=registry)

    def frame(self, taken: list[int]) -> Any:
        tables = {n: pa.concat_tables([batch_of(f)[n] for f in taken]) for n in SPECS}
        return SimpleNamespace(tables=tables)


class Fed(Registered):
    """The same of queries most of which come by a feed: a row for every file, and what it says holds from the batch of that file on."""

    def made(self, seconds: int) -> Protocol:
        protocol = super().made(seconds)
        assert isinstance(protocol.registered, Registry)
        self.seconds, self.take_in = seconds, TakeIn(protocol.registered, FolderLog(self.folder))
        self.take_in.log.check_feed()
        return protocol

    def run(self, files: int, dies: str = "") -> None:
        for there in range(1, files + 1):
            feed = MiniSpark(self.checkpoint / FEED, most=1)
            feed.run(lambda taken, batch, _: self.take_in(self.requests(taken), batch), there)  # type: ignore[arg-type]
            super().run(there, dies if there == files else "")

    def requests(self, taken: list[int]) -> Any:
        rows = [(f"fed{f}", "add", sql(self.seconds + f)) for f in taken]
        rows += [(f"fed{f - 2}", "remove", None) for f in taken if f > 1]
        return SimpleNamespace(collect=lambda: rows)


class Upgraded(Life):
    """The same of a query that took over the state of another one after its first batch."""

    def made(self, seconds: int) -> Protocol:
        is_new = not (self.checkpoint / "metadata").exists()
        if is_new:
            Life(self.checkpoint, Path(self.sink.path), seconds + 1, self.count).run(1)
        protocol = super().made(seconds)
        if is_new:
            assert upgrade(wires(seconds, self.count).plan, self.folder, Sinks(self.sink.folder)) is not None
        return protocol


def patch(monkeypatch: pytest.MonkeyPatch) -> None:
    """Frames of lives run in this process."""
    for module in (running, sinks):
        monkeypatch.setattr(module, "compute", lambda frame: frame() if callable(frame) else None)
    for module in (files, posting):
        monkeypatch.setattr(module, "TaskContext", None)
    monkeypatch.setattr(log_module, "MOST_CHANGES", 3)
    monkeypatch.setattr(systems.os, "fsync", lambda handle: None)  # the machine lives on, and disks are slow
