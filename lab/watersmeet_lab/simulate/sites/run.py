"""Plans across sites on a simulated network: sites send each other keys, tuples and counts, and everything is counted.

    interval n        n+1              all streams are cut at the same times; a site acts at the end of an interval
    --|---------------|--------------
      B(n) arrives    | act: windows take B(n), heads probe;  + delta: copies may be probed;  + delta: what died is removed

Two ways to bear delays:
- `delta`: bounds on delays are known. Copies are probed when every update of their interval must have come, and tuples are removed
  when every head that could meet them must have passed.
- `heartbeats`: nothing is known. Every interval's end is told along every sequence, and from window to copy, even if there is nothing
  else to say; a copy is probed when it has been told the interval, and a window removes tuples when every head of the intervals that
  could meet them has passed. A slow line makes results late, never wrong.

Invariant: results are those of the definition in `sites.planning.model`, whatever the plan, as long as delays keep within delta, or
whatever the delays, under heartbeats.
Implements: Tran and Lee (2010), section 2.2 (delta, delayed probe, delayed removal, limited-interval match; execution interval), 4.1,
4.2; and the heartbeats of its section 7, named there as future work.
Departs from the paper: windows are closed ([t-T, t], ties by the order of streams). delta is two numbers: how long an update of a copy
takes, and how long an interval's heads are under way. The paper's single delta, the longest accumulated delay, does not count that a
probe has waited before it goes on. An interval's tuples are up to an interval old when they probe, which removal waits for, too.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from time import perf_counter
from typing import Literal

import numpy as np

from watersmeet.errors import OptionError
from watersmeet.sites.planning.model import Algorithm, LinearPlan
from watersmeet.sites.planning.trees import TreePlan
from watersmeet_lab.simulate.network import Network, Simulation, Traffic
from watersmeet_lab.simulate.sites.halves import NUMBER_BYTES, Done, Sent
from watersmeet_lab.simulate.sites.model import Counts, Envelope, Joining, Outcome, SiteProtocol
from watersmeet_lab.simulate.sites.one_way import ANSWERED, HALVES, HOPS, MIRRORED
from watersmeet_lab.simulate.sites.streams import Base, Results, Streams, joint
from watersmeet_lab.simulate.sites.window import NONE, NOTHING, Arrival, Rows, together


class SiteRun:
    """One run of a plan over streams."""

    def __init__(
        self,
        plan: LinearPlan | TreePlan,
        streams: Streams,
        network: Network | None = None,
        protocol: SiteProtocol | None = None,
    ) -> None:
        self.plan, self.streams = plan, streams
        self.network, self.protocol = network or Network(), protocol or SiteProtocol()
        self.simulation = Simulation(self.network)
        self.beats, self.processing_s, self.latest_us = 0, 0.0, 0
        self.found: list[Rows] = []
        self.first_us, last_us = streams.span_us
        self.intervals = (last_us - self.first_us) // self.protocol.interval_us + 1 if last_us >= self.first_us else 0
        self.longest_us = self._longest_us()
        self.joinings: list[Joining] = []
        self.beat_traffic: dict[tuple[str, str], int] = {}
        if isinstance(plan, LinearPlan):
            self._linear(plan)
        else:
            self._tree(plan)
        for site in {s.site for s in plan.query.streams}:
            self.simulation.enter(site, lambda sender, envelope: self._receive(envelope))

    def run(self) -> Outcome:
        """All intervals, until nothing is under way."""
        self.simulation.run()
        traffic = {pair: t for pair, t in self.simulation.traffic.items() if pair[0] != pair[1]}
        pairs = {pair: self._count_shipped(pair, t) for pair, t in traffic.items()}
        shipments, rows, nbytes = (sum(p[n] for p in pairs.values()) for n in range(3))
        under_way = [j.offset_us + (j.under_way_us or 0) for j in self.joinings]
        known = self.protocol.bound == "delta" and self.longest_us is not None
        counts = Counts(
            pairs, shipments, rows, nbytes, self.beats, self.processing_s, self.intervals,
            max(under_way) if known else None, self.latest_us,
        )  # fmt: skip
        empty = Rows(NONE, dict.fromkeys(self.plan.query.aliases, NONE))
        return Outcome(together([empty, *self.found]), counts)

    def _count_shipped(self, pair: tuple[str, str], t: Traffic) -> tuple[int, int, int]:
        beats = self.beat_traffic.get(pair, 0)
        return t.messages - beats, t.rows, t.bytes - beats * NUMBER_BYTES

    # ---------------------------------------------------------------- the plan as joins at sites

    def _linear(self, plan: LinearPlan) -> None:
        firsts: list[tuple[Joining, Base]] = []
        for head in plan.query.aliases:
            done, chain = frozenset({head}), []
            for step, at in zip(plan.sequences[head], plan.places(head), strict=False):
                chain.append(self._add_joining(step.algorithm, at, done, step.to))
                done |= {step.to}
            for j, following in pairwise(chain):
                j.results = lambda tick, rows, f=following: self._feed(f, tick, rows)  # type: ignore[misc]
                j.beat_on = lambda tick, f=following: self._beat(f, tick)  # type: ignore[misc]
            chain[-1].results = self._result
            firsts.append((chain[0], self.streams.base[head]))
            under_way = self._under_way_us(chain)
            for j in chain:
                j.under_way_us = under_way
        longest = max((j.under_way_us for j in self.joinings if j.under_way_us is not None), default=None)
        for j in self.joinings:
            j.under_way_us = longest
        self._each_interval(0, self.joinings, lambda span: [(j, base.head(span)) for j, base in firsts])

    def _tree(self, plan: TreePlan) -> None:
        if self.protocol.bound == "heartbeats":
            raise OptionError("a tree's levels close their intervals by delta; use bound='delta', or a linear plan")
        below, place, offset = frozenset({plan.first}), self.streams.query.stream(plan.first).site, 0
        source: Base | Results = self.streams.base[plan.first]
        collected: dict[int, list[Rows]] = {}
        for level in plan.levels:
            base, site = self.streams.base[level.stream], self.streams.query.stream(level.stream).site
            down = self._add_joining(level.downward, place, below, level.stream)
            up = self._add_joining(level.upward, site, frozenset({level.stream}), plan.first, place, below, source)
            under_way = max(self._under_way_us([j]) for j in (down, up))
            for j in (down, up):
                j.offset_us, j.under_way_us = offset, under_way
            out: dict[int, list[Rows]] = {}
            last = level is plan.levels[-1]
            collect = self._result if last else lambda tick, rows, out=out: out.setdefault(tick, []).append(rows)  # type: ignore[misc]
            down.results = up.results = collect
            self._each_interval(offset, [down, up], self._level_heads(down, up, base, source, collected))
            below, place = below | {level.stream}, site if level.at_stream else place
            source, collected, offset = Results(self.streams), out, offset + under_way + 1

    def _level_heads(
        self, down: Joining, up: Joining, base: Base, source: Base | Results, collected: dict[int, list[Rows]]
    ) -> Callable[[tuple[int, int]], list[tuple[Joining, Rows]]]:
        """What probes in an interval of a level; what is below also arrives in its own window, before anything probes."""
        if isinstance(source, Base):
            return lambda span: [(down, source.head(span)), (up, base.head(span))]
        pending: list[Rows] = []

        def arrivals(span: tuple[int, int]) -> Arrival:
            parts = collected.pop(self._tick(span), [])
            pending[:] = [together(parts)] if parts else []
            rows = pending[0] if pending else Rows(NONE, {})
            code = up.keys.of(rows.members) if pending else NONE
            return Arrival(source.add(rows).with_keys(code))

        up.arrivals = arrivals
        return lambda span: [*((down, rows) for rows in pending), (up, base.head(span))]

    def _add_joining(
        self,
        algorithm: Algorithm,
        at: str,
        done: frozenset[str],
        to: str,
        there: str | None = None,
        others: frozenset[str] | None = None,
        other: Base | Results | None = None,
    ) -> Joining:
        """From the rows of some streams at a site to a stream, or to the results of a tree's level."""
        other = other or self.streams.base[to]
        made, keys = joint(
            self.streams, done, others or frozenset({to}), other, limited="limited match" not in self.protocol.without
        )
        source, destination = HALVES[algorithm]
        arrivals = (
            (lambda span: other.arrival(span, keys)) if isinstance(other, Base) else (lambda span: Arrival(NOTHING))
        )
        place = there or self.streams.query.stream(to).site
        j = Joining(len(self.joinings), algorithm, at, place, keys, arrivals, source(made), destination(made))
        self.joinings.append(j)
        return j

    # ---------------------------------------------------------------- delays

    def _longest_us(self) -> int | None:
        """How long a message takes at most."""
        sites = sorted({s.site for s in self.plan.query.streams})
        for a in sites:
            for b in sites:
                link = self.network.link(a, b)
                if link.jitter_us and link.arrival != "in order":
                    raise OptionError(
                        f"the line from {a} to {b} reorders messages; sites need Link(arrival='in order')"
                    )
        if self.protocol.bound == "heartbeats":
            return None
        if self.protocol.delta_us != "auto":
            return self.protocol.delta_us
        worst = self.network.worst_us(sites, sites)
        if worst is None:
            raise OptionError("lines with a bandwidth have no longest delay; give delta_us=..., or bound='heartbeats'")
        return worst

    def _under_way_us(self, chain: list[Joining]) -> int:
        """How long heads take through a chain of joins."""
        one, at = self.longest_us or 0, 0
        for j in chain:
            if j.algorithm in MIRRORED:
                at = max(at, one)
            at += HOPS[j.algorithm] * one * (j.at != j.there)
        return at

    def _low(self, j: Joining, side: Literal["source", "destination"]) -> int:
        """The order time before which no head meets anything of a join any more."""
        interval, now = self.protocol.interval_us, self.simulation.now_us - j.offset_us
        if self.protocol.bound == "heartbeats":
            here = j.mirrored if j.algorithm in ANSWERED else j.over_here
            over = here if side == "source" else j.over_there
            ts = (over + 1) * interval
        elif "delayed removal" in self.protocol.without:
            ts = now
        else:
            ts = now - interval - (j.under_way_us or 0)
        return (self.first_us + ts) * self.streams.width

    # ---------------------------------------------------------------- intervals

    def _tick(self, span: tuple[int, int]) -> int:
        return (span[0] - self.first_us) // self.protocol.interval_us

    def _each_interval(
        self, offset: int, joinings: list[Joining], heads: Callable[[tuple[int, int]], list[tuple[Joining, Rows]]]
    ) -> None:
        """At the end of every interval windows take what has come, then heads probe."""
        interval = self.protocol.interval_us
        acting = list(joinings)

        def act(tick: int) -> None:
            span = self.first_us + tick * interval, self.first_us + (tick + 1) * interval
            for j in acting:
                self._arrive(j, tick, span)
            for j, rows in heads(span):
                self._feed(j, tick, rows)
                self._beat(j, tick)
            if tick + 1 < self.intervals:
                self.simulation.at((tick + 2) * interval + offset, lambda: act(tick + 1))

        if self.intervals:
            self.simulation.at(interval + offset, lambda: act(0))

    def _arrive(self, j: Joining, tick: int, span: tuple[int, int]) -> None:
        out = self._time_work(lambda: j.destination.arrive(tick, j.arrivals(span), self._low(j, "destination")))
        mirrors = self.protocol.bound == "heartbeats" and j.algorithm in MIRRORED
        self._take(j, "destination", out, told=tick if mirrors else None)
        if mirrors and not out:
            self._send_beat(j, "source", tick)

    def _feed(self, j: Joining, tick: int, rows: Rows) -> None:
        """Rows have come to a join's source."""
        if len(rows):
            rows = rows.take(np.flatnonzero(j.source.joint.codes(rows) >= 0))
        if len(rows) == 0:
            return
        ready_us = (tick + 1) * self.protocol.interval_us + j.offset_us + (self.longest_us or 0)
        if self.protocol.bound == "heartbeats":
            j.held.append((tick, rows))
            self._drain(j)
        elif j.algorithm in MIRRORED and "delayed probe" not in self.protocol.without:
            self.simulation.at(max(self.simulation.now_us, ready_us), lambda: self._probe(j, tick, rows))
        else:
            self._probe(j, tick, rows)

    def _probe(self, j: Joining, tick: int, rows: Rows) -> None:
        self._take(j, "source", self._time_work(lambda: j.source.probe(tick, rows, self._low(j, "source"))))

    def _result(self, tick: int, rows: Rows) -> None:
        if len(rows):
            self.found.append(rows)
            self.latest_us = max(self.latest_us, self.simulation.now_us - (tick + 1) * self.protocol.interval_us)

    # ---------------------------------------------------------------- messages

    def _time_work(self, work: Callable[[], Iterator[Sent | Done]]) -> list[Sent | Done]:
        began = perf_counter()
        out = list(work())
        self.processing_s += perf_counter() - began
        return out

    def _take(
        self, j: Joining, side: Literal["source", "destination"], out: list[Sent | Done], told: int | None = None
    ) -> None:
        """What a half has to say goes to the other one; results go on."""
        for item in out:
            if isinstance(item, Done):
                if len(item.rows):
                    j.results(item.tick, item.rows)
            elif side == "source":
                envelope = Envelope(j.number, "destination", item, told)
                self.simulation.send(j.at, j.there, envelope, rows=item.rows, nbytes=item.nbytes)
            else:
                envelope = Envelope(j.number, "source", item, told)
                self.simulation.send(j.there, j.at, envelope, rows=item.rows, nbytes=item.nbytes)

    def _receive(self, envelope: Envelope) -> None:
        j, message = self.joinings[envelope.joining], envelope.message
        if envelope.to == "source":
            if message is not None:
                self._take(j, "source", self._time_work(lambda: j.source.receive(message, self._low(j, "source"))))
            if envelope.told is not None:
                j.mirrored = envelope.told
            self._drain(j)
        else:
            if message is not None:
                self._take(j, "destination", self._time_work(lambda: j.destination.receive(message)))
            if envelope.told is not None:
                j.told = envelope.told
            self._over_there(j)

    # ---------------------------------------------------------------- heartbeats

    def _beat(self, j: Joining, tick: int) -> None:
        """All rows up to an interval have come to a join's source."""
        if self.protocol.bound == "heartbeats":
            j.fed = tick
            self._drain(j)

    def _drain(self, j: Joining) -> None:
        """Probe what may be probed, and say which intervals are over."""
        if self.protocol.bound != "heartbeats":
            return
        while j.held and (j.algorithm not in MIRRORED or j.mirrored >= j.held[0][0]):
            self._probe(j, *j.held.popleft())
        waiting = [t for t in (j.source.oldest(), j.held[0][0] if j.held else None) if t is not None]
        over = min([j.fed, *(t - 1 for t in waiting)])
        if over > j.over_here:
            j.over_here = over
            self._send_beat(j, "destination", over)
            if j.at_source:
                j.beat_on(over)

    def _over_there(self, j: Joining) -> None:
        if self.protocol.bound != "heartbeats":
            return
        waiting = j.destination.oldest()
        over = j.told if waiting is None else min(j.told, waiting - 1)
        if over > j.over_there:
            j.over_there = over
            if j.algorithm in ANSWERED:
                self._send_beat(j, "source", over)
            if not j.at_source:
                j.beat_on(over)

    def _send_beat(self, j: Joining, to: Literal["source", "destination"], tick: int) -> None:
        pair = (j.at, j.there) if to == "destination" else (j.there, j.at)
        if pair[0] != pair[1]:
            self.beats += 1
            self.beat_traffic[pair] = self.beat_traffic.get(pair, 0) + 1
        self.simulation.send(*pair, Envelope(j.number, to, None, tick), nbytes=NUMBER_BYTES)
