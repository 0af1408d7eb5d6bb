"""A stage in transformWithState: one group is one unit. Its state, a manifest and segments, lies in one MapState.

    rows of a batch --> Heard: inbox, seen, reports --> Turn --> messages to the next stage, or results

Invariant: manifest and segments are written in the same micro-batch, so Spark commits both or neither. What a unit does depends on its messages and its
state only: Spark may run any task twice. Words are for the runtime, all else is for the operator. The stage's first unit counts rows that were set aside.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from itertools import chain
from typing import Any

import pandas as pd
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from watersmeet.columns.arrow import block_bytes, from_bytes, shrink
from watersmeet.dataflow.clock import NEVER, Clock, Promise, Seen
from watersmeet.dataflow.contract import (
    WORDS,
    Aside,
    Dataflow,
    Inbox,
    Message,
    Pause,
    Turn,
    Yielded,
    first_unit,
    take_turn,
)
from watersmeet.dataflow.report import Report
from watersmeet.operators.finish.project import Fields
from watersmeet.operators.late import sift, write_rows
from watersmeet.routing.labels import labels
from watersmeet.runtime.spark.versions import arrow_schema
from watersmeet.runtime.spark.workers import (
    MARK,
    after_task,
    as_task,
    aside_columns,
    columns_of,
    with_metrics,
)
from watersmeet.runtime.stream import sealed
from watersmeet.runtime.stream.messages import (
    CANDIDATES,
    FURTHER,
    MESSAGE,
    Row,
    frames,
    in_blocks,
    read_further,
    rows_of,
    tell,
)
from watersmeet.runtime.stream.packed import PackedProcessor
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.segment import SegmentStore
from watersmeet.storage.stores import BlobStore

MANIFEST = "manifest"
"""The key of the manifest; segments have their ids, which are hexadecimal."""
FRAME_ROWS = 65_536
"""Results leave a unit in frames of about this many rows, or of a block's bytes, or less at its end."""
TURN_ROWS = 8_192
"""So many do not wait after a pause."""


def number_of_batch() -> int | None:
    """The number of the micro-batch that this task belongs to."""
    context = TaskContext.get()
    number = None if context is None else context.getLocalProperty("streaming.sql.batchId")
    return None if number is None else int(number)


class UnitMap:
    """The map that a unit keeps all in, see `packed.declare_state`."""

    def __init__(self, state: Any) -> None:
        self.state = state
        self.store = BlobStore(self)

    def read_manifest(self, identity: Identity) -> Manifest:
        """The unit's memory; fresh if it has none. It is asked for first: Spark warns of a key that is not there."""
        stored = self.get(MANIFEST) if self.state.containsKey((MANIFEST,)) else None
        return Manifest.fresh(identity) if stored is None else Manifest.from_json(stored.decode(), identity)

    def write_manifest(self, manifest: Manifest) -> None:
        self.put(MANIFEST, manifest.to_json().encode())

    def get(self, id: str) -> bytes | None:
        value = self.state.getValue((id,))
        return None if value is None else bytes(value[0])

    def put(self, id: str, blob: bytes) -> None:
        self.state.updateValue((id,), (blob,))

    def delete(self, id: str) -> None:
        self.state.removeKey((id,))


