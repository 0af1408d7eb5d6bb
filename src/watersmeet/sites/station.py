"""A site between its batches: what it has been told, how far it is, which letters it takes and which it sends.

    letters --take--> state, inboxes of units --> the batch --settle--> state, cuts --post--> letters

A plan holds for heads of a span of time, an *epoch*. Two epochs are under way at once while heads of the older one are: each has channels, copies and
questions of its own, and both use the same windows.

Invariant: the state is JSON, and a function of the letters taken and of the watermarks, so a batch that is repeated has the same. Letters of a pair of
sites are numbered without gaps, and taken in that order, each once.
Implements: Tran and Lee (2010), section 3.1: the interval of execution is a micro-batch of the site's own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from copy import deepcopy
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.columns.arrow import from_bytes
from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Message
from watersmeet.errors import CheckpointError
from watersmeet.kernels.instants import LAST, add_span
from watersmeet.plan.model import TIME, Plan
from watersmeet.sites import kept
from watersmeet.sites.agree import Agreement, Proposal
from watersmeet.sites.deal import deal_rows, deal_tuples
from watersmeet.sites.frontiers import Frontiers, Told
from watersmeet.sites.joins import Span
from watersmeet.sites.kept import name_keys
from watersmeet.sites.letter import Letter
from watersmeet.sites.paths import KNOWING, Leg, Paths, paths_of
from watersmeet.sites.planning.model import Algorithm
from watersmeet.sites.planning.placed import Sequences
from watersmeet.sites.unit import BODY, KIND


@dataclass
class Epoch:
    """A plan, and the heads that it holds for; JSON."""

    number: int = 0
    sequences: Sequences = field(default_factory=dict)
    """None: those of the query's first plan."""
    since: int = NEVER
    until: int = LAST
    own: dict[str, int] = field(default_factory=dict)
    """By alias how far the site's own streams were when the plan was last played."""
    told: Told = field(default_factory=Told)

    @property
    def prefix(self) -> str:
        return f"{self.number}/"


@dataclass
class SiteState:
    """What a site knows after a batch; JSON."""

    own: dict[str, int] = field(default_factory=dict)
    """By alias how far the site's own streams are."""
    streams: dict[str, int] = field(default_factory=dict)
    """The same of other sites' streams, as it was told."""
    epochs: list[Epoch] = field(default_factory=lambda: [Epoch()])
    """Those under way, oldest first."""
    taken: dict[str, int] = field(default_factory=dict)
    """By site the number of its last letter that was taken."""
    sent: dict[str, int] = field(default_factory=dict)
    """By site the number of the last letter to it."""
    batches: dict[str, list[int]] = field(default_factory=dict)
    """By site the batches whose letters it has not taken yet, oldest first; the last is that of letter `sent`."""
    said: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By site what the last letter said."""
    cuts: dict[str, int] = field(default_factory=dict)
    """By name the time before which what is kept is dead."""
    agreement: Agreement = field(default_factory=Agreement)
    newest: int = 0
    """The number of the newest epoch that it knows of."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> SiteState:
        if not raw:
            return cls()
        epochs = [Epoch(**{**e, "told": Told(**e["told"])}) for e in raw["epochs"]]
        return cls(**{**raw, "epochs": epochs, "agreement": Agreement.of(raw["agreement"])})

    def begin(self, number: int, sequences: Sequences, since: int) -> None:
        """A plan holds for heads from a time on; the one before, for those before it."""
        if number > self.newest:
            if self.epochs:
                self.epochs[-1].until = since
            self.epochs.append(Epoch(number, sequences, since))
            self.newest = number

    @property
    def furthest(self) -> int:
        """What other sites may have been told of this one's streams."""
        return max(self.own.values(), default=NEVER)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


