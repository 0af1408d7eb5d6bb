"""What a file of results says of its columns, in the words of Delta's log, from the footer that its writer has made.

    {"numRecords": 3, "minValues": {"x": 1}, "maxValues": {"x": 7}, "nullCount": {"x": 0}}

Readers skip files by it, so a bound that is said must hold for every row. Bounds of these are not said: floating point numbers (Parquet's leave
NaN out, which Spark sorts last), long texts, and what is nested. Milliseconds are the finest that the log knows: a least time is rounded down, a greatest up.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Callable
from typing import Any

import pyarrow as pa

MOST_COLUMNS = 32
"""Delta's default: columns behind these are not described."""
LONGEST_TEXT = 32


def describe(footer: Any, schema: pa.Schema, rows: int) -> str:
    """The statistics of a Parquet file of these columns."""
    least: dict[str, Any] = {}
    greatest: dict[str, Any] = {}
    nulls: dict[str, int] = {}
    places = {footer.schema.column(n).path: n for n in range(len(footer.schema))}
    for field in list(schema)[:MOST_COLUMNS]:
        if field.name not in places or pa.types.is_nested(field.type):
            continue
        found = [footer.row_group(g).column(places[field.name]).statistics for g in range(footer.num_row_groups)]
        if not found or not all(s is not None and s.has_null_count for s in found):
            continue
        nulls[field.name] = sum(s.null_count for s in found)
        bounds = _bounds(field.type, [s for s in found if s.num_values])
        if bounds is not None:
            least[field.name], greatest[field.name] = bounds
    return json.dumps({"numRecords": rows, "minValues": least, "maxValues": greatest, "nullCount": nulls})


def _bounds(kind: pa.DataType, found: list[Any]) -> tuple[Any, Any] | None:
    """The least and the greatest value, if they are known and can be said."""
    if not found or not all(s.has_min_max for s in found):
        return None
    if pa.types.is_timestamp(kind):
        return _round(min(s.min for s in found), False), _round(max(s.max for s in found), True)
    say: Callable[[Any], Any] | None = None
    if pa.types.is_integer(kind):
        say = int
    elif pa.types.is_date(kind):
        say = dt.date.isoformat
    elif pa.types.is_string(kind) or pa.types.is_large_string(kind):
        say = str
    if say is None:
        return None
    least, greatest = say(min(s.min for s in found)), say(max(s.max for s in found))
    return None if isinstance(least, str) and max(len(least), len(greatest)) > LONGEST_TEXT else (least, greatest)


def _round(at: dt.datetime, up: bool) -> str:
    """A time in milliseconds.

    >>> _round(dt.datetime(2026, 1, 1, 0, 0, 0, 1), False), _round(dt.datetime(2026, 1, 1, 0, 0, 0, 1, dt.timezone.utc), True)
    ('2026-01-01T00:00:00.000', '2026-01-01T00:00:00.001Z')
    """
    at += dt.timedelta(microseconds=-at.microsecond % 1000 if up else -(at.microsecond % 1000))
    zone = "Z" if at.tzinfo is not None else ""
    return at.replace(tzinfo=None).isoformat(timespec="milliseconds") + zone
