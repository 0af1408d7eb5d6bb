"""nextKey of a simulated ring: every choice that the paper compares, what asking for rates costs, and what rows carry.

Candidates are those of `watersmeet.kernels.registered.next_key`, pairs and triples, for rewritten queries too.

RIC: a node asks the candidates that it knows nothing of, or nothing recent, one after the other around the ring; each
passes the question on with its answer, and the last one answers (k lookups and one hop). What it hears it keeps in its
candidate table; what it knows of a row's candidates travels with the row, and the row itself goes to a known address in
one hop.

A rewritten query may wait at attribute level only while the attribute level still has all tuples that it may need: those
published since its query took effect, within its windows, less than delta ago when the row arrives.

Invariant: a row waits for one candidate; a row of a connected query has a triple, or is a posed one and has a pair.
Implements: Idreos, Liarou, Koubarakis (2008), sections 6 (RIC, kinds a, b and c) and 7 (piggy-backing, candidate table).
Departs from the paper: section 6 lets rewritten queries wait at attribute level at any time, and the proof of theorem 1
overlooks that ALTT has dropped older tuples by then; the rule above keeps the theorem.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int32, int64, uint64, void

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.instants import shift_instant
from watersmeet.kernels.registered.key_table import find
from watersmeet.kernels.registered.next_key import MOST_CANDIDATES, NO, PAIR, TRIPLE, is_before, key_of, kind_of
from watersmeet.kernels.registered.rewriting import (
    ALIAS,
    ALIASES,
    AT_NUMBERS,
    AT_SLOTS,
    AT_TS,
    BIND,
    BIND_AT,
    BOUND,
    HI,
    INFO,
    KEY,
    SINCE,
    TEMPLATE,
    WAIT,
    Block,
    Catalogue,
)
from watersmeet_lab.simulate.ring.kernels.candidates import ADDRESS, LEARNED, NODE, RATE, find_candidate, learn, rate
from watersmeet_lab.simulate.ring.kernels.chord import route, successor

RIC, RANDOM, WORST, FIRST = range(4)
CHOICE, NOW_AT, VALID, PERIOD_LENGTH, DELTA, DELAY, VALUES_ONLY, SEED = range(8)
"""Columns of the options."""
FOREVER = 2**62


@kernel(boolean(Block, int64, Catalogue, int64[::1], int64, int64[::1], int64[::1]))
def _reaches(rows, r, cat, lay, j, options, tumbling):  # type: ignore[no-untyped-def]
    """Whether the attribute level will still have all tuples that a row may need of an alias."""
    t, bound, a = rows[r, TEMPLATE], rows[r, BOUND], cat[BIND][j, ALIAS]
    if bound == 0 or options[DELTA] >= FOREVER:
        return True
    aliases, width = cat[INFO][t, ALIASES], tumbling[t]
    oldest = cat[INFO][t, SINCE]
    for b in range(aliases):
        if (bound >> b) & 1:
            ts = rows[r, lay[AT_TS] + b]
            oldest = max(oldest, shift_instant(ts, -cat[HI][t, a * aliases + b]))
            if width > 0:
                oldest = max(oldest, ts // width * width)
    return oldest >= options[NOW_AT] + options[DELAY] - options[DELTA]


@kernel(uint64(Block, int64, int64[::1], int64))
def _content(rows, r, lay, seed):  # type: ignore[no-untyped-def]
    """A hash of a row: random, and yet the same whenever it is made."""
    code = mix(uint64(seed) ^ mix(uint64(rows[r, TEMPLATE])))
    for c in range(AT_SLOTS, lay[AT_NUMBERS]):
        code = mix(code ^ uint64(rows[r, c]))
    return code


@kernel(
    void(uint64[::1], int64, int64, uint64[::1], int32[:, ::1], int64[::1], int64[::1], Block, Block, int64[::1],
         int64, int64, int64[::1]),
)  # fmt: skip
def _ask(ask, asked, sender, ids, fingers, nodes, slots, entries, table, known, now, period, sent):  # type: ignore[no-untyped-def]
    """One message around the ring: clockwise from the sender, and back in one hop."""
    node, here = nodes[sender], ids[sender]
    for i in range(1, asked):
        key, k = ask[i], i
        while k > 0 and uint64(ask[k - 1] - here) > uint64(key - here):
            ask[k] = ask[k - 1]
            k -= 1
        ask[k] = key
    position = sender
    for i in range(asked):
        key = np.int64(ask[i])
        goal = successor(ids, ask[i])
        at = find_candidate(table, node, key)
        if table[at, NODE] != -1 and table[at, ADDRESS] == nodes[goal]:
            if goal != position:
                sent[nodes[position]] += 1
        else:
            route(ids, fingers, nodes, position, ask[i], sent)
        position = goal
        learn(table, known, node, key, rate(entries, find(slots, entries, key), now, period), now, nodes[goal])
    if position != sender:
        sent[nodes[position]] += 1


@kernel(
    void(Block, int64[::1], Catalogue, int64[::1], uint64[::1], int32[:, ::1], int64[::1], int64[::1], Block, Block,
         int64[::1], int64[::1], int64[::1], Block, Block),
)  # fmt: skip
def choose(  # type: ignore[no-untyped-def]
    rows, senders, cat, lay, ids, fingers, nodes, slots, entries, table, known, options, tumbling, sent, carried
):
    """Set WAIT and KEY of rows, and count the messages: sent[0] asks for rates, sent[1] carries rows. `senders` are
    positions on the ring; `tumbling` is by template; `carried` gets (rate, when learned) of each column of a row's template, -1 if unknown."""
    candidates = np.empty(MOST_CANDIDATES, np.int64)
    keys = np.empty(MOST_CANDIDATES, np.int64)
    rates = np.empty(MOST_CANDIDATES, np.int64)
    kinds = np.empty(MOST_CANDIDATES, np.int64)
    ask = np.empty(MOST_CANDIDATES, np.uint64)
    now, period, choice = options[NOW_AT], options[PERIOD_LENGTH], options[CHOICE]
    for r in range(len(rows)):
        t, sender = rows[r, TEMPLATE], senders[r]
        node = nodes[sender]
        # 1. The candidates; pairs that may not be taken are no candidates.
        begin, end = cat[BIND_AT][t, 0], cat[BIND_AT][t, cat[INFO][t, ALIASES]]
        n, triples = 0, 0
        for j in range(begin, end):
            kind = kind_of(rows, r, cat, j)
            if kind == NO or (kind == PAIR and not _reaches(rows, r, cat, lay, j, options, tumbling)):
                continue
            candidates[n], kinds[n], keys[n] = j, kind, key_of(rows, r, cat, j, kind)
            triples += kind == TRIPLE
            n += 1
        if options[VALUES_ONLY] and triples:
            kept = 0
            for c in range(n):
                if kinds[c] == TRIPLE:
                    candidates[kept], kinds[kept], keys[kept] = candidates[c], kinds[c], keys[c]
                    kept += 1
            n = kept
        # 2. Their rates: known, or asked for around the ring; for the worst choice the true ones, at no cost.
        asked = 0
        for c in range(n):
            if choice == RIC:
                at = find_candidate(table, node, keys[c])
                if table[at, NODE] != -1 and now - table[at, LEARNED] <= options[VALID]:
                    rates[c] = table[at, RATE]
                    continue
                ask[asked] = uint64(keys[c])
                asked += 1
            rates[c] = rate(entries, find(slots, entries, keys[c]), now, period)
        if asked:
            _ask(ask, asked, sender, ids, fingers, nodes, slots, entries, table, known, now, period, sent[0])
        # 3. The choice; among equals a triple (or for the worst choice a pair), then by a hash that spreads them.
        best = np.int64(0)
        if choice == RANDOM:
            best = np.int64(_content(rows, r, lay, options[SEED]) % uint64(n))
        elif choice != FIRST:
            for c in range(1, n):
                sign = -1 if choice == WORST else 1
                if is_before(
                    sign * rates[c], -sign * kinds[c], keys[c], sign * rates[best], -sign * kinds[best], keys[best], t
                ):
                    best = np.int64(c)
        # 4. Send: one hop to a known address, else a lookup.
        key = keys[best]
        goal = successor(ids, uint64(key))
        at = find_candidate(table, node, key)
        if table[at, NODE] != -1 and table[at, ADDRESS] == nodes[goal]:
            if goal != sender:
                sent[1, node] += 1
        else:
            route(ids, fingers, nodes, sender, uint64(key), sent[1])
        rows[r, WAIT] = candidates[best]
        rows[r, KEY] = key
        if choice == RIC:
            for c in range(n):
                at = find_candidate(table, node, keys[c])
                carried[r, 2 * (candidates[c] - begin)] = table[at, RATE]
                carried[r, 2 * (candidates[c] - begin) + 1] = table[at, LEARNED]


@kernel(void(Block, Block, int64[::1], Catalogue, uint64[::1], int64[::1], Block, int64[::1]))
def unpack(rows, carried, receivers, cat, ids, nodes, table, known):  # type: ignore[no-untyped-def]
    """A node that receives rows keeps what they carry; addresses come with the rates."""
    for r in range(len(rows)):
        t = rows[r, TEMPLATE]
        begin, end = cat[BIND_AT][t, 0], cat[BIND_AT][t, cat[INFO][t, ALIASES]]
        for j in range(begin, end):
            learned = carried[r, 2 * (j - begin) + 1]
            if learned >= 0:
                kind = kind_of(rows, r, cat, j)
                key = key_of(rows, r, cat, j, kind)
                address = nodes[successor(ids, uint64(key))]
                learn(table, known, receivers[r], key, carried[r, 2 * (j - begin)], learned, address)
