"""How far everything is at a site: which heads have passed a leg, what other sites are told, and what no head can meet any more.

A *frontier* is a time before which nothing more comes: of a stream, of the rows of a leg, of the answers to questions. A site knows the frontiers of its own
streams, which are their watermarks, and those that other sites have told it. All others follow from these:

              source N                       destination M                       passed, at the place of the results
    here      rows wait for F(d)                                                 min(fed, F(d))
    SP-S      rows wait for T(d)                                                 min(fed, T(d))
    SP-D      rows -> at once                rows wait for F(d)                  min(rows, F(d))
    SM-S1     ask -> at once                 answers when F(d) has come so far   min(fed, ready)
    SM-S2     rows wait for T(d), ask ->     answers                             min(fed, T(d), ready)
    SM-D1     rows wait for T(d), rows ->                                        min(rows, F(d))
    SM-D2     ask -> at once                 wants when F(d) has come so far;    min(rows, F(d))
              rows that are wanted ->

F(d) is the frontier of the destination's stream at its home, T(d) what the source was last told of it. *Delayed probe* is that rows wait for these;
*delayed removal*, that a tuple stays until the heads that it could meet have passed; a slow or silent site delays results and never makes them wrong.

The frontier of a tree's level is the lesser of those up to which its two legs have joined. Rows of a level that a new plan begins with have heads before the plan's own, so sites
hear of a tree's streams by the plan's own channels: who says how far a stream is has sent of it what the plan asks for.

Invariant: a pure function of own watermarks and of what was told. Frontiers only grow. A frontier is told with what it speaks of or after it, never before.
Implements: Tran and Lee (2010), section 2.2, constraints 1 and 2, by the heartbeats that its section 7 names as future work.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain

from watersmeet.dataflow.clock import NEVER, dead_before
from watersmeet.sites.paths import ASKING, COPYING, KNOWING, Leg, Paths
from watersmeet.sites.planning.model import Algorithm


@dataclass
class Told:
    """What other sites have told this one of the legs of a plan, and what it has answered; JSON."""

    channels: dict[str, int] = field(default_factory=dict)
    """By channel how far it is."""
    asked: dict[str, list[int]] = field(default_factory=dict)
    """By channel of questions the frontiers at which some came that have not been answered."""
    answered: dict[str, int] = field(default_factory=dict)
    """By channel of questions how far they are answered."""

    def hear(self, channels: Mapping[str, int]) -> None:
        """What one letter says."""
        for name, mark in channels.items():
            if name.startswith("ask ") and mark > self.channels.get(name, NEVER):
                self.asked.setdefault(name, []).append(mark)
            self.channels[name] = mark

    def answer(self, frontiers: Frontiers) -> None:
        """Questions up to these frontiers are answered."""
        for name, mark in frontiers.answered.items():
            self.answered[name] = mark
            self.asked[name] = [m for m in self.asked.get(name, []) if m > mark]


class Frontiers:
    """All frontiers at one site under one plan, given those of all streams, as far as the site knows, and what it was told."""

    def __init__(self, paths: Paths, site: int, streams: Sequence[int], told: Told) -> None:
        self._paths, self.site, self._streams, self._told = paths, site, streams, told
        self.ready: dict[Leg, int] = {}
        """Rows at the source of a leg go on if their heads are older: rows are joined, shipped or asked for."""
        self.passed: dict[Leg, int] = {}
        """Heads before this have done with the leg, where its results arise."""
        self.served: dict[Leg, int] = {}
        """Heads before this need nothing more of the destination's window, at its home."""
        self.answered: dict[str, int] = {}
        self._noted: list[int] = []
        self.says: dict[int, dict[str, int]] = {}
        """By site, and channel, what it is told."""
        for stream in paths.order:
            mark = NEVER
            for leg in paths.legs[stream]:
                mark = self._pass(leg, mark if leg.number else self.of(leg.head))
        if paths.is_tree:
            self._say_streams()
        for stream in paths.preserved:
            self._say_notes(stream)

    def of(self, stream: int) -> int:
        """How far a stream is, as far as this site knows."""
        if stream >= self._paths.arriving and self._paths.homes[stream] == self.site:
            return min(self.passed[leg] for leg in self._paths.all if leg.into == stream)
        if self._paths.is_tree and self._paths.homes[stream] != self.site:
            return self._told.channels.get(f"at {stream}", NEVER)
        return self._streams[stream]

    def _say_streams(self) -> None:
        for leg in self._paths.all:
            for stream in (leg.head, leg.to):
                for site in {leg.at, leg.there, self._paths.homes[leg.head]} - {self.site}:
                    if self._paths.homes[stream] == self.site:
                        self._say(site, f"at {stream}", self.of(stream))

    def find_note_mark(self, leg: Leg, stream: int) -> int:
        """Heads before this have noted, at a stream's home, which of its tuples they have met."""
        return self.passed[leg] if leg.ends == self.site else self._told.channels.get(leg.channel("met"), NEVER)

    def _say_notes(self, stream: int) -> None:
        home = self._paths.homes[stream]
        for leg in (leg for leg in self._paths.all if stream in (leg.head, leg.to)):
            if home == self.site:
                self._noted.append(self.find_note_mark(leg, stream))
            elif leg.ends == self.site:
                self._say(home, leg.channel("met"), self.passed[leg])

    def have_passed(self, until: int) -> bool:
        """Whether no head before a time is on its way any more that has something to do here, and all has been told that such heads ask for."""
        marks = (self.ready.values(), self.passed.values(), self.served.values(), self.answered.values())
        own = [self.of(n) for n, home in enumerate(self._paths.homes) if home == self.site]
        return all(mark >= until for mark in chain(own, self._noted, *marks))

    def _pass(self, leg: Leg, fed: int) -> int:
        """Take a leg in; how far its results are, where they arise."""
        at_source, at_home, stream = leg.at == self.site, leg.there == self.site, self.of(leg.to)
        if leg.how is None:
            if at_source:
                self.ready[leg] = self.passed[leg] = self.served[leg] = min(fed, stream)
            return self.passed.get(leg, NEVER)
        if at_source:
            self._pass_source(leg, fed, stream)
        elif at_home:
            self._pass_home(leg, stream)
        return self.passed.get(leg, NEVER)

    def _pass_source(self, leg: Leg, fed: int, stream: int) -> None:
        mark = min(fed, stream) if leg.how in KNOWING or leg.how is Algorithm.SP_S else fed
        if leg.how in ASKING:
            self._say(leg.there, leg.channel("ask"), mark)
        if leg.how in COPYING:
            answered = self._hear(leg, "ready") if leg.how in ASKING else mark
            self.passed[leg] = min(mark, answered)
        else:
            mark = min(mark, self._hear(leg, "want")) if leg.how in ASKING else mark
            self._say(leg.there, leg.channel("rows"), mark)
        self.ready[leg] = mark

    def _pass_home(self, leg: Leg, stream: int) -> None:
        if leg.how in ASKING:
            name = leg.channel("ask")
            reached = [m for m in self._told.asked.get(name, []) if m <= stream]
            self.answered[name] = max(reached, default=self._told.answered.get(name, NEVER))
            self._say(leg.at, leg.channel("ready" if leg.how in COPYING else "want"), self.answered[name])
        if leg.how in COPYING:
            self.served[leg] = self.answered[leg.channel("ask")] if leg.how in ASKING else self.of(leg.head)
            return
        self.passed[leg] = self.served[leg] = min(self._hear(leg, "rows"), stream)

    def _hear(self, leg: Leg, verb: str) -> int:
        return self._told.channels.get(leg.channel(verb), NEVER)

    def _say(self, site: int, channel: str, mark: int) -> None:
        self.says.setdefault(site, {})[channel] = mark

    # ------------------------------------------------------------ what is dead

    def window_cut(self, stream: int) -> int:
        """Before this a tuple of a stream meets no head any more, at its home; none is dropped that has not set out."""
        legs = [leg for leg in self._paths.all if leg.to == stream]
        waits = self._paths.waits[stream] if stream < len(self._paths.waits) else ()
        return min(
            [
                self.of(stream),
                *(dead_before(self.served.get(leg, NEVER), leg.reach_us) for leg in legs),
                *(dead_before(self._streams[head], reach_us) for head, reach_us in waits),
            ]
        )

    def heads_at_home(self, stream: int) -> int:
        """Heads before this need nothing more of a stream's window, at its home."""
        return min([self.of(stream), *(self.served.get(leg, NEVER) for leg in self._paths.all if leg.to == stream)])

    def heads_at_copy(self, stream: int) -> int:
        """The same of a copy of another site's stream."""
        legs = [leg for leg in self._paths.keepers(stream, COPYING) if leg.at == self.site]
        return min((self.passed[leg] for leg in legs), default=NEVER)

    def copy_cut(self, stream: int) -> int:
        """The same of a copy of another site's stream."""
        legs = [leg for leg in self._paths.keepers(stream, COPYING) if leg.at == self.site]
        return min((dead_before(self.passed[leg], leg.reach_us) for leg in legs), default=NEVER)

    def values_cut(self, stream: int, classes: tuple[int, ...]) -> int:
        """Before this a value of another site's stream meets no head that is still to be tested."""
        legs = [leg for leg in self._paths.keepers(stream, KNOWING) if leg.at == self.site and leg.classes == classes]
        return min((dead_before(self.ready[leg], leg.reach_us) for leg in legs), default=NEVER)
