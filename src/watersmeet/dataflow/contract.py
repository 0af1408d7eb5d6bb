"""The contract of every query: messages, turns, operators, stages, dataflows; and the only loop over the rounds of a batch.

    sources --enter--> stage 0 --messages--> stage 1 --messages--> ... --results--> the query's rows

    round r:  inboxes of r  --carry-->  messages for r + 1 and later          results leave

A runtime carries messages and keeps state, and knows nothing else of a query. A message is rows for one unit, under a kind, which its operator reads
them by. Units have numbers: those of stage k begin at `first_unit(k)`. In a dataflow of stages each stage is a round, and the last one ends the batch.
Where `rounds` is None the units of the only stage go on sending each other messages, until none has any.

Invariant: what a turn yields depends on the turn alone: on the inbox as a set, the state and the clock, never on chance or on the order of
rows; only ids of segments differ between two attempts. A unit without messages takes no turn, unless its stage wakes. The number of rounds is bounded,
so a dataflow that never comes to rest is an error and not an endless batch. Nothing that is computed depends on a report.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Generic, Protocol, TypeAlias, TypeVar

import pyarrow as pa

from watersmeet.dataflow.clock import NEVER, Clock, Promise, Seen, count
from watersmeet.dataflow.report import Report
from watersmeet.errors import DataError, WatersmeetError
from watersmeet.kernels.instants import LAST, add_span
from watersmeet.query.window import UNBOUNDED
from watersmeet.storage.manifest import Described, Manifest
from watersmeet.storage.segment import SegmentStore

MOST_UNITS = 100_000
"""The most units of a stage; scaling may add units to those of the plan."""
WORDS = ":words"
"""The kind of messages of JSON."""
PROBE = "probe "
"""Prefix of the kind of tuples that only probe and are not stored."""

Inbox = dict[str, list[pa.Table]]
"""A unit's messages by kind. Tuples that enter a join have the kind of their side, see `PROBE`."""


@dataclass(frozen=True)
class Message:
    """Rows for a unit."""

    to: int
    kind: str
    table: pa.Table
    round: int | None = None
    """The round that reads it; None: the next one, or the first round of its stage."""


def first_unit(stage: int) -> int:
    """The number of a stage's first unit.

    >>> first_unit(0), stage_of(first_unit(2) + 5)
    (0, 2)
    """
    return stage * MOST_UNITS


def stage_of(unit: int) -> int:
    """The stage of a unit."""
    return unit // MOST_UNITS


def write_words(to: int, content: Mapping[str, Any]) -> Message:
    """A message of JSON.

    >>> read_words([write_words(3, {"cut": 5}).table])
    [{'cut': 5}]
    """
    return Message(to, WORDS, pa.table({"json": [json.dumps(content)]}))


def read_words(tables: Iterable[pa.Table]) -> list[dict[str, Any]]:
    """The contents of messages of JSON."""
    return [json.loads(text) for table in tables for text in table.column("json").to_pylist()]


def put(inboxes: dict[int, Inbox], message: Message) -> None:
    """Put a message into the inbox of its unit."""
    inboxes.setdefault(message.to, {}).setdefault(message.kind, []).append(message.table)


FindCopies: TypeAlias = Callable[[pa.Table], Any]
"""Which tuples another unit counts."""


class Pause:
    """An operator yields a pause where results may leave before those that follow."""


PAUSE: Final = Pause()


@dataclass(frozen=True)
class Aside:
    """Combinations that break an expression, as dropped rows, see `operators.late`. Their batch is filled in by `take_turn`."""

    table: pa.Table


Yielded: TypeAlias = pa.Table | Message | Pause | Aside
"""Results, messages to later stages, pauses, and what is set aside."""
Onward: TypeAlias = Callable[[Iterator[pa.Table | Pause]], Iterator[Yielded]]
"""Where an operator's tables go."""


