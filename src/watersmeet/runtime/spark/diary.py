"""Keeps what Spark's workers print about themselves from the user's terminal.

The first micro-batch of a stateful query has a Python worker beside Spark's driver, which prepares the state. It prints a diary to its standard output,
and Spark sends that to the standard error of its JVM: the terminal of whoever made the session.

    Starting Streaming TransformWithStateInPandas Python worker.
    Streaming TransformWithStateInPandas Python worker finish init stage of Python runner. Received UDF from JVM: ...

The first line is printed before any of our code is unpickled there, so it has to be dropped by what Python itself imports at its start. The functions of
`dataframe()` carry an environment of their own, as Spark lets every function: `PYTHONPATH` begins with `startup`, whose `sitecustomize` asks whether this
is that worker. Functions of Spark Connect have the server's environment: there lines are dropped from the moment a stage is unpickled.

Invariant: nothing else that a worker prints is dropped, and functions that are made elsewhere in the session have the environment that they had. This
module needs nothing but Python's own library: it is loaded before everything else.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from watersmeet.runtime.spark.environment import OF_SQL, functions_with

STARTUP = Path(__file__).parent / "startup"
WRITER = "pyspark.sql.streaming.transform_with_state_driver_worker"
"""The module that Python runs in the worker that writes the diary."""
_LINES = ("Streaming TransformWithState", "Starting Streaming TransformWithState")


@contextmanager
def without_diary(spark: Any) -> Iterator[None]:
    """Functions of a classic session that are made meanwhile run in workers that keep no diary, and all of them in the same: Spark adds its variables to those of most operators, and not to those of transformWithState.

    >>> from types import SimpleNamespace
    >>> spark = SimpleNamespace(sparkContext=SimpleNamespace(environment={"PYTHONPATH": "theirs"}))
    >>> with without_diary(spark):
    ...     spark.sparkContext.environment["PYTHONPATH"] == f"{STARTUP}:theirs"
    True
    >>> spark.sparkContext.environment
    {'PYTHONPATH': 'theirs'}
    """
    before = spark.sparkContext.environment.get("PYTHONPATH")
    path = str(STARTUP) if not before else f"{STARTUP}{os.pathsep}{before}"
    with functions_with(spark, {**OF_SQL, "PYTHONPATH": path}):
        yield


def drop_diary() -> None:
    """Drop the diary, in the worker that writes it."""
    if not isinstance(sys.stdout, Sieve):
        sys.stdout = Sieve(sys.stdout)


class Sieve:
    """A text stream without the lines of the diary.

    >>> import io
    >>> out = io.StringIO()
    >>> print("Starting Streaming TransformWithStateInPandas Python worker.\\n", file=Sieve(out))
    >>> print("a user's own line", file=Sieve(out))
    >>> out.getvalue()
    "a user's own line\\n"
    """

    def __init__(self, inner: TextIO) -> None:
        self._inner, self._dropped = inner, False

    def write(self, text: str) -> int:
        if text.startswith(_LINES):
            self._dropped = True
            return len(text)
        if self._dropped and text == "\n":
            self._dropped = False
            return 1
        return self._inner.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
