"""A query under test: its streams get rows batch by batch, and tests ask what has left, what is kept, what was late.

    add rows  ->  one micro-batch  ->  answers, state, late rows, watermarks      as on Spark, in this process

Invariant: batch by batch the same as on Spark, since operators, clocks and units are the same (`runtime.in_process`). A restart has nothing but the
bytes of the saved state: whatever a test checks after it was in them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Self

import pyarrow as pa

from watersmeet.api import JoinBuilder, Query
from watersmeet.dataflow.clock import NEVER
from watersmeet.errors import DataError, StreamError
from watersmeet.kernels.instants import LAST
from watersmeet.query.session import UTC
from watersmeet.query.stream import Stream
from watersmeet.runtime.in_process import LocalRun
from watersmeet.testing.compare import compare_named, compare_rows
from watersmeet.testing.values import Rows, from_us, make_table, read_instant, to_us


class QueryTest:
    """A query of `wm.sql` or `wm.join` under test; its streams are declared by tables without rows.

    Every step returns the test itself, so steps and checks can be chained.

    >>> import watersmeet as wm
    >>> orders = wm.Stream(wm.testing.table("id int, ts timestamp"), time="ts")
    >>> payments = wm.Stream(wm.testing.table("id int, paid double, ts timestamp"), time="ts", lateness="1 minute")
    >>> test = wm.testing.QueryTest(wm.sql(
    ...     "SELECT o.id, p.paid FROM orders o LEFT JOIN payments p ON p.id = o.id DWINDOW (o, p) = 10 MINUTES",
    ...     orders=orders, payments=payments))
    >>> test = test.batch(orders=[(1, 0), (2, 30)], payments=[(1, 9.5, 20)]).check((1, 9.5)).check_state(o=2)
    >>> test = test.restart().advance(payments=700).check((2, None)).check_state()
    >>> test.batch(payments=[(7, 1.0, 0)]).check().check_late(payments=1)
    QueryTest after 3 batches: 0 new answers, state o 0, p 0, late orders 0, payments 1
    """

    def __init__(self, query: Query | JoinBuilder, *, timezone: str = UTC) -> None:
        self._query, self._timezone = query, timezone
        self._run = _prepare(query, timezone)
        self._answers: list[pa.Table] = []
        self._lost: list[pa.Table] = []
        self._now_us = LAST
        self._ended = False

    def batch(self, rows: Mapping[str, Rows] | None = None, /, **named: Rows) -> Self:
        """Run one micro-batch with these rows, by stream; a stream that is not named has none. Rows of a table are all that it has from this batch on."""
        return self._step(self._read({**(rows or {}), **named}))

    def advance(self, to: Any = None, /, **streams: Any) -> Self:
        """Run one micro-batch in which time goes on and no row is joined: of all streams, or of those named, each to an instant of its own.

        It is what a row does that WHERE drops: it moves its stream's watermark.
        """
        wanted = {**(dict.fromkeys(self._streams, to) if to is not None else {}), **streams}
        self._know(wanted)
        return self._step({}, {name: to_us(read_instant(at)) for name, at in wanted.items()})

    def clock(self, now: Any) -> Self:
        """Set what the clock shows from now on, for streams with `max_ahead`; before that no row is too far ahead."""
        self._now_us = to_us(read_instant(now))
        return self

    def end(self) -> Self:
        """End the input: all watermarks are infinite, and what waits leaves."""
        out = self._step({}, ended=True)
        self._ended = True
        return out

    def restart(self, query: Query | JoinBuilder | None = None) -> Self:
        """Stop and start again from the bytes of the saved state, with the query as it is now; another one is refused, as on Spark."""
        run = _prepare(query or self._query, self._timezone)
        run.resume(self._run.save())
        self._run = run
        return self

    @property
    def answers(self) -> list[tuple[Any, ...]]:
        """What has left since the last check, as tuples."""
        return [tuple(row.values()) for row in self._new.to_pylist()]

    @property
    def state(self) -> dict[str, int]:
        """The rows in state, by alias; rows that nothing can meet any more may be a tenth of them."""
        return self._run.stored

    @property
    def late(self) -> dict[str, int]:
        """The late rows since the beginning, by stream."""
        return self._run.count_late()

    @property
    def late_rows(self) -> list[dict[str, Any]]:
        """The late rows themselves, since the beginning: stream, ts, lag_us, batch, reason, and the row as JSON."""
        return [row for lost in self._lost for row in lost.to_pylist()]

    @property
    def watermarks(self) -> dict[str, datetime | None]:
        """The watermark of every stream; None before its first row."""
        return {name: None if mark <= NEVER else from_us(mark) for name, mark in self._run.watermarks.items()}

    def check(self, *answers: Any) -> Self:
        """Check what has left since the last check, in any order: tuples in the order of SELECT, or mappings by column."""
        compare_rows(self._new, answers, self._where)
        self._answers = []
        return self

    def check_state(self, **rows: int) -> Self:
        """Check the rows in state, by alias; an alias that is not named has none."""
        compare_named("rows in state", self.state, rows, 0, self._where)
        return self

    def check_late(self, **rows: int) -> Self:
        """Check the late rows since the beginning, by stream; a stream that is not named has none."""
        compare_named("late rows", self.late, rows, 0, self._where)
        return self

    def check_watermarks(self, **instants: Any) -> Self:
        """Check the watermarks, by stream; a stream that is not named has had no row."""
        wanted = {name: None if at is None else read_instant(at) for name, at in instants.items()}
        compare_named("watermarks", self.watermarks, wanted, None, self._where)
        return self

    def __repr__(self) -> str:
        state, late = (", ".join(f"{name} {n}" for name, n in found.items()) for found in (self.state, self.late))
        many = f"{self._run.units.batch} batch{'' if self._run.units.batch == 1 else 'es'}"
        return f"QueryTest after {many}: {len(self.answers)} new answers, state {state}, late {late}"

    @property
    def _streams(self) -> Mapping[str, Any]:
        return self._run.plan.join.streams

    @property
    def _new(self) -> pa.Table:
        return self._run.rows_of(self._answers)

    @property
    def _where(self) -> str:
        number = self._run.units.batch - 1
        return "before the first batch" if number < 0 else f"after batch {number}"

    def _know(self, given: Iterable[str]) -> None:
        unknown = [name for name in given if name not in self._streams]
        if unknown and unknown[0] in self._run.reader.tables:
            raise StreamError(f"{unknown[0]!r} is a table and has no time; give its rows with batch()")
        if unknown:
            raise StreamError(f"the query has no stream {unknown[0]!r}; it has {', '.join(self._streams)}")

    def _read(self, rows: Mapping[str, Rows]) -> dict[str, pa.Table]:
        tables = self._run.reader.tables
        self._know([name for name in rows if name not in tables])
        made = {name: make_table(self._run.schemas[name], some, name) for name, some in rows.items()}
        tables.update({name: table for name, table in made.items() if name in tables})
        return self._run.read({name: table for name, table in made.items() if name not in tables}, self._now_us)

    def _step(self, wires: Mapping[str, pa.Table], reached: Mapping[str, int] | None = None, *, ended: bool = False) -> Self:  # fmt: skip
        if self._ended:
            raise DataError("the input has ended: no batch can follow end()")
        self._answers += self._run.push(wires, ended=ended, reached=reached)
        self._lost.append(self._run.lost[-1])
        return self


def _prepare(query: Query | JoinBuilder, timezone: str) -> LocalRun:
    """A query ready to run in process."""
    bound = query._bind()
    for name, stream in bound._used.items():
        if not isinstance(stream.source, pa.Table):
            raise StreamError(
                f"stream {name} is a {type(stream.source).__name__}: a test has its rows in this process; declare it as wm.Stream(wm.testing.table('id bigint, ts timestamp'), time='ts')"
            )
        if stream.source.num_rows and isinstance(stream, Stream):
            raise StreamError(
                f"stream {name} has {stream.source.num_rows} rows: rows come with batch(); declare it by a table without any"
            )
    return bound._in_process(timezone, late=True)