class StageProcessor:
    """transformWithState over the messages of a stage. `schema` has the results and metrics of the last one. Spark gets it packed, see `packed`."""

    def __init__(self, flow: Dataflow, stage: int, identity: Identity, schema: pa.Schema | None = None) -> None:
        self.flow, self.stage, self.identity, self.schema = flow, stage, identity, schema
        self.is_sealed = schema is not None and sealed.has_nested(schema)

    def begin(self, state: Any) -> None:
        """A task begins, whose units keep their state in this map."""
        self._state = UnitMap(state)
        self._number = {label: n for n, label in enumerate(labels(self.flow.stages[self.stage].units))}

    @as_task
    def handle_rows(self, key: Any, rows: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        """A unit's messages of a batch to what it lets out."""
        unit, heard = Unit(self.flow, self.stage, self._number[int(key[0])]), Heard()
        for frame in rows:
            for kind, blob in zip(frame["kind"], frame["blob"], strict=True):
                heard.take(kind, blob)
        manifest = self._state.read_manifest(self.identity)
        turn = unit.turn(heard, manifest, self._state.store)
        turn.batch = number_of_batch() or 0
        if heard.candidates:
            heard.late += unit.sift(heard, turn.clock, number_of_batch())
        yield from self._results(unit, turn, heard) if unit.is_last else self._messages(unit, turn, heard)
        after_task()

    def _messages(self, unit: Unit, turn: Turn, heard: Heard) -> Iterator[pd.DataFrame]:
        """Messages to the next stage; then the clock and the reports go on, these to one of its units."""
        sent = chain(heard.further, (item for item in self._step(unit, turn, heard) if isinstance(item, Message)))
        yield from frames(rows_of(sent, self.stage + 1, unit.following, sliced=False), unit.following)
        self._state.write_manifest(turn.state)
        yield from frames(unit.pass_on(heard, turn), unit.following)

    def _results(self, unit: Unit, turn: Turn, heard: Heard) -> Iterator[pd.DataFrame]:
        """Results in frames, and a row of metrics for every unit."""
        held: list[pa.Table] = []
        for item in self._step(unit, turn, heard):
            waiting = sum(t.num_rows for t in held)
            if isinstance(item, Pause):
                is_full = waiting >= TURN_ROWS
            else:
                is_full = waiting >= FRAME_ROWS or sum(t.nbytes for t in [*held, item]) > block_bytes()
            if held and is_full:
                yield self._frame(held)
                held = []
            if isinstance(item, pa.Table):
                held.append(item)
        self._state.write_manifest(turn.state)
        yield self._frame(held, [json.dumps(r) for r in unit.reports(heard, turn.report)])
        held.clear()
        for texts in in_blocks(heard.late):
            yield self._frame([], texts)

    def _step(self, unit: Unit, turn: Turn, heard: Heard) -> Iterator[pa.Table | Message | Pause]:
        """What a unit yields; combinations that it sets aside leave as dropped rows do."""
        for item in unit.step(turn):
            if isinstance(item, Aside):
                heard.late += [MARK + text for text in write_rows(item.table).to_pylist()]
            else:
                yield item

    def _frame(self, results: Sequence[pa.Table], texts: Sequence[str] = ()) -> pd.DataFrame:
        """Results, and texts in the column of metrics, as one frame."""
        assert self.schema is not None
        schema = sealed.SCHEMA if self.is_sealed else self.schema
        tables = [pa.table(columns_of(schema, t)) for t in (sealed.seal(results) if self.is_sealed else results)]
        if texts:
            tables.append(pa.table(aside_columns(schema, texts)))
        table = pa.concat_tables([shrink(t) for t in tables], promote_options="permissive").combine_chunks()
        series = {name: pd.arrays.ArrowExtensionArray(table.column(name)) for name in table.column_names}
        return pd.DataFrame({name: pd.Series(array, copy=False) for name, array in series.items()}, copy=False)


def run_stage(flow: Dataflow, number: int, messages: DataFrame, identity: Identity, fields: Fields | None) -> DataFrame:
    """A stage over streams of messages: messages to the next one or, of the last, results and metrics in the columns `fields`."""
    out = StructType.fromDDL(MESSAGE if fields is None else with_metrics(fields))
    schema = None if fields is None else arrow_schema(out)
    processor = StageProcessor(flow, number, identity, schema)
    left = messages.groupBy("unit").transformWithStateInPandas(
        PackedProcessor(processor),
        outputStructType=StructType.fromDDL(sealed.DDL) if processor.is_sealed else out,
        outputMode="append",
        timeMode="none",
    )
    return left.mapInArrow(sealed.Opener(schema), out) if processor.is_sealed else left


@dataclass
class Heard:
    """A batch's messages to one unit."""

    inbox: Inbox = field(default_factory=dict)
    seen: Seen = field(default_factory=Seen)
    promise: Promise | None = None
    reports: list[dict[str, Any]] = field(default_factory=list)
    """Of units of earlier stages, as JSON."""
    further: list[Message] = field(default_factory=list)
    """What is for later stages."""
    candidates: dict[str, list[pa.Table]] = field(default_factory=dict)
    """By stream, rows to tell dropped ones among."""
    late: list[str] = field(default_factory=list)
    """Dropped rows, as they leave in the column of metrics."""

    def take(self, kind: str, blob: Any) -> int:
        """Take one message in; how many rows it brought."""
        if kind == WORDS:
            self._listen(json.loads(bytes(blob)))
            return 0
        if kind.startswith(FURTHER):
            self.further.append(read_further(kind, blob))
            return int(self.further[-1].table.num_rows)
        table = from_bytes(blob)
        if kind.startswith(CANDIDATES):
            self.candidates.setdefault(kind.removeprefix(CANDIDATES), []).append(table)
            return 0
        self.inbox.setdefault(kind, []).append(table)
        return int(table.num_rows)

    def _listen(self, said: dict[str, Any]) -> None:
        self.seen.include(Seen(said.get("seen", {}), said.get("aside", {}), said.get("broken", {})))
        self.reports += said.get("reports", [])
        self.late += said.get("late", [])
        if "marks" in said:
            promise = Promise(said["marks"], said.get("cuts", {}))
            self.promise = promise if self.promise is None else promise.along_with(self.promise)


@dataclass(frozen=True)
class Unit:
    """The unit of a stage with a number inside it."""

    flow: Dataflow
    stage: int
    number: int

    def turn(self, heard: Heard, state: Manifest, store: SegmentStore) -> Turn:
        """Its turn in a batch."""
        clock = self.flow.clock(state.maxima, heard.seen.highest)
        if heard.promise is not None:
            clock = clock.with_promise(heard.promise)
        turn = Turn(first_unit(self.stage) + self.number, heard.inbox, state, store, clock, round=self.stage)
        if self.number == 0:
            for stream, rows in heard.seen.aside.items():
                turn.book_late(stream, rows)
            turn.book_broken(heard.seen.broken)
        return turn

    def sift(self, heard: Heard, clock: Clock, batch: int | None) -> list[str]:
        """The dropped rows among those that it has heard of, as they leave."""
        found = ((stream, pa.concat_tables(tables)) for stream, tables in sorted(heard.candidates.items()))
        lost = [sift(clock, stream, table, batch) for stream, table in found]
        return [MARK + text for table in lost for text in write_rows(table).to_pylist()]

    def step(self, turn: Turn) -> Iterator[Yielded]:
        """What it yields; then the state is that after the batch."""
        yield from take_turn(self.flow.stages[self.stage].operator, turn)
        turn.state.maxima = turn.clock.reached

    @property
    def following(self) -> int:
        """How many units the next stage has."""
        return self.flow.stages[self.stage + 1].units

    @property
    def is_last(self) -> bool:
        return self.stage == len(self.flow.stages) - 1

    def reports(self, heard: Heard, report: Report) -> list[dict[str, Any]]:
        """Its report as JSON, after those that it has heard."""
        return [*heard.reports, {"unit": first_unit(self.stage) + self.number, **asdict(report)}]

    def pass_on(self, heard: Heard, turn: Turn, from_ts: int = NEVER) -> Iterator[Row]:
        """The clock for every unit of the next stage, the reports and dropped rows for one of them."""
        listener = self.number % self.following
        for texts in in_blocks(heard.late):
            yield Row(listener, WORDS, json.dumps({"late": texts}).encode(), from_ts)
        for row in tell(self.following, {"seen": turn.state.maxima}, from_ts):
            if row.unit == listener:
                said = {"seen": turn.state.maxima, "reports": self.reports(heard, turn.report)}
                yield Row(listener, WORDS, json.dumps(said).encode(), from_ts)
            else:
                yield row
