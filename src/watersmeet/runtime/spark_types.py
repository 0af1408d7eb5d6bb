"""Types of expressions as Spark's analyser finds them, once it has passed the query (`spark_check`).

Invariant: asking changes nothing and runs no job.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, ParseException
from pyspark.logger import PySparkLogger

from watersmeet.plan.source_sql import Dialect
from watersmeet.query.expr import Expr

SPARK = Dialect(
    render=lambda expr, name: expr.spark(name),
    quote=lambda name: "`" + name.replace("`", "``") + "`",
    cast=lambda text, kind: f"CAST({text} AS {kind})",
)


class SparkTypes:
    """Knows the types of expressions over DataFrames, by alias."""

    def __init__(self, frames: Mapping[str, Any]) -> None:
        self.frames = frames
        self._known: dict[str, str] = {}
        self._common: dict[tuple[str, str], str | None] = {}

    def type_of(self, expr: Expr) -> str:
        if expr.text not in self._known:
            self._known[expr.text] = self._typed(expr).dataType.simpleString()
        return self._known[expr.text]

    def _typed(self, expr: Expr) -> Any:
        """The field that Spark makes of an expression; one of several aliases is analysed over an empty frame."""
        if len(expr.aliases) <= 1:
            frame = self.frames[expr.alias] if expr.columns else next(iter(self.frames.values()))
            return frame.select(_expr(expr.spark(lambda ref: SPARK.quote(ref.column)))).schema.fields[0]
        from pyspark.sql.types import StructField, StructType

        fields = [self.frames[r.alias].schema[r.column] for r in expr.columns]
        schema = StructType([StructField(f"c{n}", f.dataType, f.nullable) for n, f in enumerate(fields)])
        names = {ref: f"c{n}" for n, ref in enumerate(expr.columns)}
        empty = next(iter(self.frames.values())).sparkSession.createDataFrame([], schema)
        return empty.select(_expr(expr.spark(lambda ref: names[ref]))).schema.fields[0]

    def common(self, left: str, right: str) -> str | None:
        if left == right:
            return left
        if (left == "string") != (right == "string"):
            return None
        if (left, right) not in self._common:
            frame = next(iter(self.frames.values()))
            both = f"coalesce(CAST(NULL AS {left}), CAST(NULL AS {right}))"
            try:
                with quiet_refusals():
                    self._common[left, right] = frame.select(_expr(both)).schema.fields[0].dataType.simpleString()
            except (AnalysisException, ParseException):
                self._common[left, right] = None
        return self._common[left, right]


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


@contextmanager
def quiet_refusals() -> Iterator[None]:
    """What Spark's analyser refuses in this thread is not logged: PySpark writes a Java trace for each refusal to the terminal."""
    asked = threading.get_ident()
    loggers = [PySparkLogger.getLogger(name) for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger")]

    def others(record: logging.LogRecord) -> bool:
        return record.thread != asked

    for logger in loggers:
        logger.addFilter(others)
    try:
        yield
    finally:
        for logger in loggers:
            logger.removeFilter(others)
