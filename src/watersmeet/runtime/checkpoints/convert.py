"""Stored rows turned into those of another plan: other columns, other units, rows that new filters leave out.

    segments of o at units 0, 1    each row once  ->  its columns under the new plan  ->  new filters  ->  routed anew  ->  segments at units 0, 1, 2

Segment by segment, so memory holds one of them at a time. Segments whose rows stay what and where they are are not touched.

Invariant: the rows of the manifest that is made are those of the old one, each once, less what the new query can never use. Files are added, none is changed.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from dataclasses import asdict, replace

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import enlarge, integers, to_bytes
from watersmeet.columns.row_hash import HASH, by_hash, row_hash
from watersmeet.columns.spark_types import held_type
from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import first_unit, stage_of
from watersmeet.expressions.evaluator import evaluate, mask, quote
from watersmeet.operators.assemble import dataflow_of
from watersmeet.operators.enter import WireContent, route
from watersmeet.operators.finish.aggregate import group_hash
from watersmeet.operators.finish.distinct import KEPT
from watersmeet.operators.finish.windowed import SETTLED
from watersmeet.operators.payload import beside, gather, number_of
from watersmeet.plan.model import TIME, InputPlan, Plan, Side
from watersmeet.plan.rules.ship import IN, ROW
from watersmeet.query.expr import Expr
from watersmeet.query.stream import COUNTED
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.resize import Resized, read_grids
from watersmeet.routing.spread import HotKey
from watersmeet.runtime.arrow_types import DUCKDB, normal
from watersmeet.runtime.checkpoints.described import DescribedInput, DescribedPlan, HashKeys, find_firsts
from watersmeet.runtime.checkpoints.stored import Stored
from watersmeet.runtime.checkpoints.verdicts import Conversion, Judgement
from watersmeet.runtime.rounds.checkpoint import SEGMENTS
from watersmeet.storage.manifest import BatchManifest, Identity, Manifest
from watersmeet.storage.segment import Segment, SegmentInfo, info_of


def convert(stored: Stored, plan: Plan, judged: Judgement, attempt: str) -> BatchManifest:
    """The manifest of the same batch under another plan; its new files are written, and nobody names them yet."""
    return _Converter(stored, plan, judged, attempt).run()


class StoredPayloads:
    """Payloads that lie apart from their tuples, as `operators.payload` reads them."""

    def __init__(self, stored: Stored, alias: str) -> None:
        self.stored = stored
        held = [info for unit, name, info in stored.manifest.segments() if name == alias and stage_of(unit)]
        self.held = {number_of(info): info for info in held}

    def read(self, info: SegmentInfo) -> Segment:
        return Segment(info.id, self.stored.read(info).combine_chunks())

    def write(self, segment: Segment) -> SegmentInfo:
        raise AssertionError("payloads are only read")

    def remove(self, info: SegmentInfo) -> None:
        raise AssertionError("payloads are only read")

    def make_whole(self, narrow: pa.Table) -> pa.Table:
        """Narrow tuples with their payloads."""
        numbers, rows = (integers(narrow.column(name).combine_chunks()) for name in (IN, ROW))
        columns = [n for n in self.read(self.held[int(numbers[0])]).table.column_names if n != TIME]
        bare = narrow.drop_columns([IN, ROW])
        found = gather(self, self.held, numbers, rows, columns)
        return pa.concat_tables([beside(bare, order, payload) for order, payload in found])


class _Converter:
    def __init__(self, stored: Stored, plan: Plan, judged: Judgement, attempt: str) -> None:
        self.stored, self.plan, self.judged, self.attempt = stored, plan, judged, attempt
        self.before, self.identity = DescribedPlan(stored.intent.plan), Identity.of(plan)
        self.clock = Clock(plan.streams, stored.manifest.maxima)
        self.hot = [HotKey.from_json(raw) for raw in stored.manifest.spread.get("next", ())]

    def run(self) -> BatchManifest:
        was, whose = self.stored.manifest, self.identity
        made = replace(was, fingerprint=whose.fingerprint, query=whose.query, parts=dict(whose.parts))
        made.known = dict(self.judged.known)
        made.sources = self._order_sources()
        if self.judged.keeps_form:
            return made
        made = replace(made, units={}, routing=[], spread={}, scaling={}, shipping={}, hosts={}, timeless=was.late())
        for number, stage in enumerate(self.plan.stages):
            for position, side in enumerate(stage.sides):
                for table in self._read_side(number, position, side):
                    for message in route(replace(self.plan, numbers_rows=True), stage, position, table, number):
                        if message.kind == side.name:
                            made.adopt(whose, message.to, side.name, self._write(message.table))
        if self.judged.keeps_finish:
            self._deal_finish(made)
        return made

    def _order_sources(self) -> list[str]:
        """Spark's logs know sources by their places: those that were there keep theirs."""
        own = [i.alias for i in self.plan.inputs]
        known = self.stored.manifest.sources or list(self.before.inputs)
        order = [*(a for a in known if a in own), *(a for a in own if a not in known)]
        return [] if order == own else order

    def _write(self, rows: pa.Table) -> dict[str, object]:
        segment = Segment.of(rows)
        blob, name = to_bytes(segment.table), f"{self.attempt}-{segment.id}.arrow"
        self.stored.folder.write(SEGMENTS, name, blob, durably=True)
        return asdict(replace(info_of(segment), file=name, file_bytes=len(blob), checksum=zlib.crc32(blob)))

    def _read_side(self, number: int, position: int, side: Side) -> Iterator[pa.Table]:
        """The stored rows of a side, each once, as the new plan has them."""
        if not side.carried and (side.name not in self.before.inputs or self.judged.conversions[side.name].drops):
            return
        cut = self.clock.cut(self.plan.bounds(self.plan.stages[number], side))
        payloads = StoredPayloads(self.stored, side.name) if side.name in self.stored.manifest.apart else None
        for unit, kind, info in self.stored.segments(side.name):
            if stage_of(unit) != number or info.max_ts < cut:
                continue
            rows = self.stored.read(info).combine_chunks()
            rows = rows.filter(pa.array(self._find_firsts(number, kind.name, unit, rows)))
            if rows.num_rows and payloads is not None:
                rows = payloads.make_whole(rows)
            if rows.num_rows and not side.carried:
                source, was = self.plan.by_alias[side.name], self.before.inputs[side.name]
                rows = _Rows(self.plan, source, was, self.judged.conversions[side.name]).convert(rows)
            rows = rows.filter(pc.greater_equal(pc.cast(rows.column(TIME), pa.int64()), cut)) if rows.num_rows else rows
            if rows.num_rows:
                yield rows

    def _find_firsts(self, number: int, name: str, unit: int, rows: pa.Table) -> np.ndarray:
        names, routing = self.before.stages[number]
        hot = [h for h in self.hot if h.stage == number]
        if isinstance(routing, Hypercube):
            now = read_grids(self.stored.manifest.routing, {number: routing}).get(number, routing)
            # until a batch has dealt them anew, rows lie as they did before
            routing, hot = (now.before, list(now.hot)) if isinstance(now, Resized) else (now, hot)
        position = names.index(name)
        return find_firsts(
            routing, position, unit - first_unit(number), rows.num_rows, hot, self._hash_by(number, name, rows)
        )

    def _hash_by(self, number: int, name: str, rows: pa.Table) -> HashKeys:
        if name in self.before.inputs:
            return self.before.hash_keys(name, rows)
        side = next(s for s in self.plan.stages[number].sides if s.name == name)
        return lambda classes: WireContent(self.plan, side.keys, rows).key(tuple(classes))

    def _deal_finish(self, made: BatchManifest) -> None:
        """Rows and groups of DISTINCT and GROUP BY, to the units that keep them now."""
        finish = self.plan.finish
        assert finish is not None
        flow = dataflow_of(self.plan, defers=self.plan.shipping == "auto")
        first = first_unit(len(flow.stages) - 1)
        settled = [
            state["extra"][SETTLED] for state in self.stored.manifest.units.values() if SETTLED in state["extra"]
        ]
        for _, _, info in self.stored.segments(KEPT):
            rows = self.stored.read(info).combine_chunks()
            for unit, part in by_hash(rows, self._hash_kept(rows), finish.units):
                made.adopt(self.identity, first + unit, KEPT, self._write(part))
        for unit in range(finish.units) if settled else ():
            if first + unit not in made.units:
                made.put(first + unit, Manifest.fresh(self.identity).to_json())
            made.units[first + unit]["extra"][SETTLED] = max(settled)

    def _hash_kept(self, rows: pa.Table) -> np.ndarray:
        if self.plan.join.distinct:
            return row_hash(rows.drop_columns([TIME, HASH]))
        return group_hash(self.plan, rows)


