"""Types of expressions as Spark's analyser finds them.

Invariant: asking changes nothing and runs no job.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.errors import AnalysisException, ParseException

from watersmeet.errors import QueryError
from watersmeet.plan.source_sql import Dialect
from watersmeet.query.expr import Expr

SPARK = Dialect(
    render=lambda expr, name: expr.spark(name),
    quote=lambda name: "`" + name.replace("`", "``") + "`",
    type_name=lambda spark_type: spark_type,
)


class SparkTypes:
    """Knows the types of expressions over DataFrames, by alias."""

    def __init__(self, frames: Mapping[str, Any]) -> None:
        self.frames = frames
        self._known: dict[str, str] = {}
        self._common: dict[tuple[str, str], str | None] = {}

    def type_of(self, expr: Expr) -> str:
        if expr.text not in self._known:
            try:
                field = self._typed(expr)
            except (AnalysisException, ParseException) as error:
                raise QueryError(f"{expr}: Spark refuses it: {_first_line(error)}") from error
            self._known[expr.text] = field.dataType.simpleString()
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
            try:
                field = frame.select(_expr(f"coalesce(CAST(NULL AS {left}), CAST(NULL AS {right}))")).schema.fields[0]
                self._common[left, right] = field.dataType.simpleString()
            except (AnalysisException, ParseException):
                self._common[left, right] = None
        return self._common[left, right]


def check(frame: Any, texts: Mapping[str, str], what: str) -> None:
    """Let Spark's analyser look at expressions now, in the driver, rather than when the query starts."""
    for shown, text in texts.items():
        try:
            frame.select(_expr(text)).schema  # noqa: B018 - the analysis is the point
        except (AnalysisException, ParseException) as error:
            raise QueryError(f"{what} {shown}: Spark refuses it: {_first_line(error)}") from error


def _expr(text: str) -> Any:
    from pyspark.sql.functions import expr

    return expr(text)


def _first_line(error: Exception) -> str:
    return str(error).strip().splitlines()[0]
