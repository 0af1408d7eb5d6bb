"""The sequencer as a stage of its own in front of the join, for queries with ROWS windows.

    source --> mapInArrow(pack) --> transformWithState(sequencer, one unit) --> transformWithState(join units)

Invariant: the join units learn watermarks from the sequencer alone, by one control message per unit and batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import pandas as pd

from watersmeet.plan.model import Plan
from watersmeet.runtime.spark_messages import CONTROL, Message, blobs, message_frames
from watersmeet.runtime.spark_state import Heard, UnitProcessor, inbox_of
from watersmeet.units.sequencer import Release, Sequencer


class SequencerProcessor(UnitProcessor):
    """transformWithState with a single group."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    def step(self, label: int, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        manifest = self._state.read_manifest(self.plan)
        inbox = inbox_of(self.plan, rows, self.plan.stages[0], Heard())
        release = Sequencer(self.plan).step(inbox, manifest, self._state.store)
        self._state.write_manifest(manifest)
        yield from message_frames(release_messages(self.plan, release, sliced=False), self.plan.units)


def release_messages(plan: Plan, release: Release, *, sliced: bool) -> list[Message]:
    """What the sequencer released, as messages to the join units; the control messages come last in time."""
    out = []
    for alias, parts in release.tables.items():
        position = plan.input(alias).position
        for unit, table in parts:
            cut = blobs(table, sliced=sliced)
            out += [Message(unit, position, blob, from_ts=from_ts) for from_ts, blob in cut]
    latest = min(release.marks.values())
    for unit in range(plan.units):
        said = {"marks": release.marks, "cuts": release.cuts, "late": release.late if unit == 0 else {}}
        out.append(Message(unit, CONTROL, json.dumps(said).encode(), from_ts=latest))
    return out
