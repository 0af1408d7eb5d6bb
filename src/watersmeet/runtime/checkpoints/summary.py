"""What a checkpoint holds, in figures: sizes, skew, oldest and newest rows, whose state it is, and which batches can be restored.

Invariant: the figures are those of the manifest; no segment is read.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass

from watersmeet.dataflow.clock import NEVER, TIMELESS
from watersmeet.query.duration import show_bytes
from watersmeet.runtime.checkpoints.stored import Stored, is_tuple
from watersmeet.runtime.progress import moment, show_moment
from watersmeet.runtime.rounds.checkpoint import MANIFESTS
from watersmeet.storage.document import FORMAT
from watersmeet.storage.segment import SegmentInfo


@dataclass(frozen=True)
class KindSize:
    """What is kept of one alias, or of what else units remember."""

    name: str
    rows: int
    bytes: int
    segments: int
    oldest: int | None
    """Event time, in microseconds; None without rows, and where rows have none."""
    newest: int | None
    skew: float
    """The rows of the fullest unit by those of the average unit: 1 where all have the same."""


@dataclass(frozen=True)
class Summary:
    """A checkpoint's state after a batch; shown as a few aligned lines."""

    checkpoint: str
    query: str
    fingerprint: str
    query_id: str
    batch: int
    batches: tuple[int, ...]
    """The batches whose state is still there."""
    units: int
    kinds: tuple[KindSize, ...]
    watermarks: dict[str, int]
    late: dict[str, int]
    registry: int | None = None
    """The version of the registry that was answered; None for a query by itself."""
    format: int = FORMAT
    """Of the batch's manifest: the next batch is written in the format of this version."""

    @property
    def rows(self) -> int:
        return sum(kind.rows for kind in self.kinds)

    @property
    def bytes(self) -> int:
        return sum(kind.bytes for kind in self.kinds)

    def __str__(self) -> str:
        return "\n".join(f"{title:<12}{text}".rstrip() for title, text in self._lines())

    def _lines(self) -> Iterator[tuple[str, str]]:
        kept = ", ".join(map(str, self.batches))
        yield "checkpoint", f"{self.checkpoint}, format {self.format}"
        yield "query", self.query
        yield "fingerprint", f"{self.fingerprint}; Spark's query {self.query_id}"
        yield "batch", f"{self.batch}; the state after {kept} is there"
        if self.registry is not None:
            yield "registry", f"version {self.registry}"
        yield "state", f"{self.rows:,} rows, {show_bytes(self.bytes)}, in {self.units} units"
        yield from (("", line) for line in self._table())
        marks = ", ".join(f"{s} {show_moment(moment(m))}" for s, m in self.watermarks.items())
        if marks:
            yield "watermarks", marks
        if self.late:
            yield "late", ", ".join(f"{stream} {rows:,}" for stream, rows in self.late.items())

    def _table(self) -> Iterator[str]:
        width = max((len(kind.name) for kind in self.kinds), default=0)
        for kind in self.kinds:
            span = f"{_show(kind.oldest)} to {_show(kind.newest)}"
            yield (
                f"{kind.name:<{width}}  {kind.rows:>12,} rows  {show_bytes(kind.bytes):>9}  {kind.segments:>5} segments"
                f"  skew {kind.skew:.2f}  {span}"
            )


def sum_up(stored: Stored) -> Summary:
    """The figures of a checkpoint after a batch."""
    manifest, version = stored.manifest, stored.manifest.queries.get("version")
    return Summary(
        checkpoint=stored.folder.beside(),
        query=manifest.query,
        fingerprint=manifest.fingerprint,
        query_id=manifest.query_id,
        batch=manifest.batch,
        batches=tuple(stored.folder.numbers(MANIFESTS)),
        units=len(manifest.units),
        kinds=tuple(_measure(stored, name) for name in stored.kinds),
        watermarks=stored.watermarks,
        late=manifest.late(),
        registry=version if isinstance(version, int) else None,
        format=json.loads(stored.folder.read(MANIFESTS, f"{manifest.batch}.json").to_pybytes())["format"],
    )


def _measure(stored: Stored, name: str) -> KindSize:
    held: dict[int, list[SegmentInfo]] = {}
    for unit, _, info in stored.segments(name):
        held.setdefault(unit, []).append(info)
    infos = [info for found in held.values() for info in found]
    rows = [sum(i.rows for i in found) for found in held.values()]
    places = sum(name in state["segments"] for state in stored.manifest.units.values())
    mean = sum(rows) / places if places else 0.0
    has_time = infos and is_tuple(stored.kinds[name]) and min(i.min_ts for i in infos) != TIMELESS
    return KindSize(
        name=name,
        rows=sum(rows),
        bytes=sum(i.bytes for i in infos),
        segments=len(infos),
        oldest=min(i.min_ts for i in infos) if has_time else None,
        newest=max(i.max_ts for i in infos) if has_time else None,
        skew=max(rows) / mean if mean else 1.0,
    )


def _show(ts: int | None) -> str:
    return show_moment(moment(NEVER if ts is None else ts))
