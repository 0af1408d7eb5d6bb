"""The rounds runtime without a JVM: orders, state and mail in files and JSON.

Spark's part is played by `Stage`: it runs tasks one by one under a job's orders. Everything else is the runtime's own code.
"""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pyarrow as pa

import watersmeet as wm
from watersmeet.dataflow.clock import Seen
from watersmeet.dataflow.contract import Message, round_of
from watersmeet.operators.assemble import PlanFlows
from watersmeet.plan.model import Plan
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.rounds.batch import Account, Batch
from watersmeet.runtime.rounds.checkpoint import StateFolder
from watersmeet.runtime.rounds.entering import Entrance
from watersmeet.runtime.rounds.files import Orders, PostOffice, TaskReport
from watersmeet.runtime.rounds.running import Running
from watersmeet.runtime.rounds.worker import LOST, Task
from watersmeet.runtime.sources import source_of
from watersmeet.runtime.spark.jobs import ConnectJobs
from watersmeet.runtime.units import enter
from watersmeet.runtime.wires import set_aside
from watersmeet.storage.manifest import BatchManifest, Identity


class Rows(Task):
    """A task whose results leave as they are."""

    def rows(self, table: pa.Table) -> Any:
        yield from table.to_batches()


class Stage:
    """Runs batches of a query as `Supersteps` does, in this process."""

    def __init__(self, plan: Plan, run: LocalRun, folder: StateFolder) -> None:
        self.plan, self.folder, self.posts, self.partitions, self.most_rounds = plan, folder, True, 2, 64
        self.flows, identity = PlanFlows(plan), Identity.of(plan)
        self.task = Rows(plan, self.flows, identity, None, folder, None, Entrance())  # type: ignore[arg-type]
        self.wires, self.partition = run.wires, 0
        self.jobs: Any = ConnectJobs(None)  # type: ignore[arg-type]
        self.spark, self.joins_here, self.reads_files, self.latest = None, False, False, Account()

    def leave_here(self, orders: Orders) -> Any:
        return self.task.make_leaving(orders)

    def get(self) -> Any:
        """The context of a task."""
        return SimpleNamespace(partitionId=lambda: self.partition, taskAttemptId=lambda: 0)

    def over(self, hosts: list[str], step: Any, orders: str) -> Any:
        return lambda: [b for n in range(len(hosts)) for b in self._task(n, step, orders)]

    def _task(self, number: int, step: Any, orders: str) -> list[pa.RecordBatch]:
        self.partition = number
        return list(step(self.task, orders)(iter([pa.RecordBatch.from_pydict({"id": [number]})])))

    def observe(self, entered: Any) -> tuple[int, Seen]:
        return entered.seen

    def batch(self, state: BatchManifest, number: int, rows: int, sites: Any, attempt: str) -> tuple[Any, Account]:
        """A batch of the wires: results, and what it did."""
        decisions = {"sites": sites}
        entered = self.taken({a: w.slice(number * rows, rows) for a, w in self.wires.items()}, decisions, attempt)
        found: list[pa.RecordBatch] = []
        account = Running(self, Batch(entered, state, attempt, decisions), lambda f: found.extend(f())).run()  # type: ignore[arg-type]
        return found, account

    def enter(self, batch: Any, orders: str) -> Any:
        batch.orders = orders
        return batch

    def taken(self, wires: dict[str, pa.Table], decisions: dict[str, Any], attempt: str) -> _Entered:
        """A source task that posts wire rows."""
        flow = self.flows.under(decisions)
        bare, _ = set_aside(self.plan, flow.clock({}, {}), wires, 0)
        brought, messages = enter(flow, bare)
        seen = sum(w.num_rows for w in wires.values()), brought

        def post(text: str) -> list[list[Any]]:
            orders = Orders.read(self.folder, text)
            office = PostOffice(self.folder, attempt, orders.holds)
            for message in messages:
                office.post(message, round_of(flow, message, -1))
            _, lost = set_aside(self.plan, flow.clock(orders.maxima, {}), wires, orders.batch)
            if lost.num_rows:
                office.post(Message(-1, LOST, lost), -1)
            office.close()
            return [[TaskReport(mail=office.parcels).to_json(), office.held]]

        return _Entered(post, seen)


class _Entered:
    sparkSession = None

    def __init__(self, post: Any, seen: tuple[int, Seen]) -> None:
        self.post, self.seen, self.orders = post, seen, ""

    def collect(self) -> Any:
        return self.post(self.orders)


def prepared(text: str, streams: dict[str, wm.Stream], **options: Any) -> LocalRun:
    from tests.sites.test_in_process import prepare

    return prepare(text, {n: source_of(n, s) for n, s in streams.items()}, **options)
