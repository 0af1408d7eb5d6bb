"""What a run in process counted, as an object.

A `pyarrow.Table` has one place for more than its rows: the metadata of its schema. There the counts travel with the results, as JSON that
only this module writes and reads.

Invariant: `Counts.of(counts.attach(table)) == counts`.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, fields
from typing import Any

import pyarrow as pa

from watersmeet.errors import DataError
from watersmeet.runtime.progress import list_counts

_KEY = b"watersmeet"


@dataclass(frozen=True, repr=False)
class Counts:
    """What one `wm.local.run` counted; shown in short, all figures are its fields.

    >>> counts = Counts(late={"s": 2}, retained={"a": 1500, "b": 3}, batches=4, kernels={"hw": 2000})
    >>> counts
    Counts: 4 batches, late s 2, retained a 1,500, b 3, kernels hw 2,000
    >>> table = counts.attach(pa.table({"k": [1]}))
    >>> Counts.of(table) == counts
    True
    """

    late: dict[str, int] = field(default_factory=dict)
    """Late rows dropped, by stream."""
    set_aside: dict[str, int] = field(default_factory=dict)
    """Rows, by stream, and combinations, by streams, that break an expression, under `on_error="set aside"`."""
    retained: dict[str, int] = field(default_factory=dict)
    """The most rows kept after any batch, by alias."""
    batches: int = 0
    kernels: dict[str, int] = field(default_factory=dict)
    """New tuples that units gave to each kernel, copies included."""
    pruned: int = 0
    """New tuples that units dropped before a probe: they had no window partner in some stream."""
    drivers: dict[str, int] = field(default_factory=dict)
    """In which order drivers ran ('b, a, c'; 'a | b | c' if tuple by tuple), and in how many turns of units."""
    kept: int = 0
    """The most rows that DISTINCT remembered after any batch, or groups with a window that were open."""
    shipped: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    """Shipments, rows and bytes by (sending site, receiving site)."""
    changes: tuple[str, ...] = ()
    """Changes of the plan between sites, in words."""
    simulated: dict[str, Any] = field(default_factory=dict)
    """What a simulated network or simulated sites counted besides; `watersmeet-lab` says what."""

    @classmethod
    def of(cls, table: pa.Table) -> Counts:
        """The counts of a result; an error if the table is none, or has lost them on the way.

        >>> Counts.of(pa.table({"k": [1]}))
        Traceback (most recent call last):
        watersmeet.errors.DataError: this table has no counts: it is no result of wm.local.run, or was made from one by a step that drops the metadata of its schema
        """
        metadata = getattr(getattr(table, "schema", None), "metadata", None) or {}
        if _KEY not in metadata:
            raise DataError(
                "this table has no counts: it is no result of wm.local.run, or was made from one by a step that drops the metadata of its schema"
            )
        raw = json.loads(metadata[_KEY])
        raw["shipped"] = {(sender, receiver): (n, rows, size) for sender, receiver, n, rows, size in raw["shipped"]}
        return cls(**{**raw, "changes": tuple(raw["changes"])})

    def attach(self, table: pa.Table) -> pa.Table:
        """The table, with these counts in the metadata of its schema."""
        raw = {f.name: getattr(self, f.name) for f in fields(self)}
        raw["shipped"] = [[*sites, *amounts] for sites, amounts in self.shipped.items()]
        return table.replace_schema_metadata({_KEY: json.dumps(raw).encode()})

    def __repr__(self) -> str:
        late = {stream: n for stream, n in self.late.items() if n}
        sent = sum(size for _, _, size in self.shipped.values())
        parts = [
            _many(self.batches, "batch", "batches") if self.batches else "",
            f"late {list_counts(late)}" if late else "nothing late",
            f"set aside {list_counts(self.set_aside)}" if self.set_aside else "",
            f"retained {list_counts(self.retained)}" if self.retained else "",
            f"kernels {list_counts(self.kernels)}" if self.kernels else "",
            f"{self.pruned:,} pruned" if self.pruned else "",
            f"{self.kept:,} rows remembered" if self.kept else "",
            f"{sent:,} bytes between sites" if self.shipped else "",
            _many(len(self.changes), "change of plan", "changes of plan") if self.changes else "",
            f"simulated: {', '.join(self.simulated)}" if self.simulated else "",
        ]
        return f"Counts: {', '.join(part for part in parts if part)}"


def _many(count: int, one: str, more: str) -> str:
    return f"{count:,} {one if count == 1 else more}"
