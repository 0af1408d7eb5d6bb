"""DuckDB's answers to Nexmark's queries over all events, and how a system's results differ from them.

Results are compared as bags, row by row and column by column.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import duckdb

from watersmeet_lab.bench.nexmark.events import CLOSINGS, STREAMS
from watersmeet_lab.bench.nexmark.queries import NexmarkQuery


@dataclass(frozen=True)
class Comparison:
    """How many results there are, how many DuckDB has, and how many only one of them has."""

    count: int
    expected: int
    apart: int

    @property
    def right(self) -> bool:
        """Whether both bags are the same."""
        return self.apart == 0


def answer(query: NexmarkQuery, folder: Path) -> Path:
    """The Parquet file with DuckDB's answer; remembered next to the events."""
    path = folder / f"answer-{query.name}.parquet"
    if not path.exists():
        with connect(folder) as con:
            con.execute(f"COPY ({query.duckdb}) TO '{path}.tmp' (FORMAT parquet)")
        Path(f"{path}.tmp").rename(path)
    return path


def compare(results: Path, expected: Path) -> Comparison:
    """Results, a folder of Parquet files, against an answer."""
    bags = [f"SELECT * FROM '{results}/*.parquet'", f"SELECT * FROM '{expected}'"]
    if not any(results.glob("*.parquet")):
        bags[0] = f"{bags[1]} LIMIT 0"
    with duckdb.connect() as con:
        con.execute("SET timezone = 'UTC'")
        count, wanted = (con.sql(f"SELECT count(*) FROM ({bag})").fetchall()[0][0] for bag in bags)
        only = (f"SELECT count(*) FROM (({x}) EXCEPT ALL ({y}))" for x, y in (bags, bags[::-1]))
        return Comparison(count, wanted, sum(con.sql(text).fetchall()[0][0] for text in only))


def connect(folder: Path) -> duckdb.DuckDBPyConnection:
    """A connection with a view for every stream, closing events left out, and one for the side input."""
    con = duckdb.connect()
    con.execute("SET timezone = 'UTC'")
    for stream in STREAMS:
        files = sorted((folder / stream).glob("part-*.parquet"))[:-CLOSINGS]
        con.execute(f"CREATE VIEW {stream} AS SELECT * FROM read_parquet({[str(file) for file in files]})")
    con.execute(f"CREATE VIEW side_input AS SELECT * FROM '{folder}/side_input/*.parquet'")
    return con
