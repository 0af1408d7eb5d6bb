"""Rows, tuples and state of ring nodes as Arrow tables: a simulation that is stopped and goes on.

Invariant: what is restored answers like what was stored. Chains and hash tables do not travel; they are built again.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pyarrow as pa

from watersmeet.kernels.registered import key_table
from watersmeet.kernels.registered.rewriting import AT_VALUES, ENTRIES, ROWS, TUPLE_NEXT, TUPLES
from watersmeet.registry.rjoin.catalogue import Layout, TemplateCatalogue, read_lines, write_lines
from watersmeet_lab.simulate.ring.catalogue import RingCatalogue
from watersmeet_lab.simulate.ring.kernels import candidates, seen_rows
from watersmeet_lab.simulate.ring.state import SimulatedState
from watersmeet_lab.simulate.ring.unit import TravellingRows

_TUPLE = ("stream", "key", "level", "ts", "batch", "arrived", "next", "number")
_KEY = ("key", "first_row", "first_tuple", "period", "now", "before")
_CANDIDATE = ("node", "key", "rate", "learned", "address")
_SEEN = ("code", "template", "bound", "key", "oldest", "newest")
assert _TUPLE[TUPLE_NEXT] == "next"
assert len(_KEY) == candidates.RATED_WIDTH
assert len(_CANDIDATE) == candidates.CANDIDATE_WIDTH
assert len(_SEEN) == seen_rows.SEEN_HEAD


def tuple_columns(catalogue: TemplateCatalogue) -> list[str]:
    """The names of a stored tuple's fields, in their order."""
    return [*_TUPLE, *(f"value{n}" for n in range(catalogue.tuple_width - AT_VALUES))]


def message(layout: Layout, rows: TravellingRows) -> pa.Table:
    """Rows on their way, with the rates that they carry."""
    out = write_lines(rows.rows, layout.names)
    for n in range(rows.carried.shape[1]):
        out = out.append_column(f"carried{n}", pa.array(np.ascontiguousarray(rows.carried[:, n])))
    return out


def read_rows(layout: Layout, found: pa.Table) -> TravellingRows:
    """The rows of a message."""
    carried = [name for name in found.column_names if name.startswith("carried")]
    return TravellingRows(read_lines(found, layout.names), read_lines(found, carried))


def save(state: SimulatedState) -> dict[str, pa.Table]:
    """All that a state holds, by kind."""
    layout, entries = state.catalogue.layout, state.blocks[ENTRIES][: state.counts[ENTRIES]]
    known = state.candidates[state.candidates[:, candidates.NODE] != -1]
    return {
        "rows": write_lines(state.rows, layout.names),
        "tuples": write_lines(state.tuples, tuple_columns(state.catalogue)),
        "keys": write_lines(entries, _KEY),
        "candidates": write_lines(known, _CANDIDATE),
        "seen": write_lines(state.seen[: state.seen_count[0]], _columns_of_seen(layout)),
    }


def restore(catalogue: RingCatalogue, tables: Mapping[str, pa.Table]) -> SimulatedState:
    """A state as it was saved."""
    state, layout = SimulatedState(catalogue), catalogue.layout
    rows = read_lines(tables["rows"], layout.names)
    tuples = read_lines(tables["tuples"], tuple_columns(catalogue))
    keys = read_lines(tables["keys"], _KEY)
    state.reserve(len(rows), len(tuples) + len(keys))
    for kind, content in ((ROWS, rows), (TUPLES, tuples), (ENTRIES, keys)):
        state.blocks[kind][: len(content)] = content
        state.counts[kind] = len(content)
    key_table.rehash(state.slots, state.blocks[ENTRIES], len(keys))
    state.keep(np.ones(len(rows), bool), np.ones(len(tuples), bool))
    known = read_lines(tables["candidates"], _CANDIDATE)
    state.reserve_candidates(len(known))
    candidates.move_candidates(known, state.candidates)
    state.known[0] = len(known)
    seen = read_lines(tables["seen"], _columns_of_seen(layout))
    state.reserve_seen(len(seen))
    state.seen[: len(seen)] = seen
    state.seen_count[0] = len(seen)
    seen_rows.refill(state.seen, len(seen), state.seen_slots)
    return state


def _columns_of_seen(layout: Layout) -> list[str]:
    return [*_SEEN, *(f"slot{n}" for n in range(layout.slots))]
