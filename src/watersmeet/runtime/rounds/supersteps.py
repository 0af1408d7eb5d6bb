"""Supersteps: one Spark job per round, until no unit has sent mail.

    union of the streams --posted or shuffled--> round 0 --mail--> round 1 --mail--> ... --results--> sink

Rows are routed by a SQL expression. If the state folder is a local one, source tasks post them to their units as mail:
one crossing from the JVM to Python, where a shuffle would need it as well; docs/performance.md has both measured. Else
Spark shuffles them as rows. Mail is born in Python and read in Python, so it travels through files of the state folder.
If a program knows its last round, that round's job is the sink's own: results go straight through.

Frames are made once per query and run again in every batch: building one costs Spark more than the join.

Invariant: a unit without mail is not run; the number of rounds is bounded, so a plan that never comes to rest is an
error and not an endless batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.errors import WatersmeetError
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import following
from watersmeet.runtime.rounds.entering import ROWS_SEEN, SEEN, UNIT, entering, routed_by_sql
from watersmeet.runtime.rounds.files import Parcel
from watersmeet.runtime.rounds.folder import MAIL, StateFolder
from watersmeet.runtime.rounds.manifest import BatchManifest
from watersmeet.runtime.rounds.orders import PROPERTY, Orders
from watersmeet.runtime.rounds.worker import RESULTS, WAKE, Deliver, Enter, Hand, Post, Reship, Task
from watersmeet.runtime.spark_results import schema_of
from watersmeet.runtime.spark_select import final
from watersmeet.runtime.spark_versions import arrow_schema, repartition_by_id
from watersmeet.units.join_unit import StepReport
from watersmeet.units.leave import final_fields
from watersmeet.units.program import Program
from watersmeet.units.watermark import advance

MOST_ROUNDS = 64

Run = Callable[[DataFrame], None]
"""Runs a frame exactly once."""


@dataclass(frozen=True)
class Seen:
    """What a batch has brought, before any filter: rows of all aliases, highest event times and rows without one by stream."""

    rows: int = 0
    highest: Mapping[str, int] = field(default_factory=dict)
    timeless: Mapping[str, int] = field(default_factory=dict)


@dataclass
class Account:
    """What a batch did, for progress."""

    rows: int = 0
    """That entered, once for every alias."""
    rounds: int = 0
    reports: dict[int, StepReport] = field(default_factory=dict)
    mail_bytes: int = 0
    """What was sent to units: tuples, where source tasks post them, and what units sent each other."""
    heavy: list[Any] = field(default_factory=list)
    """Frequent keys, see `elastic.Heavy`."""
    said: list[str] = field(default_factory=list)
    """What will change from the next batch on, in words."""
    entered: dict[str, list[int]] = field(default_factory=dict)
    """By alias: tuples read, their bytes without payload, bytes of payload; if the batch weighs them."""
    sites: dict[str, list[list[str]]] = field(default_factory=dict)
    """How sites have joined."""


@dataclass
class Batch:
    """One attempt at one batch. Until it ends, the state's maxima are those of the batches before."""

    entered: DataFrame
    state: BatchManifest
    attempt: str
    routing: list[dict[str, Any]] = field(default_factory=list)
    """The batch's routing, if it is not the plan's, see `routing.epochs`."""
    watches_keys: bool = False
    apart: tuple[str, ...] = ()
    """The aliases whose payloads follow later."""
    weighs: bool = False
    """Whether source tasks say how wide tuples are."""
    queries: dict[str, Any] = field(default_factory=dict)
    """Which registered queries it answers."""
    read: dict[str, list[str]] | None = None
    """By stream that these read the columns that they compare."""
    sites: dict[str, list[list[str]]] = field(default_factory=dict)
    """How sites join."""