class _Rows:
    """Rows of one alias under two plans."""

    def __init__(self, plan: Plan, source: InputPlan, was: DescribedInput, how: Conversion) -> None:
        self.plan, self.source, self.was, self.how = plan, source, was, how

    def convert(self, rows: pa.Table) -> pa.Table:
        for condition in self.how.filters:
            rows = rows.filter(pa.array(mask(rows, self._render(condition), str(condition), self.plan.timezone)))
        columns = {name: rows.column(old) for name, old in self.how.copied.items()}
        columns |= self._compute(rows)
        for column in self.how.blank:
            columns[column.name] = pa.nulls(rows.num_rows, held_type(column.type))
        table = pa.table({c.name: columns[c.name] for c in self.source.columns})
        for name in self.source.required:
            table = table.filter(pc.is_valid(table.column(name)))
        if self.source.earlier:
            table = table.append_column(COUNTED, pa.array(np.ones(table.num_rows, bool)))
        return enlarge(table)

    def _render(self, expr: Expr) -> str:
        schema = self.plan.join.spec(self.source.alias).schema
        return expr.duckdb(lambda ref: quote(str(self.was.find(str(ref), schema.get(ref.column)))))

    def _compute(self, rows: pa.Table) -> dict[str, pa.ChunkedArray]:
        if not self.how.computed:
            return {}
        texts = [self._cast(c.cast, self._render(c.expr), c.type) for c in self.how.computed]
        values = normal(evaluate(rows, texts, f"a column of {self.source.alias}", self.plan.timezone))
        return {c.name: values.column(n) for n, c in enumerate(self.how.computed)}

    @staticmethod
    def _cast(casts: bool, text: str, kind: str) -> str:
        return DUCKDB.cast(text, kind) if casts else text
