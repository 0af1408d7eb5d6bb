"""RJoin over a simulated network: nodes of a ring, messages that take their time and overtake one another.

    publish   a node indexes a tuple           copies under its keys, each delayed by itself
    pose      a node asks for rates, and       the query's row, delayed
              sends the query
    arrive    everything of one instant, at    rewritten queries, each delayed by itself; answers
              all nodes: one step of the unit

A message takes a random time between one and `delay`, its whole way over the ring; hops are counted, not timed. Time is
whole ticks of the clock that also gives tuples their ts: a tuple is published at its ts or at most `lateness` later. All
messages of an instant are processed in one compiled step, so a thousand nodes and millions of messages are simulated in
seconds; `simulate.network` calls Python for every message, and is for protocols of few.

Invariant: a run is a function of its arguments and the seed. Messages are delayed and reordered, never lost.
Implements: Idreos, Liarou, Koubarakis (2008), section 2: the relaxed asynchronous model with a largest delay.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

import numpy as np

from watersmeet.errors import OptionError
from watersmeet.kernels.registered.rewriting import AT_VALUES, BATCH, NUMBER, STREAM, TEMPLATE, TS
from watersmeet.registry.rjoin.catalogue import Columns, Layout
from watersmeet_lab.simulate.ring.catalogue import RingCatalogue
from watersmeet_lab.simulate.ring.circle import Ring
from watersmeet_lab.simulate.ring.coded_join import CodedJoin
from watersmeet_lab.simulate.ring.query_registry import QueryRegistry
from watersmeet_lab.simulate.ring.unit import RingOptions, RingUnit, TravellingRows, Watermark

_SWEEP = 1 << 8
"""Rewritten queries that are there before anybody looks for expired ones."""
_SLACK = 1.25
"""Expired ones are looked for when there are so many times the rewritten queries that were left the last time: so what lies there is never much more than what windows keep."""


@dataclass(frozen=True)
class Tuples:
    """Tuples of all streams in the order of their publication: stream numbers, event times, when published, values."""

    stream: np.ndarray
    ts: np.ndarray
    published: np.ndarray
    values: np.ndarray

    def __post_init__(self) -> None:
        if np.any(np.diff(self.published) < 0):
            raise OptionError("tuples are not in the order in which they are published; sort them")
        if np.any(self.published < self.ts):
            raise OptionError("a tuple is published before it happens; let `published` be its ts or later")

    def __len__(self) -> int:
        return len(self.stream)

    @property
    def lateness(self) -> int:
        """The longest between a tuple's ts and its publication."""
        return int((self.published - self.ts).max()) if len(self) else 0


@dataclass
class _Instant:
    """What arrives at one tick."""

    tuples: list[np.ndarray] = field(default_factory=list)
    rows: list[TravellingRows] = field(default_factory=list)
    actions: list[Callable[[], None]] = field(default_factory=list)


