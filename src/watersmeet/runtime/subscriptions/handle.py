"""`wm.subscriptions` on Spark: a registry under the checkpoint, and the rounds runtime that answers it.

    add, remove, feed -> registry log --version--> intent of the next batch -> units -> sink

Queries come and go without a restart: a batch reads the version that its intent names, and the frames that Spark runs
know nothing of queries. The feed is a streaming query of its own, with its checkpoint beside the other.

Invariant: what is wrong with the arguments, or with a query, is raised here, in the driver. A batch that is repeated answers the
queries of its intent, whatever was added since, less those that were removed or have failed since.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.errors import OptionError, StreamError, WatersmeetError
from watersmeet.expressions.evaluator import knows
from watersmeet.query.quotas import Quotas
from watersmeet.query.scaling import Scaling
from watersmeet.query.session import Session
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.limits import check_quotas
from watersmeet.registry.placement import read_placement
from watersmeet.registry.plan import ANSWER_FIELDS, RegistryPlan
from watersmeet.registry.versions import Queries
from watersmeet.runtime.given import trigger_of
from watersmeet.runtime.progress import Progress
from watersmeet.runtime.rounds.checkpoint import MANIFESTS, absolute
from watersmeet.runtime.rounds.follow import check_sinks
from watersmeet.runtime.rounds.handle import Handle, UnitState, folder_of, launch, reach_stores
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.results.leaving import keep
from watersmeet.runtime.rounds.results.outlet import Outlet
from watersmeet.runtime.rounds.sinks import FileSink, NoopSink, TableSink
from watersmeet.runtime.rounds.supersteps import Supersteps
from watersmeet.runtime.spark.allocation import executors_of
from watersmeet.runtime.spark.plan import ANSI, ZONE, session_of
from watersmeet.runtime.spark.versions import is_connect, parallelism
from watersmeet.runtime.spark.workers import probe_workers
from watersmeet.runtime.stream.projected import as_typed
from watersmeet.runtime.subscriptions import engines
from watersmeet.runtime.subscriptions.answer_log import FolderAnswers
from watersmeet.runtime.subscriptions.ask import answer, bind
from watersmeet.runtime.subscriptions.entries import Entry
from watersmeet.runtime.subscriptions.feed import Feed
from watersmeet.runtime.subscriptions.figures import FigureBook
from watersmeet.runtime.subscriptions.front import RegistryFront
from watersmeet.runtime.subscriptions.latest import Latest
from watersmeet.runtime.subscriptions.log import FolderLog
from watersmeet.runtime.subscriptions.registry import Registry
from watersmeet.runtime.subscriptions.scaled import RegistryDecider, RegistryUnits
from watersmeet.runtime.subscriptions.service import Service
from watersmeet.runtime.subscriptions.sinks import answer_sink, answers_of
from watersmeet.storage.manifest import BatchManifest
from watersmeet.view.server import Page

MOST_UNITS = 8
"""Without a word from the user: every unit stores all tuples."""


class Subscriptions(RegistryFront):
    """Continuous queries over the same streams; made by `wm.subscriptions`.

    >>> subs = wm.subscriptions(clicks=clicks, orders=orders, checkpoint="checkpoints/s", sink="answers")  # doctest: +SKIP
    >>> id = subs.add("SELECT o.id FROM clicks c, orders o WHERE c.user = o.user WINDOW = 1 MINUTE")  # doctest: +SKIP
    >>> subs.start().await_termination(10)  # doctest: +SKIP
    False
    >>> subs.remove(id)  # doctest: +SKIP
    """

    def __init__(
        self,
        specs: Mapping[str, StreamSpec],
        frames: Mapping[str, DataFrame],
        *,
        checkpoint: Any,
        sink: Any,
        trigger: Any = None,
        feed: DataFrame | None = None,
        per_query: bool = False,
        units: Any = "auto",
        engine: Any = "auto",
        quotas: Quotas | None = None,
        name: str | None = None,
    ) -> None:
        if not all(f.isStreaming for f in frames.values()):
            raise StreamError("subscriptions run streams; read the sources with spark.readStream")
        self._spark = next(iter(frames.values())).sparkSession
        session = _session(self._spark)
        self._frames, self._checkpoint, self._given_trigger, self._name = dict(frames), checkpoint, trigger, name
        trigger_of(trigger)
        folder = folder_of(checkpoint)
        reach_stores(self._spark, folder)
        log = FolderLog(folder)
        folder.prepare()
        log.prepare()
        self._folder, self._plan = folder, _catalogue(specs, log, units, engine, quotas, self._spark)
        self._wanted: int | None = None if units == "auto" else units
        self._plan = replace(self._plan, session=session, quotas=check_quotas(quotas, self._plan.engine))
        book = FigureBook(self._plan)
        self._registry = Registry(
            specs, log, partial(engines.accept, self._plan), session, book, engines.sharing_of(self._plan.engine)
        )
        self._before: BatchManifest | None = None
        for last in folder.numbers(MANIFESTS)[-1:]:
            self._before = folder.load(MANIFESTS, last, BatchManifest)
            self._resume(self._before)
        self._latest = Latest(self._plan, folder)
        self._sink = answer_sink(sink, per_query, self._registry)
        check_sinks(self._spark, self._sink)
        self._feed = None if feed is None else Feed(feed, self._registry, log, absolute(os.fspath(checkpoint)))
        self._handle: Handle | None = None
        self._on_batch: Callable[[Progress], None] | None = None

    def __repr__(self) -> str:
        status = "running" if self.is_active else "not running"
        title = f"Subscriptions over {', '.join(self._frames)}: {len(self._registry.list()):,} queries, {status}"
        last = self.progress()
        return title if last is None else f"{title}\n{last!r}"

    def _resume(self, manifest: BatchManifest | None) -> None:
        """Take in which queries have taken effect."""
        if manifest is not None and manifest.queries:
            self._registry.resume(manifest.queries)

    def list(self) -> list[Entry]:
        """All registered queries, then what the feed was refused, what has failed and what was suspended lately."""
        if self._handle is None or not is_connect(self._spark):
            return super().list()
        self._resume(self._handle.latest)  # batches run elsewhere: what is known of them is in the checkpoint
        last = self.progress()
        dearest = {} if last is None else {q.id: q._replace(batch_answers=None) for q in last.dearest}
        return [replace(entry, figures=dearest.get(entry.id)) for entry in super().list()]

    def ask(self, sql: str) -> pa.Table:
        """The answer to a query over the tuples that are kept after the latest micro-batch; it leaves no trace.

        It runs in this process, also while micro-batches do. A tuple is kept as long as a registered query may use it, from the micro-batch
        on in which that query took effect; what no query reads is not kept, and asking for it is an error.
        """
        join = bind(sql, self._plan)
        return answer(join, self._latest.tables(join))

    def start(self, *, scaling: Scaling | None = None) -> Subscriptions:
        """Start, or go on from the checkpoint. What the feed holds under 'availableNow' is taken in first. With `scaling` units come and go with the load; then `units=` is how many there are at first."""
        if self._handle is not None and self._handle.is_active:
            raise OptionError("these subscriptions are running already; stop() them first")
        probe_workers(self._spark)
        if self._feed is not None:
            self._feed.start(trigger_of(self._given_trigger))
        flows = engines.engine_of(self._plan, Queries(FolderLog(self._folder)))
        to = self._sink if isinstance(self._sink, FileSink) else None
        outlet = Outlet(ANSWER_FIELDS, as_answers, select_inside=lambda _: keep)
        forgets = isinstance(self._sink, NoopSink)
        steps = Supersteps(flows, outlet, self._frames, self._folder, keeps_nothing=forgets, folder_of_results=to)
        units = RegistryUnits(self._plan, self._wanted, scaling)
        decider = RegistryDecider(units, executors_of(scaling, self._spark))
        protocol = Protocol(self._plan, steps, self._folder, self._sink, decider, registered=self._registry)
        self._handle = launch(protocol, self._checkpoint, self._given_trigger, self._name, self._on_batch)
        return self

    def stop(self) -> None:
        """Stop; `start` goes on from the checkpoint."""
        self._require_handle().stop()
        if self._feed is not None:
            self._feed.stop()

    def await_termination(self, timeout: float | None = None) -> bool:
        """Wait until it ends, or for some seconds; whether it has ended. Raises what ended it, or its feed."""
        handle = self._require_handle()
        if self._feed is None:
            return handle.await_termination(timeout)
        waited = 0.0
        while timeout is None or waited < timeout:
            step = 0.5 if timeout is None else min(0.5, timeout - waited)
            if handle.await_termination(step):
                self._feed.stop()
                return True
            waited += step
            failed = self._feed.failure()
            if failed is not None:
                handle.stop()
                said = str(failed).splitlines()[0]
                raise WatersmeetError(f"the feed of queries has ended: {said}; repair it and start() again") from failed
        return False

    @property
    def exception(self) -> BaseException | None:
        """What ended it, as `await_termination` raises it; None while it runs, and after `stop`."""
        return None if self._handle is None else self._handle.exception

    @property
    def is_active(self) -> bool:
        return self._handle is not None and self._handle.is_active

    @property
    def query(self) -> Any:
        """Spark's own StreamingQuery."""
        return self._require_handle().query

    def progress(self) -> Progress | None:
        """The latest micro-batch; None before the first."""
        return self._handle.progress() if self._handle is not None else None

    def history(self) -> Sequence[Progress]:
        """The last micro-batches of this run, oldest first."""
        return self._handle.history() if self._handle is not None else []

    def on_batch(self, call: Callable[[Progress], None]) -> None:
        """Have a function called after every micro-batch from now on."""
        self._on_batch = call
        if self._handle is not None:
            self._handle.on_batch(call)

    def serve(self, port: int = 0, *, api: bool = False, spark_metrics: bool = False) -> Page:
        """Serve a live page on this machine's loopback, under an address with a token, as `Handle.serve` does; with `api=True` also the HTTP API of `watersmeet subscribe`: the sink must be a folder of Parquet files."""
        handle = self._require_handle()
        if not api:
            return handle.serve(port, spark_metrics=spark_metrics)
        if not isinstance(self._sink, FileSink) or self._sink.format != "parquet" or isinstance(self._sink, TableSink):
            raise OptionError("serve(api=True): listeners get answers from a sink that is a folder of Parquet files")
        service = Service(self, FolderAnswers(self._sink.folder), self._find_end)
        return handle.serve(port, service, spark_metrics=spark_metrics)

    def _find_end(self) -> str | None:
        """Why the job does not run any more; None while it does, and before it was started."""
        if self._handle is None or self._handle.is_active:
            return None
        error = self._handle.exception
        return "it was stopped" if error is None else f"{type(error).__name__}: {(str(error).splitlines() or [''])[0]}"

    def _check_alive(self) -> None:
        ended = self._find_end()
        if ended is not None and self.exception is not None:
            raise WatersmeetError(
                f"these subscriptions have ended ({ended}), so the query would not be answered: start() them again, then add it"
            ) from self.exception

    def state(self) -> dict[int, UnitState]:
        """What every unit keeps, after the latest micro-batch."""
        return self._require_handle().state()

    @property
    def units(self) -> int:
        """How many units share the queries, as decided after the latest micro-batch; `units=` of a restart changes it in the first one."""
        last = self._before if self._handle is None else self._handle.latest or self._before
        return read_placement([] if last is None else last.routing, self._plan.units).units

    def table(self) -> pa.Table | None:
        """All answers so far, if the sink is 'memory'."""
        return self._require_handle().table()

    def answers(self, rows: DataFrame, id: str, version: int | None = None) -> DataFrame:
        """One query's answers, out of rows (query, version, ts, answer): their time `ts` (`_ts` if the query has a column `ts` of its own), then its columns in its own types.

        Of several queries that were registered under the id, one after the other, the latest is taken, or that of a version: `versions(id)` has them. Those that were removed can be read, too.
        """
        return answers_of(rows, self._registry.find_version(id, version))

    def _require_handle(self) -> Handle:
        if self._handle is None:
            raise OptionError("these subscriptions have not been started: start() them")
        return self._handle


