"""A unit in transformWithState: its state, a manifest and segments, and what Spark calls.

Invariant: both are written in the same micro-batch, so Spark commits both or neither.
"""

from __future__ import annotations

import json
from abc import abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import pandas as pd
from pyspark.sql.streaming import StatefulProcessor, StatefulProcessorHandle

from watersmeet.plan.model import Plan, Stage
from watersmeet.runtime.spark_messages import BOUND, CONTROL
from watersmeet.runtime.worker_words import drop_diary, errors_first
from watersmeet.units.join_unit import Inbox, StepReport
from watersmeet.units.pack import Punctuation
from watersmeet.units.segment import from_bytes
from watersmeet.units.segment_store import BlobStore
from watersmeet.units.state import Manifest
from watersmeet.units.watermark import NEVER

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
        """The unit's memory; fresh if it has none. It is asked for first: Spark warns of a key that is not there."""
        stored = self.get(MANIFEST) if self.state.containsKey((MANIFEST,)) else None
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


class UnitProcessor(StatefulProcessor):
    """transformWithState: one group is one unit."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = UnitState(handle)

    @errors_first
    def handleInputRows(self, key: Any, rows: Iterator[pd.DataFrame], timerValues: Any) -> Iterator[pd.DataFrame]:
        yield from self.step(int(key[0]), rows)

    @abstractmethod
    def step(self, label: int, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """What the unit under a label makes of a batch's messages to it."""

    def close(self) -> None:
        pass

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        drop_diary()


def inbox_of(plan: Plan, rows: Iterator[pd.DataFrame], stage: Stage, heard: Heard) -> Inbox:
    """A batch's messages to one unit of a stage; `heard` takes what earlier stages say of themselves."""
    inbox = Inbox()
    for frame in rows:
        for alias, probe, max_ts, null_times, blob in zip(
            frame["alias"], frame["probe"], frame["max_ts"], frame["null_times"], frame["blob"], strict=True
        ):
            take_message(plan, stage, inbox, heard, int(alias), bool(probe), int(max_ts), int(null_times), blob)
    return inbox


def take_message(
    plan: Plan,
    stage: Stage,
    inbox: Inbox,
    heard: Heard,
    alias: int,
    probe: bool,
    max_ts: int,
    null_times: int,
    blob: Any,
) -> int:
    """Take one message in; how many rows it brought."""
    if alias == CONTROL:
        heard.take(json.loads(bytes(blob)), inbox)
        return 0
    if alias != BOUND:
        inbox.punctuate(plan.inputs[alias].stream, Punctuation(max_ts, null_times))
    if blob is None:
        return 0
    table = from_bytes(blob)
    inbox.take(
        stage.sides[0].name if alias == BOUND else plan.inputs[alias].alias, "probe" if probe else "store", table
    )
    return int(table.num_rows)


@dataclass
class Heard:
    """What earlier stages say: the sequencer vouches for watermarks, others pass maxima and their reports on."""

    report: StepReport = field(default_factory=StepReport)
    """Late rows that the sequencer has dropped."""
    units: list[dict[str, Any]] = field(default_factory=list)
    """Reports of units of earlier stages, as JSON."""

    def take(self, said: Mapping[str, Any], inbox: Inbox) -> None:
        if "marks" in said:
            inbox.marks = said["marks"]
        for alias, cut in said.get("cuts", {}).items():
            inbox.cuts[alias] = max(cut, inbox.cuts.get(alias, NEVER))
        for stream, rows in said.get("late", {}).items():
            self.report.late[stream] = self.report.late.get(stream, 0) + rows
        for stream, highest in said.get("maxima", {}).items():
            inbox.punctuate(stream, Punctuation(highest))
        self.units += said.get("units", [])
