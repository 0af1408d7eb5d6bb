"""`make kafka`: the tests with a real broker, on the newest Spark that Kafka's connector is out for.

It makes the virtualenv of `tests.matrix` for that Spark, has Maven fetch the jars into .kafka, and runs the tests of this folder.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.matrix import ROOT, virtualenv

SPARK = "4.2"
JARS = ROOT / ".kafka"
BROKER = [("org.apache.kafka", "kafka_2.13", "3.9.1", True), ("org.slf4j", "slf4j-simple", "1.7.36", True)]
CONNECTOR = [
    ("org.apache.spark", "spark-sql-kafka-0-10_2.13", "4.2.0", False),
    ("org.apache.spark", "spark-token-provider-kafka-0-10_2.13", "4.0.0", False),
    ("org.apache.spark", "spark-avro_2.13", "4.1.1", False),
    ("org.apache.kafka", "kafka-clients", "3.9.1", False),
    ("org.apache.commons", "commons-pool2", "2.12.0", False),
]
"""Group, artifact, version, and whether what it needs comes with it: Spark brings the rest of the connector's."""
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def fetch(name: str, artifacts: list[tuple[str, str, str, bool]]) -> Path:
    """A folder with the jars."""
    folder = JARS / name
    if (folder / "lib").exists():
        return folder / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    needed = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version>{'' if whole else _ALONE}</dependency>"
        for g, a, v, whole in artifacts
    )
    (folder / "pom.xml").write_text(
        f'<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>watersmeet</groupId>'
        f"<artifactId>{name}</artifactId><version>1</version><dependencies>{needed}</dependencies></project>"
    )
    maven = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={folder / 'part'}"]
    subprocess.run(maven, cwd=folder, check=True)
    (folder / "part").rename(folder / "lib")
    return folder / "lib"


def main() -> int:
    python = virtualenv(SPARK)
    where = {"KAFKA_BROKER": str(fetch("broker", BROKER)), "KAFKA_CONNECTOR": str(fetch("connector", CONNECTOR))}
    tests = [python, "-m", "pytest", "-m", "slow", "tests/kafka", *sys.argv[1:]]
    return subprocess.run(tests, cwd=ROOT, env={**os.environ, **where}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
