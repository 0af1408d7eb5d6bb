"""The units of one query in this process, with their states, and the turns of a batch.

Invariant: batch by batch the same as on Spark: the same operators, clocks, late rows and expiry.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

import pyarrow as pa

from watersmeet.columns.arrow import from_bytes, to_bytes
from watersmeet.dataflow.clock import Clock, Seen
from watersmeet.dataflow.contract import Aside, Dataflow, Inbox, Message, Origin, Rounds, Turn, put, take_turn
from watersmeet.dataflow.report import Report
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.segment import Segment
from watersmeet.storage.stores import MemoryStore

_TIME = "time.json"
"""The file of a saved state that is of no unit and no segment."""


class InProcess:
    """The units of one query."""

    def __init__(self, identity: Identity) -> None:
        self.identity = identity
        self.states: dict[int, Manifest] = {}
        self.store = MemoryStore()
        self.maxima: dict[str, int] = {}
        self.batch = 0
        self.reports: dict[int, Report] = {}
        """Of the latest batch, by unit."""
        self._aside: dict[str, int] = {}
        self.broken: Counter[str] = Counter()
        """Rows and combinations that were set aside since the beginning, by stream or streams."""
        self.lost: list[pa.Table] = []
        """The combinations that the latest batch has set aside."""

    def copy(self) -> InProcess:
        """The same units, apart: what happens to one does not happen to the other."""
        out = InProcess(self.identity)
        out.states = {unit: state.copy() for unit, state in self.states.items()}
        out.store, out.maxima = self.store.copy(), dict(self.maxima)
        out.batch, out._aside, out.broken = self.batch, dict(self._aside), Counter(self.broken)
        return out

    def save(self) -> dict[str, bytes]:
        """The state as contents of files: of every unit its manifest, of every segment its rows, and how far time is."""
        time = {"maxima": self.maxima, "batch": self.batch, "aside": self._aside, "broken": self.broken}
        out = {_TIME: json.dumps(time).encode()}
        out |= {f"{unit}.json": state.to_json().encode() for unit, state in self.states.items()}
        return out | {f"{id}.arrow": to_bytes(segment.table) for id, segment in self.store.segments.items()}

    @classmethod
    def load(cls, saved: Mapping[str, bytes], identity: Identity) -> InProcess:
        """The units of a saved state; an error if it is of another query."""
        out, time = cls(identity), json.loads(saved[_TIME])
        out.maxima, out.batch, out._aside = time["maxima"], time["batch"], time["aside"]
        out.broken = Counter(time.get("broken", {}))
        for name, content in saved.items():
            stem, kind = name.split(".")
            if kind == "arrow":
                out.store.segments[stem] = Segment(stem, from_bytes(content).combine_chunks())
            elif stem.isdigit():
                out.states[int(stem)] = Manifest.from_json(content.decode(), identity)
        return out

    def play(
        self, flow: Dataflow, messages: Iterable[Message], seen: Seen, *, ended: bool = False, wake_all: bool = False
    ) -> list[pa.Table]:
        """A batch: its results. `ended`: no more will come."""
        self.reports, self.lost, out = {}, [], list[pa.Table]()
        clock = Clock(flow.streams, self.maxima, seen.highest)
        clock = clock.end() if ended else clock

        def carry(number: int, sent: list[Message], awake: range) -> Iterator[Message]:
            inboxes: dict[int, Inbox] = {unit: {} for unit in awake}
            for message in sent:
                put(inboxes, message)
            peers = {unit: state.snapshot() for unit, state in self.states.items()}
            self.store.lend()
            for unit, inbox in sorted(inboxes.items()):
                state = self.states.setdefault(unit, Manifest.fresh(self.identity))
                state.maxima = dict(self.maxima)
                turn = Turn(unit, inbox, state, self.store, clock, number, self.batch, peers)
                for item in take_turn(flow.operator(unit), turn):
                    self.watch(turn.report)
                    if isinstance(item, Message):
                        yield item
                    elif isinstance(item, pa.Table):
                        self.take(out, item)
                    elif isinstance(item, Aside):
                        self.lost.append(item.table)
                self.reports.setdefault(unit, Report()).include(turn.report)

        rounds: Rounds[Message] = Rounds(flow, wake_all=wake_all)
        rounds.post(messages)
        rounds.play(carry)
        self._settle(flow, clock, seen)
        return out

    def watch(self, report: Report) -> None:
        """Look at what a turn has done so far."""

    def take(self, out: list[pa.Table], table: pa.Table) -> None:
        """Take results to those of the batch."""
        out.append(table)

    def _settle(self, flow: Dataflow, clock: Clock, seen: Seen) -> None:
        """After a batch: time has moved, and what is dead is dropped, also where no unit has run."""
        self.maxima = clock.reached
        self.batch += 1
        self.count_late(seen.aside)
        self.broken.update(seen.broken)
        for report in self.reports.values():
            self.broken.update(report.broken)
        cuts = flow.cuts(clock)
        for state in self.states.values():
            state.maxima = dict(self.maxima)
            for kind, cut in cuts.items():
                infos = state.segments.get(kind, [])
                for info in infos:
                    if info.max_ts < cut:
                        self.store.remove(info)
                state.segments[kind] = [i for i in infos if i.max_ts >= cut]
        self.store = self.store.copy(
            {i.id for s in self.states.values() for infos in s.segments.values() for i in infos}
        )

    def retire(self, first: int) -> None:
        """Forget units from a number on, which hold nothing any more; their late rows stay counted."""
        for unit in [unit for unit in self.states if unit >= first]:
            self.count_late(self.states.pop(unit).late)

    def count_late(self, rows: Mapping[str, int]) -> None:
        """Count rows that no unit has seen."""
        for stream, more in rows.items():
            self._aside[stream] = self._aside.get(stream, 0) + more

    @property
    def late(self) -> dict[str, int]:
        """Late rows by stream since the beginning, those that were set aside where they entered among them."""
        out = dict(self._aside)
        for state in self.states.values():
            for stream, rows in state.late.items():
                out[stream] = out.get(stream, 0) + rows
        return out


def enter(flow: Dataflow, wires: Mapping[str, pa.Table], batch: int = 0) -> tuple[Seen, list[Message]]:
    """Wire rows by alias: what they bring, and their messages."""
    seen, messages, first = Seen(), list[Message](), 0
    for alias, wire in wires.items():
        if alias in flow.entries and wire.num_rows:
            brought, sent = flow.entries[alias].read(wire, Origin(batch, 0, first))
            seen.include(brought)
            messages += sent
            first += wire.num_rows
    return seen, messages
