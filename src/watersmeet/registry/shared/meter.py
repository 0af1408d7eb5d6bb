"""What each query takes of a unit in one turn: who takes more than its quota is named.

    combinations of a template --count_combinations--> the same, or QuotaError with all queries of a template that has too many
    pairs of a combination and a query --count--> the same pairs, or QuotaError with the queries that have too many
    after the batch: tuples that a query's windows still reach, and its rows of DISTINCT --weigh--> nothing, or QuotaError

Answers are counted before they are written, so a query that explodes takes one chunk of pairs and no more. Under RJoin a turn is a round,
and answers of each are counted by themselves.

Invariant: counting changes nothing; the error names queries of this unit alone, and the batch runs again without them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from watersmeet.dataflow.clock import stream_cuts
from watersmeet.errors import QuotaError
from watersmeet.query.quotas import Quotas
from watersmeet.registry.shared.block import FOR_EVER, UNTIL, Block
from watersmeet.registry.shared.distinct import QUERY_OF_ROW
from watersmeet.registry.shared.fan_out import Pairs
from watersmeet.registry.template import Template, hull
from watersmeet.storage.manifest import Manifest
from watersmeet.storage.segment import SegmentInfo, SegmentStore

Combinations = tuple[np.ndarray, np.ndarray]
"""Templates, and tuples by alias."""


class Meter:
    """Counts during one turn of a unit."""

    def __init__(self, quotas: Quotas) -> None:
        self.quotas = quotas

    def count(self, block: Block, chunks: Iterable[Pairs]) -> Iterator[Pairs]:
        """The same pairs, until a query has more than its quota. Give all of a turn's pairs of a block together."""
        counts = np.zeros(block.size, np.int64)
        for pairs in chunks:
            counts += np.bincount(pairs.query, minlength=block.size)
            self._refuse([block.ids[n] for n in np.flatnonzero(counts > self.quotas.answers)], "answers")
            yield pairs

    def count_combinations(self, block: Block, chunks: Iterable[Combinations]) -> Iterator[Combinations]:
        """The same combinations, until a template has more than the quota of its queries."""
        counts = np.zeros(block.templates, np.int64)
        for templates, tuples in chunks:
            counts += np.bincount(templates, minlength=block.templates)
            over = counts > self.quotas.combinations
            if over.any():
                self._refuse(block.list_ids(np.flatnonzero(over)), "combinations")
            yield templates, tuples

    def weigh(self, blocks: Sequence[Block], manifest: Manifest, store: SegmentStore, marks: Mapping[str, int]) -> None:
        """Raise if some query keeps more than its quota."""
        most, rows = self.quotas.state, manifest.rows()
        if most is None or sum(rows.values()) <= most:
            return
        own = self._count_distinct(manifest, store)
        reached: dict[Template, int] = {}
        over = []
        for registered in (q for block in blocks for q in block.list_living()):
            template = registered.query.template
            if template not in reached:
                cuts = stream_cuts(hull([template]), marks)
                reached[template] = sum(_count_since(manifest.segments.get(s, []), c, store) for s, c in cuts.items())
            if reached[template] + own[registered.id] > most:
                over.append(registered.id)
        self._refuse(over, "state")

    def _count_distinct(self, manifest: Manifest, store: SegmentStore) -> Counter[str]:
        """Rows of DISTINCT by query."""
        out: Counter[str] = Counter()
        for kind, infos in manifest.segments.items():
            for info in infos if kind.startswith((UNTIL, FOR_EVER)) else ():
                found = store.read(info).table.column(QUERY_OF_ROW).value_counts()
                out.update(dict(zip(*(found.field(n).to_pylist() for n in (0, 1)), strict=True)))
        return out

    def _refuse(self, ids: list[str], quota: str) -> None:
        if not ids:
            return
        most = getattr(self.quotas, quota)
        what = f"{most:,} tuples and rows of state" if quota == "state" else f"{most:,} {quota} in one micro-batch"
        remedy = "give it smaller windows" if quota == "state" else "narrow its conditions or windows"
        raise QuotaError.of(
            ids, f"it takes more than {what}: {remedy}, or raise the quota ({quota}=), and add it again"
        )


def _count_since(infos: Sequence[SegmentInfo], cut: int, store: SegmentStore) -> int:
    """Stored tuples from an instant on."""
    return sum(info.rows if info.min_ts >= cut else int(np.count_nonzero(store.read(info).ts >= cut)) for info in infos)
