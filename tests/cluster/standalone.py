"""A cluster of Spark's own kind, a master and workers, on hosts of their own.

Invariant: a worker has one core, so what one host does another cannot; all see the folder `shared` and nothing else of each other's.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.conftest import FAST_START
from watersmeet_lab.machines.hosts import HUB, Hosts

ROOT = Path(__file__).parents[2]
PORT = 7077
PATIENCE_S = 240.0
PATH = f"{ROOT}/src:{ROOT}/lab:{ROOT}"
"""This clone's own code, whatever is installed."""


class Standalone:
    """A running cluster; its workers can be killed, and others can be added."""

    def __init__(self, hosts: Hosts, shared: Path, memory: str = "1g") -> None:
        self.hosts, self.shared, self._memory = hosts, shared, memory
        self.master = f"spark://{hosts.addresses[HUB]}:{PORT}"
        self.workers: dict[str, subprocess.Popen[bytes]] = {}
        self._daemon(HUB, "master.Master", "--host", hosts.addresses[HUB], "--port", str(PORT), "--webui-port", "0")
        self._await(HUB, "I have been elected leader")

    def add_worker(self, host: str) -> None:
        """Start a worker on a host, and wait until the master has it."""
        address, folder = self.hosts.addresses[host], self.hosts.root / host / "work"
        named = [
            "--host",
            address,
            "--webui-port",
            "0",
            "--cores",
            "1",
            "--memory",
            self._memory,
            "--work-dir",
            str(folder),
        ]
        self.workers[host] = self._daemon(host, "worker.Worker", *named, self.master)
        self._await(host, "Successfully registered with master")

    def kill_worker(self, host: str) -> None:
        """The host dies: SIGKILL to its worker, its executors and their Python workers."""
        self.hosts.kill(self.workers.pop(host))
        self.hosts.kill_members(host)

    def start_driver(self, module: str, *arguments: object) -> tuple[subprocess.Popen[bytes], Path]:
        """A program on the hub, and its log. Its session takes its settings from the environment, see `tests.crash.driver.session`."""
        log = self.shared / f"driver-{time.monotonic_ns()}.log"
        env = {"CRASH_SPARK": json.dumps(self.settings()), "PYSPARK_PYTHON": sys.executable, "PYTHONPATH": PATH}
        command = [sys.executable, "-m", module, *map(str, arguments)]
        return self.hosts.start(HUB, command, log, env), log

    def settings(self) -> dict[str, str]:
        address = self.hosts.addresses[HUB]
        return {
            "spark.master": self.master,
            "spark.driver.host": address,
            "spark.driver.bindAddress": address,
            "spark.executor.memory": "512m",
            "spark.executor.cores": "1",
            "spark.executor.extraJavaOptions": FAST_START,
            "spark.executorEnv.PYTHONPATH": PATH,
            "spark.task.maxFailures": "8",
            "spark.network.timeout": "60s",
        }

    def _daemon(self, host: str, name: str, *arguments: str) -> subprocess.Popen[bytes]:
        import pyspark

        jars = Path(pyspark.__file__).parent / "jars" / "*"
        java = ["java", "-Xmx256m", "-XX:+UseSerialGC", "-cp", str(jars), f"org.apache.spark.deploy.{name}"]
        home = str(Path(pyspark.__file__).parent)
        env = {"SPARK_LOCAL_IP": self.hosts.addresses[host], "SPARK_HOME": home, "SPARK_SCALA_VERSION": "2.13"}
        return self.hosts.start(host, [*java, *arguments], self.log(host), env)

    def log(self, host: str) -> Path:
        return self.shared / f"{host}.log"

    def _await(self, host: str, text: str) -> None:
        await_text([self.log(host)], text)


def await_text(logs: Sequence[Path], text: str, patience_s: float = PATIENCE_S) -> None:
    """Wait until one of some logs has a text."""
    deadline = time.monotonic() + patience_s
    while not any(text in log.read_text(errors="replace") for log in logs if log.exists()):
        assert time.monotonic() < deadline, "\n".join(log.read_text(errors="replace")[-2000:] for log in logs)
        time.sleep(0.1)
