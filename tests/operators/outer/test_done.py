"""Who is done stays done through merging and expiry; a stored tuple costs a bit."""

from __future__ import annotations

import random

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import Turn
from watersmeet.operators.outer.done import BITS, DONE, DoneBits
from watersmeet.plan.model import TIME
from watersmeet.storage.compaction import Settler
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import Segment, SegmentStore
from watersmeet.storage.stores import BlobStore, MemoryStore

TUPLES, SIDE = "tuples", "a"


def start(store: SegmentStore) -> Turn:
    return Turn(0, {}, Manifest("", ""), store, Clock({}))


def read_bits(turn: Turn) -> tuple[DoneBits, np.ndarray]:
    """The bits of what is stored, and the numbers of the tuples that they are of."""
    stored = [turn.store.read(info) for info in turn.state.segments.get(TUPLES, [])]
    numbers = [s.codes("id", "integer") for s in stored]
    return DoneBits(turn, SIDE, stored), np.concatenate([np.empty(0, np.int64), *numbers])


def segment(numbers: list[int], times: list[int], done: list[bool]) -> Segment:
    return Segment.of(pa.table({TIME: pa.array(times), "id": pa.array(numbers), DONE: pa.array(done)}))


@given(
    st.lists(st.lists(st.integers(0, 20), max_size=6), min_size=1, max_size=40),
    st.integers(1, 100),
    st.randoms(use_true_random=False),
)
def test_a_tuple_that_is_done_stays_done_as_long_as_it_lives(
    batches: list[list[int]], retention: int, chance: random.Random
) -> None:
    turn, times, wanted = start(MemoryStore()), dict[int, int](), dict[int, bool]()
    for n, steps in enumerate(batches):
        bits, numbers = read_bits(turn)
        newly = np.array([chance.random() < 0.2 for _ in numbers], bool)
        bits.done |= newly
        wanted |= dict.fromkeys(numbers[newly].tolist(), True)
        fresh = {len(times) + i: 10 * n + step for i, step in enumerate(steps)}
        times |= fresh
        wanted |= {number: chance.random() < 0.3 for number in fresh}
        new = segment([*fresh], [*fresh.values()], [wanted[number] for number in fresh]) if fresh else None
        cut = 10 * n - retention
        bits.settle(TUPLES, Settler(turn.store, cut, retention), new)
        again, numbers = read_bits(turn)
        found = dict(zip(numbers.tolist(), again.done.tolist(), strict=True))
        assert {number: found[number] for number, ts in times.items() if ts >= cut} == {
            number: wanted[number] for number, ts in times.items() if ts >= cut
        }
        assert len([i for infos in turn.state.segments.values() for i in infos]) == len(turn.store.segments)  # type: ignore[attr-defined]
        assert turn.state.rows()[BITS + SIDE] <= len(turn.state.segments[TUPLES])


class Memory:
    """Blobs, and how many were written."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.writes = 0

    def get(self, id: str) -> bytes | None:
        return self.blobs.get(id)

    def put(self, id: str, blob: bytes) -> None:
        self.blobs[id] = blob
        self.writes += 1

    def delete(self, id: str) -> None:
        del self.blobs[id]


def test_bits_are_written_when_they_change_and_a_tuple_has_one() -> None:
    blobs = Memory()
    turn = start(BlobStore(blobs))
    rows = 80_000
    new = segment([*range(rows)], [*range(rows)], [False] * rows)
    read_bits(turn)[0].settle(TUPLES, Settler(turn.store, 0, 10 * rows), new)
    assert turn.state.segments[BITS + SIDE] == []
    assert blobs.writes == 1
    bits, _ = read_bits(turn)
    bits.done[::3] = True
    bits.settle(TUPLES, Settler(turn.store, 0, 10 * rows), None)
    assert blobs.writes == 2
    assert rows / 8 <= turn.state.segments[BITS + SIDE][0].bytes < rows / 8 + 200
    bits, numbers = read_bits(turn)
    assert np.array_equal(bits.done, numbers % 3 == 0)
    bits.settle(TUPLES, Settler(turn.store, 0, 10 * rows), None)
    assert blobs.writes == 2
    read_bits(turn)[0].settle(TUPLES, Settler(turn.store, rows, 10 * rows), None)
    assert not blobs.blobs
