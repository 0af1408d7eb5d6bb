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

from collections.abc import Mapping, Sequence
from functools import reduce

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from watersmeet.dataflow.contract import Dataflow
from watersmeet.errors import OptionError
from watersmeet.operators.assemble import dataflow_of
from watersmeet.operators.enter import AHEAD, CONTENT, OWN, PASS
from watersmeet.operators.late import ROW
from watersmeet.operators.project import Fields
from watersmeet.plan.model import TIME, InputPlan, Plan
from watersmeet.plan.source_sql import condition, items, own_condition
from watersmeet.runtime.progress import OBSERVED
from watersmeet.runtime.spark_plan import SPARK
from watersmeet.runtime.spark_versions import arrow_schema, check_connect
from watersmeet.runtime.stream.finish import finish_rows, keeps_inside, last_fields
from watersmeet.runtime.stream.messages import MESSAGE, Packer
from watersmeet.runtime.stream.processor import StageProcessor
from watersmeet.runtime.stream.static import StageBackfill
from watersmeet.runtime.workers import METRICS, with_metrics
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


def dataframe(plan: Plan, frames: Mapping[str, DataFrame]) -> DataFrame:
    """The query's result as a DataFrame over these sources, by stream."""
    any_frame = next(iter(frames.values()))
    check_connect(any_frame)
    if any_frame.isStreaming:
        settle_session(any_frame.sparkSession)
    keeps = keeps_inside(plan, streaming=any_frame.isStreaming)
    flow = dataflow_of(plan, keeps=keeps)
    packed = {
        i.alias: wire(i, plan.inputs, frames[i.stream]).mapInArrow(
            Packer(flow, i.alias, not any_frame.isStreaming), MESSAGE
        )
        for i in plan.inputs
    }
    left = carry(flow, packed, Identity.of(plan), last_fields(plan, keeps=keeps))
    observed = left.observe(f"{OBSERVED}-{plan.fingerprint()}", F.collect_list(METRICS).alias("units"))
    return finish_rows(plan, observed, len(flow.stages) - 1, keeps=keeps)


def carry(flow: Dataflow, packed: Mapping[str, DataFrame], identity: Identity, fields: Fields) -> DataFrame:
    """A dataflow over the messages of its sources, by alias: its results, with metrics."""
    schema = StructType.fromDDL(with_metrics(fields))
    messages: DataFrame | None = None
    for number in range(len(flow.stages)):
        entering = [packed[alias] for alias, entry in flow.entries.items() if entry.stage == number]
        messages = reduce(DataFrame.union, [messages, *entering] if messages is not None else entering)
        is_last = number == len(flow.stages) - 1
        out, arrow = (schema, arrow_schema(schema)) if is_last else (StructType.fromDDL(MESSAGE), None)
        messages = _stage(flow, number, messages, identity, out, arrow)
    assert messages is not None
    return messages


def _stage(
    flow: Dataflow, number: int, messages: DataFrame, identity: Identity, out: StructType, arrow: object
) -> DataFrame:
    if messages.isStreaming:
        return messages.groupBy("unit").transformWithStateInPandas(
            StageProcessor(flow, number, identity, arrow), outputStructType=out, outputMode="append", timeMode="none"
        )
    in_time = messages.repartition(flow.stages[number].units, "unit").sortWithinPartitions("unit", "from_ts")
    return in_time.mapInArrow(StageBackfill(flow, number, identity, arrow), out)


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


def wire(source: InputPlan, inputs: Sequence[InputPlan], frame: DataFrame, *, late: bool = False) -> DataFrame:
    """A source's rows as wire rows: Spark computes filters, keys and operands; with `late` each brings the whole row along."""
    columns = [F.expr(text).alias(name) for name, text in items(source, inputs, SPARK, wrap_plain=True)]
    passes = condition(source, SPARK)
    if passes is not None:
        columns.append(F.expr(f"coalesce({passes}, false)").alias(PASS))
    own = own_condition(source, SPARK)
    if own is not None:
        columns.append(F.expr(f"coalesce({own}, false)").alias(OWN))
    if source.rows is not None:
        columns += [F.col(SPARK.quote(name)).alias(CONTENT + name) for name in frame.columns]
    if source.max_ahead_us is not None:
        columns.append(F.expr(_is_ahead(source, source.max_ahead_us)).alias(AHEAD))
    if late:
        columns.append(F.struct(*_whole_row(frame)).alias(ROW))
    return frame.select(*columns)


def _is_ahead(source: InputPlan, max_ahead_us: int) -> str:
    """Whether a row is too far ahead of the micro-batch's own time, which Spark keeps in the offset log: the same when the batch is repeated."""
    time = next(c for c in source.columns if c.name == TIME)
    now = "current_timestamp()" if time.type == "timestamp" else "localtimestamp()"
    seconds, micros = divmod(max_ahead_us, 1_000_000)
    text = time.expr.spark(lambda ref: SPARK.quote(ref.column))
    return f"coalesce({text} > {now} + INTERVAL '{seconds}.{micros:06}' SECOND, false)"


def _whole_row(frame: DataFrame) -> list[Column]:
    """All columns; intervals of months and days are no type of Arrow's, and travel as text."""
    columns = [(F.col(SPARK.quote(name)), name, kind) for name, kind in frame.dtypes]
    return [(column.cast("string") if kind == "interval" else column).alias(name) for column, name, kind in columns]
