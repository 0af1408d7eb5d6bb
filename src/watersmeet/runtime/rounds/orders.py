"""What one job of one attempt is told: it travels with the job as a local property, or through a file if it is long.

Invariant: frames are made once per query and know nothing of batches; everything that differs between batches is here.
"""

from __future__ import annotations

import json
from dataclasses import asdict, astuple, dataclass, field
from typing import Any

from pyspark import TaskContext

from watersmeet.runtime.rounds.files import Parcel
from watersmeet.runtime.rounds.folder import MAIL, StateFolder

PROPERTY = "watersmeet.orders"
INLINE_BYTES = 256 * 2**10
"""Longer orders go through a file."""


@dataclass
class Orders:
    """What one job of one attempt has to do."""

    attempt: str
    job: int
    """Counts the attempt's jobs, so that reports do not mix."""
    round: int = 0
    direct: bool = True
    """Whether results leave as rows; otherwise they are posted to the end of the batch."""
    states: dict[int, str] = field(default_factory=dict)
    """The units' manifests as JSON."""
    shares: list[list[Parcel]] = field(default_factory=list)
    """Parcels by task."""
    seen: dict[str, int] = field(default_factory=dict)
    routing: list[dict[str, Any]] = field(default_factory=list)
    """Where source tasks send rows, if it is not where the plan says."""
    watches_keys: bool = False
    weighs: bool = False
    """Whether source tasks say how wide tuples are."""
    apart: list[str] = field(default_factory=list)
    """The aliases whose payloads follow later."""
    was: list[str] = field(default_factory=list)
    """The same of the batch before, where stored tuples are to be turned."""
    batch: int = 0
    queries: dict[str, Any] = field(default_factory=dict)
    """Which registered queries the batch answers."""
    read: dict[str, list[str]] | None = None
    """By stream that some registered query reads the columns that queries compare: the program routes. None: the plan does."""
    sites: dict[str, list[list[str]]] = field(default_factory=dict)
    """How sites join."""

    def report_name(self, partition: int) -> str:
        return f"{self.attempt}.{self.job}.{partition}"

    def text(self, folder: StateFolder) -> str:
        """The orders as the value of the local property."""
        content = {**asdict(self), "shares": [[astuple(p) for p in share] for share in self.shares]}
        said = json.dumps(content)
        if len(said) <= INLINE_BYTES:
            return said
        name = f"{self.attempt}.{self.job}.orders"
        folder.write_json(MAIL, name, content, durably=False)
        return json.dumps({"file": name})

    @classmethod
    def given(cls, folder: StateFolder) -> Orders:
        """The orders of the job that this task belongs to."""
        context = TaskContext.get()
        assert context is not None
        raw = json.loads(context.getLocalProperty(PROPERTY) or "{}")
        if "file" in raw:
            raw = folder.read_json(MAIL, raw["file"])
        raw["states"] = {int(unit): state for unit, state in raw["states"].items()}
        raw["shares"] = [[Parcel(*p) for p in share] for share in raw["shares"]]
        return cls(**raw)
