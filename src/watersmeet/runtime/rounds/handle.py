"""Starting a query on the rounds runtime, and what one can ask of it while it runs.

Invariant: what is wrong with the arguments is raised by `start`, in the driver; what goes wrong later is raised by
`await_termination`, as the error it was.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.errors import OptionError, StreamError
from watersmeet.operators.assemble import PlanFlows
from watersmeet.plan.explain.explanation import Detail, Explanation
from watersmeet.plan.model import Plan
from watersmeet.plan.shipping import MEMORY, NETWORK
from watersmeet.query.scaling import Scaling
from watersmeet.runtime.checkpoints.upgrade import Sinks, Told, end_upgrade, read_sources
from watersmeet.runtime.checkpoints.upgrade import upgrade as upgrade_checkpoint
from watersmeet.runtime.checkpoints.verdicts import show_instant
from watersmeet.runtime.given import trigger_of
from watersmeet.runtime.observing import OfHandle, describe_plan, serve, waits_of
from watersmeet.runtime.progress import Moment, Progress, moment
from watersmeet.runtime.rounds.check import check_checkpoint
from watersmeet.runtime.rounds.checkpoint import (
    MANIFESTS,
    NAME,
    PROGRESS,
    SparkLogs,
    StateFolder,
    absolute,
)
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.rounds.follow import Followed, check_shared, check_sinks
from watersmeet.runtime.rounds.protocol import KEPT, MOST_KEPT, Protocol
from watersmeet.runtime.rounds.results.outlet import outlet_of
from watersmeet.runtime.rounds.sinks import (
    FileSink,
    MemorySink,
    NoopSink,
    Sink,
    TakesBatches,
    attach,
    check_names,
    columns_given,
    sink,
)
from watersmeet.runtime.rounds.supersteps import Supersteps
from watersmeet.runtime.rounds.systems import check_reach
from watersmeet.runtime.sources import ROUNDS
from watersmeet.runtime.spark.allocation import executors_of
from watersmeet.runtime.spark.executors import count_cores
from watersmeet.runtime.spark.failures import raise_unwrapped, unwrap
from watersmeet.runtime.spark.gauges import gauges_of
from watersmeet.runtime.spark.plan import count_sources
from watersmeet.runtime.spark.session import start_query
from watersmeet.runtime.spark.stores import lend_settings
from watersmeet.runtime.spark.versions import is_connect
from watersmeet.runtime.spark.workers import probe_workers
from watersmeet.runtime.stream.dataframe import SETTINGS
from watersmeet.storage.manifest import OTHER, REWRITTEN, BatchManifest
from watersmeet.view.notebook import show_lines, show_live
from watersmeet.view.server import Api, Page

_ARROW = "spark.sql.execution.arrow"
ROUNDS_SETTINGS = {
    f"{_ARROW}.maxBytesPerBatch": SETTINGS[f"{_ARROW}.maxBytesPerBatch"],
    f"{_ARROW}.maxRecordsPerBatch": "32768",
}
"""Set where the user has not: rows cross to Python in few, large batches, but not in batches of any size."""


POSTED = "source tasks post tuples to units, through files of the checkpoint"
READ = f"{POSTED}; they read the Parquet files of the streams themselves"
SHUFFLED = "Spark shuffles tuples to units; what units send each other goes through files of the checkpoint"


@dataclass(frozen=True)
class UnitState:
    """What one unit keeps."""

    rows: int
    bytes: int
    segments: int
    oldest: Moment
    """Event time of the oldest tuple."""
    newest: Moment
    rewritten: int = 0
    """Rewritten queries that wait, under RJoin."""


def start(
    plan: Plan,
    frames: Mapping[str, DataFrame],
    *,
    sink_: Any,
    checkpoint: Any,
    trigger: Any,
    name: str | None = None,
    scaling: Scaling | None = None,
    late: Any = None,
    partition_by: Any = None,
    keep: Any = KEPT,
    upgrade: bool = False,
) -> Handle:
    """Start a query over streaming DataFrames, and tables that they are joined with, by name."""
    if not all(frames[name].isStreaming for name in plan.streams):
        raise StreamError("start() runs streams; static DataFrames are joined by dataframe()")
    trigger_of(trigger)
    check_keep(keep)
    folder, to = folder_of(checkpoint), sink(sink_, partition_by=columns_given(partition_by))
    lost = None if late is None else sink(late, "late")
    check_apart(to, lost)
    check_names(to, [output.name for output in plan.join.results])
    check_sinks(next(iter(frames.values())).sparkSession, to, lost)
    Decider(plan, scaling)  # what cannot be scaled is said now
    spark = next(iter(frames.values())).sparkSession
    probe_workers(spark)
    reach_stores(spark, folder, to, lost)
    folder.prepare()
    flows = PlanFlows(plan)
    flows.under({})  # what cannot run is said now
    told = take_over(plan, frames, folder, (to, lost)) if upgrade else None
    steps = Supersteps(
        flows,
        outlet_of(plan, frames),
        frames,
        folder,
        query=plan,
        posts=None if scaling is None else True,
        late=lost is not None,
        takes_batches=isinstance(to, TakesBatches),
        keeps_nothing=isinstance(to, NoopSink),
        folder_of_results=to if isinstance(to, FileSink) else None,
        folder_of_late=lost if isinstance(lost, FileSink) else None,
        order=read_sources(folder),
    )
    adapts = plan.shipping == "auto" and steps.posts and scaling is None
    cores = count_cores(spark) if steps.posts and (scaling is None or scaling.hot_keys) else 0
    decider = Decider(
        plan,
        scaling,
        _bandwidth(plan, spark),
        adapts_shipping=adapts,
        cores=cores,
        executors=executors_of(scaling, spark),
    )
    decider.carried = [READ if steps.reads_files else POSTED if steps.posts else SHUFFLED]
    handle = launch(Protocol(plan, steps, folder, to, decider, late=lost, keep=keep), checkpoint, trigger, name)
    handle.upgraded = told
    return handle


def take_over(
    plan: Plan, frames: Mapping[str, DataFrame], folder: StateFolder, sinks: tuple[Sink, Sink | None]
) -> Told | None:
    """Hand a checkpoint over to a plan; what is not complete is a warning."""
    attach(sinks, SparkLogs.beside(folder), next(iter(frames.values())).sparkSession)
    results, lost = (to.folder if isinstance(to, FileSink) else None for to in sinks)
    added = {i.alias: partial(count_sources, frames[i.stream]) for i in plan.inputs}
    told = upgrade_checkpoint(plan, folder, Sinks(results, lost), added)
    if told is not None and told.since is not None:
        warnings.warn(str(told), UserWarning, stacklevel=5)
    return told


def check_keep(keep: Any) -> None:
    """Refuse what is no number of batches whose state can stay."""
    if isinstance(keep, bool) or not isinstance(keep, int) or not KEPT <= keep <= MOST_KEPT:
        raise OptionError(
            f"keep={keep!r}: give how many batches a checkpoint can be set back by, from {KEPT} to {MOST_KEPT}"
        )


def reach_stores(spark: Any, folder: StateFolder, *sinks: Sink | None) -> None:
    """Let all that runs reach the object stores of a query; raise if the checkpoint's cannot be written."""
    lend_settings(spark, [folder.uri, *(to.path for to in sinks if isinstance(to, FileSink))])
    check_reach(folder.files, folder.path(), f"checkpoint={folder.uri.removesuffix(f'/{NAME}')!r}")