@dataclass
class Turn:
    """One unit's turn in one round of one batch."""

    unit: int
    inbox: Inbox
    state: Manifest
    """The unit's memory, changed in place; its maxima are those of the batches before this one."""
    store: SegmentStore
    clock: Clock
    round: int = 0
    batch: int = 0
    """The number of the micro-batch: the same on a replay."""
    peers: Mapping[int, Manifest] = field(default_factory=dict)
    """The memories of all units as they were when the round began; to read, not to change."""
    report: Report = field(default_factory=Report)
    may_code: bool = False
    """Whether texts of results may leave as dictionaries: who takes the results writes them to files."""

    def listen(self) -> list[dict[str, Any]]:
        """Read the messages of JSON in the inbox; promises go to the clock."""
        words = read_words(self.inbox.pop(WORDS, []))
        for promise in (Promise(word["marks"], word.get("cuts", {})) for word in words if "marks" in word):
            known = self.clock.promise
            self.clock = self.clock.with_promise(promise if known is None else promise.along_with(known))
        return words

    @property
    def place(self) -> str:
        """Whose turn it is, in words."""
        stage, unit = divmod(self.unit, MOST_UNITS)
        return f"unit {unit}{f' of stage {stage}' if stage else ''} in batch {self.batch}"

    def drop_late(
        self, stream: str, table: pa.Table, times: Any, *, counts: bool, copies: FindCopies | None = None
    ) -> pa.Table:
        """A stream's new tuples less the late ones, which are booked if they `count` here; `copies` of others do not."""
        late = self.clock.late(stream, times)
        if late is None:
            return table
        if counts:
            own = late if copies is None else late & ~copies(table)
            self.book_late(stream, count(table, own))
        return table.filter(pa.array(~late))

    def book_broken(self, streams: Mapping[str, int]) -> None:
        for stream, rows in streams.items():
            self.report.broken[stream] = self.report.broken.get(stream, 0) + rows

    def book_late(self, stream: str, rows: int) -> None:
        if rows:
            self.state.late[stream] = self.state.late.get(stream, 0) + rows
            self.report.late[stream] = self.report.late.get(stream, 0) + rows


class Operator(Protocol):
    """What the units of a stage do. Operators travel to workers, so they are small and hold no data."""

    def step(self, turn: Turn) -> Iterator[Yielded]:
        """One unit's turn: tables of results, and messages. When exhausted, state and store are those after it."""

    def cuts(self, clock: Clock) -> Mapping[str, int]:
        """By kind of segment the time before which it is dead after a batch, whether its unit ran or not."""


def take_turn(operator: Operator, turn: Turn) -> Iterator[Yielded]:
    """What an operator yields in a turn; an error says whose turn it was."""
    try:
        for item in operator.step(turn):
            yield _book_aside(turn, item) if isinstance(item, Aside) else item
    except DataError as error:
        raise DataError(f"{error}; found by {turn.place}") from error
    except Exception as error:
        error.add_note(f"in the turn of {turn.place}")
        raise


def _book_aside(turn: Turn, aside: Aside) -> Aside:
    """What is set aside in a turn, counted, with its batch."""
    turn.book_broken(Counter(aside.table.column("stream").to_pylist()))
    at = aside.table.column_names.index("batch")
    return Aside(aside.table.set_column(at, "batch", pa.array([turn.batch] * aside.table.num_rows, pa.int64())))


@dataclass(frozen=True)
class FlowStage:
    """Units that do the same."""

    operator: Operator
    units: int
    wakes: bool = False
    """Whether all units take a turn in every batch, those without messages too."""
    in_order: bool = False
    """Whether units must take tuples in the order of time where they have no batches in common."""
    lags: Mapping[str, int] = field(default_factory=dict)
    """By stream how much later than its tuples the messages to the stage may be; UNBOUNDED: any time."""

    def marks(self, streams: Iterable[str], mark: int) -> dict[str, int]:
        """Watermarks of streams once all messages to the stage that come have a time of `mark` or later."""
        lags = {s: self.lags.get(s, 0) if mark < LAST else 0 for s in streams}
        return {s: NEVER if lag >= UNBOUNDED else add_span(mark, -lag) for s, lag in lags.items()}


class Intake(Described, Protocol):
    """What enters, and whose state it becomes: of a query's plan, or a registry's, all that its runtime asks for."""

    @property
    def streams(self) -> Mapping[str, Any]:
        """The streams' specifications, by name."""

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What is read of every alias: a `plan.model.InputPlan` each."""

    @property
    def by_alias(self) -> Mapping[str, Any]:
        """The inputs by alias."""

    @property
    def sets_aside(self) -> bool:
        """Whether rows that break an expression are set aside."""


class Flows(ABC):
    """The dataflows of one query: a batch selects one by its decisions (shipping, routing, plans of sites, queries).

    A dataflow is assembled when decisions change, and travels to workers with them.
    """

    plan: Intake
    """What all of them have in common."""

    def under(self, decisions: Mapping[str, Any]) -> Dataflow:
        """The dataflow of a batch that has decided this, by name; decisions are JSON."""
        decided = json.dumps({name: what for name, what in decisions.items() if what}, sort_keys=True)
        known: tuple[str, Dataflow] | None = self.__dict__.get("_latest")
        if known is None or known[0] != decided:
            known = self.__dict__["_latest"] = decided, self.assemble(decisions)
        return known[1]

    @abstractmethod
    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        """Make the dataflow of these decisions."""


@dataclass(frozen=True)
class Origin:
    """Where rows come from, the same under replay: the batch, the source's task, and the number of the first of them in it."""

    batch: int = 0
    task: int = 0
    row: int = 0


