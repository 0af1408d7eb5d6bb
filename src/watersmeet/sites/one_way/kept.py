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
    @0 last         of a ROWS window: the last tuples that were numbered
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
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentStore, Settler

NUMBER, CODE, BITS = "_n", "_code", "_bits"
"""Columns: a tuple's number (batch, then row), a key's code, a filter."""
_EVER = np.iinfo(np.int64).max


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


class Kept:
    """A unit's segments by name, in one turn."""

    def __init__(self, manifest: Manifest, store: SegmentStore) -> None:
        self.manifest, self.store = manifest, store

    def settle(self, cuts: Mapping[str, int], retention: Mapping[str, int]) -> None:
        """Forget what is dead, and merge small segments."""
        for name, cut in cuts.items():
            if name in self.manifest.segments:
                settler = Settler(self.store, cut, retention.get(name, 0))
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


def codes_table(codes: np.ndarray, times: np.ndarray | int) -> pa.Table:
    """Codes with times, as they travel and are kept."""
    ts = np.full(len(codes), times, np.int64) if isinstance(times, int) else times
    return pa.table({TIME: pa.array(ts, pa.int64()), CODE: pa.array(codes, pa.int64())})


def find_latest(codes: np.ndarray, ts: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Different codes, and the highest time of each."""
    order = np.lexsort((ts, codes))
    last = np.flatnonzero(np.append(codes[order][1:] != codes[order][:-1], True)) if len(order) else order
    return codes[order[last]], ts[order[last]]
