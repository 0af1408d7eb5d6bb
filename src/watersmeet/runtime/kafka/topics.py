"""Topics as streams and as sinks, through Spark's connector.

A sink's records are rows as JSON or Avro. Kafka keeps what is sent, so a batch that is repeated is there twice: at least once. Records have keys by which a reader
knows the second copy:

    5f3c...-...:17:00a1b2c3d4e5f607:0        query id : batch : hash of the value : which one of equal hashes

A batch that is repeated has the same rows in any order, so its keys are the same. The same key goes to the same partition, and a batch begins when the one before has
been sent, so in a partition a record is a repeat if its batch is older than the latest, or its key has been there in this batch.

Invariant: the frame of a batch is run once.
"""

from __future__ import annotations

from typing import Any

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession, Window
from pyspark.sql import functions as F
from pyspark.sql.types import BinaryType

from watersmeet.errors import StreamError
from watersmeet.runtime.kafka.address import Topic
from watersmeet.runtime.kafka.probe import require_broker
from watersmeet.runtime.spark.versions import minor_of

_SCALA = "_2.13"
_JSON = {
    "ignoreNullFields": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSSXXX",
    "timestampNTZFormat": "yyyy-MM-dd'T'HH:mm:ss.SSSSSS",
}
"""Spark's own formats would cut times to milliseconds."""


def require_connector(spark: SparkSession, topic: Topic, shown: str) -> None:
    """Raise if Spark has not the jars for a topic."""
    minor = minor_of(spark)
    needed = f"org.apache.spark:spark-sql-kafka-0-10{_SCALA}"
    try:
        spark.readStream.format("kafka").options(**topic.options).option("subscribe", topic.name).load()
        needed = f"org.apache.spark:spark-avro{_SCALA}"
        if topic.payload == "avro":
            spark.range(0).select(_encode(spark.range(0), topic))
    except (PySparkException, TypeError) as error:  # a module of Spark's JVM that is not there is not callable
        raise StreamError(
            f"{shown}: Spark {minor} has not the jar {needed.rpartition(':')[2]}: set spark.jars.packages={needed}:{minor}.x before the session starts, or name the "
            f"jars in spark.jars (docs/kafka-to-delta.md lists them)"
        ) from error


def read_topic(
    spark: SparkSession, topic: Topic, schema: str, shown: str, rows_per_trigger: int | None = None
) -> DataFrame:
    """The records of a topic from its beginning on, as a streaming frame; the schema is Spark's for JSON and Avro's own for Avro."""
    require_broker(topic, shown)
    require_connector(spark, topic, shown)
    reader = spark.readStream.format("kafka").options(**topic.options).option("subscribe", topic.name)
    reader = reader.option("startingOffsets", "earliest")
    if rows_per_trigger:
        reader = reader.option("maxOffsetsPerTrigger", rows_per_trigger)
    return decode(reader.load(), topic, schema)


def decode(records: DataFrame, topic: Topic, schema: str) -> DataFrame:
    """The columns inside the values of records; NULLs where a value is no JSON of the schema."""
    if topic.payload == "avro":
        from pyspark.sql.avro.functions import from_avro

        return records.select(from_avro("value", schema).alias("v")).select("v.*")
    return records.select(F.from_json(F.col("value").cast("string"), schema).alias("v")).select("v.*")


def records_of(rows: DataFrame, topic: Topic, query_id: str, batch: int) -> DataFrame:
    """Rows as records with keys that a replay repeats."""
    valued = rows.select(_encode(rows, topic).alias("value")).withColumn("hash", F.xxhash64("value"))
    number = F.row_number().over(Window.partitionBy("hash").orderBy("value")) - 1
    key = F.concat_ws(":", F.lit(f"{query_id}:{batch}"), F.lpad(F.lower(F.hex("hash")), 16, "0"), number)
    return valued.select(key.alias("key"), "value")


def _encode(rows: DataFrame, topic: Topic) -> Any:
    columns = F.struct(*[F.col(f"`{name.replace('`', '``')}`") for name in rows.columns])
    if topic.payload == "avro":
        from pyspark.sql.avro.functions import to_avro

        return to_avro(columns)
    return F.to_json(columns, _JSON).cast(BinaryType())


def write_records(records: DataFrame, topic: Topic) -> None:
    """Send records; returns when the brokers have them."""
    records.write.format("kafka").options(**topic.options).option("topic", topic.name).save()
