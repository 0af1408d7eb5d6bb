"""Sites on the rounds runtime without a JVM: orders, state and mail in files and JSON, and attempts that are thrown away.

Spark's part is played by `Stage`: it runs tasks one by one under a job's orders. Everything else is the runtime's own code.
"""

from __future__ import annotations

from collections import Counter
from copy import deepcopy
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.sites.test_in_rounds import DRIFT, bag, drifting, plain
from watersmeet.dataflow.clock import Seen
from watersmeet.dataflow.contract import Message, round_of
from watersmeet.operators.assemble import PlanFlows
from watersmeet.plan.model import Plan
from watersmeet.runtime.in_process import enter
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.rounds import files, supersteps, worker
from watersmeet.runtime.rounds.checkpoint import StateFolder
from watersmeet.runtime.rounds.decide import SitePlans
from watersmeet.runtime.rounds.entering import Entrance
from watersmeet.runtime.rounds.files import Orders, PostOffice, TaskReport
from watersmeet.runtime.rounds.supersteps import Account, Batch, _Running
from watersmeet.runtime.rounds.worker import LOST, Task
from watersmeet.runtime.sources import source_of
from watersmeet.runtime.spark.jobs import ConnectJobs
from watersmeet.runtime.wires import set_aside
from watersmeet.sites.adapt import sum_shipments
from watersmeet.sites.flow import SiteFlows
from watersmeet.storage.manifest import BatchManifest, Identity


class Rows(Task):
    """A task whose results leave as they are."""

    def rows(self, table: pa.Table) -> Any:
        yield from table.to_batches()


class Stage:
    """Runs batches of a query as `Supersteps` does, in this process."""

    def __init__(self, plan: Plan, run: LocalRun, folder: StateFolder) -> None:
        self.plan, self.folder, self.posts, self.partitions, self.most_rounds = plan, folder, True, 2, 64
        self.flows, identity = PlanFlows(plan) if plan.sites is None else SiteFlows(plan), Identity.of(plan)
        self.task = Rows(plan, self.flows, identity, None, folder, None, Entrance())  # type: ignore[arg-type]
        self.wires, self.partition = run.wires, 0
        self.jobs: Any = ConnectJobs(None)  # type: ignore[arg-type]
        self.spark = None

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
        account = _Running(self, Batch(entered, state, attempt, decisions), lambda f: found.extend(f())).run()  # type: ignore[arg-type]
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

        def post(text: str) -> list[list[int]]:
            orders, office = Orders.read(self.folder, text), PostOffice(self.folder, attempt)
            for message in messages:
                office.post(message, round_of(flow, message, -1))
            _, lost = set_aside(self.plan, flow.clock(orders.maxima, {}), wires, orders.batch)
            if lost.num_rows:
                office.post(Message(-1, LOST, lost), -1)
            office.close()
            self.partition = 0
            self.task.report(orders, TaskReport(mail=office.parcels))
            return [[0]]

        return _Entered(post, seen)


class _Entered:
    sparkSession = None

    def __init__(self, post: Any, seen: tuple[int, Seen]) -> None:
        self.post, self.seen, self.orders = post, seen, ""

    def collect(self) -> Any:
        return self.post(self.orders)


@pytest.fixture
def stage(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(run: LocalRun) -> Stage:
        folder = StateFolder.under(str(tmp_path))
        folder.prepare()
        out = Stage(run.plan, run, folder)
        for module in (files, worker):
            monkeypatch.setattr(module, "TaskContext", out)
        monkeypatch.setattr(supersteps, "compute", lambda frame: frame())
        return out

    return made


def prepared(text: str, streams: dict[str, wm.Stream], **options: Any) -> LocalRun:
    from tests.sites.test_in_rounds import _prepared

    return _prepared(text, {n: source_of(n, s) for n, s in streams.items()}, **options)


def reread(manifest: BatchManifest) -> BatchManifest:
    """As a new process would find it."""
    return BatchManifest.parse(manifest.to_json(), "here")


def test_state_in_files_and_attempts_that_fail_also_where_the_plan_changes(stage: Any) -> None:
    streams = drifting(np.random.default_rng(1))
    run = prepared(DRIFT, streams, sites=wm.Sites(latency="1 ms", bandwidth=1e5))
    rows, plans = 50, SitePlans(run.plan)
    made, results, said, sent = stage(run), list[pa.Table](), list[str](), Counter[str]()
    manifest = BatchManifest.fresh(Identity.of(run.plan), "q")
    for number in range(3000 // rows):
        sites = plans.next(manifest)
        before = manifest
        for attempt in ("lost", "kept") if number % 7 == 0 or (said and number < 12) else ("kept",):
            after = deepcopy(reread(before))
            after.batch = number
            found, account = made.batch(after, number, rows, sites, f"{number}-{attempt}")
        results += [pa.Table.from_batches([b]) for b in found]
        intent: Any = SimpleNamespace(sites=sites)
        said += plans.settle(before, after, intent, account)
        for pair, (_, _, size) in sum_shipments(run.plan, account.reports).items():
            sent[">".join(pair)] += size
        manifest = reread(after)
    names = ["x", "y", "v", "w"]
    assert bag(pa.concat_tables(results).rename_columns(names)) == plain(DRIFT, streams)
    assert len(said) >= 2, "the plan has not changed"
    assert manifest.sites["memory"]["changes"] == len(said)
    assert manifest.sites["memory"]["per_tuple"]
    kept = {alias: sum(i.rows for _, a, i in manifest.segments() if a == alias) for alias in ("a", "b")}
    assert all(rows_kept <= 3 * rows for rows_kept in kept.values()), kept
    assert "measured: " in "\n".join(plans.explain(manifest))
    assert sent.keys() == {"paris>tokyo", "tokyo>paris"}


def test_every_kind_of_message_and_state_survives_json_and_files(stage: Any) -> None:
    rng = np.random.default_rng(2)
    tables = {
        n: pa.table(
            {
                "k": [f"key {v}" for v in rng.integers(0, 9, 200)],
                "j": rng.integers(0, 5, 200),
                "id": range(200),
                "ts": pa.array(np.arange(200) * 50_000, pa.timestamp("us")),
            }
        )
        for n in "stu"
    }
    streams = {n: wm.Stream(t, time="ts", site=f"at {n}") for n, t in tables.items()}
    text = "SELECT a.id AS x, b.id AS y, c.id AS z FROM s a, t b, u c WHERE a.k = b.k AND b.j = c.j AND a.id <= c.id + 3 WINDOW = 1 SECOND"
    for kinds in (("SP-S", "SM-S1"), ("SM-S2", "SM-D1"), ("SM-D2", "SMB-S1"), ("SMB-S2", "SMB-D1"), ("SMB-D2", "SP-D")):
        one, other = kinds
        plan = {"a": f"b {one}, c {other}", "b": f"a {other}, c {one}", "c": f"b {one}, a {other}"}
        run = prepared(text, streams, sites=wm.Sites(plan=plan))
        made, manifest, results = stage(run), BatchManifest.fresh(Identity.of(run.plan), "q"), []
        for number in range(4):
            after = reread(manifest)
            after.batch = number
            found, _ = made.batch(after, number, 50, run.plan.sites.to_json(), f"{number}-{one}")  # type: ignore[union-attr]
            results += [pa.Table.from_batches([b]) for b in found]
            manifest = after
        assert bag(pa.concat_tables(results)) == plain(text, streams), kinds
