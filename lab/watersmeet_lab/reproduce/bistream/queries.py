"""The three queries of section 6.1, and their streams with event times by arrival.

Both streams of a feed last equally long and bring about the same number of bytes per second: the stream with the wider
tuples has fewer (section 6.1: asymmetric input rates). L1 of Band passes its selections 44 times less often than L2, so it
reads lineitems that much faster, and only its beginning can find partners. Tuple i of n in a stream that lasts T arrives at
START + i T / n.

Invariant: a feed's tables are sorted by time, so nothing is ever late.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.columns.arrow import integers
from watersmeet.runtime.arrow_types import normal

START_US = 1_767_225_600_000_000
"""2026-01-01, UTC."""
TIME_BYTES = 8


@dataclass(frozen=True)
class Aggregate:
    """The online aggregation of appendix B: GROUP BY keys, and what is computed for each group."""

    keys: tuple[str, ...]
    values: tuple[str, ...]


@dataclass(frozen=True)
class StreamQuery:
    """A join of two streams, as watersmeet and as DuckDB read it."""

    name: str
    aliases: tuple[str, str]
    files: tuple[str, str]
    travels: tuple[tuple[str, ...], tuple[str, ...]]
    """Of each stream the columns that units need: the router evaluates selections."""
    select: tuple[str, ...]
    """Columns as alias.column; their names in the results have _ for the dot."""
    where: str
    oracle: str
    """The same condition in another form, for DuckDB."""
    aggregate: Aggregate
    equality: bool = True

    @property
    def names(self) -> tuple[str, ...]:
        """The columns of the results."""
        return tuple(c.replace(".", "_") for c in self.select)


_LINEITEM = ("suppkey", "orderkey", "price", "discount")
_SAME_SUPPLIER = "s.suppkey = l.suppkey"
_REVENUE = ("sum(l.price * (1 - l.discount))",)
_SELECTIONS = "(l1.shipmode = 'TRUCK' AND l2.shipinstruct = 'NONE') AND l1.quantity > 48"
Q5 = StreamQuery(
    name="Q5",
    aliases=("s", "l"),
    files=("q5_supplier", "q5_lineitem"),
    travels=(("suppkey", "nationkey", "nation"), _LINEITEM),
    select=("s.suppkey", "s.nationkey", "s.nation", "l.orderkey", "l.price", "l.discount"),
    where=_SAME_SUPPLIER,
    oracle=_SAME_SUPPLIER,
    aggregate=Aggregate(("s.nation",), _REVENUE),
)
Q7 = StreamQuery(
    name="Q7",
    aliases=("s", "l"),
    files=("q7_supplier", "q7_lineitem"),
    travels=(("suppkey", "nation"), (*_LINEITEM, "year")),
    select=("s.suppkey", "s.nation", "l.orderkey", "l.price", "l.discount", "l.year"),
    where=_SAME_SUPPLIER,
    oracle=_SAME_SUPPLIER,
    aggregate=Aggregate(("s.nation", "l.year"), _REVENUE),
)
BAND = StreamQuery(
    name="Band",
    aliases=("l1", "l2"),
    files=("band_l1", "band_l2"),
    travels=(("orderkey", "line", "quantity", "nation"), ("orderkey", "line")),
    select=("l1.orderkey", "l1.line", "l1.quantity", "l1.nation", "l2.orderkey", "l2.line"),
    where=f"ABS(l1.orderkey - l2.orderkey) <= 1 AND {_SELECTIONS}",
    oracle=f"l1.orderkey BETWEEN l2.orderkey - 1 AND l2.orderkey + 1 AND {_SELECTIONS}",
    aggregate=Aggregate(("l1.nation",), ("count(*)", "min(l1.quantity)", "max(l1.quantity)")),
    equality=False,
)
QUERIES = {q.name: q for q in (Q5, Q7, BAND)}


@dataclass(frozen=True)
class Feed:
    """A query with its streams at an input rate, over the full history or a window."""

    query: StreamQuery
    tables: tuple[pa.Table, pa.Table]
    rate: float
    """Tuples per second of both streams together."""
    window_s: int | None = None
    grouped: bool = False
    """Whether the query's aggregate is asked for in place of its results."""

    @property
    def rows(self) -> int:
        return sum(t.num_rows for t in self.tables)

    @property
    def key(self) -> tuple[object, ...]:
        """What tells feeds from one folder apart."""
        return (self.query.name, *(_digest_times(t) for t in self.tables), self.window_s)

    @property
    def seconds(self) -> float:
        """How long the streams last."""
        return self.rows / self.rate

    @property
    def text(self) -> str:
        """The query in watersmeet's SQL."""
        q = self.query
        sources = ", ".join(f"{file} {alias}" for alias, file in zip(q.aliases, q.files, strict=True))
        window = "" if self.window_s is None else f" WINDOW = {self.window_s} SECONDS"
        return f"SELECT {self.items} FROM {sources} WHERE {q.where}{window}{self.grouping}"

    @property
    def items(self) -> str:
        """What stands after SELECT."""
        q = self.query
        if self.grouped:
            return ", ".join(f"{item} AS c{n}" for n, item in enumerate((*q.aggregate.keys, *q.aggregate.values)))
        return ", ".join(f"{c} AS {n}" for c, n in zip(q.select, q.names, strict=True))

    @property
    def grouping(self) -> str:
        return f" GROUP BY {', '.join(self.query.aggregate.keys)}" if self.grouped else ""


def read_feed(
    query: StreamQuery, folder: Path, rate: float, window_s: int | None = None, most: int | None = None
) -> Feed:
    """A query's streams from a folder of projected tables; `most` bounds the rows of each."""
    left, right = (normal(pq.read_table(folder / f"{file}.parquet")).combine_chunks() for file in query.files)
    widths = [_width(t, columns) for t, columns in zip((left, right), query.travels, strict=True)]
    return assign_times(query, *balance((left, right), widths, most), rate, window_s)


def balance(
    tables: tuple[pa.Table, pa.Table], widths: Sequence[float], most: int | None = None
) -> tuple[pa.Table, pa.Table]:
    """The longest beginnings of two tables whose rows times widths are the same.

    >>> table = pa.table({"x": range(90)})
    >>> [t.num_rows for t in balance((table, table), (10, 30))]
    [90, 30]
    """
    limit = min(w * min(t.num_rows, most or t.num_rows) for w, t in zip(widths, tables, strict=True))
    first, second = (t.slice(0, round(limit / w)) for w, t in zip(widths, tables, strict=True))
    return first, second


def _width(table: pa.Table, columns: Sequence[str]) -> float:
    """Bytes of a tuple with its time."""
    return float(table.select(columns).nbytes / max(table.num_rows, 1) + TIME_BYTES)


def assign_times(query: StreamQuery, left: pa.Table, right: pa.Table, rate: float, window_s: int | None = None) -> Feed:
    """Tables as streams of a common rate."""
    seconds = (left.num_rows + right.num_rows) / rate
    first, second = (_with_times(t, seconds) for t in (left, right))
    return Feed(query, (first, second), rate, window_s)


def _digest_times(table: pa.Table) -> bytes:
    """A digest of when tuples arrive: feeds of the same tuples at other rates have other answers."""
    return hashlib.blake2b(integers(table.column("ts").combine_chunks()).tobytes(), digest_size=16).digest()


def _with_times(table: pa.Table, seconds: float) -> pa.Table:
    at = START_US + (np.arange(table.num_rows) * (seconds * 1e6 / max(table.num_rows, 1))).astype(np.int64)
    return table.append_column("ts", pa.array(at, pa.timestamp("us", tz="UTC")))
