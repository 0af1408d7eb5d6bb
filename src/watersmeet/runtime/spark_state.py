"""A unit's state in transformWithState: a manifest and segments.

Invariant: both are written in the same micro-batch, so Spark commits both or neither.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pandas as pd

from watersmeet.plan.model import Plan
from watersmeet.runtime.spark_messages import CONTROL
from watersmeet.units.join_unit import Inbox
from watersmeet.units.pack import Punctuation
from watersmeet.units.segment import from_bytes
from watersmeet.units.segment_store import BlobStore
from watersmeet.units.state import Manifest

MANIFEST = "manifest"
"""The key of the manifest; segments have their ids, which are hexadecimal."""


class UnitState:
    """One MapState for all of a unit: Spark builds encoders for every state variable in every task, so there is one.

    Its name and types are fixed for good: under another name Spark would find nothing and begin anew without a word.
    """

    def __init__(self, handle: Any) -> None:
        self.state = handle.getMapState("unit", "id string", "blob binary")
        self.store = BlobStore(self)

    def read_manifest(self, plan: Plan) -> Manifest:
        """The unit's memory; fresh if it has none."""
        stored = self.get(MANIFEST)
        return Manifest.fresh(plan) if stored is None else Manifest.from_json(stored.decode(), plan)

    def write_manifest(self, manifest: Manifest) -> None:
        self.put(MANIFEST, manifest.to_json().encode())

    def get(self, id: str) -> bytes | None:
        value = self.state.getValue((id,))
        return None if value is None else bytes(value[0])

    def put(self, id: str, blob: bytes) -> None:
        self.state.updateValue((id,), (blob,))

    def delete(self, id: str) -> None:
        self.state.removeKey((id,))


def inbox_of(plan: Plan, rows: Iterator[pd.DataFrame], control: Any = None) -> Inbox:
    """A batch's messages to one unit; `control` takes the blobs of control messages."""
    inbox = Inbox()
    for frame in rows:
        for alias, max_ts, null_times, blob in zip(
            frame["alias"], frame["max_ts"], frame["null_times"], frame["blob"], strict=True
        ):
            if alias == CONTROL:
                control(blob, inbox)
                continue
            source = plan.inputs[int(alias)]
            inbox.punctuate(source.stream, Punctuation(int(max_ts), int(null_times)))
            if blob is not None:
                inbox.tables.setdefault(source.alias, []).append(from_bytes(blob))
    return inbox
