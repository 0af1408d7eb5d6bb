"""Results whose texts repeat: each text once, and a number for every result.

    combinations     a1 b1   a1 b2   a1 b3   a2 b1   a2 b2   a2 b3
    a.text           [t1 t2]         0 0 0 1 1 1                     an Arrow dictionary

A hot tuple is in thousands of results. Its text is taken once for each chunk of combinations, and a Parquet file has it once for each row group.

Invariant: a dictionary array stands for the values that `take` gives. A chunk's dictionaries hold at most a block's bytes for each alias.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import block_bytes
from watersmeet.operators.probing.multiway import Multiway
from watersmeet.operators.probing.side import Bound
from watersmeet.query.expr import ColumnRef

_NUMBERS = "numbers of "
"""What the numbers of an alias are called beside its row numbers, so that both are cut alike."""


@dataclass(frozen=True)
class Repeated:
    """The values of a column that repeat in a chunk."""

    alias: str
    values: pa.Array

    def code(self, block: Bound) -> pa.DictionaryArray:
        """The column for a block of the chunk; Parquet's dictionaries have no NULLs, so these are NULLs among the numbers."""
        numbers, values = block[_NUMBERS + self.alias], self.values
        if not values.null_count:
            return pa.DictionaryArray.from_arrays(pa.array(numbers), values)
        absent = np.asarray(pc.is_null(values).to_numpy(zero_copy_only=False), bool)
        empty = pa.scalar("" if pa.types.is_large_string(values.type) else b"", values.type)
        return pa.DictionaryArray.from_arrays(pa.array(numbers, mask=absent[numbers]), pc.fill_null(values, empty))


def build_coded(
    join: Multiway, bound: Bound, output: Sequence[ColumnRef], may_code: Collection[ColumnRef]
) -> Iterator[pa.Table]:
    """Combinations as results o0, o1, ..., in blocks; texts of these columns that repeat are dictionaries."""
    coded, numbers = _find_repeated(join, bound, may_code)
    plain = [ref for ref in output if ref not in coded]
    for block in join.blocks({**bound, **numbers}, plain):
        columns = {ref: coded[ref].code(block) if ref in coded else join.column(block, ref) for ref in {*output}}
        yield pa.table({f"o{n}": columns[ref] for n, ref in enumerate(output)})


def _find_repeated(
    join: Multiway, bound: Bound, may_code: Collection[ColumnRef]
) -> tuple[Mapping[ColumnRef, Repeated], Bound]:
    coded: dict[ColumnRef, Repeated] = {}
    numbers: Bound = {}
    for alias in sorted({ref.alias for ref in may_code}):
        member = join.members[alias]
        texts = {r: name for r in may_code if r.alias == alias and member.is_text(name := member.source.wire_of[r])}
        found = member.side.number_members(bound[alias]) if texts else None
        if found is None or len(found[1]) * sum(map(member.widest, texts.values())) > block_bytes():
            continue
        numbers[_NUMBERS + alias] = found[0]
        coded |= {ref: Repeated(alias, member.take(name, found[1])) for ref, name in texts.items()}
    return coded, numbers