HERE: Final = Origin()


class Entry(Protocol):
    """How tuples of one alias enter."""

    @property
    def stage(self) -> int:
        """The stage that they are sent to."""

    def read(self, wire: pa.Table, origin: Origin = HERE) -> tuple[Seen, Iterator[Message]]:
        """What a table of wire rows brings, and the messages that it becomes."""


@dataclass(frozen=True)
class Dataflow:
    """Everything that a runtime needs of a query."""

    streams: Mapping[str, Any]
    """The streams' specifications, by name: what a clock needs."""
    stages: tuple[FlowStage, ...]
    entries: Mapping[str, Entry]
    """By alias; tuples of others are not read."""
    rounds: int | None
    """How many rounds a batch has at most; results come in the last one only. None: the batch ends when no unit sends a message."""
    starts: tuple[int, ...] = ()
    """The round in which each stage begins, if that is not its number: units of one stage may exchange messages for some rounds."""

    def units(self, stage: int) -> range:
        """The numbers of a stage's units."""
        return range(first_unit(stage), first_unit(stage) + self.stages[stage].units)

    def start(self, stage: int) -> int:
        """The round in which a stage begins."""
        return self.starts[stage] if self.starts else stage

    def operator(self, unit: int) -> Operator:
        """What a unit does."""
        return self.stages[stage_of(unit)].operator

    def clock(self, maxima: Mapping[str, int], seen: Mapping[str, int]) -> Clock:
        return Clock(self.streams, maxima, seen)

    def cuts(self, clock: Clock) -> dict[str, int]:
        """By kind of segment the time before which it is dead."""
        return {kind: cut for stage in self.stages for kind, cut in stage.operator.cuts(clock).items()}


MOST_ROUNDS = 64


class Addressed(Protocol):
    """A message, or what a runtime knows of one that it carries."""

    @property
    def to(self) -> int: ...

    @property
    def round(self) -> int | None: ...


M = TypeVar("M", bound=Addressed)
Carry = Callable[[int, list[M], range], Iterable[M]]
"""Runs a round over its messages, and over units that take a turn without any; the messages that its units have sent."""


class Rounds(Generic[M]):
    """Messages of one batch that have not been read, by the round that reads them."""

    def __init__(self, flow: Dataflow, *, wake_all: bool = False, most: int = MOST_ROUNDS) -> None:
        self.flow, self.most, self.ran = flow, most, 0
        self._waking = {flow.start(n): n for n, stage in enumerate(flow.stages) if stage.wakes or wake_all}
        self._waiting: dict[int, list[M]] = {}

    def post(self, messages: Iterable[M], now: int = -1) -> None:
        """Take messages that were sent in a round; -1: by what enters."""
        for message in messages:
            self._waiting.setdefault(round_of(self.flow, message, now), []).append(message)

    def play(self, carry: Carry[M]) -> int:
        """Run rounds until nobody has messages; the number of the last one, -1 if there was none."""
        number = -1
        while self._waiting or self._waking:
            number = min({*self._waiting, *self._waking})
            known = self.flow.rounds
            if (known is not None and number >= known) or self.ran >= self.most:
                raise WatersmeetError(
                    f"the units still send messages after {self.ran} rounds of one micro-batch; a plan that never comes to rest cannot be run (bound: {self.most} rounds)"
                )
            awake = self.flow.units(self._waking.pop(number)) if number in self._waking else range(0)
            self.ran += 1
            self.post(carry(number, self._waiting.pop(number, []), awake), number)
        return number


def round_of(flow: Dataflow, message: Addressed, now: int) -> int:
    """The round in which a message is read that is sent in round `now`."""
    if message.round is not None:
        return message.round
    return max(now + 1, flow.start(stage_of(message.to)))


def is_last(flow: Dataflow, number: int) -> bool:
    """Whether a round is the one that has the results."""
    return flow.rounds is not None and number == flow.rounds - 1
