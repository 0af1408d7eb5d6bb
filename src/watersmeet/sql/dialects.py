"""The dialects that are read and written, made once: sqlglot would make a new one for every expression."""

from __future__ import annotations

from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark

SPARK, DUCKDB = Spark(), DuckDB()
