"""The program of the test that executors follow the units: `python -m tests.cluster.allocation DATA WORK`.

It begins with two units, for which one executor is enough, and a capacity that the data soon exceed. In every batch it writes down how many executors there are.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import watersmeet as wm
from tests.cluster.families import HASH
from tests.crash.driver import SCHEMA, session

SCALING = wm.Scaling(unit_bytes="4 KB", confirm=2, most_units=4, low=0.0, executors="spark", units_per_executor=2)


def main(data: str, work: str) -> None:
    spark = session()
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    streams = {name: wm.Stream(reader.parquet(f"{data}/{name}"), time="ts", lateness="1 second") for name in "ab"}
    counted: list[int] = []

    def sink(rows: Any, batch_id: int) -> None:
        found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
        counted.append(found.size() - 1)  # the driver is one of them
        rows.write.mode("append").parquet(f"{work}/out")

    query = wm.sql(HASH, units=2, **streams)
    handle = query.start(sink=sink, checkpoint=f"{work}/checkpoint", trigger="availableNow", scaling=SCALING)
    handle.await_termination()
    said = [word for progress in handle.history() for word in progress.scaled]
    Path(work, "executors.json").write_text(json.dumps({"counted": counted, "said": said}))


if __name__ == "__main__":
    main(*sys.argv[1:])
