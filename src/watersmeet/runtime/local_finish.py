"""The second stage of a local run: deduplicators or mergers in process.

Invariant: rows of DISTINCT leave in the batch that makes them; groups leave at the end, with their final values.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from watersmeet.plan.model import TIME, Plan
from watersmeet.runtime.arrow_types import normal
from watersmeet.units.deduplicator import KEPT, Deduplicator
from watersmeet.units.evaluator import evaluate
from watersmeet.units.merger import Merger, group_hash
from watersmeet.units.project import projected
from watersmeet.units.row_hash import by_hash, row_hash
from watersmeet.units.segment_store import MemoryStore
from watersmeet.units.state import Manifest
from watersmeet.units.views import merged, values


class SecondStage:
    """DISTINCT or GROUP BY over what leaves the units of a plan."""

    def __init__(self, plan: Plan) -> None:
        assert plan.finish is not None
        self.plan, self.count = plan, plan.finish.units
        self.manifests = [Manifest.fresh(plan) for _ in range(self.count)]
        self.stores = [MemoryStore() for _ in range(self.count)]
        self.kept = 0
        """The most rows that were kept after any batch."""

    def step(self, tables: Iterable[pa.Table], marks: Mapping[str, int]) -> Iterator[pa.Table]:
        """One batch; `marks` are the watermarks after it."""
        inboxes: list[list[pa.Table]] = [[] for _ in range(self.count)]
        for table in tables:
            hashes = row_hash(table.drop_columns([TIME])) if self.plan.join.distinct else group_hash(self.plan, table)
            for unit, part in by_hash(table, hashes, self.count):
                inboxes[unit].append(part)
        for inbox, manifest, store in zip(inboxes, self.manifests, self.stores, strict=True):
            if self.plan.join.distinct:
                yield from map(self._named, Deduplicator(self.plan).step(inbox, manifest, store, marks))
            elif inbox:
                Merger(self.plan).step(inbox, manifest, store)
        self.kept = max(self.kept, sum(m.rows().get(KEPT, 0) for m in self.manifests))

    def last(self, no_results: pa.Table) -> pa.Table:
        """What leaves at the end: nothing of rows, everything of groups."""
        if self.plan.join.distinct:
            return self._named(projected(self.plan, no_results))
        merger = Merger(self.plan)
        views = [merger.groups(m, s) for m, s in zip(self.manifests, self.stores, strict=True)]
        groups = values(self.plan, merged(self.plan, views))
        texts = [o.expr.duckdb(lambda r: r.column) for o in self.plan.join.results]
        found = normal(evaluate(groups, texts, "SELECT", self.plan.timezone))
        return self._named(found)

    def _named(self, table: pa.Table) -> pa.Table:
        return table.rename_columns([o.name for o in self.plan.join.results])
