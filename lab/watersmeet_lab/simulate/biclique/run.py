"""The local runtime on a simulated network: shufflers, dispatchers and units as endpoints that exchange messages.

    shuffler:a  --tuples in turn-->  dispatcher:0  --copies and signals-->  unit:0
    shuffler:b  ------------------>  dispatcher:1  ---------------------->  unit:1 ...

A tuple comes to its stream's shuffler at the highest event time that the stream has had so far: in the order of the table,
and never before it happened. The network delays it from there on. Each part of the protocol can be switched off,
to see what it is for.

A message carries the number of a row of a table that all share; its bytes are counted as if the row travelled.

Invariant: with the whole protocol on, results are those of `local.run` on the same tables, whatever the delays, the
reordering, the clocks and the number of dispatchers. Late is what is late in batches of one row.
Implements: Lin, Ooi, Wang, Yu (2015), sections 3.2.1 (router and joiner), 3.2.3 (protocols) and 3.3 (theorem 1).
Departs from the paper: there is one shuffler for each alias, and it deals tuples out to dispatchers in turn. Dispatchers
send no signals while nobody waits for any.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import NEVER, count
from watersmeet.errors import OptionError
from watersmeet.kernels.instants import shift
from watersmeet.operators.enter import WireContent, rows_kept
from watersmeet.plan.model import TIME, InputPlan, Plan, Stage
from watersmeet.plan.source_sql import PASS
from watersmeet.routing.hypercube import Role
from watersmeet_lab.simulate.biclique.dispatcher import Dispatcher, Letter
from watersmeet_lab.simulate.biclique.ordered_unit import OrderedUnit
from watersmeet_lab.simulate.biclique.ordering import Copy, Fifo, GlobalOrder, Signal
from watersmeet_lab.simulate.network import Network, Simulation

HEADER_BYTES = 24
"""What a message carries besides a row: sequence number, clock, counter."""

Places = list[list[tuple[int, Role]]]
"""For every row the units that get it, and what for."""


@dataclass(frozen=True)
class Protocol:
    """How many dispatchers there are, and which parts of the protocol are on: by default all."""

    dispatchers: int = 2
    signal_us: int = 10_000
    """How often a dispatcher tells all units its clock."""
    clock_difference_us: int = 0
    """Dispatchers' clocks are ahead of the true time by up to this much, at random."""
    order: Literal["global", "arrival"] = "global"
    """Whether units process tuples in the order of their logical timestamps, or as they come."""
    pairs: Literal["fifo", "arrival"] = "fifo"
    """Whether units put the messages of each dispatcher in order first, or take them as they come."""
    max_delay_us: int | Literal["auto", "unknown"] = "auto"
    """D of theorem 1. auto: what the network's links and the clocks can add up to; unknown: nothing is discarded."""

    def __post_init__(self) -> None:
        for name, least in (("dispatchers", 1), ("signal_us", 1), ("clock_difference_us", 0)):
            value = getattr(self, name)
            if not isinstance(value, int) or value < least:
                raise OptionError(f"{name}={value!r}: give a whole number of {least} or more")
        for name, allowed in (("order", ("global", "arrival")), ("pairs", ("fifo", "arrival"))):
            if getattr(self, name) not in allowed:
                raise OptionError(f"{name}={getattr(self, name)!r}: there are {' and '.join(map(repr, allowed))}")
        if self.max_delay_us not in ("auto", "unknown") and not isinstance(self.max_delay_us, int):
            raise OptionError(f"max_delay_us={self.max_delay_us!r}: give whole microseconds, 'auto' or 'unknown'")


@dataclass
class Counts:
    """What a run cost."""

    late: dict[str, int]
    stored: dict[str, int]
    """By alias, the most rows that all units together stored at any time, copies included."""
    stored_by_unit: list[int]
    """The most rows that each unit stored at any time."""
    buffered: int = 0
    """The most messages that all units together held back at any time."""
    messages: int = 0
    """From dispatchers to units, signals among them; so are rows and bytes."""
    signals: int = 0
    rows: int = 0
    bytes: int = 0
    simulated_us: int = 0
    max_delay_us: int | None = None
    """D: what theorem 1 was applied with."""
    pairs: dict[str, tuple[int, int, int]] | None = None
    """Messages, rows and bytes by 'sender > receiver'."""

    def json(self) -> dict[str, Any]:
        return {f.name: getattr(self, f.name) for f in fields(self)}


@dataclass(frozen=True)
class Arrivals:
    """The rows of one alias that enter: when, and where they go."""

    table: pa.Table
    at_us: np.ndarray
    places: Places
    row_bytes: int
    late: int