class RingSimulation:
    """One run; plan everything with `pose`, `publish`, `remove` and `at`, then `run`."""

    def __init__(
        self, ring: Ring, streams: Columns, templates: Iterable[CodedJoin], options: RingOptions,
        *, delay: int = 1, seed: int = 0, keep: bool = True, expires: bool = True,
    ) -> None:  # fmt: skip
        """templates: all that will be posed, for the layout. delay: the longest that a message takes. keep: the answers. expires: whether nodes drop what windows have passed."""
        if delay < 1:
            raise OptionError(f"delay={delay}: a message takes one tick or more")
        self.delay, self.keep, self.expires = delay, keep, expires
        self.on_answers: Callable[[np.ndarray], None] = lambda answers: None
        self.registry = QueryRegistry(RingCatalogue(streams, Layout.of(t.canonical for t in templates)))
        self.unit = RingUnit(ring, self.registry.catalogue, options)
        self.now = self.answered = self.groups = self.moved = 0
        self.answers: list[np.ndarray] = []
        self.answered_by_template = np.zeros(0, np.int64)
        self.published = 0
        self._random = np.random.default_rng(seed)
        self._instants: dict[int, _Instant] = {}
        self._ticks: list[int] = []
        self._lateness = 0
        self._live = self._posed = 0
        """Rewritten queries that were left when expired ones were last dropped, and queries that were posed, which do not expire."""

    # ---------------------------------------------------------------- what happens from outside

    def at(self, tick: int, action: Callable[[], None]) -> None:
        """Plan anything: a change of the ring, a look at the loads."""
        self._instant(tick).actions.append(action)

    def pose(self, templates: Iterable[CodedJoin], tick: int) -> None:
        """Queries that take effect at a tick, posed by nodes at random; they get the next numbers."""
        templates = list(templates)
        self.at(tick, lambda: self._place(self.registry.add_all(templates, tick)[1]))

    def ask(self, template: CodedJoin, tick: int) -> None:
        """A one-time query over what is published up to a tick."""
        self.at(tick, lambda: self._place(self.registry.ask(template, tick)[1]))

    def remove(self, query: int, tick: int) -> None:
        self.at(tick, lambda: self.registry.remove(query, tick))

    def publish(self, tuples: Tuples) -> None:
        """All tuples of the run, each from a node at random; a sequencer numbers them if a window counts tuples."""
        if any(map(len, self.registry.catalogue.times)):
            raise OptionError("this run has its tuples already; publish all of them at once")
        block = self._number_block(tuples)
        for tick in np.unique(tuples.published).tolist():
            first, last = np.searchsorted(tuples.published, [tick, tick + 1])
            self.at(tick, lambda part=block[first:last]: self._publish(part))  # type: ignore[misc]

    def change(self, ring: Ring) -> int:
        """Nodes have joined, left or moved; how many stored rows and tuples have another owner now."""
        moved = self.unit.change(ring)
        self.moved += moved
        return moved

    # ---------------------------------------------------------------- the clock

    def run(self, most_rows: int | None = None) -> bool:
        """Until nothing is under way, or more rows than this are stored; whether it came to its end."""
        while self._ticks:
            if most_rows is not None and len(self.unit.state.rows) > most_rows:
                return False
            self.now = heapq.heappop(self._ticks)
            self._happen(self._instants.pop(self.now))
        return True

    def _happen(self, instant: _Instant) -> None:
        for action in instant.actions:
            action()
        if not (instant.tuples or instant.rows):
            return
        width = self.unit.catalogue.tuple_width
        tuples = np.concatenate(instant.tuples) if instant.tuples else np.zeros((0, width), np.int64)
        out = self.unit.step(tuples, self._concat(instant.rows), self.now)
        self.answered += len(out.answers)
        self._count(out.answers[:, TEMPLATE])
        self.on_answers(out.answers)
        self.groups += out.groups
        if self.keep and len(out.answers):
            self.answers.append(out.answers)
        self._send(out.rows)
        if self.expires and len(self.unit.state.rows) - self._posed > max(_SLACK * self._live, _SWEEP):
            self.sweep()

    def _count(self, templates: np.ndarray) -> None:
        found = np.bincount(templates, minlength=len(self.registry.catalogue))
        found[: len(self.answered_by_template)] += self.answered_by_template
        self.answered_by_template = found

    def sweep(self) -> int:
        """Drop what has expired; the rows that are left."""
        aliases = self.unit.catalogue.layout.aliases
        self.unit.expire(self._watermark(1), self._watermark(1 + aliases), self.now)
        left = len(self.unit.state.rows)
        self._live = left - self._posed
        return left

    def _watermark(self, delays: int) -> Watermark:
        times = self.registry.catalogue.times
        batch = self.now - delays * self.delay
        ts = batch - self._lateness
        return Watermark(ts, batch, np.array([np.searchsorted(t, ts, side="left") for t in times], np.int64))

    # ---------------------------------------------------------------- messages

    def _place(self, templates: list[int]) -> None:
        if templates:
            self._posed += len(templates)
            senders = self._random.choice(self.unit.ring.nodes, len(templates))
            self._send(self.unit.place(self.registry.catalogue.pose(templates), senders, self.now))

    def _publish(self, tuples: np.ndarray) -> None:
        copies = self.unit.index(tuples, self._random.choice(self.unit.ring.nodes, len(tuples)))
        self.published += len(tuples)
        for tick, part in self._draw_delays(len(copies)):
            self._instant(tick).tuples.append(copies[part])

    def _send(self, rows: TravellingRows) -> None:
        for tick, part in self._draw_delays(len(rows)):
            self._instant(tick).rows.append(rows.take(part))

    def _draw_delays(self, messages: int) -> list[tuple[int, np.ndarray]]:
        """When messages arrive, in groups."""
        if messages == 0:
            return []
        if self.delay == 1:
            return [(self.now + 1, np.arange(messages))]
        delays = self._random.integers(1, self.delay + 1, messages)
        return [(self.now + d, np.nonzero(delays == d)[0]) for d in np.unique(delays).tolist()]

    def _instant(self, tick: int) -> _Instant:
        if tick not in self._instants:
            self._instants[tick] = _Instant()
            heapq.heappush(self._ticks, tick)
        return self._instants[tick]

    def _concat(self, parts: list[TravellingRows]) -> TravellingRows:
        if len(parts) == 1:
            return parts[0]
        if not parts:
            return TravellingRows(self.unit.catalogue.layout.no_rows(), np.zeros((0, 0), np.int64))
        widest = max(p.carried.shape[1] for p in parts)
        carried = np.full((sum(map(len, parts)), widest), -1, np.int64)
        at = 0
        for p in parts:
            carried[at : at + len(p), : p.carried.shape[1]] = p.carried
            at += len(p)
        return TravellingRows(np.concatenate([p.rows for p in parts]), carried)

    def _number_block(self, tuples: Tuples) -> np.ndarray:
        catalogue = self.unit.catalogue
        out = np.zeros((len(tuples), catalogue.tuple_width), np.int64)
        out[:, STREAM], out[:, TS], out[:, BATCH] = tuples.stream, tuples.ts, tuples.published
        out[:, AT_VALUES : AT_VALUES + tuples.values.shape[1]] = tuples.values
        order = np.argsort(tuples.ts, kind="stable")
        for s in range(len(catalogue.streams)):
            mine = order[tuples.stream[order] == s]
            out[mine, NUMBER] = np.arange(1, len(mine) + 1)
            catalogue.times[s] = tuples.ts[mine]
        self._lateness = tuples.lateness
        return out
