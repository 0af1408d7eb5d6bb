"""Answers at the node that owns their query: combinations that are complete find the queries that want them.

Classes of a block (`registry.shared.query_index`) are finer than shapes, a shape being a join and the columns of its constants. So a combination that was
found for a shape goes to the queries of its classes, and conditions, DISTINCT and the SELECT are evaluated as the shared plan does it.

Invariant: every combination arrives at one owner, once; the owner of a shape answers all its queries.
Implements: Idreos, Liarou, Koubarakis (2008), section 3: answers are sent to Owner(q).
"""

from __future__ import annotations

from collections.abc import Iterator
from weakref import WeakKeyDictionary

import numpy as np

from watersmeet.columns.arrow import codes
from watersmeet.kernels.registered.rewriting import AT_SLOTS, TEMPLATE
from watersmeet.registry.plan import RegistryPlan, wire_name
from watersmeet.registry.rjoin.contents import Contents
from watersmeet.registry.rjoin.index import STAND_IN
from watersmeet.registry.rjoin.templates import Templates
from watersmeet.registry.shared.block import Block
from watersmeet.registry.shared.compiled import Compiled
from watersmeet.registry.shared.fan_out import Pairs, fan_out
from watersmeet.registry.shared.visible import Layout, Visible
from watersmeet.storage.segment import Segment


def answer_rows(
    plan: RegistryPlan, templates: Templates, compiled: Compiled, contents: Contents, rows: np.ndarray
) -> Iterator[tuple[Block, Iterator[Pairs]]]:
    """The answers of complete rows, by block."""
    layout = templates.catalogue.layout
    rows = rows[~_doubtful(templates, rows) | _compare(plan, templates, contents, rows)]
    for block in compiled.blocks:
        class_of = _classes(block, templates)
        mine = class_of[rows[:, TEMPLATE], 0] >= 0
        if not mine.any():
            continue
        part = rows[mine]
        taken = contents.find_tuples(layout, part)
        segments = {stream: [Segment.of(t.table)] for stream, t in taken.items()}
        compared = block.index.columns
        columns = {key: n for key, n in block.columns.items() if n in compared}
        visible = Visible(plan, Layout(plan, block.streams, columns), segments, {})
        first = {stream: int(visible.first[n]) << 32 for n, stream in enumerate(block.streams)}
        tuples = contents.places(layout, part, taken, first)
        first, count = class_of[part[:, TEMPLATE]].T.copy()
        yield block, fan_out(block, visible, tuples, first, count)


_CLASSES: WeakKeyDictionary[Block, tuple[Templates, int, np.ndarray]] = WeakKeyDictionary()


def _classes(block: Block, templates: Templates) -> np.ndarray:
    """By the number of a shape the first of its classes in a block, or -1, and their number; a block keeps what was found, shapes only grow within a generation."""
    nothing = np.zeros((0, 2), np.int64)
    of, generation, found = _CLASSES.get(block, (None, 0, nothing))
    if of is not templates or generation != templates.generation:
        found = nothing
    if len(found) < len(templates.shapes):
        known = block.index.classes_of()
        more = [known.get((s.join, s.wanted), (-1, 0)) for s in templates.shapes[len(found) :]]
        found = np.concatenate([found, np.array(more, np.int64).reshape(-1, 2)])
        _CLASSES[block] = templates, templates.generation, found
    return found


def _doubtful(templates: Templates, rows: np.ndarray) -> np.ndarray:
    """Rows with a value whose code is shared by two values."""
    return np.any(rows[:, AT_SLOTS : AT_SLOTS + templates.catalogue.layout.slots] == STAND_IN, axis=1)


def _compare(plan: RegistryPlan, templates: Templates, contents: Contents, rows: np.ndarray) -> np.ndarray:
    """Of doubtful rows those whose values are equal themselves; true for the others."""
    out = np.ones(len(rows), np.bool_)
    layout = templates.catalogue.layout
    for at in np.flatnonzero(_doubtful(templates, rows)).tolist():
        taken = contents.find_tuples(layout, rows[at : at + 1])
        place = contents.places(layout, rows[at : at + 1], taken, dict.fromkeys(taken, 0))[0]
        shape = templates.shapes[rows[at, TEMPLATE]]
        for x, a, y, b, kind in shape.join.edges:
            values = []
            for alias, column in ((x, a), (y, b)):
                stream = shape.join.streams[alias]
                table = taken[stream].table.slice(int(place[alias]), 1)
                name = wire_name(plan.streams[stream], column)
                values.append(codes(table.column(name).combine_chunks(), kind)[0])
            out[at] &= values[0] == values[1]
    return out
