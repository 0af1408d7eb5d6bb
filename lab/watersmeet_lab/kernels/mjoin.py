"""MJoin: one n-ary operator with a hash table per input; a tuple is inserted into its own table and probes the others.

    tables    S1 [ key -> rows ]     S2 [ key -> rows ]     S3 [ key -> rows ]
    driver s2:   insert into S2,  probe S1,  every match probes S3,  every match there is a result

Tuples are processed in runs: consecutive tuples of one input, oldest first. Runs of a tuple or two, in the order of time, are
MJoin as it was: tuple at a time. A run for each buffer of a batch is what driver selection makes of it: buffer at a time.
The loop is the same. What a run knows is which tuples come next, so it asks for the cache lines of the slots that the tuple
AHEAD of the current one will need, in its own table and in the first that it probes. With `across` it is the tuple that far
ahead in the order of all runs.

All inputs are joined on one common attribute; every pair may have its window.

A slot is 16 bytes, the key and where its rows are: one row stands in the slot itself, more stand together in the arena,
oldest insertion first, and move to twice the room when it is full.

    slot      key | first row, 1          key | place in the arena, rows

Invariant: a combination is made once, by that of its members that was processed last; no call writes more than the output
holds, and the next call goes on where it stopped. The caller's arrays are the only state.
Implements: Valsomatzis and Gounaris (2013), section 3.1; Viglas, Naughton, Burger (2003), MJoin.
Departs from the paper: the look-ahead, which can be turned off; windows are exact, and bisected where an input comes in the order of time; nothing is evicted.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from numba import int64, types, uint64
from numba.core import cgutils
from numba.core.cgutils import ir
from numba.extending import intrinsic
from numba.np.arrayobj import make_array
from numpy.typing import ArrayLike

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.instants import FIRST, LAST, NO_BOUND, shift_instant

AHEAD = 8
"""How far ahead in a run slots are fetched."""
RUN, ROW, DEPTH, USED, STATE = 0, 1, 2, 3, 4
"""Where the cursor stands: in which run, at which row, how deep (-1: before the row); used cells of the arena."""


class Inputs(NamedTuple):
    """The rows of all inputs, end to end: input i has rows start[i] to start[i + 1]."""

    keys: np.ndarray
    ts: np.ndarray
    start: np.ndarray
    hi: np.ndarray
    """The closed window graph: -hi[y, x] <= y.ts - x.ts <= hi[x, y]."""

    @classmethod
    def of(cls, keys: Sequence[ArrayLike], ts: Sequence[ArrayLike], hi: np.ndarray | None = None) -> Inputs:
        """Inputs by their keys and times, and the windows; without any, all of the history."""
        parts = [np.asarray(k, np.int64) for k in keys]
        return cls(
            np.concatenate(parts),
            np.concatenate([np.asarray(t, np.int64) for t in ts]),
            np.cumsum([0, *(len(k) for k in parts)]).astype(np.int64),
            np.full((len(parts),) * 2, NO_BOUND) if hi is None else np.ascontiguousarray(hi, np.int64),
        )

    @property
    def streams(self) -> int:
        return len(self.start) - 1


class Counts(NamedTuple):
    """What has been done, by driver and by place in its probe sequence."""

    probes: np.ndarray
    matches: np.ndarray


class MJoin:
    """The tables over some inputs, empty at first. The caller says which runs come next."""

    def __init__(self, inputs: Inputs, limit: int = 131_072, ahead: int = AHEAD, across: bool = False) -> None:
        self._ahead, self._across = ahead or len(inputs.keys), across and ahead > 0
        n, sizes = inputs.streams, np.diff(inputs.start)
        capacity = np.array([1 << max(4, int(2 * size - 1).bit_length()) for size in sizes.tolist()], np.int64)
        self.inputs = inputs
        self.sizes = np.zeros(n, np.int64)
        """Tuples in every table."""
        self._base = np.concatenate([[0], np.cumsum(capacity)[:-1]]).astype(np.int64)
        self._mask = (capacity - 1).astype(np.uint64)
        self._slots = np.zeros(2 * int(capacity.sum()), np.int64)
        self._arena = np.empty(4 * len(inputs.keys) + 8, np.int32)
        self._cursor = np.zeros(STATE + 4 * n, np.int64)
        self._out = np.empty((n, limit), np.int64)
        self._done = np.zeros((2, n, n - 1), np.int64)
        self._bounded = bool((inputs.hi < NO_BOUND).any())
        parts = [inputs.ts[a:b] for a, b in zip(inputs.start[:-1], inputs.start[1:], strict=True)]
        self._ascending = np.array([bool(np.all(t[1:] >= t[:-1])) for t in parts])

    @property
    def counts(self) -> Counts:
        return Counts(self._done[0].copy(), self._done[1].copy())

    def process(self, runs: np.ndarray, sequences: np.ndarray) -> Iterator[np.ndarray]:
        """Tuple at a time: chunks of results, a row of row numbers for every input. The arrays are good until the next.

        `runs` are (input, first row, row after the last); `sequences` says for every driver which inputs it probes, in turn.

        >>> join = MJoin(Inputs.of([[7, 8], [7], [7, 7]], [[1, 2], [1], [1, 3]]))
        >>> runs = np.array([[0, 0, 2], [1, 0, 1], [2, 0, 2]])
        >>> [chunk.tolist() for chunk in join.process(runs, np.array([[1, 2], [0, 2], [0, 1]]))]
        [[[0, 0], [0, 0], [0, 1]]]
        """
        runs, sequences = np.ascontiguousarray(runs, np.int64), np.ascontiguousarray(sequences, np.int64)
        self._cursor[RUN], self._cursor[ROW], self._cursor[DEPTH] = 0, -1, -1
        while True:
            found = _process(
                *self.inputs, self._ascending, self._bounded, self._base, self._mask, self._slots, self._arena,
                runs, sequences, self._cursor, self._done, self._out, self._ahead, self._across,
            )  # fmt: skip
            if found:
                yield self._out[:, :found]
            if self._cursor[RUN] == len(runs):
                break
        np.add.at(self.sizes, runs[:, 0], runs[:, 2] - runs[:, 1])

    def count_matches(self, rows: np.ndarray, x: int, y: int) -> int:
        """How many tuples of y's table, all of them together, have the keys of these rows of x: a sample's look-ups."""
        keys = self.inputs.keys[self.inputs.start[x] + rows]
        return int(_count_matches(self._slots, self._base[y], self._mask[y], keys))


@intrinsic
def _prefetch(typing_context, array, at):  # type: ignore[no-untyped-def]
    """Ask for the cache line of array[at]; nothing waits for it."""

    def generate(context, builder, signature, arguments):  # type: ignore[no-untyped-def]
        data = make_array(signature.args[0])(context, builder, arguments[0]).data
        pointer = builder.bitcast(builder.gep(data, [arguments[1]]), ir.IntType(8).as_pointer())
        word = ir.IntType(32)
        kind = ir.FunctionType(ir.VoidType(), [pointer.type, word, word, word])
        fetch = cgutils.get_or_insert_function(builder.module, kind, "llvm.prefetch.p0")
        builder.call(fetch, [pointer, word(1), word(3), word(1)])
        return context.get_dummy_value()

    return types.void(array, at), generate


@kernel("int64(int64[::1], int64, uint64, int64)", inline="always")
def _slot(slots, base, mask, key):  # type: ignore[no-untyped-def]
    """Where a key's slot is, or the free one that it would take."""
    at = mix(uint64(key)) & mask
    while True:
        s = 2 * (base + int64(at))
        if slots[s + 1] == 0 or slots[s] == key:
            return s
        at = (at + uint64(1)) & mask


