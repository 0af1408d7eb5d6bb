"""RJoin's inner loops: tuples meet waiting queries, queries meet stored tuples, and every match is a query with one alias less.

A query, posed or rewritten, is a row; so is a tuple. All columns are 64-bit integers:

    row     TEMPLATE BOUND WAIT KEY OLDEST NEWEST NEXT | slots | ts by alias | numbers by alias
    tuple   STREAM KEY LEVEL TS BATCH ARRIVED NEXT NUMBER | values by column

BOUND is the set of aliases that have their tuple; WAIT says which column of which alias the row waits for, at KEY. Rows and
tuples of a key are chains. A tuple that arrives walks the key's rows and is stored; a row that arrives looks the key's
tuples up and is stored: each pair of the two meets once, whichever comes first.

    row + tuple -> row     if the stream is the alias', published since the query took effect; known slots agree, none is
                           NULL; for every bound b: -hi(a, b) <= tuple.ts - b.ts <= hi(b, a)

Very many rows may be made though no combination is ever complete, and the rows of a key may be very many though none matches. So what a template tries
and makes is counted (SPENT), and a loop stops where a template tries, or all together make, more than they may; the caller finds that in the counts.

Invariant: a row is stored under one key and a tuple once under each of its keys, so each combination of tuples is made
on one way only (theorem 2). KEY is a hash; everything that it stands for is checked, so collisions are harmless.
Implements: Idreos, Liarou, Koubarakis (2008), procedures 1 to 3, section 5 (windows).
Departs from the paper: one `start` per query does not enforce a window between all pairs (window 10, tuples at 10, 18 and
2), so rows carry the ts of every bound alias.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int64, types, void

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.instants import shift_instant
from watersmeet.kernels.registered.key_table import FIRST_ROW, FIRST_TUPLE, attribute_key, enter, find, value_key

TEMPLATE, BOUND, WAIT, KEY, OLDEST, NEWEST, NEXT = range(7)
AT_SLOTS = 7
"""Where the slots of a row begin."""
STREAM, TUPLE_KEY, LEVEL, TS, BATCH, ARRIVED, TUPLE_NEXT, NUMBER = range(8)
AT_VALUES = 8
"""Where the values of a tuple begin."""
ATTRIBUTE_LEVEL, VALUE_LEVEL = range(2)
AT_TS, AT_NUMBERS, ROW_WIDTH = range(3)
"""A layout of rows: where their other parts begin, and their width."""
INFO, STREAMS, BIND_AT, BIND, SLOT_ALIASES, HI = range(6)
"""The arrays of a catalogue of templates."""
ALIASES, SINCE = range(2)
"""Columns of INFO."""
ALIAS, COLUMN, SLOT, JOIN = range(4)
"""Columns of BIND: what a tuple of an alias binds."""
CONSTANT = 1 << 62
"""In SLOT_ALIASES: the slot has its value from the query's text."""
NULL = -(2**63)
ROWS, TUPLES, ENTRIES = range(3)
TRIED, MADE = range(2)
"""Columns of SPENT: pairs of a row and a tuple that were tried, by template, and rows that they made. Of the limits: how many a template may try, and how many rows
all together may make in one call."""

Block = int64[:, ::1]
Catalogue = types.UniTuple(Block, 6)
Blocks = types.UniTuple(Block, 3)


@kernel(void(Block, int64, Block, int64))
def _copy(to, i, of, j):  # type: ignore[no-untyped-def]
    for c in range(of.shape[1]):
        to[i, c] = of[j, c]


@kernel(Block(Block, boolean[:, ::1]))
def copies(tuples, columns):  # type: ignore[no-untyped-def]
    """Procedure 1: two copies of every tuple for each of its columns, one at either level; a NULL has none at value level,
    since nothing equals it. `columns` says by stream which are indexed; NEXT of a copy is the tuple's position."""
    total = 0
    for i in range(len(tuples)):
        for column in range(columns.shape[1]):
            total += 2 * columns[tuples[i, STREAM], column]
    out, n = np.empty((total, tuples.shape[1]), np.int64), 0
    for i in range(len(tuples)):
        stream = tuples[i, STREAM]
        for column in range(columns.shape[1]):
            if not columns[stream, column]:
                continue
            value = tuples[i, AT_VALUES + column]
            for level in range(2):
                if level == VALUE_LEVEL and value == NULL:
                    continue
                _copy(out, n, tuples, i)
                out[n, LEVEL] = level
                out[n, TUPLE_NEXT] = i
                key = attribute_key(stream, column) if level == ATTRIBUTE_LEVEL else value_key(stream, column, value)
                out[n, TUPLE_KEY] = key
                n += 1
    return out[:n]


