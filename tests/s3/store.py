"""An object store on loopback, and the jars by which Spark reaches it.

The store is moto's server, a process of its own. The jars are hadoop-aws of the version of Spark's own Hadoop, with its SDK, fetched by Maven once into the user's cache.
"""

from __future__ import annotations

import re
import shutil
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path
from types import TracebackType

BUCKET = "waters"
PATIENCE_S = 60.0
POM = """<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>watersmeet</groupId><artifactId>jars</artifactId><version>1</version>
<dependencies><dependency><groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId><version>{}</version></dependency></dependencies>
</project>
"""


def missing() -> str | None:
    """Why there can be no store here; None if there can."""
    if shutil.which("mvn") is None:
        return "no mvn, which fetches hadoop-aws"
    try:
        import moto.server  # noqa: F401
    except ImportError:
        return "no moto server: make s3 installs it"
    return None


def jars() -> str:
    """The class path of hadoop-aws."""
    import pyspark

    own = next((Path(pyspark.__file__).parent / "jars").glob("hadoop-client-api-*.jar"))
    found = re.search(r"(\d+\.\d+\.\d+)", own.name)
    assert found is not None
    folder = Path.home() / ".cache" / "watersmeet-tests" / f"hadoop-aws-{found[1]}"
    if not (folder / "ready").exists():
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "pom.xml").write_text(POM.format(found[1]))
        copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder}/jars"]
        subprocess.run(["mvn", "--quiet", "--batch-mode", *copy], cwd=folder, check=True)
        (folder / "ready").touch()
    return f"{folder}/jars/*"


class Store:
    """A running store with one bucket."""

    def __enter__(self) -> Store:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.endpoint = f"http://127.0.0.1:{port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self._make_bucket()
        return self

    def _make_bucket(self) -> None:
        deadline = time.monotonic() + PATIENCE_S
        ask = urllib.request.Request(f"{self.endpoint}/{BUCKET}", method="PUT")
        while True:
            try:
                urllib.request.urlopen(ask, timeout=5).close()
                return
            except OSError:
                assert self._process.poll() is None, "the store has ended"
                assert time.monotonic() < deadline, "the store does not answer"
                time.sleep(0.1)

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._process.kill()
        self._process.wait()

    def settings(self) -> dict[str, str]:
        """Of a Spark that reaches it; nothing is in the environment."""
        return {
            "spark.driver.extraClassPath": jars(),
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