@kernel("UniTuple(int64, 2)(int64[:,::1], int64, int64, int64)", inline="always")
def _further(runs, run, row, tuples):  # type: ignore[no-untyped-def]
    """So many tuples further on in the runs: the run and the row, which is numbered in its input."""
    row += tuples
    while run < len(runs) and row >= runs[run, 2]:
        row -= runs[run, 2]
        run += 1
        if run < len(runs):
            row += runs[run, 1]
    return run, row


@kernel("int64(int64[::1], int64, uint64, int64[::1])")
def _count_matches(slots, base, mask, keys):  # type: ignore[no-untyped-def]
    found = 0
    for key in keys:
        found += slots[_slot(slots, base, mask, key) + 1] & 0xFFFFFFFF
    return found


@kernel("void(int64[::1], int64, int32[::1], int64[::1], int64, int64)", inline="always")
def _insert(slots, s, arena, cursor, key, row):  # type: ignore[no-untyped-def]
    packed = slots[s + 1]
    count, place = packed & 0xFFFFFFFF, packed >> 32
    if count == 0:
        slots[s] = key
        slots[s + 1] = (row << 32) | 1
        return
    if count & (count - 1) == 0:
        to = cursor[USED]
        cursor[USED] += 2 * count
        if count == 1:
            arena[to] = place
        else:
            for i in range(count):
                arena[to + i] = arena[place + i]
        place = to
    arena[place + count] = row
    slots[s + 1] = (place << 32) | (count + 1)


