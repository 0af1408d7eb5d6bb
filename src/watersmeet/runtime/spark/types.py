"""Types on Spark: their names, which of them units can hold, and those of expressions.

A name is what Spark reads again as the type. `simpleString` is that, but for structs whose fields have names that SQL quotes.

Invariant: `StructType.fromDDL(f"x {type_name(kind)}")` is a column of the type, if the type travels. A type travels if Spark hands its values to Python workers as Arrow, and takes them back.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pyspark.errors import AnalysisException, ParseException, PySparkTypeError
from pyspark.logger import PySparkLogger
from pyspark.sql import functions as F
from pyspark.sql.types import ArrayType, DataType, MapType, StructField, StructType, UserDefinedType

from watersmeet.columns.spark_types import field_name
from watersmeet.errors import UnsupportedError
from watersmeet.plan.source_sql import Dialect
from watersmeet.query.expr import Expr
from watersmeet.runtime.spark.tables import quote
from watersmeet.runtime.spark.versions import arrow_schema

SPARK = Dialect(
    render=lambda expr, name: expr.spark(name),
    quote=quote,
    cast=lambda text, kind: f"CAST({text} AS {kind})",
)


def type_name(kind: DataType) -> str:
    """The name of a type, as Spark reads it.

    >>> from pyspark.sql.types import LongType
    >>> type_name(StructType([StructField("a", LongType()), StructField("b c", ArrayType(LongType()))]))
    'struct<a:bigint,`b c`:array<bigint>>'
    """
    if isinstance(kind, StructType):
        return f"struct<{','.join(f'{field_name(f.name)}:{type_name(f.dataType)}' for f in kind.fields)}>"
    if isinstance(kind, ArrayType):
        return f"array<{type_name(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"map<{type_name(kind.keyType)},{type_name(kind.valueType)}>"
    return kind.simpleString()


def travels(kind: DataType) -> bool:
    """Whether values of a type can be held by units.

    >>> from pyspark.sql.types import DayTimeIntervalType, YearMonthIntervalType
    >>> travels(DayTimeIntervalType()), travels(ArrayType(YearMonthIntervalType()))
    (True, False)
    """
    return _remedy(kind) is None


def refuse_unless_travels(what: str, kind: DataType) -> None:
    """Refuse what units would have to hold and cannot."""
    remedy = _remedy(kind)
    if remedy is not None:
        raise UnsupportedError(
            f"{what} is {kind.simpleString()}, which Spark does not hand to Python workers: {remedy} in the stream's source"
        )


def _remedy(kind: DataType) -> str | None:
    """What is to be done about a type that does not travel."""
    if isinstance(kind, StructType):
        names = kind.fieldNames()
        twice = [name for n, name in enumerate(names) if name in names[:n]]
        return f"rename one of the fields {twice[0]!r}" if twice else _first(f.dataType for f in kind.fields)
    if isinstance(kind, ArrayType):
        return _remedy(kind.elementType)
    if isinstance(kind, MapType):
        return _first((kind.keyType, kind.valueType))
    if isinstance(kind, UserDefinedType):
        return "take what it consists of"
    try:
        arrow_schema(StructType([StructField("x", kind)]))
    except PySparkTypeError:
        return "make whole numbers of it, such as months, or text,"
    return None


def _first(kinds: Iterable[DataType]) -> str | None:
    return next((remedy for kind in kinds if (remedy := _remedy(kind)) is not None), None)


class SparkTypes:
    """Knows the types of expressions over DataFrames, by alias."""

    def __init__(self, frames: Mapping[str, Any]) -> None:
        self.frames = frames
        self._known: dict[str, DataType] = {}
        self._common: dict[tuple[str, str], str | None] = {}

    def type_of(self, expr: Expr) -> str:
        return type_name(self.find(expr))

    def find(self, expr: Expr) -> DataType:
        """The type itself."""
        if expr.text not in self._known:
            self._known[expr.text] = self._analyse(expr).dataType
        return self._known[expr.text]

    def _analyse(self, expr: Expr) -> Any:
        """The field that Spark makes of an expression; one of several aliases is analysed over an empty frame."""
        if len(expr.aliases) <= 1:
            frame = self.frames[expr.alias] if expr.columns else next(iter(self.frames.values()))
            return frame.select(F.expr(expr.spark(lambda ref: SPARK.quote(ref.column)))).schema.fields[0]
        fields = [self.frames[r.alias].schema[r.column] for r in expr.columns]
        schema = StructType([StructField(f"c{n}", f.dataType, f.nullable) for n, f in enumerate(fields)])
        names = {ref: f"c{n}" for n, ref in enumerate(expr.columns)}
        empty = next(iter(self.frames.values())).sparkSession.createDataFrame([], schema)
        return empty.select(F.expr(expr.spark(lambda ref: names[ref]))).schema.fields[0]

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
                    self._common[left, right] = type_name(frame.select(F.expr(both)).schema.fields[0].dataType)
            except (AnalysisException, ParseException):
                self._common[left, right] = None
        return self._common[left, right]


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
