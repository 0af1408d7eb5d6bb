"""How the jobs of a micro-batch run, on a classic session and on Spark Connect: all that differs between the two while batches run.

                     classic                                      Connect
    batches come to  this process                                 a Python worker of the server's, which has a copy of the function
    the way of rows  laid once, into the streaming frame          laid anew in every batch, over its frame
    frames of steps  made once per query, and run again           made for every job: the server plans each from its text anyhow
    orders           a local property of the job                  inside the function that the frame runs
    what is observed read from the streaming query's execution    an Observation of the batch's own
    hosts            tasks prefer those of their units            nobody can say

Connect's column is Spark's public interface, and would do for both. On a classic session it costs more: making and planning the frames anew
takes a batch longer than a small join (docs/decisions has the figures).

Invariant: a task finds the same orders either way. The rounds runtime calls the JVM here, and through `executors`, alone.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, Protocol

from pyspark import TaskContext
from pyspark.sql import DataFrame, Observation, SparkSession

from watersmeet.runtime.spark.executors import find_hosts, is_one_machine, number_shares
from watersmeet.runtime.spark.versions import is_connect
from watersmeet.runtime.spark.workers import probe_workers

PROPERTY = "watersmeet.orders"
"""The local property that orders travel in."""
Make = Callable[[str | None], DataFrame]
"""Makes a frame whose tasks have these orders in them; None: they ask for those of their job."""
Lay = Callable[[DataFrame, "str | Observation", str | None], DataFrame]
"""Lays the way of rows into a frame: what they are observed by, and the orders, as above."""


class Jobs(Protocol):
    """Runs the jobs of one query."""

    spark: SparkSession
    """Where frames of this batch are made."""

    def begin(self, entered: DataFrame) -> None:
        """A micro-batch comes."""

    def source(self, rows: DataFrame, lay: Lay, name: str) -> DataFrame:
        """The streaming frame that Spark is given; `name` is what it is observed by."""

    def enter(self, entered: DataFrame, lay: Lay, orders: str) -> DataFrame:
        """The frame that takes a batch's rows in."""

    def frame(self, key: Hashable | None, make: Make, orders: str) -> DataFrame:
        """The frame of a step; frames with the same key differ in their orders alone, and one without a key is made anew."""

    def under(self, orders: str) -> AbstractContextManager[None]:
        """While it lasts, jobs of this thread carry orders."""

    def find_hosts(self) -> dict[str, int]:
        """Cores by host, where hosts can be told apart; raises if one of them cannot run watersmeet."""

    def number_shares(self, hosts: Sequence[str]) -> DataFrame:
        """The numbers from 0, one in each task: task n prefers the n-th host, if it has a name."""

    def read_observed(self, entered: DataFrame, name: str) -> Mapping[str, Any]:
        """What was observed when the rows of this batch were first taken in."""


def jobs_of(spark: SparkSession) -> Jobs:
    """How jobs run on a session."""
    return ConnectJobs(spark) if is_connect(spark) else ClassicJobs(spark)


class ClassicJobs:
    """On a session of this process."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._has_hosts = not is_one_machine(spark)
        self._frames: dict[Hashable, DataFrame] = {}
        self._seen: tuple[DataFrame, Mapping[str, Any]] | None = None
        self._running: Any = None
        """The streaming query, once it runs."""

    def begin(self, entered: DataFrame) -> None:
        return

    def source(self, rows: DataFrame, lay: Lay, name: str) -> DataFrame:
        return lay(rows, name, None)

    def enter(self, entered: DataFrame, lay: Lay, orders: str) -> DataFrame:
        return entered

    def frame(self, key: Hashable | None, make: Make, orders: str) -> DataFrame:
        if key is None:
            return make(None)
        if key not in self._frames:
            self._frames[key] = make(None)
        return self._frames[key]

    @contextmanager
    def under(self, orders: str) -> Iterator[None]:
        context = self.spark.sparkContext
        context.setLocalProperty(PROPERTY, orders)
        try:
            yield
        finally:
            context.setLocalProperty(PROPERTY, None)  # type: ignore[arg-type]

    def find_hosts(self) -> dict[str, int]:
        if not self._has_hosts:  # its workers have been asked when the query was started
            return {}
        hosts = find_hosts(self.spark)
        probe_workers(self.spark, hosts)
        return hosts

    def number_shares(self, hosts: Sequence[str]) -> DataFrame:
        return number_shares(self.spark, hosts)

    def read_observed(self, entered: DataFrame, name: str) -> Mapping[str, Any]:
        if self._seen is None or self._seen[0] is not entered:  # a batch that runs again is counted again
            self._seen = entered, self._read_metrics(name)
        return self._seen[1]

    def _read_metrics(self, name: str) -> Mapping[str, Any]:
        if self._running is None:  # each call into the JVM is a round trip, in every batch
            query_id = self.spark.sparkContext.getLocalProperty("sql.streaming.queryId")
            self._running = self.spark._jsparkSession.streams().get(query_id).streamingQuery()  # type: ignore[attr-defined]
        observed = self._running.lastExecution().observedMetrics()
        found: dict[str, Any] = json.loads(observed.apply(name).json())
        return found


class ConnectJobs:
    """On a server. What travels there is no more than that this is Connect: a batch brings its session."""

    def __init__(self, spark: SparkSession) -> None:
        self.spark = spark
        self._observation: Observation | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return ConnectJobs, (None,)

    def begin(self, entered: DataFrame) -> None:
        self.spark = entered.sparkSession

    def source(self, rows: DataFrame, lay: Lay, name: str) -> DataFrame:
        return rows

    def enter(self, entered: DataFrame, lay: Lay, orders: str) -> DataFrame:
        self._observation = Observation()
        return lay(entered, self._observation, orders)

    def frame(self, key: Hashable | None, make: Make, orders: str) -> DataFrame:
        return make(orders)

    def under(self, orders: str) -> AbstractContextManager[None]:
        return nullcontext()

    def find_hosts(self) -> dict[str, int]:
        return {}

    def number_shares(self, hosts: Sequence[str]) -> DataFrame:
        return self.spark.range(0, len(hosts), 1, len(hosts))

    def read_observed(self, entered: DataFrame, name: str) -> Mapping[str, Any]:
        assert self._observation is not None
        return self._observation.get


def orders_of_job() -> str:
    """What the job of this task carries."""
    context = TaskContext.get()
    assert context is not None
    return context.getLocalProperty(PROPERTY) or "{}"


def compute(frame: DataFrame) -> None:
    """Compute every column of every row, and keep nothing."""
    if is_connect(frame):
        frame.write.format("noop").mode("append").save()
    else:
        frame._jdf.queryExecution().toRdd().count()


@contextmanager
def hold(rows: DataFrame) -> Iterator[DataFrame]:
    """Rows that are computed once, and kept while it lasts."""
    held = rows.localCheckpoint(eager=True)
    try:
        yield held
    finally:
        if not is_connect(held):  # a server lets go of them when the last frame over them is gone
            held._jdf.logicalPlan().rdd().unpersist(True)
