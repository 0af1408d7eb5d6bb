"""A broker of Kafka in KRaft mode, from its jars, on loopback, for the length of a test."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_PATIENCE_S = 120
_PROPERTIES = """
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners={protocol}://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
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
def running_broker(jars: str, folder: Path, *, wants_name: bool = False) -> Iterator[str]:
    """The address of a broker; `wants_name`: it refuses clients without credentials."""
    folder.mkdir()
    port, controller = _free_port(), _free_port()
    config, run = folder / "server.properties", ["java", "-Xmx512m", "-cp", f"{jars}/*"]
    protocol = "SASL_PLAINTEXT" if wants_name else "PLAINTEXT"
    text = _PROPERTIES.format(port=port, controller=controller, data=folder / "data", protocol=protocol)
    config.write_text(text + (_SASL if wants_name else ""))
    tool = [*run, "kafka.tools.StorageTool", "format", "-t", "bXktY2x1c3Rlci1pZC0wMQ", "-c", str(config)]
    subprocess.run(tool, check=True, capture_output=True)
    with (folder / "log").open("wb") as log:
        broker = subprocess.Popen([*run, "kafka.Kafka", str(config)], stdout=log, stderr=log)
        try:
            _wait_for(port, broker, folder / "log")
            yield f"127.0.0.1:{port}"
        finally:
            broker.kill()
            broker.wait()


def _wait_for(port: int, broker: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_S
    while time.monotonic() < deadline:
        assert broker.poll() is None, log.read_text()[-3000:]
        if b"Kafka Server started" in log.read_bytes():
            with socket.create_connection(("127.0.0.1", port), 5):
                return
        time.sleep(0.2)
    raise TimeoutError(log.read_text()[-3000:])


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])