class SimulatedRun:
    """One run of a plan over wire tables, by alias; results are tables of the plan's output."""

    def __init__(self, plan: Plan, wires: Mapping[str, pa.Table], network: Network, protocol: Protocol) -> None:
        self.plan, self.protocol = plan, protocol
        self.stage = _single_stage(plan)
        self.arrivals = [_arrivals(plan, self.stage, n, wires[s.name]) for n, s in enumerate(self.stage.sides)]
        self.simulation = Simulation(network)
        clocks = random.Random(f"{network.seed} clocks")
        self.dispatchers = [
            Dispatcher(n, plan.units, clocks.randint(0, protocol.clock_difference_us))
            for n in range(protocol.dispatchers)
        ]
        delay_us = self._max_delay_us(network)
        tables = [a.table for a in self.arrivals]
        self.units = [OrderedUnit(plan, u, tables, delay_us) for u in range(plan.units)]
        self._inboxes = [_Inbox(protocol) for _ in self.units]
        self._ticking: set[int] = set()
        self._results: list[pa.Table] = []
        late = {s: sum(a.late for a, i in self._list_inputs() if i.stream == s) for s in plan.join.streams}
        self.counts = Counts(late, dict.fromkeys(plan.aliases, 0), [0] * plan.units, max_delay_us=delay_us)

    def run(self) -> Iterator[pa.Table]:
        """Everything from the first arrival to the last result."""
        self._plan_arrivals()
        for n in range(len(self.dispatchers)):
            self.simulation.enter(f"dispatcher:{n}", partial(self._dispatch, n))
        for u in range(len(self.units)):
            self.simulation.enter(f"unit:{u}", partial(self._unit, u))
        self.simulation.run()
        assert not any(inbox.waiting for inbox in self._inboxes), "a copy was never released"
        self._count()
        yield from self._results

    # ---------------------------------------------------------------- shufflers

    def _plan_arrivals(self) -> None:
        first = min((int(a.at_us.min()) for a in self.arrivals if len(a.at_us)), default=0)
        for side, arrivals in enumerate(self.arrivals):
            for row, at_us in enumerate(arrivals.at_us.tolist()):
                self.simulation.at(at_us - first, partial(self._shuffle, side, row))

    def _shuffle(self, side: int, row: int) -> None:
        """Deal a tuple out to a dispatcher; the streams begin at different ones."""
        to = (side + row) % len(self.dispatchers)
        size = self.arrivals[side].row_bytes + HEADER_BYTES
        self.simulation.send(self._shuffler(side), f"dispatcher:{to}", (side, row), rows=1, nbytes=size)

    def _shuffler(self, side: int) -> str:
        return f"shuffler:{self.stage.sides[side].name}"

    # ---------------------------------------------------------------- dispatchers

    def _dispatch(self, number: int, sender: str, message: tuple[int, int]) -> None:
        side, row = message
        arrivals = self.arrivals[side]
        letters = self.dispatchers[number].dispatch(self.simulation.now_us, side, row, arrivals.places[row])
        for letter in letters:
            self._post(number, letter, rows=1, nbytes=arrivals.row_bytes + HEADER_BYTES)
        if self.protocol.order == "global":
            for each in range(len(self.dispatchers)):
                self._tick_later(each)

    def _tick_later(self, number: int) -> None:
        """Plan a dispatcher's next signal, unless it is planned; dispatchers take turns within the period."""
        if number not in self._ticking:
            self._ticking.add(number)
            period = self.protocol.signal_us
            phase = period * number // len(self.dispatchers)
            now_us = self.simulation.now_us
            self.simulation.at(now_us + period - (now_us - phase) % period, partial(self._tick, number))

    def _tick(self, number: int) -> None:
        self._ticking.discard(number)
        dispatcher = self.dispatchers[number]
        for letter in dispatcher.signal(self.simulation.now_us):
            self.counts.signals += 1
            self._post(number, letter, rows=0, nbytes=HEADER_BYTES)
        if dispatcher.signalled_us <= max(d.stamped_us for d in self.dispatchers):
            self._tick_later(number)  # somebody's tuple waits for this clock to pass it

    def _post(self, number: int, letter: Letter, *, rows: int, nbytes: int) -> None:
        unit, sequence, body = letter
        self.simulation.send(f"dispatcher:{number}", f"unit:{unit}", (sequence, body), rows=rows, nbytes=nbytes)

    # ---------------------------------------------------------------- units

    def _unit(self, number: int, sender: str, message: tuple[int, Copy | Signal]) -> None:
        run = self._inboxes[number].take(sender, *message)
        self.counts.buffered = max(self.counts.buffered, sum(i.waiting for i in self._inboxes))
        if not run:
            return
        self._results += self.units[number].process(run)
        stored = [u.stored for u in self.units]
        for alias in self.counts.stored:
            self.counts.stored[alias] = max(self.counts.stored[alias], sum(s[alias] for s in stored))
        by_unit = self.counts.stored_by_unit
        by_unit[number] = max(by_unit[number], sum(stored[number].values()))

    # ---------------------------------------------------------------- counts

    def _list_inputs(self) -> Iterator[tuple[Arrivals, InputPlan]]:
        for side, arrivals in zip(self.stage.sides, self.arrivals, strict=True):
            yield arrivals, self.plan.by_alias[side.name]

    def _max_delay_us(self, network: Network) -> int | None:
        """The longest way from a shuffler to a unit, and how far clocks can pull two tuples apart."""
        wanted = self.protocol.max_delay_us
        if wanted == "unknown":
            return None
        if wanted != "auto":
            return wanted
        dispatchers = [f"dispatcher:{n}" for n in range(len(self.dispatchers))]
        to_dispatchers = network.worst_us([self._shuffler(n) for n in range(len(self.stage.sides))], dispatchers)
        to_units = network.worst_us(dispatchers, [f"unit:{u}" for u in range(self.plan.units)])
        if to_dispatchers is None or to_units is None:
            return None
        return to_dispatchers + to_units + self.protocol.clock_difference_us

    def _count(self) -> None:
        sent = self.simulation.total("dispatcher:", "unit:")
        self.counts.messages, self.counts.rows, self.counts.bytes = sent.messages, sent.rows, sent.bytes
        self.counts.simulated_us = self.simulation.now_us
        self.counts.pairs = {
            f"{sender} > {receiver}": (t.messages, t.rows, t.bytes)
            for (sender, receiver), t in self.simulation.traffic.items()
        }


