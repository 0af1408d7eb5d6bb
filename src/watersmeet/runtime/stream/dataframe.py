"""`dataframe()`: a dataflow as operators of Structured Streaming, or over static data.

    source a --select--> mapInArrow(pack) --\\
    source b --select--> mapInArrow(pack) ---> groupBy(unit) --> transformWithState(stage 0) --> ... --> where, select
    source c --select--> mapInArrow(pack) --/

What Spark does itself after the last stage (conditions that are Spark's, the SELECT, groups, some of DISTINCT) is in `finish`. Rows travel as a few
Arrow blobs; segments are values of a MapState; sinks, triggers and exactly-once are Spark's. On static DataFrames the same units run over slices
of event time, in memory, without a state store.

Invariant: what a unit does depends on its messages and its state only; Spark may run any task twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext
from functools import reduce

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.dataflow.contract import Dataflow
from watersmeet.errors import OptionError
from watersmeet.operators.assemble import dataflow_of
from watersmeet.operators.finish.project import Fields
from watersmeet.plan.model import Plan
from watersmeet.runtime.progress import OBSERVED
from watersmeet.runtime.spark.diary import without_diary
from watersmeet.runtime.spark.versions import arrow_schema, check_connect, is_connect
from watersmeet.runtime.spark.workers import METRICS, probe_workers, with_metrics
from watersmeet.runtime.stream.finish import finish_rows, keeps_inside, last_fields, ship_rows
from watersmeet.runtime.stream.late import REPORTS, add_late, static_late
from watersmeet.runtime.stream.messages import MESSAGE, Packer
from watersmeet.runtime.stream.processor import run_stage
from watersmeet.runtime.stream.static import StageBackfill
from watersmeet.runtime.stream.wire import wire
from watersmeet.storage.manifest import Identity

PROVIDER = "spark.sql.streaming.stateStore.providerClass"
ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SETTINGS = {
    PROVIDER: ROCKSDB,
    "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled": "true",
    "spark.sql.streaming.stateStore.rocksdb.trackTotalNumberOfRows": "false",
    "spark.sql.execution.arrow.maxBytesPerBatch": str(64 * 2**20),
}
"""Set where the user has not. The third: counting rows makes RocksDB read every value that it drops, and ours are whole
segments. The last: rows of 70 KB, or messages, would fill an Arrow buffer of the JVM's, which ends at 2 GiB, before their number
ends the batch."""


def dataframe(plan: Plan, frames: Mapping[str, DataFrame], *, late: bool = False) -> DataFrame:
    """The query's result as a DataFrame over these sources, by name, streams, then tables; with `late` also what it drops."""
    any_frame = next(iter(frames.values()))
    check_connect(any_frame, "dataframe()")
    if not any_frame.isStreaming:
        probe_workers(any_frame.sparkSession)
        results = _join(plan, frames, late=False)
        return add_late(results, static_late(plan, frames)) if late else results
    if late and plan.join.grouping is not None and plan.join.group_window is None:
        raise OptionError(
            "late=True: groups without window() are Spark's, and late rows cannot pass through its aggregation; use start(late=...)"
        )
    settle_session(any_frame.sparkSession)
    with nullcontext() if is_connect(any_frame) else without_diary(any_frame.sparkSession):
        probe_workers(any_frame.sparkSession)  # by workers of the same environment, which Spark then has ready
        return _join(plan, frames, late=late)


def _join(plan: Plan, frames: Mapping[str, DataFrame], *, late: bool) -> DataFrame:
    any_frame = next(iter(frames.values()))
    keeps = keeps_inside(plan, streaming=any_frame.isStreaming)
    plan = ship_rows(plan, keeps=keeps)
    flow = dataflow_of(plan, keeps=keeps)
    packed = {
        i.alias: wire(i, plan, frames, late=late).mapInArrow(Packer(flow, i, not any_frame.isStreaming, late), MESSAGE)
        for i in plan.inputs
    }
    left = carry(flow, packed, Identity.of(plan), last_fields(plan, keeps=keeps))
    reports = F.collect_list(F.expr(REPORTS) if late else METRICS)
    observed = left.observe(f"{OBSERVED}-{plan.fingerprint()}", reports.alias("units"))
    return finish_rows(plan, observed, len(flow.stages) - 1, frames, keeps=keeps, late=late)


def carry(flow: Dataflow, packed: Mapping[str, DataFrame], identity: Identity, fields: Fields) -> DataFrame:
    """A dataflow over the messages of its sources, by alias: its results, with metrics."""
    messages: DataFrame | None = None
    for number in range(len(flow.stages)):
        entering = [packed[alias] for alias, entry in flow.entries.items() if entry.stage == number]
        messages = reduce(DataFrame.union, [messages, *entering] if messages is not None else entering)
        messages = _stage(flow, number, messages, identity, fields if number == len(flow.stages) - 1 else None)
    assert messages is not None
    return messages


def _stage(flow: Dataflow, number: int, messages: DataFrame, identity: Identity, fields: Fields | None) -> DataFrame:
    if messages.isStreaming:
        return run_stage(flow, number, messages, identity, fields)
    in_time = messages.repartition(flow.stages[number].units, "unit").sortWithinPartitions("unit", "from_ts")
    out = None if fields is None else StructType.fromDDL(with_metrics(fields))
    schema = None if out is None else arrow_schema(out)
    return in_time.mapInArrow(StageBackfill(flow, number, identity, schema), out or MESSAGE)


def settle_session(spark: SparkSession) -> None:
    """Take RocksDB if the user has chosen no state store, and refuse another; then settings that pay, where unset."""
    chosen = spark.conf.get(PROVIDER, None)
    if chosen is not None and chosen != ROCKSDB:
        raise OptionError(
            f"{PROVIDER} is {chosen}: transformWithState needs RocksDB; set it to {ROCKSDB} or leave it unset"
        )
    for name, value in SETTINGS.items():
        if spark.conf.get(name, None) is None:
            spark.conf.set(name, value)