@kernel(boolean(Block, int64, Block, int64, Block, int64, int64[::1], Catalogue))
def rewrite(out, n, rows, r, tuples, e, lay, cat):  # type: ignore[no-untyped-def]
    """Write row r with tuple e as out[n], if they match."""
    t = rows[r, TEMPLATE]
    bound, a = rows[r, BOUND], cat[BIND][rows[r, WAIT], ALIAS]
    info = cat[INFO]
    batch, ts = tuples[e, BATCH], tuples[e, TS]
    # 1. The right stream, published since the query took effect.
    if tuples[e, STREAM] != cat[STREAMS][t, a] or batch < info[t, SINCE]:
        return False
    # 2. Windows by time against every bound alias.
    aliases = info[t, ALIASES]
    hi = cat[HI]
    first_ts = lay[AT_TS]
    for b in range(aliases):
        if (bound >> b) & 1:
            other = rows[r, first_ts + b]
            if ts > shift_instant(other, hi[t, b * aliases + a]) or ts < shift_instant(other, -hi[t, a * aliases + b]):
                return False
    # 3. Copy, then bind the slots.
    _copy(out, n, rows, r)
    known = int64(0)
    for j in range(cat[BIND_AT][t, a], cat[BIND_AT][t, a + 1]):
        slot, value = cat[BIND][j, SLOT], tuples[e, AT_VALUES + cat[BIND][j, COLUMN]]
        if cat[BIND][j, JOIN] and value == NULL:
            return False
        at = AT_SLOTS + slot
        if (known >> slot) & 1 or cat[SLOT_ALIASES][t, slot] & (bound | CONSTANT):
            if out[n, at] != value:
                return False
        else:
            out[n, at] = value
            known |= int64(1) << slot
    # 4. Which tuple it is.
    out[n, lay[AT_NUMBERS] + a] = tuples[e, NUMBER]
    out[n, BOUND] = bound | (int64(1) << a)
    out[n, first_ts + a] = ts
    out[n, OLDEST] = min(out[n, OLDEST], batch)
    out[n, NEWEST] = max(out[n, NEWEST], batch)
    return True


@kernel(Block(Block))
def longer(block):  # type: ignore[no-untyped-def]
    out = np.empty((2 * len(block), block.shape[1]), np.int64)
    for i in range(len(block)):
        _copy(out, i, block, i)
    return out


@kernel(Block(Block, Blocks, int64[::1], int64[::1], Catalogue, int64[::1], Block, int64[::1]))
def arrive_tuples(inbox, blocks, slots, counts, cat, lay, spent, limits):  # type: ignore[no-untyped-def]
    """Procedure 2: tuples meet the rows of their keys, and are stored. NEXT of a new row is the position in the inbox."""
    rows, tuples, entries = blocks[ROWS], blocks[TUPLES], blocks[ENTRIES]
    out, n = np.empty((1024, rows.shape[1]), np.int64), 0
    for i in range(len(inbox)):
        e = counts[TUPLES]
        counts[TUPLES] += 1
        key = enter(slots, entries, counts[ENTRIES : ENTRIES + 1], inbox[i, TUPLE_KEY])
        _copy(tuples, e, inbox, i)
        tuples[e, TUPLE_NEXT] = entries[key, FIRST_TUPLE]
        entries[key, FIRST_TUPLE] = e
        r = entries[key, FIRST_ROW]
        while r != -1:
            if n == len(out):
                out = longer(out)
            t = rows[r, TEMPLATE]
            spent[t, TRIED] += 1
            if rewrite(out, n, rows, r, tuples, e, lay, cat):
                out[n, NEXT] = i
                n += 1
                spent[t, MADE] += 1
            if spent[t, TRIED] > limits[TRIED] or n > limits[MADE]:
                return out[:n]
            r = rows[r, NEXT]
    return out[:n]


@kernel(boolean(Block, int64, Catalogue, int64[::1], int64[::1]))
def in_time(rows, r, cat, lay, marks):  # type: ignore[no-untyped-def]
    """Whether a tuple of the watermark or later, by stream, still fits a row's windows by time."""
    t, bound = rows[r, TEMPLATE], rows[r, BOUND]
    aliases, a = cat[INFO][t, ALIASES], cat[BIND][rows[r, WAIT], ALIAS]
    mark = marks[cat[STREAMS][t, a]]
    for b in range(aliases):
        if (bound >> b) & 1:
            ts = rows[r, lay[AT_TS] + b]
            if shift_instant(ts, cat[HI][t, b * aliases + a]) < mark:
                return False
    return True


