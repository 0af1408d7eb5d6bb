"""spark_stream: a join as one stateful stage of Structured Streaming.

    source a --select--> mapInArrow(pack) --\
    source b --select--> mapInArrow(pack) ---> groupBy(unit) --> transformWithState --> where, select
    source c --select--> mapInArrow(pack) --/

DISTINCT and GROUP BY follow as a second stage, see `spark_finish`.

Rows travel as a few Arrow blobs; segments are values of a MapState; sinks, triggers and exactly-once are Spark's. On
static DataFrames the same units run over slices of event time, in memory, without a state store.

Invariant: what a unit does depends on its messages and its state only; Spark may run any task twice.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import reduce

import pandas as pd
import pyarrow as pa
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.streaming import StatefulProcessorHandle
from pyspark.sql.types import StructType

from watersmeet.errors import OptionError
from watersmeet.plan.model import InputPlan, Plan, Stage
from watersmeet.plan.source_sql import condition, items
from watersmeet.routing.labels import labels
from watersmeet.runtime.progress import OBSERVED
from watersmeet.runtime.spark_backfill import Backfill, SequenceBackfill, StageBackfill
from watersmeet.runtime.spark_finish import finished
from watersmeet.runtime.spark_messages import MESSAGE, Packer
from watersmeet.runtime.spark_results import METRICS, arrow_columns, metrics_columns, output_schema, pandas_frame
from watersmeet.runtime.spark_select import selected
from watersmeet.runtime.spark_sequencer import SequencerProcessor
from watersmeet.runtime.spark_stages import StageProcessor, report_of
from watersmeet.runtime.spark_state import Heard, UnitProcessor, inbox_of
from watersmeet.runtime.spark_types import SPARK
from watersmeet.runtime.spark_versions import arrow_schema, check_connect
from watersmeet.runtime.worker_heap import after_task
from watersmeet.units.blocks import block_bytes
from watersmeet.units.join_unit import JoinUnit
from watersmeet.units.leave import leaving
from watersmeet.units.pack import CONTENT, PASS

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
FRAME_ROWS = 65_536
"""Results leave a unit in frames of about this many rows, or of a block's bytes, or less at its end."""
TURN_ROWS = 8_192
"""So many do not wait for those of the next driver."""


def dataframe(plan: Plan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The query's result as a DataFrame over these sources, by stream."""
    streaming = next(iter(frames.values())).isStreaming
    spark = next(iter(frames.values())).sparkSession
    check_connect(next(iter(frames.values())))
    if streaming:
        settle_session(spark)
    packed = {
        i.alias: wire(plan, i, frames[i.stream]).mapInArrow(Packer(plan, i.position, not streaming), MESSAGE)
        for i in plan.inputs
    }
    schema = StructType.fromDDL(output_schema(plan))
    run = _streaming if streaming else _static
    return projected(plan, run(plan, packed, schema, arrow_schema(schema)))


def _streaming(plan: Plan, packed: Mapping[str, DataFrame], schema: StructType, arrow_schema: pa.Schema) -> DataFrame:
    messages = _entering(plan.stages[0], packed)
    for number, after in enumerate(plan.stages[1:]):
        bound = messages.groupBy("unit").transformWithStateInPandas(
            StageProcessor(plan, number),
            outputStructType=StructType.fromDDL(MESSAGE),
            outputMode="append",
            timeMode="none",
        )
        messages = bound.union(_entering(after, packed))
    if plan.sequenced:
        messages = messages.groupBy("unit").transformWithStateInPandas(
            SequencerProcessor(plan), outputStructType=StructType.fromDDL(MESSAGE), outputMode="append", timeMode="none"
        )
    return messages.groupBy("unit").transformWithStateInPandas(
        JoinProcessor(plan, arrow_schema), outputStructType=schema, outputMode="append", timeMode="none"
    )


def _static(plan: Plan, packed: Mapping[str, DataFrame], schema: StructType, arrow_schema: pa.Schema) -> DataFrame:
    messages = _entering(plan.stages[0], packed)
    for number, after in enumerate(plan.stages[1:]):
        bound = _in_time(messages, plan.stages[number]).mapInArrow(StageBackfill(plan, number), MESSAGE)
        messages = bound.union(_entering(after, packed))
    if plan.sequenced:
        messages = messages.repartition(1).sortWithinPartitions("from_ts").mapInArrow(SequenceBackfill(plan), MESSAGE)
    return _in_time(messages, plan.stages[-1]).mapInArrow(Backfill(plan, arrow_schema), schema)


def _entering(stage: Stage, packed: Mapping[str, DataFrame]) -> DataFrame:
    """The messages of the streams that enter in a stage."""
    return reduce(DataFrame.union, [packed[side.name] for side in stage.sides if side.name in packed])


def _in_time(messages: DataFrame, stage: Stage) -> DataFrame:
    return messages.repartition(stage.routing.units, "unit").sortWithinPartitions("unit", "from_ts")


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


def wire(plan: Plan, source: InputPlan, frame: DataFrame) -> DataFrame:
    """A source's rows as wire rows: Spark computes filters, keys and operands."""
    columns = [F.expr(text).alias(name) for name, text in items(plan, source, SPARK, wrap_plain=True)]
    passes = condition(source, SPARK)
    if passes is not None:
        columns.append(F.expr(f"coalesce({passes}, false)").alias(PASS))
    if source.rows is not None:
        columns += [F.col(SPARK.quote(name)).alias(CONTENT + name) for name in frame.columns]
    return frame.select(*columns)


def projected(plan: Plan, raw: DataFrame) -> DataFrame:
    """Metrics out, conditions that are Spark's, and the SELECT."""
    observed = raw.observe(f"{OBSERVED}-{plan.fingerprint()}", F.collect_list(METRICS).alias("units"))
    return selected(plan, observed.where(f"{METRICS} IS NULL")) if plan.finish is None else finished(plan, observed)


class JoinProcessor(UnitProcessor):
    """transformWithState: one group is one unit."""

    def __init__(self, plan: Plan, schema: pa.Schema) -> None:
        self.plan, self.schema = plan, schema

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._stage = self.plan.stages[-1]
        self._unit_of = {label: n for n, label in enumerate(labels(self._stage.routing.units))}

    def step(self, label: int, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        join, heard = JoinUnit(self.plan, self._stage.first + self._unit_of[label]), Heard()
        inbox = inbox_of(self.plan, rows, self._stage, heard)
        manifest = self._state.read_manifest(self.plan)
        held: list[pa.Table] = []
        turn = 0
        for table in leaving(self.plan, join.step(inbox, manifest, self._state.store)):
            waiting, last_turn, turn = sum(t.num_rows for t in held), turn, len(join.report.drivers)
            is_full = waiting >= FRAME_ROWS or sum(t.nbytes for t in [*held, table]) > block_bytes()
            if held and (is_full or (waiting >= TURN_ROWS and turn > last_turn)):
                yield pandas_frame(held)
                held = []
            held.append(pa.table(arrow_columns(self.plan, table)))
        self._state.write_manifest(manifest)
        heard.report.include(join.report)
        reports = [*heard.units, report_of(join.unit, heard.report)]
        yield pandas_frame([*held, pa.table(metrics_columns(self.schema, reports))])
        held.clear()
        after_task()
