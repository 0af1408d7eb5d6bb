"""ROWS windows at sites: tuples are numbered at home, in the order of event time, and each ends when so many have come after it, or when its block is over.

    time                   1    3    5    5    8        a head of a tuple's end or later does not meet it
    a [ROWS 2]             5    5    8    -    -        the end is the time of the tuple that comes n after it
    a [TUMBLING 2 ROWS]    5    5    8    8    -        the end is the time of the first tuple of the next block

A tuple is numbered when its stream's watermark has passed it, by (time, hash of its content), tuples that no WHERE lets through among them. A head waits until the stream has passed it,
so every end at or before the head's time is known then. Where a copy is, ends follow the tuples by their numbers.

Invariant: all tuples of such a stream are at the first unit of a site. An end is final. A tuple that has ended before all heads that may come is forgotten, and its end with it.
Implements: Tran and Lee (2010), section 3.2 (count-based windows): a tuple is sent with its number, and later with the instant of its expiry.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.kernels.instants import LAST
from watersmeet.operators.enter import HASH
from watersmeet.plan.model import SEQUENCE, TIME
from watersmeet.plan.source_sql import PASS
from watersmeet.sites.one_way.kept import NUMBER, Kept
from watersmeet.storage.segment import Segment

NONE = -1
"""The number of a tuple that counts, and that no result can have."""


def name_ends(stream: int) -> str:
    return f"@{stream} ends"


def number_arrivals(table: pa.Table, first: int) -> pa.Table:
    """New tuples with their numbers, those that may not join among them."""
    may_join = np.asarray(table.column(PASS).to_numpy(), bool)
    numbers = np.full(table.num_rows, NONE, np.int64)
    numbers[may_join] = first + np.arange(int(may_join.sum()))
    return table.append_column(NUMBER, pa.array(numbers, pa.int64()))


class RowsWindow:
    """The numbering of one stream at its home."""

    def __init__(self, kept: Kept, stream: int, rows: int, tumbles: bool) -> None:
        self.kept, self.rows, self.tumbles = kept, rows, tumbles
        self._waiting, self._last, self._ends = f"@{stream} unnumbered", f"@{stream} last", name_ends(stream)

    def arrive(self, table: pa.Table) -> None:
        self.kept.add(self._waiting, table.select([TIME, HASH, NUMBER]))

    def release(self, until: int) -> pa.Table | None:
        """Number the tuples before a time; the ends that follow, by tuple."""
        waiting = self.kept.take(self._waiting)
        if not waiting:
            return None
        table = pa.concat_tables(waiting).combine_chunks()
        ready = pa.array(integers(table.column(TIME).combine_chunks()) < until)
        self.kept.add(self._waiting, table.filter(pa.array(~np.asarray(ready))))
        table = table.filter(ready)
        columns = [integers(table.column(name).combine_chunks()) for name in (TIME, HASH, NUMBER)]
        order = np.lexsort((columns[1], columns[0]))
        times, numbers = columns[0][order], columns[2][order]
        for last in self.kept.take(self._last):
            times = np.concatenate([integers(last.column(TIME).combine_chunks()), times])
            numbers = np.concatenate([integers(last.column(NUMBER).combine_chunks()), numbers])
        ended, ends = self._end(numbers, times)
        self.kept.add(self._last, _table(times[len(ended) :], numbers[len(ended) :]))
        found = _table(ends[ended != NONE], ended[ended != NONE])
        self.kept.add(self._ends, found)
        return found

    def _end(self, numbers: np.ndarray, times: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The tuples that have ended, which are the first ones, and their ends. The first tuple of all begins a block, since blocks end as a whole."""
        if not self.tumbles:
            return numbers[: -self.rows], times[self.rows :]
        nexts = times[self.rows :: self.rows]
        ends = np.repeat(nexts, self.rows)
        return numbers[: len(ends)], ends


def find_ends(kept: Kept, name: str, numbers: np.ndarray) -> np.ndarray:
    """By number of a tuple its end, LAST if it has none yet."""
    known = [s.table for s in kept.segments(name)]
    if not known:
        return np.full(len(numbers), LAST, np.int64)
    table = pa.concat_tables(known)
    of, ends = (integers(table.column(c).combine_chunks()) for c in (NUMBER, TIME))
    order = np.argsort(of, kind="stable")
    at = np.minimum(np.searchsorted(of[order], numbers), len(of) - 1)
    return np.where(of[order][at] == numbers, ends[order][at], LAST)


def put_ends(kept: Kept, name: str, segments: Iterable[Segment]) -> list[Segment]:
    """Stored tuples, each with its end."""
    out = []
    for segment in segments:
        ends = find_ends(kept, name, segment.codes(NUMBER, "integer"))
        out.append(Segment.of(segment.table.append_column(SEQUENCE, pa.array(ends, pa.int64()))))
    return out


def ends_of(kept: Kept, name: str, numbers: np.ndarray) -> pa.Table:
    """The ends that are known of some tuples, as they travel."""
    ends = find_ends(kept, name, numbers)
    return _table(ends[ends < LAST], numbers[ends < LAST])


def drop_ended(kept: Kept, window: str, ends: str, mark: int) -> int | None:
    """Forget the tuples of a window that ended before all heads that may come; the time before which they were, None if there are none."""
    segments = kept.segments(window)
    if not segments or not kept.segments(ends):
        return None
    numbers = np.concatenate([s.codes(NUMBER, "integer") for s in segments])
    alive = find_ends(kept, ends, numbers) > mark
    times = np.concatenate([s.ts for s in segments])
    cut = int(times[alive].min()) if alive.any() else LAST
    if times.min() >= cut:
        return None
    kept.settle({window: cut}, {})
    stay = [s.codes(NUMBER, "integer") for s in kept.segments(window)]
    known = pa.concat_tables([s.table for s in kept.segments(ends)])
    of = integers(known.column(NUMBER).combine_chunks())
    kept.put(ends, known.filter(pa.array(np.isin(of, np.concatenate([np.empty(0, np.int64), *stay])))))
    return cut


def _table(times: np.ndarray, numbers: np.ndarray) -> pa.Table:
    return pa.table({TIME: pa.array(times, pa.int64()), NUMBER: pa.array(numbers, pa.int64())})
