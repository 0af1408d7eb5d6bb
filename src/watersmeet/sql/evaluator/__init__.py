"""Spark expressions in DuckDB: rules that say what Spark means, and its types."""