class Station:
    """One site of a plan."""

    def __init__(self, plan: Plan, site: int, units: int = 1) -> None:
        self.plan, self.site, self.units = plan, site, units
        self.names = plan.site_names
        homes = paths_of(plan).homes
        self.homes = [n for n, home in enumerate(homes) if home == site]
        self.streams = {plan.inputs[n].stream for n in self.homes}
        self.retention = self._retention()

    def _retention(self) -> dict[str, int]:
        """By alias how long a tuple is kept: what merging of segments goes by."""
        (stage,) = self.plan.stages
        return {s.name: max(self.plan.retention_us(stage, s), 0) for s in stage.sides}

    @property
    def name(self) -> str:
        return self.names[self.site]

    @property
    def others(self) -> list[int]:
        return [n for n in range(len(self.names)) if n != self.site]

    def paths(self, epoch: Epoch) -> Paths:
        return paths_of(self.plan.at(epoch.sequences))

    def own(self, marks: Mapping[str, int], state: SiteState) -> dict[str, int]:
        """How far the site's streams are, by alias, under watermarks by stream; no further than it has promised."""
        aliases, limit = [self.plan.inputs[n] for n in self.homes], state.agreement.limit
        reached = {i.alias: max(marks[i.stream], state.own.get(i.alias, NEVER)) for i in aliases}
        return reached if limit is None else {alias: min(mark, limit) for alias, mark in reached.items()}

    def spans(self, state: SiteState, own: Mapping[str, int]) -> list[Span]:
        """The plans under way, and how far everything is under each."""
        known = {**state.streams, **own}
        streams = [known.get(alias, NEVER) for alias in self.plan.aliases]
        out = []
        for epoch in state.epochs:
            paths = self.paths(epoch)
            frontiers = Frontiers(paths, self.site, streams, epoch.told)
            out.append(Span(self.plan, paths, frontiers, epoch.prefix, epoch.own, self.units, epoch.since, epoch.until))
        return out

    # ------------------------------------------------------------ before a batch

    def take(self, state: SiteState, letters: Iterable[Letter]) -> tuple[SiteState, list[Message]]:
        """The state of a batch that takes letters, and what they bring its units."""
        after, inbox = deepcopy(state), list[Message]()
        for letter in letters:
            expected = after.taken.get(letter.sender, 0) + 1
            if letter.number != expected:
                raise CheckpointError(
                    f"letter {letter.number} from {letter.sender} to {self.name} comes where letter {expected} should; put the one back that was sent"
                )
            after.taken[letter.sender] = letter.number
            after.streams |= letter.streams
            self._forget(after, letter)
            self._agree(after, letter)
            for epoch in after.epochs:
                own = _of_epoch(epoch, letter.channels)
                epoch.told.hear(own)
                for kind, table in _of_epoch(epoch, letter.items).items():
                    inbox += self._deal(epoch, kind, table, own)
        return after, inbox

    def _agree(self, state: SiteState, letter: Letter) -> None:
        """What a letter says of plans."""
        for said in letter.more.get("epochs", []):
            state.begin(**said)
        others = [self.names[n] for n in self.others]
        agreed = state.agreement.hear(letter.sender, letter.more, state.furthest, others)
        if agreed is not None:
            state.begin(**asdict(agreed))

    def propose(self, state: SiteState, sequences: Sequences, ahead_us: int) -> None:
        """Let all sites change to a plan, for heads that are so far ahead of all that is known."""
        known = [*state.streams.values(), *state.own.values()]
        if len(known) < len(self.plan.aliases) or state.agreement.proposed is not None:
            return  # somebody has not been heard of yet
        number = max(state.newest, state.agreement.ended) + 1
        if not self.others:
            state.begin(number, sequences, add_span(max(known), ahead_us))
            return
        state.agreement.propose(Proposal(number, sequences, add_span(max(known), ahead_us)))

    def _forget(self, state: SiteState, letter: Letter) -> None:
        """Letters that the sender has taken need not be kept."""
        waiting = state.batches.get(letter.sender, [])
        oldest = state.sent.get(letter.sender, 0) - len(waiting) + 1
        state.batches[letter.sender] = waiting[max(0, letter.taken - oldest + 1) :]

    def _deal(self, epoch: Epoch, kind: str, table: pa.Table, channels: Mapping[str, int]) -> Iterator[Message]:
        """An item of a letter to the units that it is for."""
        verb, *numbers = kind.split()
        paths = self.paths(epoch)
        parts: Iterator[tuple[int, pa.Table]] = ((unit, table) for unit in range(self.units))
        if verb == "rows":
            leg = paths.legs[int(numbers[0])][int(numbers[1])]
            parts = deal_rows(self.plan, paths, leg, table, self.units)
        elif kind.endswith(" copy"):
            parts = deal_tuples(self.plan, paths, int(verb[1:]), table, self.units)
        elif verb == "ask":
            dated = table.append_column(TIME, pa.array([channels[kind]] * table.num_rows, pa.int64()))
            parts = ((unit, dated) for unit in range(self.units))
        yield from (Message(unit, epoch.prefix + kind, part) for unit, part in parts if part.num_rows)

    # ------------------------------------------------------------ after a batch

    def settle(self, state: SiteState, marks: Mapping[str, int]) -> tuple[SiteState, list[Span]]:
        """The state after a batch that has reached these watermarks by stream, and how far everything is."""
        after, own = deepcopy(state), self.own(marks, state)
        spans = self.spans(state, own)
        after.own, after.cuts, under_way = own, {}, list[Epoch]()
        for n in self.homes:
            after.cuts[self.plan.aliases[n]] = min(
                (span.frontiers.window_cut(n) for span in spans), default=own[self.plan.aliases[n]]
            )
        for epoch, span in zip(after.epochs, spans, strict=True):
            epoch.own = dict(own)
            epoch.told.answer(span.frontiers)
            is_over = epoch.until < LAST and span.frontiers.have_passed(epoch.until)
            after.cuts |= {epoch.prefix + name: LAST if is_over else cut for name, cut in self._cuts(span).items()}
            if not is_over:
                under_way.append(epoch)
        after.epochs = under_way
        return after, spans

    def _cuts(self, span: Span) -> dict[str, int]:
        """By name the time before which is dead what a plan keeps besides windows."""
        out, frontiers = dict[str, int](), span.frontiers
        for leg in span.paths.all:
            if leg.there == self.site and leg.how is not None:
                out[kept.name_sent(leg.to, leg.at)] = frontiers.window_cut(leg.to)
                for what in ("told", "asked"):
                    out[name_keys(what, leg.to, leg.classes, leg.at)] = frontiers.of(leg.to)
            if leg.at == self.site and leg.how is not None:
                out[kept.copy(leg.to)] = frontiers.copy_cut(leg.to)
                if leg.how in KNOWING:
                    cut = frontiers.values_cut(leg.to, leg.classes)
                    out |= {name_keys(what, leg.to, leg.classes): cut for what in ("values", "filter")}
                if leg.how is Algorithm.SM_S2:
                    out[name_keys("asking", leg.to, leg.classes)] = self._asking_cut(span, leg)
        return out

    def _asking_cut(self, span: Span, like: Leg) -> int:
        """Before this a value that was asked for covers no row that is still to come."""
        legs = span.paths.keepers(like.to, frozenset({Algorithm.SM_S2}))
        return min(span.frontiers.ready[leg] for leg in legs if (leg.at, leg.classes) == (like.at, like.classes))

    def post(
        self, state: SiteState, spans: Iterable[Span], batch: int, outs: Mapping[int, Iterable[pa.Table]]
    ) -> tuple[SiteState, list[Letter]]:
        """The letters of a batch whose units have these things to send, by site; a site to which nothing is new gets none."""
        after, letters, spans = deepcopy(state), list[Letter](), list(spans)
        for site in self.others:
            name, items = self.names[site], collect(outs.get(site, ()))
            letter = Letter(
                self.name,
                name,
                state.sent.get(name, 0) + 1,
                streams=dict(state.own),
                channels={span.prefix + c: m for span in spans for c, m in span.frontiers.says.get(site, {}).items()},
                taken=state.taken.get(name, 0),
                more=self._more(state),
                items=items,
            )
            if items or letter.says != state.said.get(name):
                after.sent[name], after.said[name] = letter.number, letter.says
                after.batches[name] = [*state.batches.get(name, []), batch]
                letters.append(letter)
            after.cuts[kept.name_out(site)] = min(after.batches.get(name, []), default=batch + 1)
        return after, letters

    def _more(self, state: SiteState) -> dict[str, Any]:
        """What a letter says of plans."""
        epochs = [{"number": e.number, "sequences": e.sequences, "since": e.since} for e in state.epochs if e.number]
        return {**({"epochs": epochs} if epochs else {}), **state.agreement.says()}


def _of_epoch(epoch: Epoch, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is of an epoch, under its own names."""
    return {name.removeprefix(epoch.prefix): v for name, v in given.items() if name.startswith(epoch.prefix)}


def collect(outs: Iterable[pa.Table]) -> dict[str, pa.Table]:
    """What the units of a site send another, in one table of every kind."""
    found: dict[str, list[pa.Table]] = {}
    for table in outs:
        for kind, body in zip(table.column(KIND).to_pylist(), table.column(BODY).to_pylist(), strict=True):
            found.setdefault(kind, []).append(from_bytes(body))
    return {kind: pa.concat_tables(tables).combine_chunks() for kind, tables in sorted(found.items())}
