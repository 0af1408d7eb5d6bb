"""A broker of Kafka in KRaft mode, from its jars, for the length of a test or a benchmark: on loopback, or on a host."""

from __future__ import annotations

import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from watersmeet_lab.machines.jars import Artifact, fetch
from watersmeet_lab.machines.process import Start, await_text, start_here

LOOPBACK = "127.0.0.1"
ARTIFACTS: tuple[Artifact, ...] = (
    ("org.apache.kafka", "kafka_2.13", "3.9.1", True),
    ("org.slf4j", "slf4j-simple", "1.7.36", True),
)
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{controller}
listeners={protocol}://{host}:{port},CONTROLLER://{host}:{controller}
inter.broker.listener.name={protocol}
controller.listener.names=CONTROLLER
listener.security.protocol.map={protocol}:{protocol},CONTROLLER:PLAINTEXT
offsets.topic.replication.factor=1
num.partitions=3
log.dirs={data}
"""
_SASL = """
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_plaintext.plain.sasl.jaas.config=org.apache.kafka.common.security.plain.PlainLoginModule required \
 username="admin" password="secret" user_admin="secret";
"""


@contextmanager
def running_broker(
    folder: Path, *, wants_name: bool = False, host: str = LOOPBACK, port: int | None = None, start: Start = start_here
) -> Iterator[str]:
    """The address of a broker; `wants_name`: it refuses clients without credentials."""
    folder.mkdir()
    jars, port, controller = fetch("kafka-broker", ARTIFACTS), port or find_free_port(), find_free_port()
    config, run = folder / "server.properties", ["java", "-Xmx512m", "-XX:+UseSerialGC", "-cp", f"{jars}/*"]
    protocol = "SASL_PLAINTEXT" if wants_name else "PLAINTEXT"
    text = _PROPERTIES.format(port=port, controller=controller, data=folder / "data", protocol=protocol, host=host)
    config.write_text(text + (_SASL if wants_name else ""))
    tool = [*run, "kafka.tools.StorageTool", "format", "-t", "bXktY2x1c3Rlci1pZC0wMQ", "-c", str(config)]
    subprocess.run(tool, check=True, capture_output=True)
    broker = start([*run, "kafka.Kafka", str(config)], folder / "log")
    try:
        await_text(broker, folder / "log", b"Kafka Server started")
        yield f"{host}:{port}"
    finally:
        broker.kill()
        broker.wait()


def find_free_port() -> int:
    """A port of loopback that nobody listens at."""
    with socket.socket() as found:
        found.bind((LOOPBACK, 0))
        return int(found.getsockname()[1])
