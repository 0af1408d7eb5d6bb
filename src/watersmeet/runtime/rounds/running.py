"""One attempt at one batch: the rounds that `dataflow.contract.Rounds` asks for, as jobs or, where little has come, as turns in the driver.

    source tasks --mail--> files      a job for every round         --rows, or names of files--> the sink
                 --mail--> reports    turns in the driver, no job   --batches of the same-----> the sink

A job costs the same whatever it does, and for a few thousand tuples that is more than their join. So source tasks put mail that is short into their reports, and
the driver lets units take their turns itself. What they leave is the same: segments, states, files of the sink. Where much has come after all, the driver
writes the mail to the file that its parcels name, and goes on with jobs.

Invariant: how a round runs changes nothing of what it computes, nor of what is on the disk before the manifest is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypeAlias, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from watersmeet.dataflow.clock import Seen, advance
from watersmeet.dataflow.contract import MOST_UNITS, Flows, Message, Rounds, is_last, put
from watersmeet.dataflow.report import Report
from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.batch import Account, Batch, Run
from watersmeet.runtime.rounds.checkpoint import MAIL, StateFolder
from watersmeet.runtime.rounds.entering import Arrivals
from watersmeet.runtime.rounds.files import Orders, Parcel, TaskReport, UnitReport, open_held, post_all, sample_rows
from watersmeet.runtime.rounds.hosts import anywhere, deal, place_units
from watersmeet.runtime.rounds.results.leaving import Leaving
from watersmeet.runtime.rounds.splits import find_path
from watersmeet.runtime.rounds.worker import LOST, RESULTS, WAKE, Deliver, Hand, HandLost, Reship, Task
from watersmeet.runtime.spark.jobs import Jobs, compute

_log = logging.getLogger(__name__)
MOST_MAIL = 2 * 2**20
"""So many bytes of mail come to the driver in the reports of source tasks, all of them together."""
MOST_CARRIED = 16 * 2**20
"""So many bytes of messages the driver carries from round to round itself."""
MOST_STATE = 64 * 2**20
"""With more bytes of state units take their turns in workers, which have it in memory."""
MOST_RESULTS = 100_000
"""After a batch with more results, too: these are made on all cores."""
T = TypeVar("T")


@dataclass(frozen=True)
class Batches:
    """What leaves a round that runs in this process; to iterate is to run it."""

    batches: Iterator[pa.RecordBatch]

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        return self.batches


Rows: TypeAlias = DataFrame | Batches
"""What a sink gets: rows, or names of files that have them."""
RunTasks = Callable[[DataFrame], Iterable[int]]
"""The same; the tasks that have reported."""
Reports: TypeAlias = list[tuple[TaskReport, bytes | None]]
"""What source tasks have done, and their mail, where it has come with that."""
Letter: TypeAlias = Parcel | Message
"""A message on its way to a unit: in a file, or in this process."""


class Steps(Protocol):
    """A query's supersteps, as a batch needs them: see `supersteps.Supersteps`."""

    flows: Flows
    folder: StateFolder
    jobs: Jobs
    task: Task
    partitions: int
    posts: bool
    entrance_tasks: int
    most_rounds: int
    joins_here: bool
    latest: Account

    def enter(self, batch: DataFrame, orders: str) -> DataFrame: ...

    def over(self, hosts: Sequence[str], step: type[Deliver] | type[Hand] | type[Reship], orders: str) -> DataFrame: ...

    def nothing_lost(self) -> DataFrame: ...

    def leave_here(self, orders: Orders) -> Leaving: ...

    def observe(self, entered: DataFrame) -> tuple[int, Seen]: ...

    @property
    def reads_files(self) -> bool: ...

    def count_splits(self, entered: DataFrame) -> dict[int, int]: ...

    def read_by_spark(self, files: Mapping[str, Sequence[str]]) -> tuple[DataFrame, Callable[[], tuple[int, Seen]]]: ...


