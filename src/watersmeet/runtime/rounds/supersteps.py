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

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Protocol, TypeVar

from pyspark.sql import DataFrame, Observation, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.dataflow.clock import Seen, advance
from watersmeet.dataflow.contract import MOST_ROUNDS, MOST_UNITS, Flows, Message, Report, Rounds, is_last
from watersmeet.errors import CheckpointError
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import defer_payloads
from watersmeet.runtime.rounds.checkpoint import MAIL, StateFolder
from watersmeet.runtime.rounds.entering import OBSERVED, UNIT, Entrance, union_streams
from watersmeet.runtime.rounds.files import Orders, Parcel, TaskReport, post_all, sample_rows
from watersmeet.runtime.rounds.hosts import anywhere, deal, place_units
from watersmeet.runtime.rounds.results.columns import arrange, can_units_write
from watersmeet.runtime.rounds.results.leaving import Outlet, Write, Writing, keep
from watersmeet.runtime.rounds.results.parts import PARTS, PartFiles
from watersmeet.runtime.rounds.worker import (
    LOST,
    POSTED,
    RESULTS,
    WAKE,
    Deliver,
    Enter,
    Hand,
    HandLost,
    Post,
    Reship,
    Task,
)
from watersmeet.runtime.spark.executors import is_one_machine
from watersmeet.runtime.spark.jobs import Jobs, compute, jobs_of
from watersmeet.runtime.spark.versions import arrow_schema, is_connect, repartition_by_id
from watersmeet.runtime.spark.workers import schema_of
from watersmeet.runtime.stream.late import FIELDS, select_fields
from watersmeet.storage.manifest import BatchManifest, Identity

T = TypeVar("T")
Run = Callable[[DataFrame], None]
"""Runs a frame exactly once."""
RunTasks = Callable[[DataFrame], Iterable[int]]
"""The same; the tasks that have reported."""


@dataclass
class Account:
    """What a batch did, for progress."""

    rows: int = 0
    """That entered, once for every alias."""
    rounds: int = 0
    reports: dict[int, Report] = field(default_factory=dict)
    mail_bytes: int = 0
    """What was sent to units: tuples, where source tasks post them, and what units sent each other."""
    heavy: list[Any] = field(default_factory=list)
    """Frequent keys, see `elastic.Heavy`."""
    said: list[str] = field(default_factory=list)
    """What will change from the next batch on, in words."""
    late_sample: list[dict[str, Any]] = field(default_factory=list)
    """A few of the dropped rows, if somebody asks for them."""
    entered: dict[str, list[int]] = field(default_factory=dict)
    """By alias: tuples read, their bytes without payload, bytes of payload; if the batch weighs them."""


@dataclass
class Batch:
    """One attempt at one batch. Until it ends, the state's maxima are those of the batches before."""

    entered: DataFrame
    state: BatchManifest
    attempt: str
    decisions: dict[str, Any] = field(default_factory=dict)
    """What it has decided, by name, see `dataflow.contract.Flows`."""
    watches_keys: bool = False
    weighs: bool = False
    """Whether source tasks say how wide tuples are."""
    writes: bool = True
    """Whether results that become files are written: not if the sink has the batch."""
    deliver_late: Run | None = None
    """Gets the dropped rows, once, if somebody asks for them."""
    inbox: Sequence[Message] = ()
    """What has come from elsewhere for the first round."""

    @property
    def apart(self) -> tuple[str, ...]:
        """The aliases whose payloads follow later."""
        return tuple(self.decisions.get("shipping", ()))


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
        folder_of_results: Folder | None = None,
        folder_of_late: Folder | None = None,
        most_rounds: int = MOST_ROUNDS,
        ticks: bool = False,
        order: Sequence[str] = (),
    ) -> None:
        """`order`: the aliases as Spark's logs have their sources, if that is not the order of FROM."""
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
        self._files = self._plan_files(folder_of_results)
        self._late_files = None if folder_of_late is None else folder_of_late.files(self.no_late_rows().schema)

    def __getstate__(self) -> dict[str, Any]:
        """What travels to a server: all but the streaming frame."""
        return {name: value for name, value in vars(self).items() if name != "_union"}

    @property
    def spark(self) -> SparkSession:
        """Where frames are made."""
        return self.jobs.spark

    def _plan_files(self, sink: Folder | None) -> PartFiles | None:
        """How results become files, if they do; tasks of units write them where they can select."""
        if sink is None:
            return None
        rows = self.outlet.select(self.spark.range(0, 0, 1, 1).mapInArrow(Hand(self.task), self._ddl)).schema
        files = sink.files(rows)
        select = self.outlet.select_inside([field.dataType.simpleString() for field in rows.fields])
        if select is not None and can_units_write(files, rows):
            self.task.writing = Writing(files, select)
        return files

    def source(self) -> DataFrame:
        """The streaming frame whose batches `run` takes."""
        return self.jobs.source(self._union, self._lay, OBSERVED)

    def enter(self, batch: DataFrame, orders: str) -> DataFrame:
        """The frame that takes a batch's rows in: running it posts them, or is round 0."""
        return self.jobs.enter(batch, self._lay, orders)

    def _lay(self, union: DataFrame, observed: str | Observation, orders: str | None) -> DataFrame:
        """The way of rows, from the union on."""
        rows = self.way.route(union, observed)
        if self.posts:
            return rows.mapInArrow(Post(self.task, orders), f"{POSTED} int")
        shuffled = repartition_by_id(rows, self.entrance_tasks, F.col(UNIT) % self.entrance_tasks)
        return self._leave(shuffled, Enter(self.task, orders), orders)

    def run(self, batch: Batch, deliver: Run) -> Account:
        """One batch: changes its state to what it is after the batch. `deliver` gets the results, once."""
        return _Running(self, batch, deliver).run()

    def over(self, hosts: Sequence[str], step: type[Deliver] | type[Hand] | type[Reship], orders: str) -> DataFrame:
        """The results of a step over shares, whose tasks prefer hosts."""

        def make(orders: str | None) -> DataFrame:
            shares = self.jobs.number_shares(hosts)
            if step is HandLost:
                return self._leave_late(shares, orders)
            return self._leave(shares, step(self.task, orders), orders)

        return self.jobs.frame(None if self.outlet.reads_tables else (step, *hosts), make, orders)

    def _leave(self, given: DataFrame, step: Enter | Deliver | Hand | Reship, orders: str | None) -> DataFrame:
        """What a step lets out: the query's rows or, if the sink is a folder, the names of the files that have them."""
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

    def observe(self, entered: DataFrame) -> tuple[int, Seen]:
        """The rows of a batch, once for every alias, and what they bring."""
        return self.way.read_observed(self.jobs.read_observed(entered, OBSERVED))


