"""Nodes of the ring as one unit: tuples and queries in, rewritten queries and answers out.

    inbox   tuples, copies under one key each; rows, posed or rewritten, with the rates that they carry
    outbox  rows with the key where they wait next; answers

One `step` takes whatever reached any of the unit's nodes. Tuples come first, then rows: a pair that arrives together meets
all the same.

Invariant: what `step` gives is a function of the inbox, the state, the ring and the time of the step. Every message is
counted at the node that sends it, every row and tuple at the node that receives it. Nodes share nothing but the arrays that
they lie in: what a node knows of another's rates it has asked for, or was told.
Implements: Idreos, Liarou, Koubarakis (2008), procedures 1 to 3, sections 4 to 7.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal, get_args

import numpy as np

from watersmeet.errors import OptionError
from watersmeet.kernels.registered import rewriting
from watersmeet.kernels.registered.rewriting import (
    ARRIVED,
    BIND_AT,
    BOUND,
    ENTRIES,
    KEY,
    LEVEL,
    NEXT,
    NUMBER,
    STREAM,
    TEMPLATE,
    TS,
    TUPLE_KEY,
    TUPLE_NEXT,
    VALUE_LEVEL,
)
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.rjoin.catalogue import NEVER
from watersmeet_lab.simulate.ring.catalogue import RingCatalogue
from watersmeet_lab.simulate.ring.circle import Ring
from watersmeet_lab.simulate.ring.kernels import arrivals, candidates, next_key, seen_rows
from watersmeet_lab.simulate.ring.state import SimulatedState

Choice = Literal["ric", "random", "worst", "first"]
_CHOICES: tuple[str, ...] = get_args(Choice)
_CHUNK = 1 << 16
"""Rows that choose their next key at a time: room for candidates is made for so many."""


@dataclass(frozen=True)
class RingOptions:
    """How nodes work; times are of the clock that drives the steps."""

    choice: Choice = "ric"
    delta: int = UNBOUNDED
    """How long the attribute level keeps a tuple. UNBOUNDED: for ever, so one-time queries find everything."""
    delay: int = 0
    """The longest that a message takes: what rewritten queries at attribute level are planned with."""
    rate_period: int = 1000
    """Rates are of the tuples of so long."""
    rate_valid: int = 1000
    """What a node has learned longer ago it asks for again, in one hop."""
    levels: Literal["both", "value"] = "both"
    """Whether rewritten queries may wait at attribute level too."""
    attribute_rule: bool = True
    """Off: rewritten queries wait at attribute level even if older tuples are gone from there, as the paper has it."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.choice not in _CHOICES:
            raise OptionError(f"choice={self.choice!r}: there are {', '.join(map(repr, _CHOICES))}")
        if self.levels not in ("both", "value"):
            raise OptionError(f"levels={self.levels!r}: there are 'both' and 'value'")
        for name, least in (("delta", 0), ("delay", 0), ("rate_period", 1), ("rate_valid", 0)):
            if getattr(self, name) < least:
                raise OptionError(f"{name}={getattr(self, name)}: give {least} or more")


@dataclass
class Watermark:
    """What may still arrive: tuples of this ts or later, of this batch or later, after so many of each stream."""

    ts: int
    batch: int
    numbered: np.ndarray


@dataclass
class Load:
    """What nodes have sent and received, by node."""

    sent: np.ndarray
    """Lines: asking for rates, queries, tuples, answers, what changes its owner."""
    rows: np.ndarray
    tuples: np.ndarray

    @classmethod
    def of(cls, nodes: int) -> Load:
        return cls(np.zeros((5, nodes), np.int64), np.zeros(nodes, np.int64), np.zeros(nodes, np.int64))

    def copy(self) -> Load:
        return Load(self.sent.copy(), self.rows.copy(), self.tuples.copy())


ASKING, QUERIES, INDEXING, ANSWERING, MOVING = range(5)


