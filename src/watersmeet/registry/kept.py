"""Which tuples a registry keeps after a batch. It is defined, not found: a tuple counts if some registered query may still use it.

That is, it arrived in a batch from the query's effect on (for a query with backfill: it was kept when the query took effect, or came later), and its time is not before the query's
cut (`registry.shared.compiled`). Units drop what is older when that is worth the writing; until then it lies there, and is not looked at.

    batch |      |
          |      |  q2                  the region of a query: what arrived from its effect on, and is not before its cut
        7 |      +-------+
          |              |  q1          a unit's region, the union of its queries', is a staircase
        3 |              +--------
          +----------------------- ts

Invariant: all copies of a tuple lie at the same point, so units agree on who has it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import stream_cuts, watermarks
from watersmeet.plan.model import TIME
from watersmeet.registry.plan import BATCH, RegistryPlan
from watersmeet.registry.shared.compiled import unit_of, unit_of_query
from watersmeet.registry.subscription import Registered
from watersmeet.registry.template import hull


@dataclass(frozen=True)
class Region:
    """Which tuples a unit's queries may still use, by the batch in which they arrived and their event time."""

    effects: np.ndarray
    """Ascending."""
    cuts: np.ndarray
    """The lowest cut of all queries with this effect or an earlier one."""

    @classmethod
    def of(cls, needs: Iterable[tuple[int, int]]) -> Region:
        """The union of the regions of queries, by (effect, cut)."""
        effects, cuts = np.array(sorted(needs), np.int64).reshape(-1, 2).T
        return cls(effects, np.minimum.accumulate(cuts))

    def holds(self, batch: np.ndarray, ts: np.ndarray) -> np.ndarray:
        """Which tuples lie in it.

        >>> region = Region.of([(3, 50), (7, 10), (8, 90)])
        >>> region.holds(np.array([2, 3, 7, 7, 9]), np.array([60, 60, 20, 5, 20])).tolist()
        [False, True, True, False, True]
        """
        at = np.searchsorted(self.effects, batch, side="right") - 1
        return (at >= 0) & (ts >= self.cuts[np.maximum(at, 0)])


Needs = Mapping[str, Mapping[int, Region]]
"""By stream and unit what is kept."""


def find_needs(plan: RegistryPlan, queries: Mapping[str, Registered], maxima: Mapping[str, int], units: int) -> Needs:
    """What is kept, after a batch in which so many units answered these queries, and which reached these maxima."""
    marks = watermarks(plan.streams, maxima)
    found: dict[str, dict[int, set[tuple[int, int]]]] = {}
    shared = {(q.query.template, q.sees_from) for q in queries.values() if q.query.own is None}
    own = [q for q in queries.values() if q.query.own is not None]
    by_template = {(template, effect, unit_of(template, units)) for template, effect in shared}
    by_template |= {(q.query.template, q.sees_from, unit_of_query(q, units)) for q in own}
    for template, effect, unit in by_template:
        for stream, cut in stream_cuts(hull([template]), marks).items():
            found.setdefault(stream, {}).setdefault(unit, set()).add((effect, cut))
    return {s: {unit: Region.of(needs) for unit, needs in sorted(units.items())} for s, units in found.items()}


def lie_in(regions: Sequence[Region], table: pa.Table) -> np.ndarray:
    """Which tuples lie in some region."""
    batch, ts = (integers(table.column(c).combine_chunks()) for c in (BATCH, TIME))
    out = np.zeros(table.num_rows, np.bool_)
    for region in regions:
        out |= region.holds(batch, ts)
    return out
