"""The dialects that are read and written, made once: sqlglot would make a new one for every expression.

Functions that sqlglot reads as something else than Spark does, or writes without one of their arguments, are read as names and
arguments only, and written as they were: to_char(x, '99G999') would become CAST(x AS STRING). tests/sql/test_evaluator_agrees_with_spark.py
goes through the examples of all functions that Spark has.
"""

from __future__ import annotations

from typing import ClassVar

from sqlglot import exp
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark

VERBATIM = ("TO_CHAR", "TO_VARCHAR", "INSTR", "UNIX_DATE", "PARSE_JSON", "TRY_PARSE_JSON")


class WatersmeetSpark(Spark):
    """Spark's dialect, with functions that stay as they are."""

    class Parser(Spark.Parser):
        FUNCTIONS: ClassVar = {name: make for name, make in Spark.Parser.FUNCTIONS.items() if name not in VERBATIM}

    class Generator(Spark.Generator):
        TYPE_MAPPING: ClassVar = {**Spark.Generator.TYPE_MAPPING, exp.DataType.Type.TIME: "TIME"}


SPARK, DUCKDB = WatersmeetSpark(), DuckDB()
