"""A table: rows without event time, beside streams; and a lookup, the join of tuples with a table.

    FROM orders o JOIN users u ON u.id = o.user       o's tuples are looked up in u when they arrive, and travel with u's columns

A column of a table that an alias' tuples are looked up in is a column of that alias, and is called `u.country` there. The column `u?` says whether a row of
the table was found.

Invariant: a table has no event time, so it moves no watermark, and no window names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from watersmeet.errors import StreamError
from watersmeet.query.expr import Expr
from watersmeet.query.stream import Stream, StreamSpec, source_name

LookupKind = Literal["inner", "left"]


class Table:
    """A static DataFrame or an Arrow table that streams are joined with, as a dimension.

    It is read anew in every micro-batch, as Spark reads the static side of a join with a stream.

    >>> import pyarrow as pa
    >>> Table(pa.table({"id": [1, 2], "country": ["FR", "PT"]}))
    Table of a Table (id, country)
    """

    def __init__(self, source: Any) -> None:
        if isinstance(source, Stream):
            raise StreamError("wm.Table takes a static DataFrame or a pyarrow table, not a wm.Stream: give its source")
        if getattr(source, "isStreaming", False):
            raise StreamError(
                "a streaming DataFrame is no table: give it as wm.Stream(df, time=...), or read the table with spark.read"
            )
        self.source = source

    def show(self) -> str:
        """Its columns, in parentheses."""
        names = getattr(self.source, "column_names", ()) or getattr(self.source, "columns", ())
        return f"({', '.join(names)})"

    def __repr__(self) -> str:
        return f"Table of a {source_name(self.source)} {self.show()}"


@dataclass(frozen=True)
class TableSpec:
    """What planning knows of a table: its schema as Spark names types."""

    name: str
    schema: Mapping[str, str] = field(hash=False)
    time: str = field(default="", init=False)
    """No column is its event time."""
    site: None = field(default=None, init=False)


Spec = StreamSpec | TableSpec


@dataclass(frozen=True)
class Lookup:
    """Tuples of one alias, or results, joined with a table: `alias` is the table's in FROM, `table` its name among those supplied.

    `on` names the table's columns as the tuple has them afterwards.
    """

    alias: str
    table: str
    kind: LookupKind
    on: tuple[Expr, ...]
    schema: Mapping[str, str] = field(hash=False)
    chained: bool = False
    """Whether `on` names another table."""

    @property
    def flag(self) -> str:
        """The column that is true where a row of the table was found."""
        return f"{self.alias}?"

    def column(self, name: str) -> str:
        """What a column of the table is called in the tuple."""
        return f"{self.alias}.{name}"

    @property
    def columns(self) -> dict[str, str]:
        """What the tuple gets, with the types."""
        return {self.flag: "boolean", **{self.column(name): kind for name, kind in self.schema.items()}}

    def description(self) -> list[Any]:
        """What stored state depends on, as JSON."""
        return [self.alias, self.table, self.kind, sorted(e.text for e in self.on)]

    def __str__(self) -> str:
        on = " AND ".join(e.text for e in self.on) or "true"
        return f"{'LEFT JOIN' if self.kind == 'left' else 'JOIN'} {self.alias} ON {on}"