@kernel("boolean(int64[::1], int64[:,::1], int64[::1], int64, int64, int64, int64[::1], int64)")
def _inside(ts, hi, sequence, j, y, depth, member, row):  # type: ignore[no-untyped-def]
    """Whether a row of y is in the window of everything that is bound."""
    for d in range(-1, depth):
        x = j if d < 0 else sequence[d]
        t = ts[member[x]]
        if ts[row] < shift_instant(t, -hi[y, x]) or ts[row] > shift_instant(t, hi[x, y]):
            return False
    return True


@kernel(
    "boolean(int64[::1], int64[:,::1], boolean, int32[::1], int64[::1], int64, int64, int64, int64[::1],"
    " int64[::1], int64[::1], int64[::1])",
)
def _cut(ts, hi, ascending, arena, sequence, j, y, depth, member, place, at, end):  # type: ignore[no-untyped-def]
    """Cut the period out of a key's rows if they ascend in time; whether any may be left."""
    if not ascending:
        return True
    p = place[depth]
    if p < 0:
        return _inside(ts, hi, sequence, j, y, depth, member, -1 - p)
    since, until = int64(FIRST), int64(LAST)
    for d in range(-1, depth):
        x = j if d < 0 else sequence[d]
        t = ts[member[x]]
        since = max(since, shift_instant(t, -hi[y, x]))
        until = min(until, shift_instant(t, hi[x, y]))
    left, right = at[depth], end[depth]
    while left < right:
        mid = (left + right) >> 1
        if ts[arena[p + mid]] < since:
            left = mid + 1
        else:
            right = mid
    at[depth], right = left, end[depth]
    while left < right:
        mid = (left + right) >> 1
        if ts[arena[p + mid]] <= until:
            left = mid + 1
        else:
            right = mid
    end[depth] = left
    return at[depth] < left


