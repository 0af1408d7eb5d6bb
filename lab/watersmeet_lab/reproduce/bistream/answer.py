"""Whether a run's results are the right ones: a count and a checksum, against DuckDB over the same tables.

The checksum is the sum of DuckDB's hash of every result, so equal counts of wrong rows do not go unseen. DuckDB is given
the condition in another form than watersmeet (`StreamQuery.oracle`) and the window as a difference of times.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import duckdb
import pyarrow as pa

from watersmeet.errors import WatersmeetError
from watersmeet_lab.reproduce.bistream.cluster import Outcome
from watersmeet_lab.reproduce.bistream.queries import Feed


class Answer(NamedTuple):
    """How many results, and the sum of their hashes."""

    results: int
    checksum: int


class WrongAnswerError(WatersmeetError):
    """A run's results are not DuckDB's."""


def ask_duckdb(feed: Feed) -> Answer:
    """DuckDB's answer."""
    with duckdb.connect() as con:
        return _answer(con, f"({_query(con, feed)})", feed.query.names)


def groups(feed: Feed) -> list[tuple[Any, ...]]:
    """DuckDB's groups, in order, of a feed whose aggregate is asked for."""
    with duckdb.connect() as con:
        return con.execute(f"{_query(con, feed)} ORDER BY ALL").fetchall()


def _query(con: duckdb.DuckDBPyConnection, feed: Feed) -> str:
    (a, b), tables = feed.query.aliases, feed.tables
    for name, table in zip(("_left", "_right"), tables, strict=True):
        con.register(name, table)
    window = f" AND abs(epoch_us({a}.ts) - epoch_us({b}.ts)) <= {feed.window_s * 1_000_000}" if feed.window_s else ""
    return (
        f"SELECT {feed.items} FROM _left {a} JOIN _right {b} ON {feed.query.oracle} WHERE true{window}{feed.grouping}"
    )


def digest(results: pa.Table, names: tuple[str, ...]) -> Answer:
    """The answer that a run gave."""
    if results.num_rows == 0:
        return Answer(0, 0)
    with duckdb.connect() as con:
        con.register("_results", results)
        return _answer(con, "_results", names)


def verify(outcome: Outcome, want: Answer) -> None:
    """Raise if a run's answer is not the wanted one."""
    got = digest(outcome.results, outcome.feed.query.names)
    if got != want:
        raise WrongAnswerError(
            f"{outcome.model.name} on {outcome.feed.query.name}: {got.results} results with checksum {got.checksum}, "
            f"but DuckDB has {want.results} with {want.checksum}; nothing else was measured, please report this"
        )


def _answer(con: duckdb.DuckDBPyConnection, source: str, names: tuple[str, ...]) -> Answer:
    row = con.execute(f"SELECT count(*), coalesce(sum(hash({', '.join(names)})::HUGEINT), 0) FROM {source}").fetchone()
    assert row is not None
    return Answer(int(row[0]), int(row[1]))