def check_apart(results: Sink, lost: Sink | None) -> None:
    """Results and dropped rows have different columns."""
    folders = [to.path.rstrip("/") for to in (results, lost) if isinstance(to, FileSink)]
    if lost is results or len(folders) > len(set(folders)):
        where = folders[0] if folders else lost
        raise OptionError(
            f"late={where!r} is the sink of the results: late rows have other columns; give them a sink of their own"
        )


def folder_of(checkpoint: Any) -> StateFolder:
    """The state folder under a checkpoint."""
    if not isinstance(checkpoint, (str, os.PathLike)) or not os.fspath(checkpoint):
        raise OptionError(
            f"checkpoint={checkpoint!r}: give a folder of this query's own; state and progress live in it"
        )
    return StateFolder.under(os.fspath(checkpoint))


def launch(
    protocol: Protocol,
    checkpoint: Any,
    trigger: Any,
    name: str | None,
    on_batch: Callable[[Progress], None] | None = None,
) -> Handle:
    """Let Spark call a protocol with every micro-batch; what is wrong with the checkpoint or the sink is said before."""
    to, late, spark, folder = protocol.sink, protocol.late, protocol.steps.spark, protocol.folder
    attach((to, late), protocol.logs, spark)
    results = to.folder if isinstance(to, FileSink) else None
    lost = late.folder if isinstance(late, FileSink) else None
    elsewhere = is_connect(spark)
    protocol.records = elsewhere or folder.is_local
    if protocol.records:
        folder.prepare(PROGRESS)
    if elsewhere:
        check_shared(spark, folder)
    end_upgrade(folder)
    check_checkpoint(protocol.plan, folder, results, lost)
    for setting, value in ROUNDS_SETTINGS.items():
        if spark.conf.get(setting, None) is None:
            spark.conf.set(setting, value)
    if not elsewhere:
        protocol.on_batch = on_batch
    writer = protocol.steps.source().writeStream.foreachBatch(protocol)
    writer = writer.option("checkpointLocation", absolute(os.fspath(checkpoint))).trigger(**trigger_of(trigger))
    if name is not None:
        writer = writer.queryName(name)
    last = max(folder.numbers(MANIFESTS), default=-1)
    query = start_query(writer, spark, is_local=folder.is_local)
    run = Followed(folder, last, query) if elsewhere else protocol
    run.on_batch = on_batch
    return Handle(query, protocol, run)


