"""Dropped rows as users get them: beside the results, marked by a struct, or by themselves.

    k     ...   _late
    17    ...   NULL                                                                a result
    NULL  ...   {clicks, 10:03:07, 12500000, 41, 'late', '{"user": 7, ...}'}        a row of stream clicks, dropped in batch 41

The fields are stream, ts, lag_us, batch, reason and row, see `operators.late`.

Invariant: a result is NULL in `_late`, a dropped row in every other column.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from watersmeet.columns.arrow import shrink
from watersmeet.errors import OptionError, WindowError
from watersmeet.operators.late import SCHEMA
from watersmeet.query.duration import parse_us
from watersmeet.query.join import Join

if TYPE_CHECKING:
    from watersmeet.runtime.in_process import LocalRun

LATE_COLUMN = "_late"
SET_ASIDE = "on_error='set aside' puts rows that break an expression among the late rows, and nobody asks for these"
BATCH_ROWS = 10_000
"""The rows of a batch in process, of every stream."""


def check_late(late: Any, join: Join) -> None:
    """Refuse what is no answer to whether dropped rows are wanted, and a query whose results have a column of that name."""
    if not isinstance(late, bool):
        raise OptionError(f"late={late!r}: give True or False; a sink for late rows goes to start(late=...)")
    if late and any(output.name.lower() == LATE_COLUMN for output in join.results):
        raise OptionError(f"late=True adds a column {LATE_COLUMN}, and the SELECT list has one: give that another name")


def mark_late(results: pa.Table, lost: pa.Table) -> pa.Table:
    """Results, and after them dropped rows."""
    kind = pa.struct(list(lost.schema))
    marks = pa.chunked_array([pa.nulls(results.num_rows, kind), *lost.to_struct_array().chunks], kind)
    columns = [pa.chunked_array([*c.chunks, pa.nulls(lost.num_rows, c.type)], c.type) for c in results.columns]
    names = [*results.column_names, LATE_COLUMN]
    return pa.Table.from_arrays([*columns, marks], names=names).replace_schema_metadata(results.schema.metadata)


def collect(run: LocalRun) -> pa.Table:
    """What a run in process has dropped so far."""
    return shrink(pa.concat_tables([SCHEMA.empty_table(), *run.lost]))


def check_span(batch_time: Any, batch_rows: int) -> int | None:
    """A span of event time in microseconds; None if none is given."""
    if batch_time is None:
        return None
    if batch_rows != BATCH_ROWS:
        raise OptionError("batch_rows= and batch_time= both say what a batch is: give one of them")
    try:
        span = parse_us(batch_time)
    except (WindowError, AttributeError, TypeError) as error:
        raise OptionError(f"batch_time={batch_time!r}: give a duration such as '10 seconds'") from error
    if span <= 0:
        raise OptionError(f"batch_time={batch_time!r}: give a duration of more than nothing")
    return span


def check_rows(batch_rows: int | None) -> int:
    """The rows of a batch in process."""
    if batch_rows is None:
        return BATCH_ROWS
    if not isinstance(batch_rows, int) or batch_rows < 1:
        raise OptionError(f"batch_rows={batch_rows!r}: give a whole number of 1 or more")
    return batch_rows


def instant(now: datetime | None) -> int:
    """What the clock shows in microseconds, for `max_ahead` of streams; None: the clock of this machine."""
    now = datetime.now(UTC) if now is None else now
    if not isinstance(now, datetime) or now.tzinfo is None:
        raise OptionError(f"now={now!r}: give a datetime with a time zone, such as datetime.now(UTC)")
    return (now - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