class Supersteps:
    """Runs batches of one query."""

    def __init__(
        self,
        plan: Plan,
        program: Program,
        frames: Mapping[str, DataFrame],
        folder: StateFolder,
        *,
        posts: bool | None = None,
        most_rounds: int = MOST_ROUNDS,
    ) -> None:
        self.plan, self.program, self.folder, self.most_rounds = plan, program, folder, most_rounds
        self.spark: SparkSession = next(iter(frames.values())).sparkSession
        self.partitions = max(1, int(self.spark.conf.get("spark.sql.shuffle.partitions") or 1))
        by_sql = routed_by_sql(plan) is not None or program.entrance() is not None
        needed = not by_sql or plan.shipping == "semijoin"
        self.posts = needed or (folder.is_local if posts is None else posts)
        """Whether source tasks post rows to their units; otherwise Spark shuffles them."""
        self.entrance_tasks = min(self.partitions, plan.units) if program.entrance() is None else 1
        """Tasks of round 0, where Spark shuffles rows to them."""
        self._ddl = schema_of(final_fields(plan))
        self._union, slots = entering(plan, frames, program.entrance())
        schema = arrow_schema(StructType.fromDDL(self._ddl))
        self.task = Task(following(plan, ()), program, slots, folder, schema, by_sql)
        self._frames: dict[tuple[type, int], DataFrame] = {}
        self._observed: tuple[DataFrame, Seen] | None = None

    def source(self) -> DataFrame:
        """The streaming frame whose batches `run` takes: running one posts its rows, or is round 0."""
        if self.posts:
            return self._union.mapInArrow(Post(self.task), "nothing int")
        shuffled = repartition_by_id(self._union, self.entrance_tasks, F.col(UNIT) % self.entrance_tasks)
        return final(self.plan, shuffled.mapInArrow(Enter(self.task), self._ddl))

    def run(self, batch: Batch, deliver: Run) -> Account:
        """One batch: changes its state to what it is after the batch. `deliver` gets the results, once."""
        return _Running(self, batch, deliver).run()

    def over(self, count: int, step: type[Deliver] | type[Hand] | type[Reship]) -> DataFrame:
        """The results of a step over `count` shares."""
        if (step, count) not in self._frames:
            rows = self.spark.range(0, count, 1, count).mapInArrow(step(self.task), self._ddl)
            self._frames[step, count] = final(self.plan, rows)
        return self._frames[step, count]

    def seen(self, entered: DataFrame) -> Seen:
        """What the batch has brought: the streaming query observes it. It is read once: a batch that runs again is counted again."""
        if self._observed is None or self._observed[0] is not entered:
            self._observed = entered, self._observe(entered)
        return self._observed[1]

    def _observe(self, entered: DataFrame) -> Seen:
        query_id = entered.sparkSession.sparkContext.getLocalProperty("sql.streaming.queryId")
        execution = self.spark._jsparkSession.streams().get(query_id).streamingQuery().lastExecution()
        observed = json.loads(_metrics(execution)[SEEN])
        highest, timeless = dict[str, int](), dict[str, int]()
        for n, stream in enumerate(self.plan.join.streams):
            if observed.get(f"max{n}") is not None:
                highest[stream] = int(observed[f"max{n}"])
            if self.program.entrance() is None and observed[f"timeless{n}"]:
                timeless[stream] = int(observed[f"timeless{n}"])
        return Seen(int(observed[ROWS_SEEN]), highest, timeless)


