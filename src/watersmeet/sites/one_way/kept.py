"""What a unit of a site keeps, by name, all of it in segments with times.

    a               the window of a stream that arrives here, every tuple numbered
    @4 window       rows of stream 4, which are results of a level of a tree, every row numbered
    @1 copy         tuples of stream 1 that were sent here
    @1 values 0     V: codes of stream 1's keys of class 0, each with a time after which it may be gone
    @1 filter 0     the same as a Bloom filter
    @1 asking 0     codes whose tuples come here without being asked for, each until a time
    @0 sent 2       numbers of the tuples of stream 0 that were sent to site 2: the sent bits
    @0 told 2 0     codes of which site 2 has been told
    @0 asked 2 0    codes that site 2 has asked for
    @wait 0 1       rows of head 0 that wait before its leg 1: until the source may test them, or until they are wanted
    @hold 0 1       rows of head 0 that wait for their partners
    @ask 0 1        questions that wait for this site's stream; their time is the frontier that they came with
    @0 unnumbered   of a ROWS window: times and hashes of tuples that the watermark has not passed
    @0 last         of a ROWS window: the last tuples that were numbered, or those of the present block
    @0 ends         of a ROWS window: tuples that have ended, and when
    @0 met          hashes of tuples of an outer, semi or anti join that have a partner
    @out 2          what site 2 is to be sent; the time is the number of the message

Invariant: what a home believes to be at another site is there until no head can meet it.
Implements: Tran and Lee (2010), section 3.2 (sent bits, V, M), with times in place of counts: a value may come again before it is gone.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import numpy as np
import pyarrow as pa

from watersmeet.kernels import hash_window
from watersmeet.plan.model import TIME
from watersmeet.storage.compaction import SLACK, Settler, compact, concat, find_alike
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentInfo, SegmentStore

NUMBER, CODE, BITS = "_n", "_code", "_bits"
"""Columns: a tuple's number (batch, then row), a key's code, a filter."""
_EVER = np.iinfo(np.int64).max
_DATED = frozenset({"sent", "told", "asked", "asking"})
"""What is looked up by time, or by numbers that never come again: what is dead of it does no harm, and is as much as the living at most."""


def window(stream: int) -> str:
    return f"@{stream} window"


def copy(stream: int) -> str:
    return f"@{stream} copy"


def name_keys(what: str, stream: int, classes: Collection[int], to: int | None = None) -> str:
    """The name of what is kept of a stream's keys.

    >>> name_keys("told", 0, (1, 2), to=3), name_keys("values", 0, (1,))
    ('@0 told 3 1,2', '@0 values 1')
    """
    end = ",".join(map(str, classes))
    return f"@{stream} {what} {end}" if to is None else f"@{stream} {what} {to} {end}"


def name_sent(stream: int, to: int) -> str:
    return f"@{stream} sent {to}"


def name_out(site: int) -> str:
    return f"@out {site}"


def find_word(name: str) -> str:
    """What a name says is kept; nothing for the window of a stream that arrives.

    >>> find_word("2/@0 told 3 1,2"), find_word("a")
    ('told', '')
    """
    return name.partition("@")[2].partition(" ")[2].partition(" ")[0]


class Kept:
    """A unit's segments by name, in one turn."""

    def __init__(self, manifest: Manifest, store: SegmentStore) -> None:
        self.manifest, self.store = manifest, store

    def settle(self, cuts: Mapping[str, int], retention: Mapping[str, int]) -> None:
        """Forget what is dead, and merge small segments."""
        for name, cut in cuts.items():
            if name in self.manifest.segments:
                slack = 1 if find_word(name) in _DATED else SLACK
                settler = Settler(self.store, cut, retention.get(name, 0), slack=slack)
                self.manifest.segments[name] = settler.settle(self.manifest.segments[name], None)

    def segments(self, name: str) -> list[Segment]:
        return [self.store.read(info) for info in self.manifest.segments.get(name, [])]

    def add(self, name: str, table: pa.Table) -> None:
        """More of something."""
        if table.num_rows:
            self.manifest.segments.setdefault(name, []).append(self.store.write(Segment.of(table)))

    def take(self, name: str) -> list[pa.Table]:
        """All of something, which is not kept any longer."""
        tables = [segment.table for segment in self.segments(name)]
        for info in self.manifest.segments.pop(name, []):
            self.store.remove(info)
        return tables

    def take_before(self, name: str, mark: int) -> list[Segment]:
        """What has a time before a mark, which is not kept any longer; what stays is not written again but for the rest of a segment."""
        going, staying = list[Segment](), list[SegmentInfo]()
        for info in self.manifest.segments.pop(name, []):
            if info.min_ts >= mark:
                staying.append(info)
                continue
            segment = self.store.read(info)
            self.store.remove(info)
            going += find_between(segment, info.min_ts, mark)
            staying += [self.store.write(Segment.of(s.table)) for s in find_between(segment, mark, info.max_ts + 1)]
        if staying:
            self.manifest.segments[name] = compact(self.store, staying, find_alike, concat)
        return going

    def put(self, name: str, table: pa.Table) -> None:
        """Something in place of what was there."""
        self.take(name)
        self.add(name, table)

    def knows(self, name: str, column: str, codes: np.ndarray, since: np.ndarray | int) -> np.ndarray:
        """Which codes are kept, with a time of `since` or later."""
        found = np.zeros(len(codes), np.bool_)
        lo = np.full(len(codes), since, np.int64) if isinstance(since, int) else since
        hi = np.full(len(codes), _EVER, np.int64)
        for segment in self.segments(name):
            _, count = hash_window.probe(segment.index_by(column), codes, lo, hi)
            found |= count > 0
        return found


def find_between(segment: Segment, begin: int, end: int) -> list[Segment]:
    """The rows of a span of time, in a segment; none if there are none."""
    if segment.max_ts < begin or segment.min_ts >= end:
        return []
    if segment.min_ts >= begin and segment.max_ts < end:
        return [segment]
    rows = np.flatnonzero((segment.ts >= begin) & (segment.ts < end))
    if not len(rows):
        return []
    if rows[-1] - rows[0] + 1 == len(rows):  # in the order of time, as most come: nothing is copied
        return [Segment(segment.id, segment.table.slice(rows[0], len(rows)))]
    return [Segment.of(segment.table.take(pa.array(rows)))]


def codes_table(codes: np.ndarray, times: np.ndarray | int) -> pa.Table:
    """Codes with times, as they travel and are kept."""
    ts = np.full(len(codes), times, np.int64) if isinstance(times, int) else times
    return pa.table({TIME: pa.array(ts, pa.int64()), CODE: pa.array(codes, pa.int64())})


def find_latest(codes: np.ndarray, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different codes, and the highest time of each."""
    order = np.lexsort((ts, codes))
    last = np.flatnonzero(np.append(codes[order][1:] != codes[order][:-1], True)) if len(order) else order
    return codes[order[last]], ts[order[last]]
