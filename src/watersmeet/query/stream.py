"""A stream: a source, its event time, and how much disorder it may have.

Invariant: `Stream` says nothing about who reads the source; `StreamSpec` is what planning may know of it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from watersmeet.errors import StreamError, WindowError
from watersmeet.query.duration import parse_us, show_us

COUNTED = "_counted"
"""The column that tuples travel with where an earlier alias of their stream has them, too: true if that one has counted the tuple."""
COPY = "_copy"
"""The column that says which rows were one row of the stream before a table was joined, where they pass; it does not travel on."""
TAKEN = "_taken_"
"""Prefix of the column that says whether an alias with tables takes a row of its stream, for the later aliases of the stream; it does not travel on."""
TIME_TYPES = ("timestamp", "timestamp_ntz")
INTEGERS = ("tinyint", "smallint", "int", "bigint")
DECIMAL = re.compile(r"decimal\((\d+),\s*(-?\d+)\)")
"""The name of a decimal type: digits, and those behind the point."""


class Stream:
    """A DataFrame (streaming or not) or an Arrow table, with its event time.

    time: the timestamp column. lateness: how far behind its stream's highest event time a tuple may arrive and still
    count. idle: if given, a silent stream's watermark follows the other streams' highest event time minus this span.
    max_ahead: if given, a tuple that is further ahead of the clock than this span is dropped as `ahead`, and moves no watermark.
    site: where the stream arrives, if streams arrive far apart; tuples then leave it only as far as results need them.

    >>> import pyarrow as pa
    >>> Stream(pa.table({"ts": pa.array([0], pa.timestamp("us"))}), time="ts", lateness="10 seconds")
    Stream of a Table (time ts, lateness 10 s)
    """

    def __init__(
        self,
        source: Any,
        *,
        time: str,
        lateness: str | timedelta = "0 seconds",
        idle: str | timedelta | None = None,
        max_ahead: str | timedelta | None = None,
        site: str | None = None,
    ) -> None:
        if not isinstance(time, str) or not time:
            raise StreamError(f"time={time!r}: give the name of the stream's timestamp column, for example time='ts'")
        if site is not None and (not isinstance(site, str) or not site.strip()):
            raise StreamError(
                f"site={site!r}: give the name of the place where the stream arrives, such as site='paris'"
            )
        self.source = source
        self.site = site
        self.time = time
        self.lateness_us = _span("lateness", lateness)
        self.idle_us = None if idle is None else _span("idle", idle)
        self.max_ahead_us = None if max_ahead is None else _span("max_ahead", max_ahead)

    def show(self) -> str:
        """What is known of it, in parentheses.

        >>> Stream(None, time="ts", lateness="10 seconds").show()
        '(time ts, lateness 10 s)'
        """
        idle = "" if self.idle_us is None else f", idle {show_us(self.idle_us)}"
        ahead = "" if self.max_ahead_us is None else f", at most {show_us(self.max_ahead_us)} ahead"
        at = "" if self.site is None else f", at {self.site}"
        return f"(time {self.time}, lateness {show_us(self.lateness_us)}{idle}{ahead}{at})"

    def __repr__(self) -> str:
        return f"Stream of a {source_name(self.source)} {self.show()}"


class RemoteStream(Stream):
    """A stream of a query that arrives at another site: its columns are known here, and no row of it.

    >>> RemoteStream("customer bigint, note string, ts timestamp", time="ts", site="tokyo")
    Stream of a RemoteStream (time ts, lateness 0 s, at tokyo)
    """

    def __init__(self, schema: str, *, time: str, site: str) -> None:
        if not isinstance(schema, str) or not schema.strip():
            raise StreamError(
                f"schema={schema!r}: give the columns as Spark writes them: 'customer bigint, ts timestamp'"
            )
        super().__init__(None, time=time, site=site)
        if site is None:
            raise StreamError("a RemoteStream needs its site: wm.RemoteStream(schema, time='ts', site='tokyo')")
        self.schema = schema

    def __repr__(self) -> str:
        return f"Stream of a RemoteStream {self.show()}"


def source_name(source: Any) -> str:
    """What a source is: 'streaming DataFrame', 'static DataFrame', 'Table'."""
    streaming = getattr(source, "isStreaming", None)
    return ("" if streaming is None else "streaming " if streaming else "static ") + type(source).__name__


def _span(name: str, value: str | timedelta) -> int:
    try:
        us = parse_us(value)
    except (WindowError, AttributeError, TypeError) as error:
        raise StreamError(f"{name}={value!r} is not a span of time; write it as '10 seconds'") from error
    if us < 0:
        raise StreamError(f"{name}={value!r} is negative; a span must be zero or more")
    return us


@dataclass(frozen=True)
class StreamSpec:
    """What planning knows of a stream: its schema as Spark names types, its time column, its disorder."""

    name: str
    schema: Mapping[str, str] = field(hash=False)
    time: str
    lateness_us: int = 0
    idle_us: int | None = None
    site: str | None = None
    max_ahead_us: int | None = None

    def __post_init__(self) -> None:
        if self.time not in self.schema:
            near = [c for c in self.schema if c.lower() == self.time.lower()]
            if not near:
                raise StreamError(
                    f"stream {self.name}: no time column {self.time!r}; its columns are {', '.join(self.schema)}"
                )
            object.__setattr__(self, "time", near[0])
        if self.schema[self.time] not in TIME_TYPES:
            raise StreamError(
                f"stream {self.name}: time column {self.time!r} is {self.schema[self.time]}, not a timestamp; cast it in the source, for example with to_timestamp()"
            )
