"""Supersteps: one Spark job per round, until no unit has sent mail.

    union of the streams --posted or shuffled--> round 0 --mail--> round 1 --mail--> ... --results--> sink

Rows are routed by a SQL expression. If the state folder is a local one, source tasks post them to their units as mail:
one crossing from the JVM to Python, where a shuffle would need it as well; docs/performance.md has both measured. Else
Spark shuffles them as rows. Mail is born in Python and read in Python, so it travels through files of the state folder.
If a program knows its last round, that round's job is the sink's own: results go straight through. If the sink is a folder, tasks write its files, and what
leaves them are the names of these; see `results.leaving`.

How their jobs run, on a classic session and on Spark Connect, is for `runtime.spark.jobs` to say.

Invariant: a unit without mail is not run; the number of rounds is bounded, so a plan that never comes to rest is an
error and not an endless batch.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.dataflow.clock import Seen
from watersmeet.dataflow.contract import MOST_ROUNDS, Flows
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import defer_payloads
from watersmeet.runtime.rounds.batch import Account, Batch
from watersmeet.runtime.rounds.checkpoint import StateFolder
from watersmeet.runtime.rounds.entering import OBSERVED, UNIT, Entrance, union_streams
from watersmeet.runtime.rounds.files import Orders
from watersmeet.runtime.rounds.posting import POSTED_DDL, Fetch, Post
from watersmeet.runtime.rounds.results.columns import arrange, can_units_write
from watersmeet.runtime.rounds.results.leaving import AsSelected, Forgetting, Leaving, Select, Write, Writing, keep
from watersmeet.runtime.rounds.results.outlet import Outlet
from watersmeet.runtime.rounds.results.parts import PARTS, PartFiles
from watersmeet.runtime.rounds.running import Rows, Running
from watersmeet.runtime.rounds.splits import SplitSource, find_splits
from watersmeet.runtime.rounds.worker import Deliver, Enter, Hand, HandLost, Reship, Task
from watersmeet.runtime.spark.executors import is_one_machine
from watersmeet.runtime.spark.jobs import Jobs, jobs_of
from watersmeet.runtime.spark.versions import arrow_schema, is_connect, repartition_by_id
from watersmeet.runtime.spark.workers import schema_of
from watersmeet.runtime.stream.late import FIELDS, select_fields
from watersmeet.storage.manifest import Identity


class Folder(Protocol):
    """A sink that is a folder, as the rounds need it."""

    def files(self, schema: StructType) -> PartFiles:
        """How rows become its files; raises if they cannot."""


class Supersteps:
    """Runs batches of one query, or of a registry: then there is no `query`."""

    def __init__(
        self,
        flows: Flows,
        outlet: Outlet,
        frames: Mapping[str, DataFrame],
        folder: StateFolder,
        *,
        query: Plan | None = None,
        posts: bool | None = None,
        late: bool = False,
        takes_batches: bool = False,
        keeps_nothing: bool = False,
        folder_of_results: Folder | None = None,
        folder_of_late: Folder | None = None,
        most_rounds: int = MOST_ROUNDS,
        ticks: bool = False,
        order: Sequence[str] = (),
    ) -> None:
        """`takes_batches`, `keeps_nothing`: whether the sink takes what is made in this process, and whether results are made and forgotten. `order`: the aliases as Spark's logs have their sources, if that is not the order of FROM."""
        spark = next(iter(frames.values())).sparkSession
        folder = replace(folder, is_shared=not is_one_machine(spark))
        self.flows, self.outlet, self.folder, self.most_rounds = flows, outlet, folder, most_rounds
        self.jobs: Jobs = jobs_of(spark)
        self.partitions = max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
        entrance = Entrance.by_content(flows.plan) if query is None else Entrance.of(query)
        needed = late or entrance.is_routed_by_content or (query is not None and query.shipping == "semijoin")
        self.posts = needed or is_connect(spark) or (folder.is_local if posts is None else posts)
        """Whether source tasks post rows to their units; otherwise Spark shuffles them. They do if somebody asks for dropped rows, which they find, and on Spark Connect, where a sink's own job would not tell what was observed."""
        self.entrance_tasks = 1 if entrance.is_sequenced else min(self.partitions, flows.plan.units)
        """Tasks of round 0, where Spark shuffles rows to them."""
        self._ddl = schema_of(outlet.fields)
        self._union, self.way = union_streams(flows.plan, entrance, frames, late=late, ticks=ticks, order=order)
        schema = arrow_schema(StructType.fromDDL(self._ddl))
        whole = None if query is None else defer_payloads(query, ())
        self.task = Task(whole, flows, Identity.of(flows.plan), self.way.slots, folder, schema, entrance)
        self._select: Select | None = None
        """What makes rows of the SELECT in this process, for a sink that takes them."""
        self._files = self._plan_files(folder_of_results, takes_batches, keeps_nothing)
        self._splits: SplitSource | None = None
        """How source tasks read files themselves, if they can."""
        if query is not None and not (late or ticks or query.sets_aside or entrance.is_sequenced) and self.posts:
            self._splits = find_splits(query, self.way.slots, frames, order)
        makes_rows = self.task.writing is not None or self._select is not None
        self.joins_here = query is not None and self.posts and folder.is_here and makes_rows and not is_connect(spark)
        """Whether small batches run in this process: where the state is at hand, and the sink takes what is made here."""
        self.latest = Account()
        """What the latest batch did."""
        self._late_files = None if folder_of_late is None else folder_of_late.files(self.no_late_rows().schema)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a server: all but the streaming frame. There Spark reads, so there are no splits."""
        return {name: value for name, value in vars(self).items() if name != "_union"}

    @property
    def spark(self) -> SparkSession:
        """Where frames are made."""
        return self.jobs.spark

    def _plan_files(self, sink: Folder | None, takes_batches: bool, keeps_nothing: bool) -> PartFiles | None:
        """How results become files, if they do; tasks of units write or forget them where they can select."""
        if sink is None and not takes_batches and not keeps_nothing:
            return None
        rows = self.outlet.select(self.spark.range(0, 0, 1, 1).mapInArrow(Hand(self.task), self._ddl)).schema
        select = self.outlet.select_inside([field.dataType.simpleString() for field in rows.fields])
        if sink is None:
            if keeps_nothing and select is not None:
                self.task.writing = Forgetting(select)
            else:
                self._select = select
            return None
        files = sink.files(rows)
        if select is not None and can_units_write(files, rows):
            self.task.writing = Writing(files, select)
        return files

    def source(self) -> DataFrame:
        """The streaming frame whose batches `run` takes."""
        if self._splits is not None:
            return self.jobs.source(self._splits.union, self._lay_splits, OBSERVED)
        return self.jobs.source(self._union, self._lay, OBSERVED)

    @property
    def reads_files(self) -> bool:
        """Whether source tasks read files themselves."""
        return self._splits is not None

    def enter(self, batch: DataFrame, orders: str) -> DataFrame:
        """The frame that takes a batch's rows in: running it posts them, or is round 0."""
        return self.jobs.enter(batch, self._lay, orders)

    def _lay(self, union: DataFrame, observed: str | Observation, orders: str | None) -> DataFrame:
        """The way of rows, from the union on."""
        rows = self.way.route(union, observed)
        if self.posts:
            return self._post(rows, Post(self.task, orders))
        shuffled = repartition_by_id(rows, self.entrance_tasks, F.col(UNIT) % self.entrance_tasks)
        return self._leave(shuffled, Enter(self.task, orders), orders)

    def _lay_splits(self, union: DataFrame, observed: str | Observation, orders: str | None) -> DataFrame:
        """The way of rows that source tasks read themselves."""
        assert self._splits is not None
        return self._post(self._splits.route(union, observed), Fetch(self.task, self._splits.columns, orders))

    def _post(self, rows: DataFrame, step: Post | Fetch) -> DataFrame:
        return rows.mapInArrow(step, POSTED_DDL)

    def run(self, batch: Batch, deliver: Callable[[Rows], None]) -> Account:
        """One batch: changes its state to what it is after the batch. `deliver` gets the results, once."""
        return Running(self, batch, deliver).run()

    def leave_here(self, orders: Orders) -> Leaving:
        """Where results of a round that runs in this process go."""
        return self.task.make_leaving(orders) if self._select is None else AsSelected(self._select)

    def over(self, hosts: Sequence[str], step: type[Deliver] | type[Hand] | type[Reship], orders: str) -> DataFrame:
        """The results of a step over shares, whose tasks prefer hosts."""

        def make(orders: str | None) -> DataFrame:
            shares = self.jobs.number_shares(hosts)
            if step is HandLost:
                return self._leave_late(shares, orders)
            return self._leave(shares, step(self.task, orders), orders)

        return self.jobs.frame(None if self.outlet.reads_tables else (step, *hosts), make, orders)

    def _leave(self, given: DataFrame, step: Enter | Deliver | Hand | Reship, orders: str | None) -> DataFrame:
        """What a step lets out: the query's rows or, if tasks write them, the names of the files that have them."""
        if self.task.writing is not None:
            return given.mapInArrow(step, PARTS)
        return self._write(self.outlet.select(given.mapInArrow(step, self._ddl)), self._files, orders)

    def _leave_late(self, given: DataFrame, orders: str | None) -> DataFrame:
        if self._late_files is not None and not self._late_files.is_text:
            return given.mapInArrow(HandLost(self.task, orders, Writing(self._late_files, keep)), PARTS)
        rows = given.mapInArrow(HandLost(self.task, orders), FIELDS).select(*select_fields())
        return self._write(rows, self._late_files, orders)

    def _write(self, rows: DataFrame, files: PartFiles | None, orders: str | None) -> DataFrame:
        """Rows that Spark has selected, written by workers if they become files."""
        if files is None:
            return rows
        return arrange(files, rows).mapInArrow(Write(self.folder, files, orders), PARTS)

    def nothing_lost(self) -> DataFrame:
        """What a batch without dropped rows lets out of them: no job is run for it."""
        none = self.no_late_rows if self._late_files is None else lambda: self.spark.createDataFrame([], PARTS)
        return self.jobs.frame(HandLost, lambda _: none(), "")

    def no_late_rows(self) -> DataFrame:
        """Dropped rows, and there are none."""
        return self.spark.createDataFrame([], FIELDS).select(*select_fields())

    def count_splits(self, entered: DataFrame) -> dict[int, int]:
        """By alias the rows of a batch whose files source tasks read, as Spark has counted them."""
        counted = self.jobs.read_observed(entered, OBSERVED)
        return {n: int(counted[f"rows{n}"]) for n in range(len(self.flows.plan.inputs))}

    def read_by_spark(self, files: Mapping[str, Sequence[str]]) -> tuple[DataFrame, Callable[[], tuple[int, Seen]]]:
        """The frame that takes in files of streams by Spark, and what tells what it brought."""
        assert self._splits is not None
        folders, observed = self._splits.folders, Observation()
        frames = {stream: folder.load(self.spark, files.get(stream, ())) for stream, folder in folders.items()}
        union, way = union_streams(self.flows.plan, self.task.entrance, frames)
        rows = self._post(way.route(union, observed), Post(self.task))
        return rows, lambda: way.read_observed(observed.get)

    def observe(self, entered: DataFrame) -> tuple[int, Seen]:
        """The rows of a batch, once for every alias, and what they bring."""
        return self.way.read_observed(self.jobs.read_observed(entered, OBSERVED))
