"""Rows of a source to messages for units: what is kept, where it goes, and the punctuation.

Invariant: the punctuation carries the highest event time of all rows, taken before filters; a row goes to units by its
content alone, so a task that runs twice sends the same rows to the same units.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.plan.model import COUNTED, TIME, InputPlan, Plan, Stage
from watersmeet.routing.biclique import Biclique, Role
from watersmeet.routing.epochs import Epochs
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.sites import BySite
from watersmeet.units.codes import content_hash
from watersmeet.units.content import WireContent
from watersmeet.units.watermark import NEVER

PASS = "_pass"
"""The wire column that is true where the alias' filters hold; it does not travel on."""


CONTENT = "_content_"
"""Prefix of the columns of a whole row, which the content hash is made of; they do not travel on."""
HASH = "_hash"
"""The content hash: the tie-break of sequences."""


@dataclass
class Punctuation:
    """What a source task saw of one stream, besides the rows it sent."""

    max_ts: int = NEVER
    null_times: int = 0

    def include(self, other: Punctuation) -> None:
        self.max_ts = max(self.max_ts, other.max_ts)
        self.null_times += other.null_times


@dataclass(frozen=True)
class Part:
    """Rows of one side for some units, all of which get the same table."""

    units: tuple[int, ...]
    role: Role
    table: pa.Table


def split(plan: Plan, source: InputPlan, table: pa.Table) -> tuple[Punctuation, list[Part]]:
    """The punctuation of a table of wire rows, and its rows by unit."""
    table = table.combine_chunks()
    kept, punctuation = rows_kept(source, table)
    wire = table.drop_columns([PASS]) if PASS in table.column_names else table
    if len(kept) < wire.num_rows:
        wire = wire.take(pa.array(kept))
    return punctuation, route(plan, *plan.entry(source.alias), wire)


def route(
    plan: Plan, stage: Stage, side: int, table: pa.Table, routing: Hypercube | Biclique | BySite | Epochs | None = None
) -> list[Part]:
    """The rows of a side of a stage by unit and role, by the stage's own routing if none is given."""
    if table.num_rows == 0:
        return []
    content = WireContent(plan, stage.sides[side].keys, table)
    out = []
    for delivery in (routing or stage.routing).deliveries(side, content):
        rows = table if delivery.rows is None else table.take(pa.array(delivery.rows))
        out.append(Part(tuple(stage.first + u for u in delivery.units), delivery.role, rows))
    return out


def split_for_sequencer(source: InputPlan, table: pa.Table) -> tuple[Punctuation, pa.Table]:
    """The punctuation and the rows that the sequencer must see.

    Of an alias with a ROWS window those are all rows, before WHERE: `_pass` says which of them may join, and the
    content of the whole row, which breaks ties, travels as a hash.
    """
    table = table.combine_chunks()
    kept, punctuation = rows_kept(source, table)
    content = [c for c in table.column_names if c.startswith(CONTENT)]
    wire = table.drop_columns([c for c in (PASS, *content) if c in table.column_names])
    if source.rows is None:
        return punctuation, wire.take(pa.array(kept))
    may_join = np.zeros(table.num_rows, bool)
    may_join[kept] = True
    wire = wire.append_column(PASS, pa.array(may_join)).append_column(
        HASH, pa.array(content_hash(table.select(content)))
    )
    return punctuation, wire.filter(pc.is_valid(table.column(TIME)))


def rows_kept(source: InputPlan, table: pa.Table) -> tuple[np.ndarray, Punctuation]:
    """The rows that can match anything, and the punctuation."""
    time = table.column(TIME)
    highest = pc.max(time)
    keep = table.column(PASS).fill_null(False) if PASS in table.column_names else None
    for name in source.required:
        if table.column(name).null_count:
            valid = pc.is_valid(table.column(name))
            keep = valid if keep is None else pc.and_(keep, valid)
    rows = np.arange(table.num_rows) if keep is None else np.flatnonzero(_numpy(keep))
    timeless = 0
    if time.null_count:
        valid_time = _numpy(pc.is_valid(time))
        dropped = rows[~valid_time[rows]]
        counted = (
            _numpy(table.column(COUNTED).fill_null(False))[dropped]
            if COUNTED in table.column_names
            else np.zeros(len(dropped), bool)
        )
        timeless = int(np.count_nonzero(~counted))
        rows = rows[valid_time[rows]]
    max_ts = highest.cast(pa.int64()).as_py() if highest.is_valid else NEVER
    return rows, Punctuation(max_ts, timeless)


def _numpy(values: pa.ChunkedArray) -> np.ndarray:
    return np.asarray(values.to_numpy(), np.bool_)