@kernel(
    "int64(int64[::1], int64[::1], int64[::1], int64[:,::1], boolean[::1], boolean, int64[::1], uint64[::1],"
    " int64[::1], int32[::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,:,::1], int64[:,::1], int64, boolean)",
)
def _process(  # type: ignore[no-untyped-def]
    keys, ts, start, hi, ascending, bounded, base, mask, slots, arena, runs, sequences, cursor, done, out, ahead, across
):
    """Process runs from the cursor on until they end or the output is full: how many results it holds."""
    n, last, room, found = len(start) - 1, len(start) - 3, out.shape[1], 0
    member, place = cursor[STATE : STATE + n], cursor[STATE + n : STATE + 2 * n]
    at, end = cursor[STATE + 2 * n : STATE + 3 * n], cursor[STATE + 3 * n :]
    run, row, depth = cursor[RUN], cursor[ROW], cursor[DEPTH]
    next_run, next_row = run, int64(0)
    if across and run < len(runs):
        next_run, next_row = _further(runs, run, runs[run, 1] if row < 0 else row - start[runs[run, 0]], ahead)
    while run < len(runs):
        # 1. A change of driver: its own table, its probe sequence.
        j = runs[run, 0]
        begin, stop = start[j] + runs[run, 1], start[j] + runs[run, 2]
        sequence, own, own_mask, first = sequences[j], base[j], mask[j], sequences[j, 0]
        if row < 0:
            row = begin
        while row < stop:
            key, opening = keys[row], False
            # 2. A tuple enters its own table.
            if depth < 0:
                if across:
                    if next_run < len(runs):
                        d = runs[next_run, 0]
                        hashed = mix(uint64(keys[start[d] + next_row]))
                        _prefetch(slots, 2 * (base[d] + int64(hashed & mask[d])))
                        _prefetch(slots, 2 * (base[sequences[d, 0]] + int64(hashed & mask[sequences[d, 0]])))
                        next_run, next_row = _further(runs, next_run, next_row, 1)
                elif row + ahead < stop:
                    hashed = mix(uint64(keys[row + ahead]))
                    _prefetch(slots, 2 * (own + int64(hashed & own_mask)))
                    _prefetch(slots, 2 * (base[first] + int64(hashed & mask[first])))
                _insert(slots, _slot(slots, own, own_mask, key), arena, cursor, key, row)
                member[j] = row
                depth, opening = 0, True
            while depth >= 0:
                y = sequence[depth]
                # 3. A probe: the rows of the key, cut to the period where they come in the order of time.
                if opening:
                    opening = False
                    packed = slots[_slot(slots, base[y], mask[y], key) + 1]
                    done[0, j, depth] += 1
                    count = packed & 0xFFFFFFFF
                    if count == 0:
                        depth -= 1
                        continue
                    place[depth] = packed >> 32 if count > 1 else -1 - (packed >> 32)
                    at[depth], end[depth] = 0, count
                    if bounded and not _cut(ts, hi, ascending[y], arena, sequence, j, y, depth, member, place, at, end):
                        depth -= 1
                        continue
                    if not bounded or ascending[y]:
                        done[1, j, depth] += end[depth] - at[depth]
                # 4. Results, as many as there is room for.
                if depth == last and (not bounded or ascending[y]):
                    p, a = place[depth], at[depth]
                    take = min(end[depth] - a, room - found)
                    for x in range(n):
                        if x != y:
                            value = member[x] - start[x]
                            for i in range(take):
                                out[x, found + i] = value
                    if p < 0:
                        for i in range(take):
                            out[y, found + i] = -1 - p - start[y]
                    else:
                        for i in range(take):
                            out[y, found + i] = arena[p + a + i] - start[y]
                    found += take
                    at[depth] += take
                    if at[depth] < end[depth]:
                        cursor[RUN], cursor[ROW], cursor[DEPTH] = run, row, depth
                        return found
                    depth -= 1
                    continue
                # 5. The next match, bound; it probes further, or is a result.
                if at[depth] == end[depth]:
                    depth -= 1
                    continue
                if found == room:
                    cursor[RUN], cursor[ROW], cursor[DEPTH] = run, row, depth
                    return found
                p = place[depth]
                match = -1 - p if p < 0 else int64(arena[p + at[depth]])
                at[depth] += 1
                if bounded and not ascending[y]:
                    if not _inside(ts, hi, sequence, j, y, depth, member, match):
                        continue
                    done[1, j, depth] += 1
                member[y] = match
                if depth == last:
                    for x in range(n):
                        out[x, found] = member[x] - start[x]
                    found += 1
                else:
                    depth += 1
                    opening = True
            row += 1
        run += 1
        row = -1
    cursor[RUN], cursor[ROW], cursor[DEPTH] = run, row, depth
    return found
