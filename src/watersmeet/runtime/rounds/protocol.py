"""Exactly once: what happens around the rounds of a micro-batch.

    1  manifest n is there: all was done, return
    2  write intent n                              a replay reads it instead of deciding again
    3  run the rounds from manifest n-1            files carry the attempt's id; a registered query that breaks them is struck
                                                   out of intent n, and they run again (`runtime.spark.failures`)
    4  write the sink, idempotent by batch id      (with 3, where the last round's job is the sink's); of a folder tasks have written
       the files, and its log entry n names them; likewise the sink of dropped rows
    5  commit manifest n
    6  collect files that neither the last `keep` manifests (2, if the user wants no more) nor an open intent name

Spark writes its offset log before a batch and its commit log after it, and repeats the batch that stands between them.
So wherever the process dies, the next one repeats batch n from the same input and the same manifest n-1.

Invariant: the state after batch n is what manifest n says, and nothing else is ever read.
"""

from __future__ import annotations

import time
import typing
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from pyspark.sql import DataFrame

from watersmeet.dataflow.clock import watermarks
from watersmeet.dataflow.contract import Intake, stage_of
from watersmeet.dataflow.report import Report, count_orders
from watersmeet.errors import CheckpointError
from watersmeet.plan.model import Plan, list_required
from watersmeet.plan.shipping import WHOLE
from watersmeet.runtime.progress import Figures, Progress, QueryFigures, write_figures
from watersmeet.runtime.rounds.batch import Account, Batch
from watersmeet.runtime.rounds.checkpoint import (
    INTENTS,
    MANIFESTS,
    METADATA,
    PROGRESS,
    SparkLogs,
    StateFolder,
)
from watersmeet.runtime.rounds.collection import Collection
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.rounds.running import Batches, Rows
from watersmeet.runtime.rounds.sinks import FileSink, NoopSink, Sink, TakesBatches, mark_of
from watersmeet.runtime.rounds.supersteps import Supersteps
from watersmeet.runtime.spark.failures import Striking, run_without_culprits, shorten
from watersmeet.storage.document import REMEDY
from watersmeet.storage.manifest import REWRITTEN, BatchManifest, Identity, Intent

KEPT_PROGRESS = 100
PHASES = ("intent", "rounds and sink", "commit", "collection")
"""What the time of a batch goes to."""
KEPT, MOST_KEPT = 2, 100
"""Batches whose state stays: unless the user says otherwise, and at most; Spark keeps its own logs as long."""


class QueryRegistry(Striking, typing.Protocol):
    """A registry of queries, as the protocol needs it."""

    def intend(self, before: Mapping[str, Any], batch: int) -> dict[str, Any]:
        """The queries of the batch after one that answered these."""

    def amend(self, queries: Mapping[str, Any], *, is_written: bool) -> dict[str, Any]:
        """The queries of a batch that is repeated, less those that have left since; is_written: whether the sink has the batch."""

    def read(self, queries: Mapping[str, Any]) -> dict[str, Any]:
        """What a batch decides by its queries: which streams they read, and what of these goes where."""

    def commit(self, queries: Mapping[str, Any]) -> dict[str, Any]:
        """A batch that answered these has been committed; what the next one starts from."""

    def measure(
        self, reports: Iterable[Report], stored: Sequence[tuple[int, str, Any]], maxima: Mapping[str, int], units: int
    ) -> None:
        """Take in what the units of the batch told of queries, what they store after it, how far streams are, and how many units there are."""

    @property
    def dearest(self) -> Sequence[QueryFigures]:
        """The dearest queries of the latest batch."""

    @property
    def answered(self) -> int:
        """How many queries the latest batch answered."""

    @property
    def refusals(self) -> Mapping[str, str]:
        """What was refused lately: reasons by id."""

    @property
    def failures(self) -> Mapping[str, str]:
        """What has failed lately: reasons by id."""

    @property
    def suspensions(self) -> Mapping[str, str]:
        """What was suspended lately: reasons by id."""


