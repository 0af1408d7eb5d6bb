"""Walks a trie of probes for every new tuple: all combinations of all templates, in bounded chunks.

    for every new tuple of the driver's stream            depth 0
        for every node: probe the segments of its stream  depth 1, 2, ...
            for every match: emit the templates that end here, go on with the node's children

Tuples are (segment << 32 | row); segments of one stream lie together, its new one last. Arrays of segments differ in
number and length from batch to batch, so the loops get their addresses, and the caller keeps the arrays alive.

Where the period leaves few rows of a segment that lies in order of time, these are compared one by one: they are neighbours in
memory, and nodes that are opened one after the other ask for the same ones. Otherwise the index is asked.

A match must come before the driving tuple: be stored, or come before it in the batch by (time, stream, row); or be the driving
tuple itself where the node allows that. So every combination is made once, by its last member.

A node may have very many matches though no template ever ends: the tuples that every node tries are counted, and the walk comes back after some millions of
them, so that the caller can stop it.

Invariant: chunks laid end to end hold every combination once; a full chunk ends before a match, and the walk resumes there.
Implements: successive probes as Hammad, Aref, Elmagarmid (2002), section 3.1, for many templates at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
from numba import int64, types, uint64
from numba.extending import intrinsic

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.instants import FIRST, LAST, shift_instant

LIMIT = 131_072
"""The most combinations that one chunk holds."""
INDEX_FIELDS = 7
"""Per column and segment: addresses of slots, group codes, group starts, rows, times; the mask of the slots; the address of
hints: where in every group the last look-up ended. Times move on slowly, so the next one ends near."""
SILENT = 2
"""Of a leaf: its template is not alive. 1: its windows are tested; 0: they hold for whatever comes there."""
SCANNED = 24
"""Up to so many rows are compared rather than looked up."""
TRIED = 32
"""The walk comes back when it has tried so many times the tuples that a chunk holds combinations: some millions."""


class Segments(NamedTuple):
    """Addresses of what is visible in a step, by segment, and by column and segment; 0 is nothing."""

    first: np.ndarray
    """By stream its first segment, and the end of the last stream's."""
    ts: np.ndarray
    min_ts: np.ndarray
    max_ts: np.ndarray
    rows: np.ndarray
    """How many rows a segment has; 0 if they do not lie in order of time."""
    is_new: np.ndarray
    """Whether a segment is of this batch."""
    codes: np.ndarray
    valid: np.ndarray
    """Where a column has NULLs: a byte per row."""
    indexes: np.ndarray


def find_most_leaves(nodes: np.ndarray) -> int:
    """The most templates that end at one node: a walk has room for them. A small batch should not look at all nodes for that."""
    return int(np.max(nodes[:, _LEAVES + 1] - nodes[:, _LEAVES], initial=0))


def count_tries(nodes: np.ndarray) -> np.ndarray:
    """Where to count the tuples that every node tries, and in the end the most that one of them has tried."""
    return np.zeros(len(nodes) + 1, np.int64)


