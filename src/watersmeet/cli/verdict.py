"""The demo's check: DuckDB computes the same join over the same files, and both bags of rows must be equal."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import duckdb

from watersmeet.cli.shop import SCHEMAS

_DUCKDB = """
    SELECT o.id, o.user, c.page, o.total, r.amount
    FROM clicks c, orders o, refunds r
    WHERE c.user = o.user AND o.id = r.order_id AND r.amount > o.total * 0.5
      AND abs(epoch_us(c.ts) - epoch_us(o.ordered_at)) <= 600_000_000
      AND epoch_us(r.ts) - epoch_us(o.ordered_at) BETWEEN 0 AND 7_200_000_000
"""
"""The demo's query, written out by hand: DuckDB knows no windows between streams."""


@dataclass(frozen=True)
class Verdict:
    """Two counts, and the rows that only one side has."""

    results: int
    expected: int
    missing: int
    surplus: int

    @property
    def right(self) -> bool:
        return not self.missing and not self.surplus

    def __str__(self) -> str:
        if self.right:
            return f"{self.results:,} results, equal to DuckDB's {self.expected:,}"
        return f"{self.results:,} results, DuckDB has {self.expected:,}: {self.missing:,} are missing and {self.surplus:,} too many"


def verdict(data: Path, results: Path) -> Verdict:
    """Compare the results below a folder with DuckDB's over the generated files; rows that were sent late do not count."""
    con = duckdb.connect()
    con.execute("SET timezone = 'UTC'")
    for name in SCHEMAS:
        con.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{data / name}/*.parquet') WHERE NOT sent_late")
    con.execute(f"CREATE TABLE expected AS {_DUCKDB}")
    files = [str(f) for f in results.glob("*.parquet")]
    source = "SELECT * FROM read_parquet(?)" if files else "SELECT * FROM expected LIMIT 0"
    con.execute(f"CREATE TABLE results AS {source}", [files] if files else [])
    counts = _counts(con)
    return Verdict(**counts)


def _counts(con: duckdb.DuckDBPyConnection) -> Mapping[str, int]:
    queries = {
        "results": "FROM results",
        "expected": "FROM expected",
        "missing": "FROM expected EXCEPT ALL FROM results",
        "surplus": "FROM results EXCEPT ALL FROM expected",
    }
    out = {}
    for name, text in queries.items():
        row = con.execute(f"SELECT count(*) FROM ({text})").fetchone()
        out[name] = int(row[0]) if row else 0
    return out
