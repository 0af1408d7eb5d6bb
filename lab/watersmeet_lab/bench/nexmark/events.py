"""Nexmark's events as streams: a folder of Parquet files for each kind of event, which Spark's file source reads in order of time.

Of fifty events one is a person, three are auctions and 46 are bids; 10,000 events are a second. File i of every stream has the
events of the same slice of time. The generator's first event happens when it is called; here it happens at START.

Two *closing* files follow in every stream, with one event each, an hour later, which joins with nothing. They move the
watermarks past all other events, as more events would: what waits for the end of a window leaves.

Invariant: a folder is a pure function of its `Events` and of the generator's version. A folder with a `_done` file is complete.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.errors import OptionError
from watersmeet_lab.bench.nexmark import generator

START = datetime(2026, 1, 1, tzinfo=UTC)
CLOSINGS = 2
SIDE_KEYS = 10_000

_WORD, _NUMBER, _TIME = "VARCHAR", "BIGINT", "TIMESTAMPTZ"
STREAMS: Mapping[str, Mapping[str, str]] = {
    "person": {
        "id": _NUMBER, "name": _WORD, "email_address": _WORD, "credit_card": _WORD, "city": _WORD, "state": _WORD, "date_time": _TIME,
        "extra": _WORD,
    },
    "auction": {
        "id": _NUMBER, "item_name": _WORD, "description": _WORD, "initial_bid": _NUMBER, "reserve": _NUMBER, "date_time": _TIME,
        "expires": _TIME, "seller": _NUMBER, "category": _NUMBER, "extra": _WORD,
    },
    "bid": {
        "auction": _NUMBER, "bidder": _NUMBER, "price": _NUMBER, "channel": _WORD, "url": _WORD, "date_time": _TIME, "extra": _WORD,
    },
}  # fmt: skip
"""The columns of every stream, as the generator names and orders them; it prints times as milliseconds."""
_NOBODY = {"auction": -2, "bidder": -3, "seller": -4}
"""Who a closing event refers to; every other number in it is -1."""


@dataclass(frozen=True)
class Events:
    """How many events, in how many files for each stream."""

    count: int
    files: int

    @property
    def name(self) -> str:
        """The folder's name.

        >>> Events(1000, 20).name
        'nexmark-0.2.0-1000x20'
        """
        return f"nexmark-{generator.VERSION}-{self.count}x{self.files}"


def generate(events: Events, root: Path, say: Callable[[str], None] = lambda line: None) -> Path:
    """The folder with all streams, made below `root` if it is not there."""
    folder = root / events.name
    if not (folder / "_done").exists():
        say(f"events: building {generator.CRATE}, if it is not there")
        program = generator.locate(root)
        say(f"events: {events.count:,}")
        folder.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="raw-", dir=folder) as raw:
            printed = Path(raw) / "events.json"
            generator.print_events(program, events.count, printed)
            write(events, printed, folder)
    return folder


def write(events: Events, printed: Path, folder: Path) -> None:
    """Cut printed events into the files of their streams."""
    with duckdb.connect() as con:
        con.execute("SET timezone = 'UTC'")
        con.execute("SET threads = 1")  # the order of the lines is the order of the events
        con.execute(
            f"CREATE TABLE event AS SELECT row_number() OVER () - 1 AS number, * FROM read_json('{printed}',"
            f" format = 'newline_delimited', columns = {_print_columns()})"
        )
        _check_count(con, events)
        for stream in STREAMS:
            tables = [_slice(con, stream, events, number) for number in range(events.files)]
            tables += [_close_stream(tables[0].schema, number) for number in range(CLOSINGS)]
            _write_stream(folder / stream, tables)
    _write_stream(folder / "side_input", [side_input()])
    (folder / "_done").touch()


def side_input() -> pa.Table:
    """The table that q13 joins bids with."""
    return pa.table({"key": range(SIDE_KEYS), "value": [f"value {key}" for key in range(SIDE_KEYS)]})


def _print_columns() -> str:
    kinds = {
        stream.capitalize(): ", ".join(f"{name} {_NUMBER if kind == _TIME else kind}" for name, kind in columns.items())
        for stream, columns in STREAMS.items()
    }
    return "{" + ", ".join(f"{kind}: 'STRUCT({columns})'" for kind, columns in kinds.items()) + "}"


def _check_count(con: Any, events: Events) -> None:
    [[count, kinds]] = con.execute("SELECT count(*), count(Person) + count(Auction) + count(Bid) FROM event").fetchall()
    if count != events.count or kinds != count:
        raise OptionError(
            f"the generator printed {count:,} lines with {kinds:,} events, not {events.count:,}: is it {generator.CRATE}?"
        )


def _slice(con: Any, stream: str, events: Events, number: int) -> pa.Table:
    """The events of one file."""
    kind, start_us = stream.capitalize(), int(START.timestamp()) * 1_000_000
    first = "(SELECT least(Person.date_time, Auction.date_time, Bid.date_time) FROM event WHERE number = 0)"
    columns = ", ".join(
        f"make_timestamptz(({kind}.{name} - {first}) * 1000 + {start_us}) AS {name}"
        if type_ == _TIME
        else f"{kind}.{name}"
        for name, type_ in STREAMS[stream].items()
    )
    chosen = f"{kind} IS NOT NULL AND number * {events.files} // {events.count} = {number}"
    return con.sql(f"SELECT {columns} FROM event WHERE {chosen} ORDER BY number").to_arrow_table()


def _close_stream(schema: pa.Schema, number: int) -> pa.Table:
    """An event that nothing joins with, an hour after START and later than the one before."""
    at = START + timedelta(hours=1, milliseconds=number)
    values = {_WORD: "", _NUMBER: -1, _TIME: at}
    kinds = next(columns for columns in STREAMS.values() if list(columns) == schema.names)
    row = {name: _NOBODY.get(name, values[kind]) for name, kind in kinds.items()}
    return pa.Table.from_pylist([row], schema)


def _write_stream(folder: Path, tables: list[pa.Table]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(tables):
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(table, path, compression="snappy")
        mtime = START.timestamp() + number
        os.utime(path, (mtime, mtime))
