"""Combinations cut into blocks before their values are gathered: a hot key multiplies wide values.

    300 x 300 tuples of one key with a text of 40 KB each: 90,000 combinations, 3.6 GB, from 24 MB of tuples

Invariant: the blocks of combinations, laid end to end, are the combinations; the named columns of a block of several hold at most a
block's bytes.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

import numpy as np

from watersmeet.units.blocks import block_bytes, cuts
from watersmeet.units.side import Member

Bound = dict[str, np.ndarray]
"""Combinations: for every bound alias the row number of its member."""
Columns = Collection[tuple[str, str]]
"""(alias, wire column)"""


def in_blocks(members: Mapping[str, Member], bound: Bound, columns: Columns) -> Iterator[Bound]:
    """Combinations as blocks, by the bytes of these columns; one block if there is nothing to cut."""
    rows, limit = len(next(iter(bound.values()))), block_bytes()
    widest = {(alias, name): members[alias].widest(name) for alias, name in columns}
    if rows * sum(widest.values()) <= limit:
        yield bound
        return
    widths = np.zeros(rows, np.int64)
    for (alias, name), most in widest.items():
        widths += members[alias].codes(name, "width")[bound[alias]] if most > FIXED else most
    for begin, end in cuts(widths, rows, limit):
        yield {alias: idx[begin:end] for alias, idx in bound.items()}


FIXED = 16
"""Values of at most so many bytes count as if all were of the widest."""