def as_answers(rows: DataFrame) -> DataFrame:
    """What leaves the units as rows (query, version, ts, answer)."""
    return rows.selectExpr(
        *(f"{text} AS {name}" for text, (name, _) in zip(as_typed(ANSWER_FIELDS), ANSWER_FIELDS, strict=True))
    )


def _session(spark: Any) -> Session:
    """The Spark session, if the evaluator can do as Spark does in it."""
    session = session_of(spark)
    if not session.ansi:
        raise OptionError(f"{ANSI} is false: subscriptions are evaluated by ANSI rules; set it to true")
    if not knows(session.timezone):
        raise OptionError(
            f"{ZONE} is {session.timezone}, for which the evaluator of subscriptions has no rules; set a name such as 'Europe/Berlin', or an offset as '+02:00'"
        )
    return session


def _catalogue(
    specs: Mapping[str, StreamSpec], log: FolderLog, units: Any, engine: Any, quotas: Any, spark: Any
) -> RegistryPlan:
    if units != "auto" and (not isinstance(units, int) or isinstance(units, bool) or not 1 <= units <= 4096):
        raise OptionError(
            f"units={units!r}: give a whole number from 1 to 4096, or 'auto' (one for each core, at most {MOST_UNITS})"
        )
    many = min(parallelism(spark), MOST_UNITS) if units == "auto" else units
    chosen, begun = log.placement(many, engines.choose_engine(engine, len(specs), many, quotas))
    if engine not in ("auto", begun):
        raise OptionError(f"engine={engine!r}: the checkpoint was begun with {begun!r}; give that, or 'auto'")
    return RegistryPlan(specs, chosen, begun)