@dataclass
class TravellingRows:
    """Rows on their way, with (rate, when learned) of their candidates."""

    rows: np.ndarray
    carried: np.ndarray

    def __len__(self) -> int:
        return len(self.rows)

    def take(self, which: np.ndarray) -> TravellingRows:
        return TravellingRows(self.rows[which], self.carried[which])


@dataclass
class Outbox:
    """What a step made."""

    rows: TravellingRows
    answers: np.ndarray
    events: np.ndarray
    """Which tuple or row has made every row."""

    @property
    def groups(self) -> int:
        """Messages if rows that one event sends to one key travelled together."""
        return _groups(self.events, self.rows.rows[:, KEY])


@dataclass
class RingUnit:
    """All that the nodes of a unit know."""

    ring: Ring
    catalogue: RingCatalogue
    options: RingOptions = RingOptions()
    load: Load = field(init=False)
    state: SimulatedState = field(init=False)

    def __post_init__(self) -> None:
        self.load = Load.of(int(self.ring.nodes.max()) + 1)
        self.state = SimulatedState(self.catalogue)

    def change(self, ring: Ring) -> int:
        """Nodes have joined, left or moved: what has another owner now is sent there, a message for each row and tuple; how many."""
        keys = np.concatenate([self.state.rows[:, KEY], self.state.tuples[:, TUPLE_KEY]])
        givers = self.ring.owners(keys)
        gone = givers[givers != ring.owners(keys)]
        self.load.sent[MOVING] += self._by_node(gone)
        more = int(ring.nodes.max()) + 1 - len(self.load.rows)
        if more > 0:
            old, self.load = self.load, Load.of(int(ring.nodes.max()) + 1)
            self.load.sent[:, :-more], self.load.rows[:-more], self.load.tuples[:-more] = old.sent, old.rows, old.tuples
        self.ring = ring
        return len(gone)

    def step(self, tuples: np.ndarray, rows: TravellingRows, now: int) -> Outbox:
        """Everything that arrives at one instant."""
        state, options = self.state, self.options
        self._receive(tuples, rows)
        tuples[:, ARRIVED] = now
        by_tuples = state.meet_tuples(tuples)
        keys = np.ascontiguousarray(tuples[:, TUPLE_KEY])
        candidates.count_arrivals(state.blocks[ENTRIES], state.slots, keys, now, options.rate_period)
        marks = np.full(len(self.catalogue.streams), NEVER, np.int64)
        by_rows = state.walk_rows(rows.rows, now, options.delta, marks)
        by_rows[:, NEXT] += len(tuples)
        made = np.concatenate([by_tuples, by_rows])
        made = made[self.catalogue.hold_windows(made)]
        made = made[self._first_time(made)]
        done = self.catalogue.are_complete(made)
        answers, going = made[done], made[~done]
        events = going[:, NEXT].copy()
        self.load.sent[ANSWERING] += self._by_node(self.ring.owners(answers[:, KEY].copy()))
        out = self.place(going, self.ring.owners(going[:, KEY].copy()), now)
        return Outbox(out, answers, events)

    def place(self, rows: np.ndarray, senders: np.ndarray, now: int) -> TravellingRows:
        """Choose where rows wait next, and count what that costs their senders."""
        state, cat = self.state, self.catalogue.arrays
        o, ring = self.options, self.ring
        delta = o.delta if o.attribute_rule else UNBOUNDED
        choice = _CHOICES.index(o.choice)
        options = np.array([choice, now, o.rate_valid, o.rate_period, delta, o.delay, o.levels == "value", o.seed])
        widest = int((cat[BIND_AT][:, -1] - cat[BIND_AT][:, 0]).max()) if len(cat[BIND_AT]) else 0
        carried = np.full((len(rows), 2 * widest if o.choice == "ric" else 0), -1, np.int64)
        positions = ring.positions[senders]
        for begin in range(0, len(rows), _CHUNK):
            part = slice(begin, begin + _CHUNK)
            state.reserve_candidates(len(rows[part]) * widest)
            next_key.choose(
                rows[part], positions[part], cat, state.lay, ring.ids, ring.fingers, ring.nodes, state.slots, state.blocks[ENTRIES],
                state.candidates, state.known, options, self.catalogue.tumbling, self.load.sent, carried[part],
            )  # fmt: skip
        return TravellingRows(rows, carried)

    def index(self, tuples: np.ndarray, senders: np.ndarray) -> np.ndarray:
        """Procedure 1: two copies of every tuple for each of its columns, one at either level; counts their way."""
        copies = rewriting.copies(tuples, self.catalogue.columns)
        self.ring.send(senders[copies[:, TUPLE_NEXT]], copies[:, TUPLE_KEY].copy(), self.load.sent[INDEXING])
        return copies

    def expire(self, watermark: Watermark, settled: Watermark, now: int) -> int:
        """Drop rows that no tuple can match any more, and tuples that no row can; the number of rows that went. A row on its
        way has got its last tuple at or after `settled`."""
        state = self.state
        before = len(state.rows)
        marks = np.full(len(self.catalogue.streams), watermark.ts)
        rows = arrivals.may_match(state.rows, self.catalogue.arrays, state.lay, marks)
        rows &= self.catalogue.may_match(state.rows, watermark.ts, watermark.batch, watermark.numbered)
        time, numbers = self.catalogue.retention(settled.batch)
        tuples = state.tuples
        stream = tuples[:, STREAM]
        young = tuples[:, TS] + time[stream] >= settled.ts
        recent = tuples[:, NUMBER] + numbers[stream] > settled.numbered[stream]
        stays = np.where(
            tuples[:, LEVEL] == VALUE_LEVEL, young & recent, now - tuples[:, ARRIVED] <= self.options.delta
        )
        if not (rows.all() and stays.all()):
            state.keep(rows, stays)
        return before - len(state.rows)

    def count_stored(self) -> tuple[np.ndarray, np.ndarray]:
        """Rewritten queries and tuples that each node stores."""
        rows = self.state.rows
        rewritten = rows[rows[:, BOUND] != 0]
        return (
            self._by_node(self.ring.owners(rewritten[:, KEY].copy())),
            self._by_node(self.ring.owners(self.state.tuples[:, TUPLE_KEY].copy())),
        )

    def _by_node(self, nodes: np.ndarray) -> np.ndarray:
        return np.bincount(nodes, minlength=len(self.load.rows))

    def _receive(self, tuples: np.ndarray, rows: TravellingRows) -> None:
        to = self.ring.owners(rows.rows[:, KEY].copy())
        self.load.rows += self._by_node(to[rows.rows[:, BOUND] != 0])
        self.load.tuples += self._by_node(self.ring.owners(tuples[:, TUPLE_KEY].copy()))
        if rows.carried.shape[1]:
            for begin in range(0, len(rows), _CHUNK):
                part = slice(begin, begin + _CHUNK)
                self.state.reserve_candidates(len(rows.rows[part]) * rows.carried.shape[1] // 2)
                next_key.unpack(
                    rows.rows[part], rows.carried[part], to[part], self.catalogue.arrays,
                    self.ring.ids, self.ring.nodes, self.state.candidates, self.state.known,
                )  # fmt: skip

    def _first_time(self, made: np.ndarray) -> np.ndarray:
        state, once = self.state, self.catalogue.once
        count = int(once[made[:, TEMPLATE]].sum())
        if not count:
            return np.ones(len(made), bool)
        state.reserve_seen(count)
        return seen_rows.first_time(made, once, state.lay, state.seen, state.seen_slots, state.seen_count)


def _groups(events: np.ndarray, keys: np.ndarray) -> int:
    """Different pairs of event and key."""
    if not len(keys):
        return 0
    order = np.lexsort((keys, events))
    return 1 + int(np.count_nonzero((np.diff(events[order]) != 0) | (np.diff(keys[order]) != 0)))
