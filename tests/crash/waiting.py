"""A Spark session that waits to be told what to run: one line of JSON on standard input, [module, argument, ...].

A JVM, Python's workers and their imports take longer to start than a life lasts, so the next life's process starts while the present one
runs. Invariant: until it is told, it touches no file of a run; if nobody can tell it any more, it ends.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from importlib import import_module
from typing import Any

from tests.crash.driver import session


def imported(batches: Iterator[Any]) -> Iterator[Any]:
    """In a worker: load what the runtimes will need."""
    import watersmeet.runtime.rounds.posting
    import watersmeet.runtime.stream.dataframe  # noqa: F401

    yield from batches


def main() -> None:
    spark = session()
    spark.range(2, numPartitions=2).mapInArrow(imported, "id bigint").collect()
    line = sys.stdin.readline()
    if line:
        module, *arguments = json.loads(line)
        import_module(module).main(*arguments)


if __name__ == "__main__":
    main()