class _Running:
    """One attempt at one batch while it runs."""

    def __init__(self, steps: Supersteps, batch: Batch, deliver: Run) -> None:
        self.steps, self.batch, self.deliver = steps, batch, deliver
        self.entered, self.state, self.attempt = batch.entered, batch.state, batch.attempt
        self.program = steps.task.under(batch.apart, batch.sites).program
        self.account = Account(sites=batch.sites)
        self.posted: list[Parcel] = []
        """Results of rounds that were not the last."""
        self.letters: dict[int, list[Parcel]] = {}
        """Mail that has not been read, by the round that reads it."""
        self._jobs = 0
        self._seen = Seen()

    def run(self) -> Account:
        if self.batch.apart != self.state.apart:
            self._reship()
        if self.steps.posts:
            tasks = self.entered._jdf.queryExecution().toRdd().getNumPartitions()
            batch = self.batch
            orders = self._orders(
                routing=batch.routing, watches_keys=batch.watches_keys, weighs=batch.weighs, read=batch.read
            )
            self._job(orders, run_all, self.entered, tasks)
            self._seen = self.steps.seen(self.entered)
            seen = self._seen.highest
        else:
            self._round(0, None, {})
            self._seen = self.steps.seen(self.entered)
            seen = self._seen.highest
        if self.program.wakes:
            wakes = [Parcel(unit, WAKE, "", 0, 0, 0, 0) for unit in range(self.steps.plan.units)]
            self.letters[0] = [*self.letters.get(0, []), *wakes]
        number = -1 if self.steps.posts else 0
        while self.letters:
            number = min(self.letters)
            self._check_bound(number)
            self._round(number, self.letters.pop(number), seen)
        if not self._is_last(number):
            self._hand_over()
        else:
            assert not self.posted, "a program that knows its last round has results in no other: these would be lost"
        self._end()
        return self.account

    def _is_last(self, number: int) -> bool:
        return self.program.rounds is not None and number == self.program.rounds - 1

    def _check_bound(self, number: int) -> None:
        known = self.program.rounds
        if (known is not None and number >= known) or self.account.rounds >= self.steps.most_rounds:
            raise WatersmeetError(
                f"the units still send mail after {self.account.rounds} rounds of one micro-batch; a plan that never comes to rest cannot be run (bound: {self.steps.most_rounds} rounds)"
            )

    def _round(self, number: int, letters: Sequence[Parcel] | None, seen: Mapping[str, int]) -> None:
        """One round, over letters or, without, over the rows that Spark has shuffled."""
        self.account.rounds += 1
        shares = _dealt(letters or [], self.steps.partitions)
        orders = self._orders(
            round=number, direct=self._is_last(number), states=self._states(), shares=shares, seen=dict(seen)
        )
        frame = self.entered if letters is None else self.steps.over(len(shares), Deliver)
        tasks = self.steps.entrance_tasks if letters is None else len(shares)
        self._job(orders, self.deliver if orders.direct else run_all, frame, tasks)

    def _hand_over(self) -> None:
        """Results that were posted on the way, to the sink."""
        count = max(1, min(len(self.posted), self.steps.partitions))
        shares = [self.posted[n::count] for n in range(count)]
        with _ordered(self.steps.spark, self._orders(shares=shares).text(self.steps.folder)):
            self.deliver(self.steps.over(count, Hand))

    def _reship(self) -> None:
        """Turn what is stored into the form that this batch works on."""
        before, after, plan = self.state.apart, self.batch.apart, self.steps.plan
        changed = {*before} ^ {*after}
        if any(unit < plan.units and alias in changed for unit, alias, _ in self.state.segments()):
            count = min(self.steps.partitions, plan.units)
            orders = self._orders(states=self._states(), shares=[[] for _ in range(count)], was=list(before))
            self._job(orders, run_all, self.steps.over(count, Reship), count)
        for alias in changed - {*after}:
            self.state.drop(alias, plan.units)
        self.state.shipping = {**self.state.shipping, "stored": list(after)}

    def _orders(self, **what: Any) -> Orders:
        batch = self.batch
        return Orders(
            self.attempt,
            self._jobs,
            apart=list(batch.apart),
            batch=batch.state.batch,
            queries=batch.queries,
            sites=batch.sites,
            **what,
        )

    def _states(self) -> dict[int, str]:
        return {u: text for u in self.state.units if (text := self.state.state_of(u)) is not None}

    def _job(self, orders: Orders, run: Run, frame: DataFrame, tasks: int) -> None:
        """Run a job under orders, and take over what its tasks report: one report per unit, and the letters they sent."""
        self._jobs += 1
        with _ordered(self.steps.spark, orders.text(self.steps.folder)):
            run(frame)
        for partition in range(tasks):
            said = self.steps.folder.read_json(MAIL, orders.report_name(partition))
            for unit in said["units"]:
                self.state.put(unit["unit"], unit["state"])
                self.account.reports.setdefault(unit["unit"], StepReport()).include(StepReport(**unit["report"]))
            for unit_of, alias, info in said["adopted"]:
                self.state.adopt(self.steps.plan, unit_of, alias, info)
            self.account.heavy += said["heavy"]
            for alias, amounts in said["entered"].items():
                total = self.account.entered.get(alias, [0] * len(amounts))
                self.account.entered[alias] = [a + b for a, b in zip(total, amounts, strict=True)]
            mail = [Parcel(*p) for p in said["mail"]]
            self.account.mail_bytes += sum(p.bytes for p in mail)
            self.posted += [p for p in mail if p.kind == RESULTS]
            for parcel in mail:
                if parcel.kind != RESULTS:
                    self.letters.setdefault(parcel.round, []).append(parcel)

    def _end(self) -> None:
        self.account.rows = self._seen.rows
        self.state.maxima = advance(self.state.maxima, self._seen.highest)
        for stream, rows in self._seen.timeless.items():
            self.state.timeless[stream] = self.state.timeless.get(stream, 0) + rows
        self.state.expire(self.program.cuts(self.state.maxima))


def run_all(frame: DataFrame) -> None:
    """Compute every column of every row, and keep nothing."""
    frame._jdf.queryExecution().toRdd().count()


def _dealt(letters: Sequence[Parcel], tasks: int) -> list[list[Parcel]]:
    """Letters by task; all letters to one unit go to one task."""
    units = sorted({p.to for p in letters})
    count = min(tasks, len(units))
    task_of = {unit: n % count for n, unit in enumerate(units)}
    shares: list[list[Parcel]] = [[] for _ in range(count)]
    for parcel in letters:
        shares[task_of[parcel.to]].append(parcel)
    return shares


class _ordered:
    """While it lasts, jobs of this thread carry orders."""

    def __init__(self, spark: SparkSession, text: str) -> None:
        self.context, self.text = spark.sparkContext, text

    def __enter__(self) -> None:
        self.context.setLocalProperty(PROPERTY, self.text)

    def __exit__(self, *_: object) -> None:
        self.context.setLocalProperty(PROPERTY, None)  # type: ignore[arg-type]


def _metrics(execution: Any) -> Mapping[str, str]:
    """What an execution has observed, as JSON by name."""
    observed, out = execution.observedMetrics().iterator(), {}
    while observed.hasNext():
        entry = observed.next()
        out[entry._1()] = entry._2().json()
    return out