def walk(
    trie: tuple[np.ndarray, ...],
    width: int,
    segments: Segments,
    stream: int,
    order: np.ndarray,
    limit: int = LIMIT,
    driving: int | None = None,
    tried: np.ndarray | None = None,
    most_leaves: int | None = None,
) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Chunks of (template, tuples by alias) that tuples of a stream make: rows of one of its segments, the last without a word, in this order.

    Any order gives the same combinations; by time is the fastest. To `tried` the tuples are added that every node tries, see `count_tries`. Chunks may be empty,
    so that the caller can look at it. `most_leaves`: what `find_most_leaves` finds, if it is at hand.
    """
    nodes = trie[1]
    tried = count_tries(nodes) if tried is None else tried
    driver = int(segments.first[stream + 1]) - 1 if driving is None else driving
    if trie[0][stream, 0] == trie[0][stream, 1] or len(order) == 0:
        return
    capacity = max(limit, find_most_leaves(nodes) if most_leaves is None else most_leaves)
    stack = np.zeros((width + 1, 9), np.int64)
    ranges = np.full((len(segments.ts), 5), -1, np.int64)
    ranges[:, _FROM], ranges[:, _TO], ranges[:, _FIRST : _BEYOND + 1] = LAST, FIRST, 0
    members, times, control = np.zeros(width, np.int64), np.zeros(width, np.int64), np.array([-1, 0], np.int64)
    templates, tuples = np.empty(capacity, np.int64), np.empty((capacity, width), np.int64)
    while True:
        count = _walk(
            *trie, *segments, stream, driver, order, stack, ranges, members, times, control, templates, tuples, tried
        )
        if count or control[0] < len(order):
            yield templates[:count].copy(), tuples[:count].copy()
        if control[0] >= len(order):
            return


def _pointer_to(kind: Any) -> Any:
    @intrinsic
    def pointer(typing_context, at):  # type: ignore[no-untyped-def]
        def generate(context, builder, signature, args):  # type: ignore[no-untyped-def]
            return builder.inttoptr(args[0], context.get_value_type(types.CPointer(kind)))

        return types.CPointer(kind)(types.int64), generate

    return pointer


int64s = _pointer_to(types.int64)
"""The int64 values at an address, inside compiled code."""
_int32s = _pointer_to(types.int32)
uint8s = _pointer_to(types.uint8)

# A node's row, see `registry.shared.probe_trie.NODE_FIELDS`.
_STREAM, _COLUMN, _SLOT, _BOUND, _TIE, _CHILDREN, _LEAVES, _MORE, _PERIOD = 0, 1, 2, 3, 4, 5, 7, 9, 11
# A row of the stack: the node and the end of its siblings, the segment, matches from `at` to `end`, period and key; whether
# `at` is a row, else it is a place in the index.
_NODE, _LAST, _SEGMENT, _AT, _END, _LOW, _HIGH, _KEY, _SCANS = range(9)
# Of a segment, the period asked for last and its rows from `first` to `beyond`; the turn in which they were too many.
_FROM, _TO, _FIRST, _BEYOND, _WIDE = range(5)


@kernel("void(int64[:,::1], int64[::1], int64[:,:,::1], uint8[::1], boolean[::1])")
def silence(nodes, leaf_template, leaf_high, leaf_tests, alive):  # type: ignore[no-untyped-def]
    """Have a walk make the combinations of templates that are alive: a node's period is the hull of theirs from now on, and empty without any."""
    width = (nodes.shape[1] - _PERIOD) // 2
    parent, depth = np.full(len(nodes), -1, np.int64), np.ones(len(nodes), np.int64)
    for node in range(len(nodes)):  # children come after their parents
        for child in range(nodes[node, _CHILDREN], nodes[node, _CHILDREN + 1]):
            parent[child], depth[child] = node, depth[node] + 1
        nodes[node, _PERIOD], nodes[node, _PERIOD + width] = 1, -1
    needed = np.zeros(len(nodes), np.bool_)
    for end in range(len(nodes)):
        for leaf in range(nodes[end, _LEAVES], nodes[end, _LEAVES + 1]):
            if not alive[leaf_template[leaf]]:
                leaf_tests[leaf], leaf_high[leaf, 0, 0] = SILENT, -1
                continue
            node = end
            while node >= 0:
                slot = depth[node]
                for x in range(slot):
                    low, high = -leaf_high[leaf, slot, x], leaf_high[leaf, x, slot]
                    if needed[node]:
                        low, high = min(low, nodes[node, _PERIOD + x]), max(high, nodes[node, _PERIOD + width + x])
                    nodes[node, _PERIOD + x], nodes[node, _PERIOD + width + x] = low, high
                needed[node] = True
                node = parent[node]


@kernel("int64(int64, int64, int64, int64, int64)", inline="always")
def _lower_bound(stamps_at, hint, start, end, lowest):  # type: ignore[no-untyped-def]
    """The first position from start to end whose time is not before `lowest`, by doubling steps from a hint."""
    stamps = int64s(stamps_at)
    left, right, step = start, end, int64(1)
    if hint < end and stamps[hint] < lowest:
        left = hint + 1
        while left + step < end and stamps[left + step] < lowest:
            left += step + 1
            step += step
        right = min(end, left + step)
    else:
        right = hint
        while right - step > start and stamps[right - step] >= lowest:
            right -= step
            step += step
        left = max(start, right - step)
    while left < right:
        middle = (left + right) >> 1
        if stamps[middle] < lowest:
            left = middle + 1
        else:
            right = middle
    return left