class Running:
    """One attempt at one batch while it runs."""

    def __init__(self, steps: Steps, batch: Batch, deliver: Callable[[Rows], None]) -> None:
        self.steps, self.batch, self.deliver = steps, batch, deliver
        self.entered, self.state, self.attempt = batch.entered, batch.state, batch.attempt
        self.flow = steps.flows.under(batch.decisions)
        self.rounds: Rounds[Letter] = Rounds(self.flow, most=steps.most_rounds)
        self.account = Account(attempt=batch.attempt)
        self.posted: list[Parcel] = []
        """Results of rounds that were not the last."""
        self.lost: list[Parcel] = []
        """Dropped rows."""
        self._is_here = False
        """Whether rounds run in this process."""
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
        if not self.steps.posts and self.batch.decisions.get("routing"):
            raise CheckpointError(
                "the units of this checkpoint have been scaled, and here Spark shuffles tuples to as many as planned; give start(scaling=) again"
            )
        if self.steps.posts:
            self.rounds.post(self._post())
            self.rounds.post(replace(message, round=message.round or 0) for message in self.batch.inbox)
            last = -1
        else:
            self.account.rounds += 1
            self.rounds.ran += 1
            self.rounds.post(self._round(0, None, {}), 0)
            last = 0
        if not (self.steps.posts and self.steps.reads_files):
            self.account.rows, self._seen = self.steps.observe(self.entered)
        self.account.broken = dict(self._seen.broken)
        last = max(last, self.rounds.play(self._carry))
        self.account.rounds = self.rounds.ran
        if not is_last(self.flow, last) and self._is_here and not self.posted:
            self.deliver(Batches(self._leave_nothing()))
        elif not is_last(self.flow, last):
            self._hand_over()
        else:
            assert not self.posted, "a dataflow that knows its last round has results in no other: these would be lost"
        if self.batch.deliver_late is not None:
            self._hand_over_lost(self.batch.deliver_late)
        self._end()
        self.steps.latest = self.account
        return self.account

    @property
    def _may_be_here(self) -> bool:
        """Whether this batch's rounds run in the driver, if little has come."""
        if not self.steps.joins_here or self.flow.rounds is None or self.steps.latest.results > MOST_RESULTS:
            return False
        return sum(info.bytes for _, _, info in self.state.segments()) <= MOST_STATE

    def _post(self) -> list[Letter]:
        """Let source tasks post rows: parcels, or messages where all of them have come with the reports."""
        watched = {"watches_keys": self.batch.watches_keys, "weighs": self.batch.weighs}
        holds = MOST_MAIL // self.steps.latest.tasks if self._may_be_here else 0
        self._jobs += 1
        reads = not self.steps.latest.unread
        orders = self._orders(**watched, holds=holds, reads=reads)
        posted = self._under(orders, list_reports, partial(self.steps.enter, self.entered))
        if self.steps.reads_files:
            posted = self._take_read(posted, orders)
        self.account.tasks = max(1, len(posted))
        self._is_here = holds > 0 and all(mail is not None for _, mail in posted)
        out: list[Letter] = []
        for done, mail in posted:
            parcels = self._take_over(done)
            if mail and (not self._is_here or self.lost):
                self.steps.folder.write(MAIL, done.mail[0].file, mail)
            if self._is_here:
                out += (open_held(p, mail) for p in parcels)
                continue
            out += parcels
        return out

    def _take_read(self, posted: Reports, orders: Orders) -> Reports:
        """What source tasks have read themselves, if that is all; else Spark reads the batch."""
        account, done = self.account, [report for report, _ in posted]
        counted = self.steps.count_splits(self.entered)
        read = {n: sum(report.rows.get(n, 0) for report in done) for n in counted}
        account.unread = next((report.unread for report in done if report.unread), "")
        if not account.unread and read != counted:
            account.unread = f"of {counted} rows {read} were read"
        if not account.unread:
            account.rows = sum(read.values())
            for report in done:
                self._seen.include(Seen(**report.seen))
            return posted
        _log.info("Spark reads the files of this micro-batch: %s", account.unread)
        of, files = self.steps.flows.plan.inputs, dict[str, dict[str, None]]()
        for position, path in (split for report in done for split in report.splits):
            files.setdefault(of[position].stream, {})[find_path(path)] = None
        self._jobs += 1
        frame, observe = self.steps.read_by_spark({stream: list(paths) for stream, paths in files.items()})
        again = self._under(replace(orders, job=self._jobs), list_reports, lambda _: frame)
        account.rows, self._seen = observe()
        return again

    def _carry(self, number: int, letters: list[Letter], awake: range) -> list[Letter]:
        """A round: what its units have sent."""
        held = [letter for letter in letters if isinstance(letter, Message)]
        if self._is_here and len(held) == len(letters) and sum(m.table.nbytes for m in held) <= MOST_CARRIED:
            return [*self._turns(number, held, awake)]
        parcels = [letter for letter in letters if isinstance(letter, Parcel)]
        parcels += post_all(self.steps.folder, self.attempt, held)
        wakes = [Parcel(unit, WAKE, "", 0, 0, 0, number) for unit in awake]
        return [*self._round(number, [*parcels, *wakes], self._seen.highest)]

    def _turns(self, number: int, letters: list[Message], awake: range) -> list[Message]:
        """A round in this process."""
        arrivals: Arrivals = {unit: {} for unit in awake}
        for message in letters:
            put(arrivals, message)
        direct = is_last(self.flow, number)
        orders = self._orders(round=number, direct=direct, states=self._states(), seen=dict(self._seen.highest))
        sent: list[Message] = []
        left = Batches(self._take_turns(orders, arrivals, sent))
        if direct:
            self.deliver(left)
        else:
            for _ in left:
                raise AssertionError("results leave in the last round alone")
        return sent

    def _take_turns(self, orders: Orders, arrivals: Arrivals, sent: list[Message]) -> Iterator[pa.RecordBatch]:
        def post(message: Message, round: int) -> None:
            assert message.kind != RESULTS, "a dataflow that knows its last round has results in no other"
            if message.kind == LOST:
                self.lost += post_all(self.steps.folder, self.attempt, [message])
                return
            sent.append(Message(message.to, message.kind, message.table, round))

        with self.steps.leave_here(orders) as leaving:
            units = yield from self.steps.task.take_turns(orders, arrivals, orders.seen, leaving, post)
            yield from leaving.close()
        self.account.mail_bytes += sum(message.table.nbytes for message in sent)
        self._take_units(units)

    def _leave_nothing(self) -> Iterator[pa.RecordBatch]:
        with self.steps.leave_here(self._orders()) as leaving:
            yield from leaving.close()

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
        count = min(len(self.lost), self.steps.partitions)
        shares = [self.lost[n::count] for n in range(count)]
        self._under(
            self._orders(shares=shares, writes=True), deliver, partial(self.steps.over, anywhere(count), HandLost)
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
            letters += self._take_over(self.steps.folder.load(MAIL, orders.report_name(partition), TaskReport))
        return letters

    def _take_over(self, done: TaskReport) -> list[Parcel]:
        """What a task has done; the letters it sent."""
        self._take_units(done.units)
        for unit, alias, info in done.adopted:
            self.state.adopt(self.steps.task.identity, unit, alias, info)
        self.account.heavy += done.heavy
        for alias, amounts in done.entered.items():
            total = self.account.entered.get(alias, [0] * len(amounts))
            self.account.entered[alias] = [a + b for a, b in zip(total, amounts, strict=True)]
        self.account.mail_bytes += sum(p.bytes for p in done.mail)
        self.posted += [p for p in done.mail if p.kind == RESULTS]
        self.lost += [p for p in done.mail if p.kind == LOST]
        return [p for p in done.mail if p.kind not in (RESULTS, LOST)]

    def _take_units(self, units: Iterable[UnitReport]) -> None:
        for unit, state, counts in units:
            self.state.put(unit, state)
            self.account.written |= {name for name in self.state.files_of(unit) if name.startswith(self.attempt)}
            self.account.reports.setdefault(unit, Report()).include(Report(**counts))

    def _end(self) -> None:
        self.state.maxima = advance(self.state.maxima, self._seen.highest)
        for stream, rows in self._seen.aside.items():
            self.state.timeless[stream] = self.state.timeless.get(stream, 0) + rows
        self.state.expire(self.flow.cuts(self.flow.clock(self.state.maxima, {})))


def list_reports(posted: DataFrame) -> Reports:
    """Post rows; what tasks have done, and their mail, where it has come with that."""
    return [(TaskReport.parse(said, "a task's report"), mail) for said, mail in posted.collect()]


def _all(run: Run, tasks: int) -> RunTasks:
    """Runs a frame of so many tasks."""

    def run_all(frame: DataFrame) -> range:
        run(frame)
        return range(tasks)

    return run_all
