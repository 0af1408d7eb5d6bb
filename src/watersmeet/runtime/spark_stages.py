"""Stages of a pipeline before the last, as stateful stages of their own: what they bind together goes on as messages.

    source a --\\                                      source c --\\
    source b ---> transformWithState(stage 1) --a+b--------------> transformWithState(stage 2) --> ...

Every unit tells every unit of the next stage the maxima of the base streams that it knows, so watermarks pass through
the pipeline in the batch in which they rise, and its report to one of them.

Invariant: results of a stage reach the next one in the same micro-batch and are never late there.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming import StatefulProcessorHandle

from watersmeet.plan.model import Plan, Stage
from watersmeet.routing.labels import labels
from watersmeet.runtime.spark_messages import BOUND, CONTROL, Message, message_frames, part_messages
from watersmeet.runtime.spark_state import Heard, UnitProcessor, inbox_of
from watersmeet.runtime.worker_heap import after_task
from watersmeet.units.join_unit import JoinUnit, StepReport
from watersmeet.units.pack import route


class StageProcessor(UnitProcessor):
    """transformWithState: one group is one unit of a stage."""

    def __init__(self, plan: Plan, number: int) -> None:
        self.plan, self.number = plan, number

    def init(self, handle: StatefulProcessorHandle) -> None:
        super().init(handle)
        self._stage = self.plan.stages[self.number]
        self._unit_of = {label: n for n, label in enumerate(labels(self._stage.routing.units))}

    def step(self, label: int, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        stage, after = self._stage, self.plan.stages[self.number + 1]
        join, heard = JoinUnit(self.plan, stage.first + self._unit_of[label]), Heard()
        inbox = inbox_of(self.plan, rows, stage, heard)
        manifest = self._state.read_manifest(self.plan)
        for table in join.step(inbox, manifest, self._state.store):
            yield from message_frames(bound_messages(self.plan, after, table, sliced=False), after.routing.units)
        self._state.write_manifest(manifest)
        units = [*heard.units, report_of(join.unit, join.report)]
        yield from message_frames(passed_on(after, join.unit, {"maxima": manifest.maxima}, units), after.routing.units)
        after_task()


def bound_messages(plan: Plan, after: Stage, table: pa.Table, *, sliced: bool) -> Iterator[Message]:
    """What a stage has bound together, to the units of the next one."""
    yield from part_messages(route(plan, after, 0, table), after.first, BOUND, sliced=sliced)


def passed_on(
    after: Stage, unit: int, words: dict[str, Any], units: list[dict[str, Any]], from_ts: int = 0
) -> list[Message]:
    """Words for every unit of the next stage; reports for one of them."""
    listener, out = unit % after.routing.units, []
    for n in range(after.routing.units):
        said = words | ({"units": units} if n == listener else {})
        out.append(Message(n, CONTROL, json.dumps(said).encode(), from_ts=from_ts))
    return out


def report_of(unit: int, report: StepReport) -> dict[str, Any]:
    """A unit's report as JSON."""
    return {"unit": unit, **asdict(report)}
