"""Window state over many batches: nothing living is lost, dead rows and segments stay few."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.query.window import UNBOUNDED
from watersmeet.storage.cache import SegmentCache
from watersmeet.storage.compaction import MOST_SEGMENTS, Settler
from watersmeet.storage.segment import Segment, SegmentInfo
from watersmeet.storage.stores import BlobStore, MemoryStore


def _segment(ts: list[int]) -> Segment:
    return Segment.of(pa.table({"_ts": pa.array(ts, pa.int64()), "id": pa.array(range(len(ts)))}))


@given(st.lists(st.lists(st.integers(0, 20), max_size=8), min_size=1, max_size=60), st.integers(1, 60))
def test_living_rows_survive_and_dead_ones_are_few(batches: list[list[int]], retention: int) -> None:
    store = MemoryStore()
    infos: list[SegmentInfo] = []
    alive: list[int] = []
    for n, steps in enumerate(batches):
        ts = [n * 10 + s for s in steps]
        cut = n * 10 - retention
        infos = Settler(store, cut, retention).settle(infos, _segment(ts) if ts else None)
        alive = [t for t in alive + ts if t >= cut]
        kept = [t for i in infos for t in store.read(i).ts.tolist()]
        assert sorted(t for t in kept if t >= cut) == sorted(alive)
        assert len(kept) <= 1.1 * len(alive) + 1
        assert len(infos) <= MOST_SEGMENTS
        assert set(store.segments) == {i.id for i in infos}


def test_a_long_window_of_small_batches_has_few_segments_and_rewrites_each_row_seldom() -> None:
    store, infos, written = MemoryStore(), list[SegmentInfo](), 0
    original = store.write

    def counting(segment: Segment) -> SegmentInfo:
        nonlocal written
        written += segment.rows
        return original(segment)

    store.write = counting  # type: ignore[method-assign]
    for n in range(2_000):
        infos = Settler(store, n * 10 - 10_000, 10_000).settle(infos, _segment([n * 10 + i for i in range(10)]))
    assert len(infos) <= 40
    assert sum(i.rows for i in infos) <= 1.1 * 10_010
    assert written / 20_000 < 6


def test_full_history_stays_logarithmic() -> None:
    store, infos = MemoryStore(), list[SegmentInfo]()
    for n in range(1_000):
        infos = Settler(store, -UNBOUNDED, UNBOUNDED).settle(infos, _segment([n]))
    assert sum(i.rows for i in infos) == 1_000
    assert len(infos) <= 20


def test_blobs_are_read_back_when_the_cache_has_lost_them() -> None:
    class Disk:
        def __init__(self) -> None:
            self.blobs: dict[str, bytes] = {}

        def get(self, id: str) -> bytes | None:
            return self.blobs.get(id)

        def put(self, id: str, blob: bytes) -> None:
            self.blobs[id] = blob

        def delete(self, id: str) -> None:
            del self.blobs[id]

    from watersmeet.storage.cache import CACHE

    store = BlobStore(Disk())
    segment = _segment([3, 1, 2])
    info = store.write(segment)
    assert store.read(info) is segment
    CACHE.drop(segment.id)
    again = store.read(info)
    assert again is not segment
    assert again.table.equals(segment.table)
    store.remove(info)
    assert CACHE.get(segment.id) is None


def test_the_cache_forgets_the_oldest_first() -> None:
    first, second = _segment([1] * 100), _segment([2] * 100)
    cache = SegmentCache(limit=first.nbytes + second.nbytes - 1)
    cache.put(first)
    cache.put(second)
    assert cache.get(first.id) is None
    assert cache.get(second.id) is second
    assert np.array_equal(second.ts, [2] * 100)