@kernel("int64(int64, int64, int64, int64, int64)", inline="always")
def _next_equal(codes_at, valid_at, key, at, end):  # type: ignore[no-untyped-def]
    """The first row from `at` to `end` that has a code; `end` if none has."""
    codes = int64s(codes_at)
    while at < end and (codes[at] != key or (valid_at != 0 and uint8s(valid_at)[at] == 0)):
        at += 1
    return at


@kernel(
    "int64(int64[:,::1], int64[:,::1], int64[:,::1], int64[::1], int64[:,::1], int64[:,:,::1], uint8[::1], "
    "int64[::1], int64[::1], int64[::1], int64[::1], int64[::1], uint8[::1], int64[:,::1], int64[:,::1], int64[:,:,::1], "
    "int64, int64, int64[::1], int64[:,::1], int64[:,::1], int64[::1], int64[::1], int64[::1], int64[::1], int64[:,::1], int64[::1])",
)
def _walk(  # type: ignore[no-untyped-def]
    roots, nodes, more, leaf_template, leaf_alias, leaf_high, leaf_tests,
    seg_first, seg_ts, seg_min, seg_max, seg_rows, is_new, codes, valid, index,
    stream, driving, order, stack, ranges, members, times, control, out_template, out_tuple, tried,
):  # fmt: skip
    width, capacity = len(members), len(out_template)
    driver_ts = int64s(seg_ts[driving])
    turn, depth, count = control[0], control[1], int64(0)
    left = int64(TRIED * capacity)
    while True:
        # 1. The next driving tuple.
        if depth == 0:
            turn += 1
            if turn >= len(order):
                control[0], control[1] = turn, 0
                return count
            members[0] = (driving << 32) | order[turn]
            times[0] = driver_ts[order[turn]]
            depth = 1
            stack[1, _NODE], stack[1, _LAST], stack[1, _SEGMENT] = roots[stream, 0], roots[stream, 1], -1
        node = stack[depth, _NODE]
        if node == stack[depth, _LAST]:
            depth -= 1
            continue
        segment = stack[depth, _SEGMENT]
        # 2. A node is opened: the key and the period.
        if segment < 0:
            column, member = nodes[node, _BOUND], members[nodes[node, _SLOT]]
            holder, row = member >> 32, member & 0xFFFFFFFF
            if valid[column, holder] != 0 and uint8s(valid[column, holder])[row] == 0:
                stack[depth, _NODE] = node + 1
                continue
            lowest, highest = int64(FIRST), int64(LAST)
            for x in range(depth):
                lowest = max(lowest, shift_instant(times[x], nodes[node, _PERIOD + x]))
                highest = min(highest, shift_instant(times[x], nodes[node, _PERIOD + width + x]))
            stack[depth, _KEY] = int64s(codes[column, holder])[row]
            stack[depth, _LOW], stack[depth, _HIGH] = lowest, highest
            stack[depth, _AT] = stack[depth, _END] = 0
            segment = seg_first[nodes[node, _STREAM]] - 1
        # 3. Without a match left, the next segment that has one.
        column = nodes[node, _COLUMN]
        at = stack[depth, _AT]
        if at < stack[depth, _END]:
            if stack[depth, _SCANS] != 0:
                at = _next_equal(
                    codes[column, segment], valid[column, segment], stack[depth, _KEY], at, stack[depth, _END]
                )
            else:
                highest = stack[depth, _HIGH] if is_new[segment] == 0 else min(stack[depth, _HIGH], times[0])
                if int64s(index[column, segment, 4])[at] > highest:
                    at = stack[depth, _END]
        if at >= stack[depth, _END]:
            last = seg_first[nodes[node, _STREAM] + 1]
            key, lowest = stack[depth, _KEY], stack[depth, _LOW]
            found = False
            segment += 1
            while segment < last:
                highest = stack[depth, _HIGH] if is_new[segment] == 0 else min(stack[depth, _HIGH], times[0])
                if seg_max[segment] >= lowest and seg_min[segment] <= highest and index[column, segment, 0] != 0:
                    # 3a. The rows of the period, if they are few.
                    scans = seg_rows[segment] != 0 and ranges[segment, _WIDE] != turn
                    if scans and (ranges[segment, _FROM] != lowest or ranges[segment, _TO] != highest):
                        stamps, rows = seg_ts[segment], seg_rows[segment]
                        at = _lower_bound(stamps, ranges[segment, _FIRST], 0, rows, lowest)
                        end = rows
                        if highest < LAST:
                            end = _lower_bound(stamps, max(at, ranges[segment, _BEYOND]), at, rows, highest + 1)
                        ranges[segment, _FROM], ranges[segment, _TO] = lowest, highest
                        ranges[segment, _FIRST], ranges[segment, _BEYOND] = at, end
                    if scans and ranges[segment, _BEYOND] - ranges[segment, _FIRST] > SCANNED:
                        ranges[segment, _WIDE] = turn
                        scans = False
                    if scans:
                        end = ranges[segment, _BEYOND]
                        at = _next_equal(
                            codes[column, segment], valid[column, segment], key, ranges[segment, _FIRST], end
                        )
                        if at < end:
                            stack[depth, _END], stack[depth, _SCANS] = end, 1
                            found = True
                            break
                    else:
                        # 3b. The group of the key, from the first time that is not too early.
                        slots, group_code = _int32s(index[column, segment, 0]), int64s(index[column, segment, 1])
                        mask = uint64(index[column, segment, 5])
                        place = mix(uint64(key)) & mask
                        group = slots[place]
                        while group != -1 and group_code[group] != key:
                            place = (place + uint64(1)) & mask
                            group = slots[place]
                        if group != -1:
                            starts, hints = int64s(index[column, segment, 2]), int64s(index[column, segment, 6])
                            stamps, end = index[column, segment, 4], starts[group + 1]
                            at = _lower_bound(stamps, hints[group], starts[group], end, lowest)
                            hints[group] = at
                            if at < end and int64s(stamps)[at] <= highest:
                                stack[depth, _END], stack[depth, _SCANS] = end, 0
                                found = True
                                break
                segment += 1
            if not found:
                stack[depth, _NODE], stack[depth, _SEGMENT] = node + 1, -1
                continue
            stack[depth, _SEGMENT] = segment
        # 4. One match: before the driving tuple, and equal in the further columns.
        if left == 0 or count + nodes[node, _LEAVES + 1] - nodes[node, _LEAVES] > capacity:
            stack[depth, _AT] = at
            control[0], control[1] = turn, depth
            return count
        stack[depth, _AT] = at + 1
        left -= 1
        tried[node] += 1
        tried[-1] = max(tried[-1], tried[node])
        match = at if stack[depth, _SCANS] != 0 else int64s(index[column, segment, 3])[at]
        when = int64s(seg_ts[segment])[match]
        if is_new[segment] != 0 and when == times[0]:
            if segment > driving or (segment == driving and match > order[turn]):
                continue
            if segment == driving and match == order[turn] and nodes[node, _TIE] == 0:
                continue
        agrees = True
        for e in range(nodes[node, _MORE], nodes[node, _MORE + 1]):
            member, theirs, own = members[more[e, 0]], more[e, 1], more[e, 2]
            holder, row = member >> 32, member & 0xFFFFFFFF
            known = valid[theirs, holder] == 0 or uint8s(valid[theirs, holder])[row] != 0
            own_known = valid[own, segment] == 0 or uint8s(valid[own, segment])[match] != 0
            equal = int64s(codes[theirs, holder])[row] == int64s(codes[own, segment])[match]
            agrees = agrees and known and own_known and equal
        if not agrees:
            continue
        members[depth] = (segment << 32) | match
        times[depth] = when
        # 5. The templates that end here, each with its own windows.
        for leaf in range(nodes[node, _LEAVES], nodes[node, _LEAVES + 1]):
            fits = leaf_tests[leaf] != SILENT
            if leaf_tests[leaf] == 1:
                for x in range(depth + 1):
                    for y in range(depth + 1):
                        if times[y] > shift_instant(times[x], leaf_high[leaf, x, y]):
                            fits = False
            if fits:
                out_template[count] = leaf_template[leaf]
                for x in range(depth + 1):
                    out_tuple[count, leaf_alias[leaf, x]] = members[x]
                for x in range(depth + 1, width):
                    out_tuple[count, x] = -1
                count += 1
        if nodes[node, _CHILDREN] < nodes[node, _CHILDREN + 1]:
            depth += 1
            stack[depth, _NODE], stack[depth, _LAST] = nodes[node, _CHILDREN], nodes[node, _CHILDREN + 1]
            stack[depth, _SEGMENT] = -1
