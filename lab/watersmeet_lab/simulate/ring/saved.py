"""Rows, tuples and state of ring nodes as Arrow tables: a simulation that is stopped and goes on.

Invariant: what is restored answers like what was stored. Chains and hash tables do not travel; they are built again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from watersmeet.kernels.registered import key_table, seen_rows
from watersmeet.kernels.registered.rewriting import ENTRIES, ROWS, TUPLE_NEXT, TUPLES
from watersmeet.registry.rjoin.ring_state import RingState
from watersmeet.registry.rjoin.ring_unit import TravellingRows
from watersmeet.registry.rjoin.template_catalogue import Layout
from watersmeet.registry.rjoin.wire import block, number_names, row_columns, table

_TUPLE = ("stream", "key", "level", "ts", "batch", "arrived", "next", "number")
_KEY = ("key", "first_row", "first_tuple", "period", "now", "before")
_CANDIDATE = ("node", "key", "rate", "learned", "address")
_SEEN = ("code", "template", "bound", "key", "oldest", "newest")
assert _TUPLE[TUPLE_NEXT] == "next"
assert len(_KEY) == key_table.KEY_WIDTH
assert len(_CANDIDATE) == key_table.CANDIDATE_WIDTH
assert len(_SEEN) == seen_rows.SEEN_HEAD


def tuple_columns(layout: Layout) -> list[str]:
    """The names of a stored tuple's fields, in their order."""
    stamps = number_names("seen", layout.streams if layout.counted else 0)
    return [*_TUPLE, *number_names("value", layout.columns), *stamps]


def message(layout: Layout, rows: TravellingRows) -> pa.Table:
    """Rows on their way, with the rates that they carry."""
    out = table(rows.rows, row_columns(layout))
    for n in range(rows.carried.shape[1]):
        out = out.append_column(f"carried{n}", pa.array(np.ascontiguousarray(rows.carried[:, n])))
    return out


def read_rows(layout: Layout, found: pa.Table) -> TravellingRows:
    """The rows of a message."""
    carried = [name for name in found.column_names if name.startswith("carried")]
    return TravellingRows(block(found, row_columns(layout)), block(found, carried))


def save(state: RingState) -> dict[str, pa.Table]:
    """All that a state holds, by kind."""
    entries = state.blocks[ENTRIES][: state.counts[ENTRIES]]
    known = state.candidates[state.candidates[:, key_table.NODE] != -1]
    return {
        "rows": table(state.rows, row_columns(state.layout)),
        "tuples": table(state.tuples, tuple_columns(state.layout)),
        "keys": table(entries, list(_KEY)),
        "candidates": table(known, list(_CANDIDATE)),
        "seen": table(state.seen[: state.seen_count[0]], _columns_of_seen(state.layout)),
    }


def restore(layout: Layout, tables: Mapping[str, pa.Table]) -> RingState:
    """A state as it was saved."""
    state = RingState(layout)
    rows = block(tables["rows"], row_columns(layout))
    tuples = block(tables["tuples"], tuple_columns(layout))
    keys = block(tables["keys"], list(_KEY))
    state.reserve(len(rows), len(tuples) + len(keys))
    for kind, content in ((ROWS, rows), (TUPLES, tuples), (ENTRIES, keys)):
        state.blocks[kind][: len(content)] = content
        state.counts[kind] = len(content)
    key_table.rehash(state.slots, state.blocks[ENTRIES], len(keys))
    state.keep(np.ones(len(rows), bool), np.ones(len(tuples), bool))
    known = block(tables["candidates"], list(_CANDIDATE))
    state.reserve_candidates(len(known))
    key_table.move_candidates(known, state.candidates)
    state.known[0] = len(known)
    seen = block(tables["seen"], _columns_of_seen(layout))
    state.reserve_seen(len(seen))
    state.seen[: len(seen)] = seen
    state.seen_count[0] = len(seen)
    seen_rows.refill(state.seen, len(seen), state.seen_slots)
    return state


def _columns_of_seen(layout: Layout) -> list[str]:
    return [*_SEEN, *number_names("slot", layout.slots)]