class _Inbox:
    """What a unit does with a message before it processes anything, as far as the protocol is on."""

    def __init__(self, protocol: Protocol) -> None:
        self._fifo = Fifo() if protocol.pairs == "fifo" else None
        self._order = GlobalOrder(protocol.dispatchers) if protocol.order == "global" else None

    @property
    def waiting(self) -> int:
        """How many messages are held back."""
        return (self._fifo.held if self._fifo else 0) + (len(self._order) if self._order else 0)

    def take(self, sender: str, number: int, body: Copy | Signal) -> list[Copy]:
        """The copies to process now, in order."""
        due = [body] if self._fifo is None else list(self._fifo.take(sender, number, body))
        if self._order is None:
            return [b for b in due if isinstance(b, Copy)]
        for one in due:
            if isinstance(one, Signal):
                self._order.signal(one)
            else:
                self._order.add(one)
        return self._order.release()


def _single_stage(plan: Plan) -> Stage:
    """What a simulated network can run."""
    if len(plan.stages) > 1 or plan.sequenced:
        what = "a ROWS window" if plan.sequenced else "a pipeline of several joins"
        raise OptionError(f"network=: {what} is not simulated; join two streams, or use routing='hypercube'")
    for name, spec in plan.join.streams.items():
        if spec.idle_us is not None:
            raise OptionError(f"network=: stream {name} has idle=, which only whole batches can follow; leave it out")
    return plan.stages[0]


def _arrivals(plan: Plan, stage: Stage, side: int, wire: pa.Table) -> Arrivals:
    """The rows of an alias that pass its filters and are not late."""
    source, wire = plan.by_alias[stage.sides[side].name], wire.combine_chunks()
    rows, seen = rows_kept(source, wire)
    so_far = _highest_so_far(wire)
    kept = wire.drop_columns([PASS] if PASS in wire.column_names else []).take(pa.array(rows))
    before = np.concatenate([[NEVER], so_far[:-1]])[rows] if len(rows) else np.empty(0, np.int64)
    late = integers(kept.column(TIME).combine_chunks()) < shift(before, -plan.join.streams[source.stream].lateness_us)
    table = kept.filter(pa.array(~late)).combine_chunks()
    return Arrivals(
        table,
        so_far[rows][~late],
        _places(plan, stage, side, table),
        -(-table.nbytes // table.num_rows) if table.num_rows else 0,
        seen.aside.get(source.stream, 0) + count(kept, late),
    )


def _highest_so_far(wire: pa.Table) -> np.ndarray:
    """For every row the highest event time up to it, before any filter."""
    time = wire.column(TIME).combine_chunks()
    ts = np.full(len(time), NEVER, np.int64)
    known = np.asarray(time.is_valid().to_numpy(zero_copy_only=False), bool)
    ts[known] = integers(time.drop_null())
    return np.maximum.accumulate(ts)


def _places(plan: Plan, stage: Stage, side: int, table: pa.Table) -> Places:
    out: Places = [[] for _ in range(table.num_rows)]
    if table.num_rows == 0:
        return out
    for delivery in stage.routing.deliveries(side, WireContent(plan, stage.sides[side].keys, table)):
        for row in range(table.num_rows) if delivery.rows is None else delivery.rows.tolist():
            out[row] += [(unit, delivery.role) for unit in delivery.units]
    return out
