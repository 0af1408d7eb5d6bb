"""A real broker: three topics joined by the command, into a topic and into a Delta table, killed with SIGKILL and started again.

Invariant: nothing is lost; in the table nothing is doubled; in the topic a reader that follows the rule of docs/kafka-to-delta.md drops exactly the repeats.
`make kafka` runs it.
"""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from tests.crash.driver import QUERY
from tests.crash.life import members
from tests.crash.phases import committed
from tests.crash.streams import Bag, assert_same, expected, write_streams
from watersmeet.errors import StreamError
from watersmeet.runtime.kafka.address import topic_of
from watersmeet.runtime.kafka.probe import require_broker
from watersmeet_lab.machines.broker import running_broker
from watersmeet_lab.machines.jars import fetch

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif("KAFKA_TESTS" not in os.environ, reason="`make kafka` runs it: it needs jars from Maven"),
]
CONNECTOR = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", False),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", False),
    ("org.apache.spark", "spark-avro_2.13", "4.1.1", False),
    ("org.apache.kafka", "kafka-clients", "3.9.1", False),
    ("org.apache.commons", "commons-pool2", "2.12.0", False),
]
"""Group, artifact, version, and whether what it needs comes with it: Spark brings the rest of the connector's."""
FILES, KILLS = 24, int(os.environ.get("CRASH_KILLS", "3"))
TOPIC_ROWS = 1_151
BATCH_ROWS = next(n for n in range(TOPIC_ROWS // (2 * KILLS + 2), 0, -1) if 2 * (TOPIC_ROWS % n) > n)
"""Of every topic: each life ends in a batch of its own, some are left for the last life, and the last batch, which is repeated, is more than half full."""
SCHEMA = "id bigint, k bigint, ts timestamp"
AVRO = json.dumps(
    {
        "type": "record",
        "name": "row",
        "fields": [
            {"name": "id", "type": ["null", "long"]},
            {"name": "k", "type": ["null", "long"]},
            {"name": "ts", "type": ["null", {"type": "long", "logicalType": "timestamp-micros"}]},
        ],
    }
)


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with running_broker(tmp_path_factory.mktemp("kafka") / "broker") as address:
        yield address


@pytest.fixture(scope="module")
def spark() -> Iterator[Any]:
    """To fill topics and to read them."""
    from pyspark.sql import SparkSession

    jars = ",".join(map(str, sorted(fetch("kafka-connector", CONNECTOR).glob("*.jar"))))
    session = SparkSession.builder.master("local[1]").config("spark.jars", jars).config("spark.ui.enabled", "false")
    session = session.config("spark.sql.session.timeZone", "UTC").getOrCreate()
    yield session
    session.stop()


@pytest.fixture(scope="module")
def data(broker: str, spark: Any, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three streams as files, and as topics: JSON in `a`, `b` and `c`, Avro in `avro-a`."""
    from pyspark.sql import functions as F
    from pyspark.sql.avro.functions import to_avro

    folder = tmp_path_factory.mktemp("data") / "data"
    write_streams(folder, FILES, seed=11)
    for name in "abc":
        rows = [row for file in sorted((folder / name).iterdir()) for row in pq.read_table(file).to_pylist()]
        assert len(rows) == TOPIC_ROWS
        values = [(json.dumps({**row, "ts": row["ts"].strftime("%Y-%m-%dT%H:%M:%S.%fZ")}),) for row in rows]
        send(broker, name, spark.createDataFrame(values, "value string"))
        parsed = F.from_json("value", SCHEMA)
        send(broker, f"avro-{name}", spark.createDataFrame(values, "value string").select(to_avro(parsed, AVRO).alias("value")))  # fmt: skip
    return folder


def send(broker: str, topic: str, values: Any) -> None:
    """In order: all into one partition, by one task."""
    from pyspark.sql import functions as F

    records = values.coalesce(1).select("value", F.lit(0).alias("partition"))
    records.write.format("kafka").option("kafka.bootstrap.servers", broker).option("topic", topic).save()


def records(spark: Any, broker: str, topic: str) -> Any:
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", broker)
    return reader.option("subscribe", topic).load()


class Command:
    """`watersmeet run` over the three topics."""

    def __init__(self, broker: str, sink: str, work: Path, form: str = "json", schema: str = SCHEMA) -> None:
        self.work, prefix, suffix = work, "avro-" if form == "avro" else "", ":avro" if form == "avro" else ""
        streams = [f"--stream={n}=kafka:{prefix}{n}@{broker}{suffix}" for n in "abc"]
        streams += [f"--schema={n}={schema}" for n in "abc"] + [f"--lateness={n}=1 second" for n in "abc"]
        program = "from watersmeet.cli import app; app()"
        self.line = [sys.executable, "-c", program, "run", QUERY, *streams, "--sink", sink, "--units", "2"]
        self.line += [
            "--jars",
            str(fetch("kafka-connector", CONNECTOR)),
            "--rows-per-trigger",
            str(BATCH_ROWS),
            "--checkpoint",
            str(work / "checkpoint"),
        ]

    def end(self) -> None:
        """Run to the end of what is there."""
        done = subprocess.run([*self.line, "--trigger", "available-now"], capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr

    def die(self, rng: random.Random) -> None:
        """Kill it, its JVM and its workers, somewhere in a batch after its first."""
        target = committed(self.work) + 1
        with (self.work / "log").open("ab") as log:
            life = subprocess.Popen(
                [*self.line, "--trigger", "0 seconds"], stdout=log, stderr=log, start_new_session=True
            )
            deadline = time.monotonic() + 300
            while committed(self.work) < target:
                assert life.poll() is None, (self.work / "log").read_text()[-3000:]
                assert time.monotonic() < deadline
                time.sleep(0.01)
            time.sleep(rng.uniform(0, 0.6))
            os.killpg(life.pid, signal.SIGKILL)
            life.wait()
            while members(life.pid):
                time.sleep(0.05)

    def repeat(self) -> None:
        """Run the last batch again: Spark's log and the state have forgotten that it was done."""
        last = committed(self.work)
        for path in ("commits/{}", "commits/.{}.crc", "watersmeet/manifests/{}.json"):
            (self.work / "checkpoint" / path.format(last)).unlink(missing_ok=True)
        self.end()
        assert committed(self.work) == last


def drop_repeats(found: Any) -> list[bytes]:
    """Values without repeats: what a reader of the topic does, partition by partition, in the order of offsets."""
    latest: dict[tuple[int, str], tuple[int, set[str]]] = {}
    kept = []
    for row in found.orderBy("partition", "offset").collect():
        query, batch, _ = bytes(row.key).decode().split(":", 2)
        number, seen = latest.get((row.partition, query), (-1, set()))
        if int(batch) > number:
            number, seen = int(batch), set()
        if int(batch) == number and row.key.decode() not in seen:
            seen.add(row.key.decode())
            kept.append(bytes(row.value))
        latest[row.partition, query] = number, seen
    return kept


def test_from_kafka_to_kafka(broker: str, spark: Any, data: Path, tmp_path: Path) -> None:
    command = Command(broker, f"kafka:pairs@{broker}", tmp_path)
    rng = random.Random(1)
    for _ in range(KILLS):
        command.die(rng)
    command.end()
    command.repeat()
    found, want = records(spark, broker, "pairs"), expected(data, "rounds")
    rows: Bag = Counter(tuple(json.loads(value).values()) for value in drop_repeats(found))
    assert_same(rows, want)
    assert found.count() > sum(want.values()), "no record was repeated: little was tested"


def test_from_kafka_to_delta(broker: str, spark: Any, data: Path, tmp_path: Path) -> None:
    command = Command(broker, f"delta:{tmp_path / 'pairs'}", tmp_path)
    rng = random.Random(2)
    for _ in range(KILLS):
        command.die(rng)
    command.end()
    command.repeat()
    found = DeltaTable(tmp_path / "pairs").to_pyarrow_table().to_pylist()
    assert_same(Counter(tuple(row.values()) for row in found), expected(data, "rounds"))


def test_avro_in_and_out(broker: str, spark: Any, data: Path, tmp_path: Path) -> None:
    from pyspark.sql.avro.functions import from_avro

    schema = tmp_path / "row.avsc"
    schema.write_text(AVRO)
    Command(broker, f"kafka:avro-pairs@{broker}:avro", tmp_path, "avro", f"@{schema}").end()
    names = ("a_id", "b_id", "c_id", "k")
    fields = [{"name": name, "type": ["long", "null"]} for name in names]
    # Spark names the record `topLevelRecord`.
    form = json.dumps({"type": "record", "name": "topLevelRecord", "fields": fields})
    read = records(spark, broker, "avro-pairs").select(from_avro("value", form).alias("v")).select("v.*")
    assert_same(Counter(tuple(row) for row in read.collect()), expected(data, "rounds"))


def test_a_broker_that_wants_a_name(tmp_path: Path) -> None:
    with running_broker(tmp_path / "broker", wants_name=True) as address:
        with pytest.raises(StreamError, match=r"hangs up on a client without credentials: give .* with \?config=FILE"):
            require_broker(topic_of(f"kafka:a@{address}", "sink"), "sink")
        (tmp_path / "client").write_text("security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
        require_broker(topic_of(f"kafka:a@{address}?config={tmp_path / 'client'}", "sink"), "sink")
