"""`make kafka`: the tests with a real broker, on the newest Spark that Kafka's connector is out for.

It makes the virtualenv of `tests.matrix` for that Spark, and runs the tests of this folder, which have Maven fetch jars.
"""

from __future__ import annotations

import os
import subprocess
import sys

from tests.matrix import ROOT, virtualenv

SPARK = "4.2"


def main() -> int:
    python = virtualenv(SPARK)
    tests = [python, "-m", "pytest", "-m", "slow", "tests/kafka", *sys.argv[1:]]
    return subprocess.run(tests, cwd=ROOT, env={**os.environ, "KAFKA_TESTS": "1"}, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