class _Running:
    """One attempt at one batch while it runs."""

    def __init__(self, steps: Supersteps, batch: Batch, deliver: Run) -> None:
        self.steps, self.batch, self.deliver = steps, batch, deliver
        self.entered, self.state, self.attempt = batch.entered, batch.state, batch.attempt
        self.flow = steps.flows.under(batch.decisions)
        self.rounds: Rounds[Parcel] = Rounds(self.flow, most=steps.most_rounds)
        self.account = Account()
        self.posted: list[Parcel] = []
        """Results of rounds that were not the last."""
        self.lost: list[Parcel] = []
        """Dropped rows."""
        self._jobs = 0
        self._seen = Seen()
        self._cores: dict[str, int] = {}

    def run(self) -> Account:
        self.steps.jobs.begin(self.entered)
        self._cores = self.steps.jobs.find_hosts()
        if self.batch.apart != self.state.apart:
            self._reship()
        if not self.steps.posts and self.batch.decisions.get("spread"):
            raise CheckpointError(
                "the checkpoint has keys that source tasks spread over units, and here Spark shuffles tuples; go on where the checkpoint was written"
            )
        if self.steps.posts:
            orders = self._orders(watches_keys=self.batch.watches_keys, weighs=self.batch.weighs)
            self.rounds.post(self._job(orders, _list_tasks, partial(self.steps.enter, self.entered)))
            self.rounds.post(post_all(self.steps.folder, self.attempt, self.batch.inbox))
            last = -1
        else:
            self.account.rounds += 1
            self.rounds.ran += 1
            self.rounds.post(self._round(0, None, {}), 0)
            last = 0
        self.account.rows, self._seen = self.steps.observe(self.entered)
        last = max(last, self.rounds.play(self._carry))
        self.account.rounds = self.rounds.ran
        if not is_last(self.flow, last):
            self._hand_over()
        else:
            assert not self.posted, "a dataflow that knows its last round has results in no other: these would be lost"
        if self.batch.deliver_late is not None:
            self._hand_over_lost(self.batch.deliver_late)
        self._end()
        return self.account

    def _carry(self, number: int, letters: list[Parcel], awake: range) -> list[Parcel]:
        """A round: the parcels that its units have sent."""
        wakes = [Parcel(unit, WAKE, "", 0, 0, 0, number) for unit in awake]
        return self._round(number, [*letters, *wakes], self._seen.highest)

    def _round(self, number: int, letters: Sequence[Parcel] | None, seen: Mapping[str, int]) -> list[Parcel]:
        """One round, over letters or, without, over the rows that Spark has shuffled."""
        shares, hosts = self._deal(letters or [])
        direct = is_last(self.flow, number)
        orders = self._orders(round=number, direct=direct, states=self._states(), shares=shares, seen=dict(seen))
        run = _all(
            self.deliver if orders.direct else compute, self.steps.entrance_tasks if letters is None else len(shares)
        )
        if letters is None:
            return self._job(orders, run, partial(self.steps.enter, self.entered))
        return self._job(orders, run, partial(self.steps.over, hosts, Deliver))

    def _deal(self, letters: Sequence[Parcel]) -> tuple[list[list[Parcel]], list[str]]:
        """Letters by task, and the hosts of tasks."""
        units = {*self.state.units, *(p.to for p in letters)}
        self.state.hosts = place_units(units, self.state.hosts, self._cores)
        return deal(letters, self.steps.partitions, self.state.hosts)

    def _hand_over(self) -> None:
        """Results that were posted on the way, to the sink."""
        count = max(1, min(len(self.posted), self.steps.partitions))
        shares = [self.posted[n::count] for n in range(count)]
        self._under(self._orders(shares=shares), self.deliver, partial(self.steps.over, anywhere(count), Hand))

    def _hand_over_lost(self, deliver: Run) -> None:
        """Dropped rows to their sink."""
        if not self.lost:
            deliver(self.steps.nothing_lost())
            return
        self.account.late_sample = sample_rows(self.steps.folder, self.lost)
        shares = [self.lost[n :: self.steps.partitions] for n in range(min(len(self.lost), self.steps.partitions))]
        self._under(
            self._orders(shares=shares, writes=True), deliver, partial(self.steps.over, anywhere(len(shares)), HandLost)
        )

    def _reship(self) -> None:
        """Turn what is stored into the form that this batch works on."""
        before, after = self.state.apart, self.batch.apart
        changed = {*before} ^ {*after}
        if any(unit < MOST_UNITS and alias in changed for unit, alias, _ in self.state.segments()):
            count = min(self.steps.partitions, self.steps.flows.plan.units)
            orders = self._orders(states=self._states(), shares=[[] for _ in range(count)], was=list(before))
            self._job(orders, _all(compute, count), partial(self.steps.over, anywhere(count), Reship))
        for alias in changed - {*after}:
            self.state.drop(alias, MOST_UNITS)
        self.state.shipping = {**self.state.shipping, "stored": list(after)}

    def _orders(self, **what: Any) -> Orders:
        state, decisions = self.state, self.batch.decisions
        fixed = {
            "maxima": dict(state.maxima),
            "batch": state.batch,
            "decisions": decisions,
            "writes": self.batch.writes,
        }
        return Orders(self.attempt, self._jobs, **{**fixed, **what})

    def _states(self) -> dict[int, str]:
        return {u: text for u in self.state.units if (text := self.state.state_of(u)) is not None}

    def _under(self, orders: Orders, run: Callable[[DataFrame], T], frame: Callable[[str], DataFrame]) -> T:
        """Run a job under orders, over the frame that they make."""
        text = orders.text(self.steps.folder)
        with self.steps.jobs.under(text):
            return run(frame(text))

    def _job(self, orders: Orders, run: RunTasks, frame: Callable[[str], DataFrame]) -> list[Parcel]:
        """Run a job under orders, and take over what its tasks report: one report per unit, and the letters they sent."""
        letters: list[Parcel] = []
        self._jobs += 1
        for partition in self._under(orders, run, frame):
            done = self.steps.folder.load(MAIL, orders.report_name(partition), TaskReport)
            for unit, state, counts in done.units:
                self.state.put(unit, state)
                self.account.reports.setdefault(unit, Report()).include(Report(**counts))
            for unit, alias, info in done.adopted:
                self.state.adopt(self.steps.task.identity, unit, alias, info)
            self.account.heavy += done.heavy
            for alias, amounts in done.entered.items():
                total = self.account.entered.get(alias, [0] * len(amounts))
                self.account.entered[alias] = [a + b for a, b in zip(total, amounts, strict=True)]
            self.account.mail_bytes += sum(p.bytes for p in done.mail)
            self.posted += [p for p in done.mail if p.kind == RESULTS]
            self.lost += [p for p in done.mail if p.kind == LOST]
            letters += [p for p in done.mail if p.kind not in (RESULTS, LOST)]
        return letters

    def _end(self) -> None:
        self.state.maxima = advance(self.state.maxima, self._seen.highest)
        for stream, rows in self._seen.aside.items():
            self.state.timeless[stream] = self.state.timeless.get(stream, 0) + rows
        self.state.expire(self.flow.cuts(self.flow.clock(self.state.maxima, {})))


def _list_tasks(posted: DataFrame) -> list[int]:
    """Post rows; the tasks that have."""
    return [row[0] for row in posted.collect()]


def _all(run: Run, tasks: int) -> RunTasks:
    """Runs a frame of so many tasks."""

    def run_all(frame: DataFrame) -> range:
        run(frame)
        return range(tasks)

    return run_all
