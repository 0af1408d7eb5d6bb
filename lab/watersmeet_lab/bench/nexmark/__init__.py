"""`watersmeet bench nexmark` in parts.

- generator.py: the crate that makes the events, installed by cargo
- events.py: its events as streams of Parquet files
- queries.py: the queries, for watersmeet, DuckDB and Spark
- answers.py: DuckDB's answers, and what differs from them
- trial.py: one query on one system, in a process of its own
- report.py: figures, and the table
- run.py: which trials are made
"""

from watersmeet_lab.bench.nexmark.run import command

__all__ = ["command"]
