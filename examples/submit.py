"""A job for a cluster: folders in, a Delta table or a folder of Parquet files out, exactly once.

    spark-submit --master spark://host:7077 --py-files watersmeet.zip examples/submit.py CLICKS ORDERS SINK CHECKPOINT

Every host needs watersmeet in the Python that its workers run (`pip install watersmeet` there, `spark.archives` with a packed virtualenv, or --py-files). All
folders must be the same for the driver and all workers: a shared file system or an object store. SINK is a folder, or delta:PATH. The same command goes on after a crash.
"""

import argparse

from pyspark.sql import SparkSession

import watersmeet as wm

SCHEMAS = {
    "clicks": "user BIGINT, page STRING, ts TIMESTAMP",
    "orders": "id BIGINT, user BIGINT, total DOUBLE, ts TIMESTAMP",
}
SQL = "SELECT o.id, c.page, o.total FROM clicks c, orders o WHERE c.user = o.user DWINDOW (c, o) = 10 MINUTES"


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in ("clicks", "orders", "sink", "checkpoint"):
        arguments.add_argument(name)
    arguments.add_argument("--trigger", default="10 seconds", help="or availableNow: join what is there, and stop")
    given = arguments.parse_args()

    spark = SparkSession.builder.appName("paid clicks").getOrCreate()  # master and settings are spark-submit's
    streams = {
        name: wm.Stream(
            spark.readStream.schema(schema).option("maxFilesPerTrigger", 100).parquet(getattr(given, name)),
            time="ts",
            lateness="1 minute",
        )
        for name, schema in SCHEMAS.items()
    }
    units = 2 * spark.sparkContext.defaultParallelism  # fixed for a checkpoint: twice the cores leaves room to grow
    query = wm.sql(SQL, **streams, units=units)
    running = query.start(sink=given.sink, checkpoint=given.checkpoint, trigger=given.trigger)
    running.on_batch(lambda progress: print(repr(progress), flush=True))
    running.await_termination()


if __name__ == "__main__":
    main()
