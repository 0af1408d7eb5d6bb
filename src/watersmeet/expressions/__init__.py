"""Spark's expressions, evaluated in process by DuckDB."""
