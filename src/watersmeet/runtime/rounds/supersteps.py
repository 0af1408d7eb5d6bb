"""Supersteps: one Spark job per round, until no unit has sent mail.

    union of the streams --route--> round 0 --mail--> round 1 --mail--> ... --results--> sink

Round 0 shuffles rows, routed by a SQL expression. Mail is born in Python and read in Python, so it travels through files
of the state folder rather than through the JVM and back. If a program knows its last round, that round's job is the
sink's own: results go straight through.

Invariant: a unit without mail is not run; the number of rounds is bounded, so a plan that never comes to rest is an
error and not an endless batch.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from watersmeet.errors import WatersmeetError
from watersmeet.plan.model import Plan
from watersmeet.runtime.rounds.entering import KEEP, UNIT, Slots, seen_columns, time_us, unit_column
from watersmeet.runtime.rounds.files import Parcel
from watersmeet.runtime.rounds.folder import StateFolder
from watersmeet.runtime.rounds.manifest import BatchManifest
from watersmeet.runtime.rounds.worker import RESULTS, Deliver, Enter, Hand, Round
from watersmeet.runtime.spark_results import METRICS, output_schema
from watersmeet.runtime.spark_stream import selected
from watersmeet.units.join_unit import StepReport
from watersmeet.units.program import Program
from watersmeet.units.watermark import advance

MOST_ROUNDS = 64
SEEN, UNITS = "watersmeet-seen", "watersmeet-units"

Run = Callable[[DataFrame], DataFrame]
"""Runs a frame exactly once and gives back the frame whose execution it was (a sink may have added to it)."""


@dataclass
class Account:
    """What a batch did, for progress."""

    rounds: int = 0
    reports: dict[int, StepReport] = field(default_factory=dict)
    mail_bytes: int = 0
    mail_rows: int = 0


class Supersteps:
    """Runs batches of one query."""

    def __init__(
        self, plan: Plan, program: Program, slots: Slots, folder: StateFolder, most_rounds: int = MOST_ROUNDS
    ) -> None:
        self.plan, self.program, self.slots, self.folder = plan, program, slots, folder
        self.most_rounds = most_rounds
        self.ddl = output_schema(plan)
        self.schema: pa.Schema = to_arrow_schema(StructType.fromDDL(self.ddl), timezone="UTC")

    def run(self, entered: DataFrame, state: BatchManifest, attempt: str, deliver: Run) -> Account:
        """One batch: changes `state` to what it is after the batch. `deliver` gets the results, once."""
        account, posted = Account(), list[Parcel]()
        number, raw = 0, self._entrance(entered, state, attempt)
        while True:
            last = self.program.rounds is not None and number == self.program.rounds - 1
            if last:
                ran = deliver(self._results(raw, posted, attempt))
                reports = _observed(ran, UNITS, "units")
            else:
                ran = raw.where(f"{METRICS} IS NOT NULL").select(METRICS)
                reports = [row[0] for row in ran.collect()]
            if number == 0:
                self._see(ran, state)
            mail = self._absorb(reports, state, account)
            posted += [p for p in mail if p.kind == RESULTS]
            letters = [p for p in mail if p.kind != RESULTS]
            number += 1
            account.rounds = number
            if not letters:
                if not last:
                    deliver(self._results(None, posted, attempt, entered))
                break
            if last or number >= self.most_rounds:
                raise WatersmeetError(
                    f"the units still send mail after {number} rounds of one micro-batch; a plan that never comes to rest cannot be run (bound: {self.most_rounds} rounds)"
                )
            raw = self._delivery(entered, letters, state, attempt, number)
        state.expire(self.program.cuts(state.maxima))
        return account

    def _entrance(self, entered: DataFrame, state: BatchManifest, attempt: str) -> DataFrame:
        seen = entered.observe(SEEN, *seen_columns(self.plan, self.slots))
        unit = self.program.entrance()
        slots = [F.col(slot) for slot in self.slots.types]
        if unit is None:
            kept = seen.where(f"{KEEP} AND {time_us(self.slots)} IS NOT NULL")
            routed = kept.select(unit_column(self.plan.grid).cast("int").alias(UNIT), "_alias", *slots)
            partitions = min(self._partitions(entered), self.plan.grid.units)
        else:
            routed = seen.select(F.lit(unit).alias(UNIT), "_alias", *slots)
            partitions = 1
        shuffled = routed.repartitionById(partitions, F.col(UNIT) % partitions)
        step = Enter(self._round(state, attempt, 0), self.slots)
        return shuffled.mapInArrow(step, self.ddl)

    def _delivery(
        self, entered: DataFrame, letters: Sequence[Parcel], state: BatchManifest, attempt: str, number: int
    ) -> DataFrame:
        units = sorted({p.to for p in letters})
        count = min(self._partitions(entered), len(units))
        share_of = {unit: n % count for n, unit in enumerate(units)}
        shares: list[list[Parcel]] = [[] for _ in range(count)]
        for parcel in letters:
            shares[share_of[parcel.to]].append(parcel)
        step = Deliver(self._round(state, attempt, number), shares)
        return entered.sparkSession.range(0, count, 1, count).mapInArrow(step, self.ddl)

    def _results(
        self, raw: DataFrame | None, posted: Sequence[Parcel], attempt: str, entered: DataFrame | None = None
    ) -> DataFrame:
        """The results of the last round, and those posted before, as the query's rows."""
        frames = []
        if raw is not None:
            frames.append(raw.observe(UNITS, F.collect_list(METRICS).alias("units")))
        if posted or raw is None:
            spark = (raw if raw is not None else entered).sparkSession  # type: ignore[union-attr]
            count = max(1, min(len(posted), self._partitions_of(spark)))
            shares = [list(posted[n::count]) for n in range(count)]
            hand = Hand(self._round(None, attempt, 0), shares)
            frames.append(spark.range(0, count, 1, count).mapInArrow(hand, self.ddl))
        both = frames[0] if len(frames) == 1 else frames[0].union(frames[1])
        return selected(self.plan, both)

    def _round(self, state: BatchManifest | None, attempt: str, number: int) -> Round:
        states = {} if state is None else {u: text for u in state.units if (text := state.state_of(u)) is not None}
        direct = self.program.rounds is not None and number == self.program.rounds - 1
        return Round(self.plan, self.program, self.folder, attempt, number, states, self.schema, direct)

    def _see(self, ran: DataFrame, state: BatchManifest) -> None:
        """Take the batch's maxima and its rows without a time over."""
        seen = json.loads(_metrics(ran)[SEEN])
        highest = {}
        for n, stream in enumerate(self.plan.join.streams):
            if seen.get(f"max{n}") is not None:
                highest[stream] = int(seen[f"max{n}"])
            if self.program.entrance() is None and seen[f"timeless{n}"]:
                state.timeless[stream] = state.timeless.get(stream, 0) + int(seen[f"timeless{n}"])
        state.maxima = advance(state.maxima, highest)

    def _absorb(self, reports: Sequence[str], state: BatchManifest, account: Account) -> list[Parcel]:
        """Take what units report over; one report per unit, whatever ran twice."""
        mail: list[Parcel] = []
        for said in {r["unit"]: r for r in map(json.loads, reports)}.values():
            state.put(said["unit"], said["state"])
            account.reports.setdefault(said["unit"], StepReport()).include(StepReport(**said["report"]))
            mail += [Parcel(**p) for p in said["mail"]]
        account.mail_bytes += sum(p.bytes for p in mail)
        account.mail_rows += sum(p.rows for p in mail)
        return mail

    def _partitions(self, frame: DataFrame) -> int:
        return self._partitions_of(frame.sparkSession)

    @staticmethod
    def _partitions_of(spark: Any) -> int:
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions")))


def _metrics(frame: DataFrame) -> Mapping[str, str]:
    """What a frame's own execution has observed, as JSON by name."""
    observed, out = frame._jdf.queryExecution().observedMetrics().iterator(), {}
    while observed.hasNext():
        entry = observed.next()
        out[entry._1()] = entry._2().json()
    return out


def _observed(frame: DataFrame, name: str, column: str) -> list[str]:
    return list(json.loads(_metrics(frame)[name])[column])
