"""An object store with one bucket, and the jars by which Spark reaches it.

The store is moto's server, a process of its own: `python -m watersmeet_lab.machines.store HOST PORT`. The jars are hadoop-aws of the version of Spark's own Hadoop, with its SDK.
"""

from __future__ import annotations

import re
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

from watersmeet_lab.machines import jars as maven
from watersmeet_lab.machines.broker import LOOPBACK, find_free_port
from watersmeet_lab.machines.process import Start, await_text, start_here

BUCKET = "waters"
_READY = "the bucket is there"


def find_missing() -> str | None:
    """Why there can be no store here; None if there can."""
    try:
        import moto.server  # noqa: F401
    except ImportError:
        return "no moto server: make s3 installs it"
    return maven.find_missing()


def jars() -> str:
    """The class path of hadoop-aws."""
    import pyspark

    own = next((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"))
    found = re.search(r"(\d+\.\d+\.\d+)", own.name)
    assert found is not None
    return f"{maven.fetch(f'hadoop-aws-{found[1]}', [('org.apache.hadoop', 'hadoop-aws', found[1], True)])}/*"


class Store:
    """A running store with one bucket."""

    def __init__(self, host: str = LOOPBACK, start: Start = start_here) -> None:
        self._host, self._start = host, start

    def __enter__(self) -> Store:
        port = find_free_port()
        self.endpoint = f"http://{self._host}:{port}"
        self._log = Path(tempfile.mkstemp(prefix="watersmeet-store-")[1])
        command = [sys.executable, "-m", "watersmeet_lab.machines.store", self._host, str(port)]
        self._process = self._start(command, self._log)
        await_text(self._process, self._log, _READY.encode())
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()
        self._log.unlink()

    def settings(self) -> dict[str, str]:
        """Of a Spark that reaches it; nothing is in the environment."""
        return {
            "spark.driver.extraClassPath": jars(),
            **self.reach(),
        }

    def reach(self) -> dict[str, str]:
        """The same for a Spark that keeps nothing there itself, and needs no jars."""
        return {
            "spark.hadoop.fs.s3a.endpoint": self.endpoint,
            "spark.hadoop.fs.s3a.endpoint.region": "us-east-1",
            "spark.hadoop.fs.s3a.path.style.access": "true",
            "spark.hadoop.fs.s3a.access.key": "key",
            "spark.hadoop.fs.s3a.secret.key": "secret",
        }

    def options(self) -> dict[str, str]:
        """Of another client of it."""
        names = ("aws_access_key_id", "aws_secret_access_key", "aws_region", "aws_endpoint_url", "allow_http")
        return dict(zip(names, ("key", "secret", "us-east-1", self.endpoint, "true"), strict=True))

    def names(self, prefix: str) -> list[str]:
        """The objects of the bucket that begin so."""
        ask = f"{self.endpoint}/{BUCKET}?list-type=2&prefix={prefix}"
        while True:
            try:
                with urllib.request.urlopen(ask, timeout=10) as answer:
                    return re.findall(r"<Key>([^<]*)</Key>", answer.read().decode())
            except urllib.error.HTTPError as error:
                if error.code != 500:  # the server lists what is being changed meanwhile
                    raise


def main(host: str, port: str) -> None:
    """Serve until the process is killed."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(host, int(port), verbose=False)
    server.start()
    urllib.request.urlopen(urllib.request.Request(f"http://{host}:{port}/{BUCKET}", method="PUT"), timeout=30).close()
    print(_READY, flush=True)
    while True:
        time.sleep(3600)


if __name__ == "__main__":
    main(*sys.argv[1:])