@kernel(int64(Block, int64, Blocks, int64[::1], int64[::1], Catalogue, int64[::1], int64[::1]))
def put(inbox, i, blocks, slots, counts, cat, lay, marks):  # type: ignore[no-untyped-def]
    """Lay a row down behind the others, and keep it there if a future tuple can match; the entry of its key."""
    rows, entries, r = blocks[ROWS], blocks[ENTRIES], counts[ROWS]
    key = enter(slots, entries, counts[ENTRIES : ENTRIES + 1], inbox[i, KEY])
    _copy(rows, r, inbox, i)
    if in_time(rows, r, cat, lay, marks):
        counts[ROWS] += 1
        rows[r, NEXT] = entries[key, FIRST_ROW]
        entries[key, FIRST_ROW] = r
    return key


@kernel(int64[::1](Block, int64, int64[::1], Block))
def entries_of(tuples, count, slots, entries):  # type: ignore[no-untyped-def]
    """The entry of every tuple's key."""
    out = np.empty(count, np.int64)
    for e in range(count):
        out[e] = find(slots, entries, tuples[e, TUPLE_KEY])
    return out


@kernel(
    Block(
        Block, Blocks, int64[::1], int64[::1], Catalogue, int64[::1], Block, int64[::1],
        int64[::1], int64[::1], int64[::1], int64[::1],
    ),
)  # fmt: skip
def arrive_rows(inbox, blocks, slots, counts, cat, lay, spent, limits, marks, order, begin, times):  # type: ignore[no-untyped-def]
    """Procedure 3, for posed queries too: rows meet the tuples of their keys, and are stored if a tuple of the watermarks or later
    can match. Tuples are sorted by key and time: `order` are their places, `times` their times, and those of entry k begin at begin[k].
    NEXT of a new row is the position in the inbox."""
    rows, tuples = blocks[ROWS], blocks[TUPLES]
    out, n = np.empty((1024, rows.shape[1]), np.int64), 0
    for i in range(len(inbox)):
        r = counts[ROWS]
        key = put(inbox, i, blocks, slots, counts, cat, lay, marks)
        if key + 1 >= len(begin):
            continue
        t, bound = rows[r, TEMPLATE], rows[r, BOUND]
        aliases, a = cat[INFO][t, ALIASES], cat[BIND][rows[r, WAIT], ALIAS]
        low, high = int64(NULL), int64(-(NULL + 1))
        for b in range(aliases):
            if (bound >> b) & 1:
                ts = rows[r, lay[AT_TS] + b]
                low = max(low, shift_instant(ts, -cat[HI][t, a * aliases + b]))
                high = min(high, shift_instant(ts, cat[HI][t, b * aliases + a]))
        at, end = begin[key], begin[key + 1]
        last = end
        while at < last:  # the first that is not older than the windows allow
            mid = (at + last) >> 1
            if times[mid] < low:
                at = mid + 1
            else:
                last = mid
        while at < end and times[at] <= high:
            if n == len(out):
                out = longer(out)
            spent[t, TRIED] += 1
            if rewrite(out, n, rows, r, tuples, order[at], lay, cat):
                out[n, NEXT] = i
                n += 1
                spent[t, MADE] += 1
            if spent[t, TRIED] > limits[TRIED] or n > limits[MADE]:
                return out[:n]
            at += 1
    return out[:n]


@kernel(void(Blocks, int64[::1], int64[::1]))
def chain(blocks, slots, counts):  # type: ignore[no-untyped-def]
    """Link all rows and tuples under their keys again, after some have gone."""
    rows, tuples, entries = blocks[ROWS], blocks[TUPLES], blocks[ENTRIES]
    for k in range(counts[ENTRIES]):
        entries[k, FIRST_ROW] = -1
        entries[k, FIRST_TUPLE] = -1
    for r in range(counts[ROWS]):
        key = enter(slots, entries, counts[ENTRIES : ENTRIES + 1], rows[r, KEY])
        rows[r, NEXT] = entries[key, FIRST_ROW]
        entries[key, FIRST_ROW] = r
    for e in range(counts[TUPLES]):
        key = enter(slots, entries, counts[ENTRIES : ENTRIES + 1], tuples[e, TUPLE_KEY])
        tuples[e, TUPLE_NEXT] = entries[key, FIRST_TUPLE]
        entries[key, FIRST_TUPLE] = e
