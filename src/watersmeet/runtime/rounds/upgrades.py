"""Records of checkpoints that were handed over to a changed query: what was there before, and which of its files must stay.

Invariant: the files of the state before an upgrade stay as long as its record does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import Any

from watersmeet.runtime.rounds.checkpoint import UPGRADES, StateFolder
from watersmeet.storage.document import Document
from watersmeet.storage.manifest import BatchManifest


@dataclass(frozen=True)
class UpgradeRecord(Document):
    """A checkpoint that was handed over to a changed query after a batch, see `runtime.checkpoints.upgrade`."""

    batch: int
    query_id: str
    before: dict[str, Any]
    """The manifest of the query as it was."""
    after: dict[str, Any]
    intent_before: dict[str, Any]
    intent_after: dict[str, Any]
    spark: dict[str, list[str]] = field(default_factory=dict)
    """By name the files of Spark's that change: before, and after."""
    said: list[str] = field(default_factory=list)
    is_done: bool = False
    """Whether the checkpoint is what the record says."""
    is_undone: bool = False
    """Whether it says that the checkpoint is what it was before."""


def list_held(folder: StateFolder) -> dict[int, tuple[int, set[str]]]:
    """By the number of a record the batch that it is after, and the files of the state before."""
    found = {}
    for number in folder.numbers(UPGRADES):
        record = folder.load(UPGRADES, number, UpgradeRecord)
        before = BatchManifest.parse(json.dumps(record.before), folder.path(UPGRADES, f"{number}.json"))
        found[number] = record.batch, before.files()
    return found
