"""The environment of functions in Spark's Python workers.

Spark keeps a daemon, and workers that wait, for every environment that functions carry. Functions of SQL carry the variables that Spark adds for them; a job over an RDD with
the same ones runs in the same workers, instead of starting a daemon and a worker of its own that stay for nothing.

Invariant: functions that are made elsewhere in the session have the environment that they had. This module imports nothing but Python's own library.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

OF_SQL = {"SPARK_SIMPLIFIED_TRACEBACK": "1"}
"""What Spark adds for functions of SQL, as long as nobody has set spark.sql.execution.pyspark.udf.simplifiedTraceback.enabled."""


@contextmanager
def functions_with(spark: Any, variables: Mapping[str, str]) -> Iterator[None]:
    """Functions of a classic session that are made meanwhile carry these variables.

    >>> from types import SimpleNamespace
    >>> spark = SimpleNamespace(sparkContext=SimpleNamespace(environment={"PYTHONPATH": "theirs"}))
    >>> with functions_with(spark, {"PYTHONPATH": "ours", "X": "1"}):
    ...     spark.sparkContext.environment
    {'PYTHONPATH': 'ours', 'X': '1'}
    >>> spark.sparkContext.environment
    {'PYTHONPATH': 'theirs'}
    """
    environment = spark.sparkContext.environment
    before = {name: environment.get(name) for name in variables}
    environment.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                del environment[name]
            else:
                environment[name] = value