def _bandwidth(plan: Plan, spark: Any) -> float:
    """Bytes per second between units: as given, else that of memory where all tasks run on one machine."""
    if plan.bandwidth is not None:
        return plan.bandwidth
    return MEMORY if (spark.conf.get("spark.master", None) or "").startswith("local") else NETWORK


class Handle:
    """A running query; `Query.start` gives it.

    >>> handle = query.start(sink="results", checkpoint="checkpoints/q")  # doctest: +SKIP
    >>> handle.await_termination(10)  # doctest: +SKIP
    False
    >>> handle.progress().results  # doctest: +SKIP
    321
    >>> handle.stop()  # doctest: +SKIP
    """

    def __init__(self, query: Any, protocol: Protocol, run: Protocol | Followed | None = None) -> None:
        self.query = query
        """Spark's own StreamingQuery."""
        self._protocol = protocol
        self._run = protocol if run is None else run
        """Who knows of its batches."""
        self.upgraded: Told | None = None
        """What `start(upgrade=True)` has done; None if there was nothing to do."""

    def __repr__(self) -> str:
        name, last = self.query.name, self.progress()
        title = f"Handle{f' of {name!r}' if name else ''}: {self._status()}"
        return title if last is None else f"{title}\n{last!r}"

    def _repr_html_(self) -> str:
        last = self.progress()
        lines = [
            ("", self._status()),
            *(() if last is None else last.lines()),
            ("live", "handle.serve() gives the address of a page"),
        ]
        return show_lines(f"Handle of {self.query.name!r}" if self.query.name else "Handle", lines)

    def _ipython_display_(self) -> None:
        """In a notebook the handle shows its latest batch, and goes on showing it in its place."""
        show_live(self._repr_html_, self.__repr__, lambda: self.is_active)

    def _status(self) -> str:
        if self.is_active:
            return "running" if self._run.told else "running, before its first batch"
        error = self.exception
        return "ended" if error is None else f"failed with {type(error).__name__}: {str(error).splitlines()[0]}"

    def stop(self) -> None:
        """Stop; the same call of `start` goes on from the checkpoint."""
        self.query.stop()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until the query ends, or for some seconds; whether it has ended. Raises what ended it."""
        try:
            if timeout is None:
                self.query.awaitTermination()
                return True
            return bool(self.query.awaitTermination(timeout))
        except Exception as error:
            raise_unwrapped(error, self._run.error)

    @property
    def exception(self) -> BaseException | None:
        """What ended the query, as `await_termination` raises it; None while it runs, and after `stop`."""
        error = self.query.exception()
        return None if error is None else unwrap(error, self._run.error)

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    def progress(self) -> Progress | None:
        """The latest micro-batch; None before the first."""
        told = self._run.told
        return told[-1].progress() if told else None

    def history(self) -> list[Progress]:
        """The last micro-batches of this run, oldest first."""
        return [figures.progress() for figures in list(self._run.told)]

    def on_batch(self, call: Callable[[Progress], None]) -> None:
        """Have a function called after every micro-batch from now on, in the query's own thread; on Spark Connect in one of this process."""
        self._run.on_batch = call

    def serve(self, port: int = 0, api: Api | None = None, *, spark_metrics: bool = False) -> Page:
        """Serve a live page of the query on this machine's loopback, under an address with a token: `page.url`. `/metrics` of the same server is for Prometheus; `spark_metrics` puts the same figures among Spark's own metrics, too."""
        about = describe_plan(self._protocol.plan, self.query.name, ROUNDS)
        gauges = gauges_of(self.query) if spark_metrics else None
        return serve(OfHandle(self), about, waits_of(self._protocol.plan), port, api, gauges)

    def explain(self, detail: Detail = "short") -> Explanation:
        """The plan as text, with the routing of now if it is not the plan's; "full": with all that has been decided while it runs. `to_dict()` has its facts."""
        protocol = self._protocol
        found = protocol.decider.explain(ROUNDS, detail, self._run.latest)
        latest = self._run.latest
        known = {} if latest is None else latest.known
        lines = list(self.upgraded.lines) if self.upgraded is not None else []
        lines += [f"rows of {alias} are stored from {show_instant(us)} on" for alias, us in known.items() if not lines]
        return found.extend("changed", lines)

    @property
    def latest(self) -> BatchManifest | None:
        """What is true after the latest micro-batch; None before the first."""
        return self._run.latest

    def state(self) -> dict[int, UnitState]:
        """What every unit keeps, after the latest micro-batch."""
        manifest = self._run.latest
        out: dict[int, UnitState] = {}
        for unit in sorted(manifest.units) if manifest is not None else []:
            held = [(alias, i) for u, alias, i in manifest.segments() if u == unit]  # type: ignore[union-attr]
            infos = [i for _, i in held]
            kept = [(alias, i) for alias, i in held if not alias.startswith(OTHER)]
            tuples = [i for alias, i in kept if alias in self._protocol.plan.aliases] or [i for _, i in kept]
            out[unit] = UnitState(
                rows=sum(i.rows for _, i in kept),
                rewritten=sum(i.rows for alias, i in held if alias == REWRITTEN),
                bytes=sum(i.bytes for i in infos),
                segments=len(infos),
                oldest=moment(min(i.min_ts for i in tuples)) if tuples else None,
                newest=moment(max(i.max_ts for i in tuples)) if tuples else None,
            )
        return out

    def late(self) -> DataFrame:
        """The rows that have been dropped so far, if `start` was given a folder or 'memory' for them: stream, ts, lag_us, batch, reason, row."""
        lost, steps = self._protocol.late, self._protocol.steps
        if isinstance(lost, MemorySink):
            found = lost.table()
            return steps.no_late_rows() if found is None else steps.spark.createDataFrame(found)
        if not isinstance(lost, FileSink):
            raise OptionError("late() reads a folder or 'memory' of dropped rows; start the query with late='folder'")
        if lost.folder.is_known and lost.folder.latest() is None:
            return steps.no_late_rows()
        return steps.spark.read.schema(steps.no_late_rows().schema).format(lost.format).load(lost.path)

    def table(self) -> pa.Table | None:
        """All results so far, if the sink is 'memory'."""
        if not isinstance(self._protocol.sink, MemorySink):
            raise OptionError("table() reads the memory sink; start the query with sink='memory'")
        return self._protocol.sink.table()
