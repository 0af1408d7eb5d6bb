"""nextKey: where a query waits next, by the rates at which tuples come to its candidates.

Candidates of a row, in the order of the WHERE clause's columns:

    pair      relation + attribute            the column's slot has no value yet, and another unbound alias shares it
    triple    relation + attribute + value    the slot has its value: written in the query, bound, or implied

A row takes the candidate to which the fewest tuples come; among equals a triple, then by a hash that spreads rows. Rewritten queries
wait at value level, whose tuples stay as long as windows need them: where there are triples, pairs are no candidates.

Invariant: a row waits for one candidate; a row of a connected query has a triple, or is a posed one and has a pair.
Implements: Idreos, Liarou, Koubarakis (2008), section 6 (RIC, kinds a, b and c). Explicit and implied triples are one kind, since
equal columns share a slot.
"""

from __future__ import annotations

import numpy as np
from numba import boolean, int64, uint64, void

from watersmeet.kernels.compiled import kernel
from watersmeet.kernels.hashing import mix
from watersmeet.kernels.registered.key_table import attribute_key, value_key
from watersmeet.kernels.registered.rewriting import (
    ALIAS,
    ALIASES,
    AT_SLOTS,
    BIND,
    BIND_AT,
    BOUND,
    COLUMN,
    CONSTANT,
    INFO,
    JOIN,
    KEY,
    SLOT,
    SLOT_ALIASES,
    STREAMS,
    TEMPLATE,
    WAIT,
    Block,
    Catalogue,
)

NO, PAIR, TRIPLE = range(3)
MOST_CANDIDATES = 256


@kernel(int64(Block, int64, Catalogue, int64))
def kind_of(rows, r, cat, j):  # type: ignore[no-untyped-def]
    """What column j of the template is for a row: no candidate, a pair or a triple."""
    t, bound = rows[r, TEMPLATE], rows[r, BOUND]
    if (bound >> cat[BIND][j, ALIAS]) & 1 or not cat[BIND][j, JOIN]:
        return NO
    aliases = cat[SLOT_ALIASES][t, cat[BIND][j, SLOT]]
    if aliases & (bound | CONSTANT):
        return TRIPLE
    waiting = aliases & ~bound
    return PAIR if waiting & (waiting - 1) else NO


@kernel(int64(Block, int64, Catalogue, int64, int64))
def key_of(rows, r, cat, j, kind):  # type: ignore[no-untyped-def]
    """The key of a candidate."""
    stream = cat[STREAMS][rows[r, TEMPLATE], cat[BIND][j, ALIAS]]
    if kind == PAIR:
        return attribute_key(stream, cat[BIND][j, COLUMN])
    return value_key(stream, cat[BIND][j, COLUMN], rows[r, AT_SLOTS + cat[BIND][j, SLOT]])


@kernel(boolean(int64, int64, int64, int64, int64, int64, int64))
def is_before(rate, kind, key, best_rate, best_kind, best_key, spread):  # type: ignore[no-untyped-def]
    """Whether a candidate is taken before another: the lower rate, the lower kind, the lower hash."""
    if rate != best_rate:
        return rate < best_rate
    if kind != best_kind:
        return kind < best_kind
    return mix(uint64(key) ^ uint64(spread)) < mix(uint64(best_key) ^ uint64(spread))


@kernel(int64(int64[::1], int64[::1], int64))
def _rate_of(known, rates, key):  # type: ignore[no-untyped-def]
    """The rate of a key; 0 if it is not known."""
    at = np.searchsorted(known, key)
    return rates[at] if at < len(known) and known[at] == key else int64(0)


@kernel(void(Block, Catalogue, int64[::1], int64[::1]))
def choose(rows, cat, known, rates):  # type: ignore[no-untyped-def]
    """Set WAIT and KEY of rows, by the rates of keys that are known, in ascending order."""
    for r in range(len(rows)):
        t = rows[r, TEMPLATE]
        best, best_kind, best_key, best_rate = int64(-1), int64(NO), int64(0), int64(0)
        for j in range(cat[BIND_AT][t, 0], cat[BIND_AT][t, cat[INFO][t, ALIASES]]):
            kind = kind_of(rows, r, cat, j)
            if kind == NO or kind < best_kind:
                continue
            key = key_of(rows, r, cat, j, kind)
            rate = _rate_of(known, rates, key)
            if kind > best_kind or is_before(rate, 0, key, best_rate, 0, best_key, t):
                best, best_kind, best_key, best_rate = j, kind, key, rate
        rows[r, WAIT], rows[r, KEY] = best, best_key
