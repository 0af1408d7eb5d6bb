"""DISTINCT inside the join: a rewritten query is dropped if others, which are there already, lead to the same rows.

    SELECT DISTINCT r.b FROM r, s WHERE r.a = s.a WINDOW = 10 SECONDS

    r (a 1, b 2) at 03    waits for s.a = 1 from 53 to 13
    r (a 1, b 2) at 03    the same once more: dropped
    r (a 1, b 2) at 05    waits up to 15, so it stays
    r (a 1, b 2) at 04    between the two: what it waits for, one of them waits for

Two rows are *alike* if they have the same template and aliases bound, the same values in their slots, the same values in every column of their tuples that a
query of the template shows or tests, and youngest tuples in the same bucket of DISTINCT. A row is *covered* if whatever fits its windows fits those of a
row alike: for several aliases without a tuple one row must do for all; for a single one several may do together (`kernels.registered.covering`).

Proof that no (row, bucket) is lost, or leaves in a later batch. Let row r' be covered, and c' = r' + z a combination, z being the tuples that it lacked. Then z
fits the windows of a row r alike, and the equalities, whose values are those of the slots: so c = r + z is a combination.
1. It projects to the same row, and the same queries want it: they see the same values.
2. Its bucket is the same. Let B be the bucket of the youngest tuples of r and r', which they share: the bucket of c and of c' is the later one of B and the buckets of z.
3. The same queries see it: only rows are compared whose oldest tuple came when all living queries of the template had taken effect. A query that comes later sees neither.
4. r is there no later than r', and stays as long as a tuple can fit it (theorem 1), so c is made in the batch of c' or an earlier one.
If a row that leads from r to c is dropped in turn, the argument is repeated there, with one tuple more bound: it ends, since there are finitely many aliases.

A template is left alone if any living query of it lacks DISTINCT. Values are compared by bits: 0.0 and -0.0 differ, which keeps a row too many at worst.

Invariant: answers of a batch are, as sets of (query, row, bucket), those without it. What is dropped depends on the inbox as a set, the state and the queries.
Implements: Idreos, Liarou, Koubarakis (2008), section 4: a tuple whose projection has triggered a rewritten query does not trigger it again.
Departs from the paper: rows are compared where they are made and where they wait, and not tuples by what they have triggered, so rows of different origin are alike, too;
and windows are respected, without which a repetition may be the only one that a later tuple still meets.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.kernels.hashing import combine
from watersmeet.kernels.registered.covering import find_covered, span_boxes
from watersmeet.kernels.registered.rewriting import ALIASES, AT_SLOTS, BOUND, INFO, OLDEST, TEMPLATE
from watersmeet.operators.finish.distinct import last_instant
from watersmeet.registry.rjoin.contents import Contents, ids_of
from watersmeet.registry.rjoin.index import STAND_IN
from watersmeet.registry.rjoin.ring_state import RingState
from watersmeet.registry.rjoin.templates import Templates

_WIDEST = 2.0**40
"""Sides of boxes beyond this, in microseconds, are all alike when the larger boxes are looked at first."""


class Covering:
    """The rows that wait at a node, as far as DISTINCT can do without others."""

    def __init__(self, templates: Templates, state: RingState, contents: Contents) -> None:
        self.templates, self.state, self.contents = templates, state, contents
        self._codes = np.zeros(0, np.int64)
        """Of the rows of the state, which only grow: equal for those that may be alike."""
        self.dropped = 0

    def drop_covered(self, rows: np.ndarray, waiting: bool) -> np.ndarray:
        """Rows without those that others of them make superfluous, or, if they are to wait here, rows that wait here already."""
        places = np.flatnonzero(self._may_go(rows))
        if not len(places):
            return rows
        codes = self._code(rows[places])
        held = self._find_held(np.unique(codes)) if waiting else self.state.rows[:0]
        every, count = np.unique(np.concatenate([codes, self._code(held)]), return_counts=True)
        places = places[np.isin(codes, every[count > 1])]
        if not len(places):
            return rows
        gone = places[self._are_covered(np.concatenate([held, rows[places]]), len(held))]
        self.dropped += len(gone)
        return np.delete(rows, gone, axis=0)

    def _may_go(self, rows: np.ndarray) -> np.ndarray:
        """Rows that all living queries of their template see, and all of these drop repetitions."""
        if not self.templates.is_distinct.any():
            return np.zeros(len(rows), np.bool_)
        out = (rows[:, BOUND] != 0) & (rows[:, OLDEST] >= self.templates.distinct_from[rows[:, TEMPLATE]])
        slots = rows[:, AT_SLOTS : AT_SLOTS + self.templates.catalogue.layout.slots]
        return np.asarray(out & ~np.any(slots == STAND_IN, axis=1))

    def _code(self, rows: np.ndarray) -> np.ndarray:
        out = combine(rows[:, TEMPLATE].copy(), rows[:, BOUND].copy())
        for slot in range(self.templates.catalogue.layout.slots):
            out = combine(out, rows[:, AT_SLOTS + slot].copy())
        return out

    def _find_held(self, codes: np.ndarray) -> np.ndarray:
        rows = self.state.rows
        self._codes = np.concatenate([self._codes, self._code(rows[len(self._codes) :])])
        found = rows[np.isin(self._codes, codes)]
        found = found[self._may_go(found)]
        ids, bound = ids_of(self.templates.catalogue.layout, found)
        return found[np.all(~bound | self.contents.holds(ids), axis=1)]  # tuples of rows that are dead may have gone

    def _are_covered(self, rows: np.ndarray, held: int) -> np.ndarray:
        """Of the rows behind the first so many, which are held, those that others make superfluous."""
        cat, lay = self.templates.catalogue.arrays, self.templates.catalogue.layout
        shape = len(rows), lay.aliases
        low, high, youngest = np.empty(shape, np.int64), np.empty(shape, np.int64), np.empty(len(rows), np.int64)
        span_boxes(rows, cat, lay.array, low, high, youngest)
        is_held = np.arange(len(rows)) < held
        missing = _find_missing(rows, cat[INFO][rows[:, TEMPLATE], ALIASES])
        groups = self._group(rows, youngest)
        numbers, _ = ids_of(lay, rows)
        order = np.lexsort((*numbers.T, *_rank(missing, low, high, youngest, is_held), groups))
        begin = np.flatnonzero(np.diff(groups[order], prepend=-1))
        dropped = np.zeros(len(rows), np.bool_)
        sorted_ones = is_held[order], low[order], high[order], dropped
        find_covered(np.append(begin, len(rows)), missing[order][begin], *sorted_ones)
        out = np.empty(len(rows), np.bool_)
        out[order] = dropped
        return out[held:]

    def _group(self, rows: np.ndarray, youngest: np.ndarray) -> np.ndarray:
        """Numbers of groups of rows that are alike."""
        templates, layout = self.templates, self.templates.catalogue.layout
        slots = rows[:, AT_SLOTS : AT_SLOTS + layout.slots]
        bucket = last_instant(youngest, templates.bucket_us[rows[:, TEMPLATE]])
        lines = [rows[:, TEMPLATE], rows[:, BOUND], bucket, *slots.T, *self._classify(rows).T]
        return np.unique(np.stack(lines, axis=1), axis=0, return_inverse=True)[1].reshape(-1)

    def _classify(self, rows: np.ndarray) -> np.ndarray:
        """By row and alias a number that tuples share whose values are alike, as far as queries of the template ask for them."""
        templates, layout = self.templates, self.templates.catalogue.layout
        ids, bound = ids_of(layout, rows)
        uses = np.where(bound, templates.uses[rows[:, TEMPLATE], : layout.aliases], -1)
        out = np.zeros(ids.shape, np.int64)
        for use in np.unique(uses[uses >= 0]).tolist():
            mine = uses == use
            named, at = np.unique(ids[mine], return_inverse=True)
            out[mine] = number_rows(self.contents.take(named, templates.used_columns[use]))[at]
        return out


def _find_missing(rows: np.ndarray, aliases: np.ndarray) -> np.ndarray:
    """The one alias without a tuple, or -1 if there is none or more than one."""
    without = ~rows[:, BOUND] & ((1 << aliases) - 1)
    single = (without != 0) & ((without & (without - 1)) == 0)
    return np.where(single, np.log2(np.maximum(without, 1)).astype(np.int64), -1)


def _rank(
    missing: np.ndarray, low: np.ndarray, high: np.ndarray, youngest: np.ndarray, is_held: np.ndarray
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The order within groups, the last key first: intervals by their beginning, the longer first; boxes that are held, then the larger ones; among equal ones the earlier."""
    at = np.arange(len(missing)), np.maximum(missing, 0)
    sides = np.minimum(high.astype(np.float64) - low, _WIDEST).sum(axis=1)
    one = missing >= 0
    first = np.where(one, low[at], ~is_held)
    second = np.where(one, ~high[at], -sides.astype(np.int64))
    return youngest, np.where(one, ~is_held, 0).astype(np.int64), second, first  # type: ignore[return-value]


def number_rows(table: pa.Table) -> np.ndarray:
    """A number for every row of a table, the same for rows whose values are the same bits; rows with nested values are all different.

    >>> number_rows(pa.table({"a": [1, 1, None, None], "b": [0.0, -0.0, 0.5, 0.5]})).tolist()
    [0, 1, 2, 2]
    """
    if any(pa.types.is_nested(field.type) for field in table.schema):
        return np.arange(table.num_rows)
    out = np.zeros(table.num_rows, np.int64)
    for column in table.columns:
        values = column.combine_chunks()
        if pa.types.is_floating(values.type):
            values = values.view(pa.int64() if values.type.bit_width == 64 else pa.int32())
        found = values.dictionary_encode(null_encoding="encode").indices.to_numpy(zero_copy_only=False)
        out = np.unique(out * (len(out) + 1) + found, return_inverse=True)[1].reshape(-1)
    return out
