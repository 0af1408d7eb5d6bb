"""Starting a query on the rounds runtime, and what one can ask of it while it runs.

Invariant: what is wrong with the arguments is raised by `start`, in the driver; what goes wrong later is raised by
`await_termination`, as the error it was.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.errors import OptionError, StreamError, WindowError
from watersmeet.plan.explain import Detail, explain
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import following
from watersmeet.plan.shipping import MEMORY, NETWORK
from watersmeet.query.duration import parse_us
from watersmeet.query.scaling import Scaling
from watersmeet.runtime.checkpoint_files import started
from watersmeet.runtime.failures import raise_surfaced, surfaced
from watersmeet.runtime.progress import Moment, Progress, moment
from watersmeet.runtime.rounds.before_start import check_checkpoint
from watersmeet.runtime.rounds.elastic import Elastic
from watersmeet.runtime.rounds.folder import StateFolder
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.shipping import Shipping
from watersmeet.runtime.rounds.sinks import FileSink, MemorySink, sink
from watersmeet.runtime.rounds.supersteps import Supersteps
from watersmeet.runtime.sources import ROUNDS
from watersmeet.runtime.spark_stream import SETTINGS
from watersmeet.runtime.worker_probe import probe_workers
from watersmeet.units.programs.of_plan import program_of as program_of
from watersmeet.units.state import OTHER, REWRITTEN

_ARROW = "spark.sql.execution.arrow"
ROUNDS_SETTINGS = {
    f"{_ARROW}.maxBytesPerBatch": SETTINGS[f"{_ARROW}.maxBytesPerBatch"],
    f"{_ARROW}.maxRecordsPerBatch": "32768",
}
"""Set where the user has not: rows cross to Python in few, large batches, but not in batches of any size."""


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
) -> Handle:
    """Start a query over streaming DataFrames, by stream."""
    if not all(f.isStreaming for f in frames.values()):
        raise StreamError("start() runs streams; static DataFrames are joined by dataframe()")
    trigger_of(trigger)
    folder, to, elastic = folder_of(checkpoint), sink(sink_), Elastic(plan, scaling)
    spark = next(iter(frames.values())).sparkSession
    probe_workers(spark)
    folder.prepare()
    steps = Supersteps(plan, program_of(following(plan, ())), frames, folder)
    shipping = Shipping(plan, _bandwidth(plan, spark), plan.shipping == "auto" and steps.posts and scaling is None)
    return launched(Protocol(plan, steps, folder, to, elastic, shipping), checkpoint, trigger, name)


def folder_of(checkpoint: Any) -> StateFolder:
    """The state folder under a checkpoint."""
    if not isinstance(checkpoint, (str, os.PathLike)) or not os.fspath(checkpoint):
        raise OptionError(
            f"checkpoint={checkpoint!r}: give a folder of this query's own; state and progress live in it"
        )
    return StateFolder.under(os.fspath(checkpoint))


def launched(protocol: Protocol, checkpoint: Any, trigger: Any, name: str | None) -> Handle:
    """Let Spark call a protocol with every micro-batch; what is wrong with the checkpoint or the sink is said before."""
    to, spark = protocol.sink, protocol.steps.spark
    check_checkpoint(protocol.plan, protocol.folder, to.folder if isinstance(to, FileSink) else None)
    for setting, value in ROUNDS_SETTINGS.items():
        if spark.conf.get(setting, None) is None:
            spark.conf.set(setting, value)
    writer = protocol.steps.source().writeStream.foreachBatch(protocol)
    writer = writer.option("checkpointLocation", os.fspath(checkpoint)).trigger(**trigger_of(trigger))
    if name is not None:
        writer = writer.queryName(name)
    return Handle(started(writer, spark, is_local=protocol.folder.is_local), protocol)


def _bandwidth(plan: Plan, spark: Any) -> float:
    """Bytes per second between units: as given, else that of memory where all tasks run on one machine."""
    if plan.bandwidth is not None:
        return plan.bandwidth
    return MEMORY if spark.sparkContext.master.startswith("local") else NETWORK


def trigger_of(given: Any) -> dict[str, Any]:
    """A trigger as Spark takes it: a duration, 'available now', or Spark's own keywords as a dict.

    >>> trigger_of("10s"), trigger_of("availableNow"), trigger_of({"processingTime": "1 second"})
    ({'processingTime': '10000 milliseconds'}, {'availableNow': True}, {'processingTime': '1000 milliseconds'})
    """
    said = OptionError(
        f"trigger={given!r}: give a duration such as '10 seconds', 'availableNow', or one of these as a dict, such as {{'processingTime': '10 seconds'}}"
    )
    span = given
    if isinstance(given, Mapping):
        if dict(given) == {"availableNow": True}:
            return {"availableNow": True}
        if list(given) != ["processingTime"]:
            raise said
        span = given["processingTime"]
    elif isinstance(given, str) and re.sub(r"[\s_-]", "", given).lower() == "availablenow":
        return {"availableNow": True}
    try:
        ms = 0 if given is None else parse_us(span) // 1000
    except (WindowError, AttributeError, TypeError) as error:
        raise said from error
    if ms < 0:
        raise said
    return {"processingTime": f"{ms} milliseconds"}


class Handle:
    """A running query."""

    def __init__(self, query: Any, protocol: Protocol) -> None:
        self.query = query
        """Spark's own StreamingQuery."""
        self._protocol = protocol

    def __repr__(self) -> str:
        name, last = self.query.name, self.progress()
        title = f"Handle{f' of {name!r}' if name else ''}: {self._status()}"
        return title if last is None else f"{title}\n{last!r}"

    def _status(self) -> str:
        if self.is_active:
            return "running" if self._protocol.progress else "running, before its first batch"
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
            raise_surfaced(error, self._protocol.error)

    @property
    def exception(self) -> BaseException | None:
        """What ended the query, as `await_termination` raises it; None while it runs, and after `stop`."""
        error = self.query.exception()
        return None if error is None else surfaced(error, self._protocol.error)

    @property
    def is_active(self) -> bool:
        return bool(self.query.isActive)

    def progress(self) -> Progress | None:
        """The latest micro-batch; None before the first."""
        return self._protocol.progress[-1] if self._protocol.progress else None

    def history(self) -> list[Progress]:
        """The last micro-batches of this run, oldest first."""
        return list(self._protocol.progress)

    def on_batch(self, call: Callable[[Progress], None]) -> None:
        """Have a function called after every micro-batch from now on, in the query's own thread."""
        self._protocol.on_batch = call

    def explain(self, detail: Detail = "short") -> str:
        """The plan as text; "full": with what has been decided while it runs."""
        protocol = self._protocol
        now = [] if protocol.latest is None else protocol.shipping.explain(protocol.latest)
        sites = [] if protocol.latest is None else protocol.sites.explain(protocol.latest)
        return explain(protocol.plan, ROUNDS, detail, shipping_now=now, sites_now=sites)

    def state(self) -> dict[int, UnitState]:
        """What every unit keeps, after the latest micro-batch."""
        manifest = self._protocol.latest
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

    def table(self) -> pa.Table | None:
        """All results so far, if the sink is 'memory'."""
        if not isinstance(self._protocol.sink, MemorySink):
            raise OptionError("table() reads the memory sink; start the query with sink='memory'")
        return self._protocol.sink.table()
