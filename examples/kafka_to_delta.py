"""Two Kafka topics joined into a Delta table, exactly once, in either of two ways.

    python examples/kafka_to_delta.py dataframe FOLDER    results leave as a DataFrame, by Spark's own Delta sink
    python examples/kafka_to_delta.py start FOLDER        workers write the table's files, and the package `deltalake` commits them

Stop it or kill it at any time: the same command goes on where it was. Jars, versions and a broker to try it with are in
docs/kafka-to-delta.md; `--jars` takes the folder that the jars are in.
"""

import argparse
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, from_json

import watersmeet as wm
from watersmeet.runtime.progress import read

TOPICS = {
    "clicks": "user bigint, page string, ts timestamp",
    "orders": "id bigint, user bigint, total double, ts timestamp",
}
SQL = """
    SELECT o.id, o.user, c.page, o.total, o.ts
    FROM clicks c, orders o
    WHERE c.user = o.user
    DWINDOW (c, o) = 10 MINUTES
"""


def read_topic(spark: SparkSession, broker: str, topic: str, per_batch: int) -> DataFrame:
    """A topic's records as Kafka has them."""
    return (
        spark.readStream.format("kafka")
        .option("kafka.bootstrap.servers", broker)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")  # of the first start; later ones go on from the checkpoint
        .option("maxOffsetsPerTrigger", per_batch)
        .load()
    )


def parse(records: DataFrame, schema: str) -> DataFrame:
    """The columns inside each record's JSON value."""
    return records.select(from_json(col("value").cast("string"), schema).alias("v")).select("v.*")


def join(topics: dict[str, DataFrame], lateness: str) -> wm.Query:
    """Each order with the pages that its user had clicked on in the ten minutes before."""
    return wm.sql(SQL, **{name: wm.Stream(frame, time="ts", lateness=lateness) for name, frame in topics.items()})


def run_dataframe(query: wm.Query, folder: Path, trigger: str) -> None:
    """By Spark's Delta sink, which numbers its commits by query and batch itself."""
    writer = query.dataframe().writeStream.format("delta").option("checkpointLocation", str(folder / "checkpoint"))
    running = writer.trigger(processingTime=trigger).start(str(folder / "table"))
    while not running.awaitTermination(10):
        report(read(running.lastProgress or {}))


def run_start(query: wm.Query, folder: Path, trigger: str) -> None:
    """By watersmeet's own runtime, which does the same."""
    running = query.start(sink=f"delta:{folder / 'table'}", checkpoint=folder / "checkpoint", trigger=trigger)
    running.on_batch(report)
    running.await_termination()


def report(progress: wm.Progress | None) -> None:
    """Late rows are the figure to watch: they are lost to the join."""
    if progress is not None:
        print(f"batch {progress.batch_id}: {progress.results:,} results, late: {progress.late}", flush=True)


def session(jars: Path) -> SparkSession:
    """A local Spark with the jars of a folder, and with Delta if it is among them."""
    paths = sorted(jars.glob("*.jar"))
    builder = (
        SparkSession.builder.master("local[*]")
        .config("spark.jars", ",".join(map(str, paths)))
        .config("spark.sql.shuffle.partitions", "4")
        .config("spark.sql.session.timeZone", "UTC")
    )
    if any(p.name.startswith("delta-spark") for p in paths):
        builder = builder.config("spark.sql.extensions", "io.delta.sql.DeltaSparkSessionExtension").config(
            "spark.sql.catalog.spark_catalog", "org.apache.spark.sql.delta.catalog.DeltaCatalog"
        )
    return builder.getOrCreate()


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("way", choices=["dataframe", "start"])
    arguments.add_argument("folder", type=Path, help="of the table and the checkpoint")
    arguments.add_argument("--jars", type=Path, default=Path("jars"))
    arguments.add_argument("--broker", default="127.0.0.1:9092")
    arguments.add_argument("--lateness", default="10 minutes")
    arguments.add_argument("--trigger", default="5 seconds")
    arguments.add_argument("--per-batch", type=int, default=50_000, help="records of a topic in a micro-batch, at most")
    given = arguments.parse_args()
    spark = session(given.jars)
    topics = {
        name: parse(read_topic(spark, given.broker, name, given.per_batch), schema) for name, schema in TOPICS.items()
    }
    run = {"dataframe": run_dataframe, "start": run_start}[given.way]
    run(join(topics, given.lateness), given.folder, given.trigger)


if __name__ == "__main__":
    main()
