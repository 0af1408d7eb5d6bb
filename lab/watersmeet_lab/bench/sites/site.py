"""The program of one site: `python -m watersmeet_lab.bench.sites.site SPEC LOG` runs a site's part of a query until it is killed, or a file says stop.

SPEC is JSON: see `Part`. LOG gets a line of JSON for every batch. It is a user's script: it knows the public surface and nothing else.
"""

from __future__ import annotations

import json
import os
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import watersmeet as wm


@dataclass(frozen=True)
class Part:
    """What a site runs."""

    at: str
    query: str
    sites: dict[str, str]
    """By stream."""
    schemas: dict[str, str]
    data: str
    """The folder that has this site's streams, each in a folder of its own."""
    exchange: str
    out: str
    checkpoint: str
    stop: str
    """A file that ends it."""
    plan: Any = "auto"
    trigger: str = "1 second"
    files_per_trigger: int = 1
    bandwidth: float = 12.5e6
    conf: dict[str, str] = field(default_factory=dict)


def open_session(conf: dict[str, str]) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.master": "local[1]",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    }
    return SparkSession.builder.config(map=settings | conf).getOrCreate()


def start(part: Part) -> Any:
    """The running query."""
    spark, streams = open_session(part.conf), dict[str, Any]()
    for name, site in part.sites.items():
        schema = part.schemas[name]
        if site != part.at:
            streams[name] = wm.RemoteStream(schema, time="ts", site=site)
            continue
        reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", part.files_per_trigger)
        streams[name] = wm.Stream(reader.parquet(f"{part.data}/{name}"), time="ts", site=site)
    query = wm.sql(part.query, streams, sites=wm.Sites(plan=part.plan, bandwidth=part.bandwidth))
    return query.start(
        at=part.at, exchange=part.exchange, sink=part.out, checkpoint=part.checkpoint, trigger=part.trigger
    )


def main(spec: str, log: str) -> None:
    part = Part(**json.loads(Path(spec).read_text()))
    with Path(log).open("a") as out:

        def note(progress: Any) -> None:
            shipped = [[*pair, *counts] for pair, counts in progress.shipped.items()]
            said = {"batch": progress.batch_id, "at": time.time(), "seconds": progress.seconds}
            said |= {"rows": progress.input_rows, "results": progress.results, "shipped": shipped}
            out.write(json.dumps(said) + "\n")
            out.flush()

        handle = start(part)
        handle.on_batch(note)
        print("started", flush=True)
        while not Path(part.stop).exists():
            if handle.exception is not None:
                raise handle.exception
            time.sleep(0.2)
        handle.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
