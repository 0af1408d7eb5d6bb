"""A checkpoint of `start()` as it lies there: its batches, what is stored in them, and what the stored columns mean.

    manifests/17.json    which segments there are, by unit and kind
    intents/17.json      the plan's description: which expression each stored column holds, the keys, the windows

A row of alias x is kept until the watermarks of all others have passed its expiry:

    expiry(x) = x.ts + max over y of hi(x, y)

Invariant: nothing here writes. What is said of stored rows comes from the checkpoint alone, so no query and no Spark is needed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import pyarrow as pa

from watersmeet.columns.arrow import from_bytes
from watersmeet.dataflow.clock import watermarks
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.plan.model import TIME
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import UNBOUNDED
from watersmeet.runtime.rounds.checkpoint import INTENTS, MANIFESTS, NAME, SparkLogs, StateFolder
from watersmeet.storage.manifest import OTHER, BatchManifest, Intent
from watersmeet.storage.segment import SegmentInfo

TRIES = 20


@dataclass(frozen=True)
class StoredColumn:
    """A column of stored rows."""

    wire: str
    """Its name in segments."""
    name: str
    """The column of the stream, or the expression, that it holds."""
    is_key: bool


@dataclass(frozen=True)
class StoredKind:
    """What segments of one kind hold: rows of an alias, or what else units remember."""

    name: str
    stream: str | None = None
    """None: these are not rows of a stream."""
    columns: tuple[StoredColumn, ...] = ()
    kept_us: int | None = None
    """How much later a partner may come; None where no window says so, and where only the plan of an outer or as-of join knows."""


@dataclass(frozen=True)
class Stored:
    """The state after one batch."""

    folder: StateFolder
    manifest: BatchManifest
    intent: Intent

    @property
    def batch(self) -> int:
        return self.manifest.batch

    @cached_property
    def kinds(self) -> dict[str, StoredKind]:
        """The kinds of segments that there are: aliases in the order of FROM, then what else there is."""
        described = {kind.name: kind for kind in _describe(self.intent.plan)}
        found = dict.fromkeys(kind for state in self.manifest.units.values() for kind in state["segments"])
        return described | {name: StoredKind(name) for name in found if name not in described}

    def segments(self, kind: str | None = None) -> Iterator[tuple[int, StoredKind, SegmentInfo]]:
        """(unit, kind, segment) of all live segments, or of one kind, unit by unit."""
        for unit, name, info in sorted(self.manifest.segments(), key=lambda s: s[0]):
            if kind in (None, name):
                yield unit, self.kinds[name], info

    def read(self, info: SegmentInfo) -> pa.Table:
        """A segment's rows."""
        return from_bytes(self.folder.read_segment(info))

    @cached_property
    def watermarks(self) -> dict[str, int]:
        """By stream, after the batch; empty where streams are a registry's."""
        spans = self.intent.plan.get("lateness", {})
        specs = {
            stream: StreamSpec(stream, {TIME: "timestamp"}, TIME, lateness, idle)
            for stream, (lateness, idle) in spans.items()
        }
        return watermarks(specs, self.manifest.maxima)


def is_tuple(kind: StoredKind) -> bool:
    """Whether segments of a kind hold rows of streams or results, and not marks about them."""
    return not kind.name.startswith(OTHER)


def open_folder(checkpoint: Any) -> StateFolder:
    """The state folder of a checkpoint that is there."""
    if not isinstance(checkpoint, (str, os.PathLike)) or not os.fspath(checkpoint):
        raise OptionError(f"checkpoint={checkpoint!r}: give the folder that start(checkpoint=...) was given")
    folder = StateFolder.under(os.fspath(checkpoint))
    if NAME not in folder.files.lengths(folder.beside()):
        logs = SparkLogs.beside(folder)
        found = "it holds a query of dataframe(), whose state is in Spark's own state store" if logs.query_id() else ""
        raise CheckpointError(
            f"{folder.beside()} has no state of start(){': ' + found if found else ''}; give the folder that start(checkpoint=...) was given"
        )
    return folder


def open_checkpoint(checkpoint: Any, batch: int | None = None) -> Stored:
    """The state after the latest batch, or after another one that is still there; the query may run meanwhile."""
    folder = open_folder(checkpoint)
    for _ in range(TRIES):
        number = _pick(folder, batch)
        try:
            manifest = folder.load(MANIFESTS, number, BatchManifest)
            return Stored(folder, manifest, folder.load(INTENTS, number, Intent))
        except CheckpointError:
            if batch is not None or number in folder.numbers(MANIFESTS):
                raise
    raise CheckpointError(f"{TRIES} manifests of {folder.beside()} were replaced while they were read; ask again")


def _pick(folder: StateFolder, batch: int | None) -> int:
    found = folder.numbers(MANIFESTS)
    if not found:
        raise CheckpointError(f"{folder.beside()} has committed no batch yet")
    if batch is not None and batch not in found:
        kept = ", ".join(map(str, found))
        raise OptionError(f"batch={batch}: {folder.beside()} has the state after {kept}; start(keep=...) keeps more")
    return found[-1] if batch is None else batch


def _describe(plan: Mapping[str, Any]) -> Iterator[StoredKind]:
    """What the description of a plan says of its aliases; that of a registry says nothing of them."""
    inputs = plan.get("inputs", [])
    for x, (alias, stream, columns, _, _) in enumerate(inputs):
        keys = {members[alias] for _, members in plan["classes"] if alias in members}
        stored = [StoredColumn(wire, _plain(expr, alias), expr in keys) for wire, expr, _ in columns]
        his = [hi for y, hi in enumerate(plan["windows"][x]) if y != x]
        kept = max(his, default=0)
        unknown = "joins" in plan or kept >= UNBOUNDED
        yield StoredKind(alias, stream, tuple(stored), None if unknown else kept)


def _plain(expr: str, alias: str) -> str:
    """A column without its alias; any other expression as it is.

    >>> _plain("o.user", "o"), _plain("upper(o.name)", "o"), _plain("o.x + o.y", "o")
    ('user', 'upper(o.name)', 'o.x + o.y')
    """
    prefix, dot, rest = expr.partition(".")
    return rest if dot and prefix == alias and rest.isidentifier() else expr