class Protocol:
    """The function that Spark calls with every micro-batch."""

    def __init__(
        self,
        plan: Intake,
        steps: Supersteps,
        folder: StateFolder,
        sink: Sink,
        decider: Decider | None = None,
        registered: QueryRegistry | None = None,
        late: Sink | None = None,
        keep: int = KEPT,
    ) -> None:
        self.plan, self.steps, self.folder, self.sink, self.late = plan, steps, folder, sink, late
        self.decider, self.registered = decider or Decider(), registered
        self.logs, self.identity, self.description = SparkLogs.beside(folder), Identity.of(plan), plan.description()
        self.told: deque[Figures] = deque(maxlen=KEPT_PROGRESS)
        """What the last batches did."""
        self.records = False
        """Whether that is written to the checkpoint, too: on a disk, for `watersmeet watch`; and on Spark Connect, where it is a copy of this that runs the batches, in a worker of the server's."""
        self.error: BaseException | None = None
        self.on_batch: Callable[[Progress], None] | None = None
        self.latest: BatchManifest | None = None
        self.keep = keep
        """How many batches can be gone back to: the state after each of the last so many stays."""
        self.collection = Collection(folder)
        self._repeats = False
        """Whether this batch has been tried before: its failed attempts may have left files among the results."""

    def __call__(self, entered: DataFrame, batch_id: int) -> None:
        try:
            self._batch(entered, batch_id)
        except BaseException as error:
            error.add_note(f"in batch {batch_id} of {shorten(self.identity.query)}")
            self.error = error
            raise

    def _batch(self, entered: DataFrame, batch_id: int) -> None:
        began = time.monotonic()
        query_id = self._query_id
        if self.folder.has(MANIFESTS, batch_id):
            self.latest = self._manifest(batch_id, query_id)
            return
        marks = [began]
        before = self.before(batch_id, query_id)
        intent = self.intend(batch_id, before)
        marks.append(time.monotonic())
        after, account = self.attempt(entered, before, intent)
        marks.append(time.monotonic())
        self.commit(after)
        marks.append(time.monotonic())
        self.collect(before, after, account)
        marks.append(time.monotonic())
        phases = {name: end - begin for name, begin, end in zip(PHASES, marks, marks[1:], strict=False)}
        self._tell(before, after, account, phases)

    @cached_property
    def _query_id(self) -> str:
        found = self.logs.query_id()
        if found is None:
            raise CheckpointError(f"{self.logs.path(METADATA)} is missing, and Spark runs a batch of it; {REMEDY}")
        return found

    def before(self, batch_id: int, query_id: str) -> BatchManifest:
        """The state before a batch: manifest n-1, which must be of this query and this checkpoint."""
        if self.latest is not None and self.latest.batch == batch_id - 1:
            return self.latest
        if batch_id == 0:
            found = self.folder.numbers(MANIFESTS)
            if found:
                raise CheckpointError(
                    f"{self.folder.path()} holds the state of {len(found)} batches, and the checkpoint begins anew: they do not belong together; {REMEDY}"
                )
            return BatchManifest.fresh(self.identity, query_id)
        return self._manifest(batch_id - 1, query_id)

    def _manifest(self, batch_id: int, query_id: str) -> BatchManifest:
        manifest = self.folder.load(MANIFESTS, batch_id, BatchManifest)
        manifest.check(self.identity, query_id, self.folder.path(MANIFESTS, f"{batch_id}.json"))
        self.logs.check(manifest.spark)
        self.decider.resume(manifest)
        if self.registered is not None:
            manifest.queries = self.registered.commit(manifest.queries)
        return manifest

    def intend(self, batch_id: int, before: BatchManifest) -> Intent:
        """Write what the batch will do, or find what an earlier attempt has written."""
        if self.folder.has(INTENTS, batch_id):
            found = self.folder.load(INTENTS, batch_id, Intent)
            found.check(self.identity, before.query_id, before.batch, self.folder.path(INTENTS, f"{batch_id}.json"))
            self.logs.check(found.spark)
            self._repeats = True
            return self._amend(found)
        intent = Intent(
            batch_id,
            before.query_id,
            self.identity.fingerprint,
            before.batch,
            self.description,
            queries={} if self.registered is None else self.registered.intend(before.queries, batch_id),
            query=self.identity.query,
            spark=self.logs.digests(batch_id),
            required={i.alias: list_required(i) for i in self.plan.inputs} if isinstance(self.plan, Plan) else None,
            **{decision.name: decision.next(before) for decision in self.decider.taken},
        )
        self.folder.save(INTENTS, batch_id, intent, is_new=True)
        return intent

    def _amend(self, intent: Intent) -> Intent:
        """The intent of a batch that is repeated, without queries that have left since."""
        if self.registered is None:
            return intent
        is_written = self.sink.has(intent.batch, self.steps.spark)
        queries = self.registered.amend(intent.queries, is_written=is_written)
        return intent if queries == intent.queries else self._intend_anew(replace(intent, queries=queries))

    def _intend_anew(self, intent: Intent) -> Intent:
        self.collection.is_untidy = self._repeats = True  # failed attempts have left files
        self.folder.save(INTENTS, intent.batch, intent)
        return intent

    def attempt(self, entered: DataFrame, before: BatchManifest, intent: Intent) -> tuple[BatchManifest, Account]:
        """Run the batch, without the registered queries that break it."""
        if self.registered is None:
            return self.run(entered, before, intent)

        def under(queries: Mapping[str, Any]) -> Intent:
            return replace(intent, queries=dict(queries))

        return run_without_culprits(
            self.registered,
            intent.queries,
            lambda queries: self.run(entered, before, under(queries)),
            lambda queries: self._rounds(entered, before, under(queries), NoopSink().write, writes=False),
            lambda queries: self._intend_anew(under(queries)),
        )

    def run(self, entered: DataFrame, before: BatchManifest, intent: Intent) -> tuple[BatchManifest, Account]:
        """The rounds and the sink, then what is decided for the next batch."""
        writes = not self.sink.has(intent.batch, self.steps.spark)
        after, account = self._rounds(entered, before, intent, self.deliver, writes=writes)
        after.sink = mark_of(self.sink, intent.batch)
        after.late_sink = None if self.late is None else mark_of(self.late, intent.batch)
        for decision in self.decider.taken:
            account.said += decision.settle(before, after, intent, account)
        return after, account

    def _rounds(
        self,
        entered: DataFrame,
        before: BatchManifest,
        intent: Intent,
        deliver: Callable[[Rows, int], None],
        *,
        writes: bool,
    ) -> tuple[BatchManifest, Account]:
        """The rounds alone: the state after them. What becomes files is written only if the sink will name them."""
        after = before.copy()
        after.batch, after.queries, after.spark = intent.batch, intent.queries, intent.spark
        attempt = f"{intent.batch}-{uuid.uuid4().hex[:12]}"
        decisions: dict[str, Any] = {"routing": intent.routing, "spread": intent.spread, "shipping": intent.shipping}
        decisions["sites"] = self.decider.read_sites(intent)
        if self.registered is not None:
            decisions |= {"queries": intent.queries, **self.registered.read(intent.queries)}
        batch = Batch(entered, after, attempt, decisions, self.decider.watches_keys, self.decider.weighs, writes)
        batch.inbox = self.decider.messages(before, intent)
        if self.late is not None:
            batch.deliver_late = lambda rows: self.deliver_late(rows, intent.batch)
        account = self.steps.run(batch, lambda rows: deliver(rows, intent.batch))
        return after, account

    def deliver(self, rows: Rows, batch_id: int) -> None:
        """Results to the sink; if it has them already, they are computed for the state alone."""
        sink = NoopSink() if self.sink.has(batch_id, self.steps.spark) else self.sink
        if isinstance(rows, Batches):
            assert isinstance(sink, TakesBatches)
            sink.take_batches(rows, batch_id)
        else:
            sink.write(rows, batch_id)

    def deliver_late(self, rows: DataFrame, batch_id: int) -> None:
        """Dropped rows to their sink, unless it has them already."""
        assert self.late is not None
        if not self.late.has(batch_id, rows.sparkSession):
            self.late.write(rows, batch_id)

    def commit(self, after: BatchManifest) -> None:
        self.folder.save(MANIFESTS, after.batch, after, is_new=True)
        self.latest = after
        self.decider.after_commit(after)
        if self.registered is not None:
            after.queries = self.registered.commit(after.queries)

    def collect(self, before: BatchManifest, after: BatchManifest, account: Account) -> None:
        """Delete what none of the last manifests names, and what failed attempts have left among the results."""
        if self._repeats:
            self._repeats = False
            for to in (self.sink, self.late):
                if isinstance(to, FileSink):
                    to.sweep(after.batch)
        if account.unread:  # source tasks may have posted what was not taken
            self.collection.is_untidy = True
        self.collection.collect(before, after, self.keep, account.attempt, account.written)

    def _tell(self, before: BatchManifest, after: BatchManifest, account: Account, phases: dict[str, float]) -> None:
        units = 0 if self.registered is None else account.units or self.plan.units
        if self.registered is not None:
            self.registered.measure(account.reports.values(), [*after.segments()], after.maxima, units)
        late_before, late_after = before.late(), after.late()
        rows: dict[str, int] = {}
        oldest: dict[str, int] = {}
        for unit, alias, info in after.segments():
            if stage_of(unit) in self.decider.joins:
                rows[alias] = rows.get(alias, 0) + info.rows
                oldest[alias] = min(oldest.get(alias, info.min_ts), info.min_ts)
        flows = Report()
        for report in account.reports.values():
            flows.include(report)
        figures = dict(
            batch_id=after.batch,
            seconds=sum(phases.values()),
            phases=phases,
            fanout=after.fan_outs(),
            oldest={a: oldest[a] for a in self.plan.aliases if a in oldest},
            input_rows=account.rows,
            results=flows.results,
            late={s: n - late_before.get(s, 0) for s, n in late_after.items() if n > late_before.get(s, 0)},
            late_sample=account.late_sample,
            set_aside=dict(Counter(account.broken) + Counter(flows.broken)),
            watermarks=dict(watermarks(self.plan.streams, after.maxima)),
            state_rows={a: rows.get(a, 0) for a in self.plan.aliases},
            state_bytes=sum(info.bytes for _, _, info in after.segments()),
            unit_rows={u: sum(r.rows_in.values()) for u, r in sorted(account.reports.items())},
            unit_seconds={u: round(r.seconds, 6) for u, r in sorted(account.reports.items())},
            drivers=count_orders(r.drivers for r in account.reports.values()),
            rounds=account.rounds,
            mail_bytes=account.mail_bytes,
            fetched_bytes=flows.fetched_bytes,
            scaled=account.said,
            kernels=flows.kernels,
            pruned=flows.pruned,
            rewritten=rows.get(REWRITTEN, 0),
            queries=0 if self.registered is None else self.registered.answered,
            units=units,
            refused={} if self.registered is None else dict(self.registered.refusals),
            failed={} if self.registered is None else dict(self.registered.failures),
            suspended={} if self.registered is None else dict(self.registered.suspensions),
            dearest=[] if self.registered is None else write_figures(self.registered.dearest),
            **(self.decider.describe(after, account) if self.decider.taken else {"shipping": WHOLE}),
        )
        self.told.append(Figures(figures))
        if self.records:
            self.folder.save(PROGRESS, after.batch, self.told[-1], durably=False)
            self.folder.delete(PROGRESS, f"{after.batch - KEPT_PROGRESS}.json")
        if self.on_batch is not None:
            self.on_batch(self.told[-1].progress())
