"""A site between its batches: what it has been told, how far it is, which letters it takes and which it sends.

    letters --take--> state --deal--> inboxes of units --> the batch --settle--> state, cuts --post--> letters

Invariant: the state is a function of the letters taken and of the watermarks, so a batch that is repeated has the same. Letters of a pair of
sites are numbered without gaps, and taken in that order, each once.
Implements: Tran and Lee (2010), section 3.1: the interval of execution is a micro-batch of the site's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import asdict
from typing import Any

import pyarrow as pa

from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Message
from watersmeet.errors import CheckpointError
from watersmeet.kernels.instants import LAST, add_span
from watersmeet.plan.model import TIME, Plan
from watersmeet.sites.frontiers import Frontiers
from watersmeet.sites.letter import Item, Letter
from watersmeet.sites.one_way import kept
from watersmeet.sites.one_way.at_unit import Span
from watersmeet.sites.one_way.deal import deal_rows, deal_tuples
from watersmeet.sites.one_way.kept import name_keys
from watersmeet.sites.one_way.preserved import MET, find_fate, list_preserved, name_notes
from watersmeet.sites.one_way.rows_windows import name_ends
from watersmeet.sites.one_way.unit import FOUND
from watersmeet.sites.paths import KNOWING, Leg, Paths
from watersmeet.sites.plan_change.agree import Proposal
from watersmeet.sites.plan_change.choice import MOST_HELD, Outlook
from watersmeet.sites.planning.model import Algorithm
from watersmeet.sites.planning.placed import Sequences
from watersmeet.sites.planning.values import TOLD
from watersmeet.sites.results import RESULTS, find_mark
from watersmeet.sites.site_state import Epoch, SiteState, clone
from watersmeet.sites.tree_paths import paths_of


class Station:
    """One site of a plan."""

    def __init__(self, plan: Plan, site: int, units: int = 1, *, measures_first: bool = False) -> None:
        self.plan, self.site, self.units = plan, site, units
        self.names = plan.site_names
        self.first_paths = paths_of(plan)
        homes = self.first_paths.homes[: len(plan.aliases)]
        self.homes = [n for n, home in enumerate(homes) if home == site]
        self.streams = {plan.inputs[n].stream for n in self.homes}
        self.retention = self._retention()
        assert plan.sites is not None
        self.decider = plan.sites.lines.decider or self.names[0]
        self.measures_first = measures_first and plan.sites.search is not None and bool(self.others)
        """Whether nothing sets out before a plan has been chosen by what was measured: real lines are thin."""
        given = plan.sites.lines.results_at
        self.results_site = None if given is None else self.names.index(given)
        self._paths: dict[int, Paths] = {}

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
        """Those of an epoch's plan: its number says which that is."""
        if epoch.number not in self._paths:
            self._paths[epoch.number] = paths_of(self.plan.at(epoch.sequences))
        return self._paths[epoch.number]

    def own(self, marks: Mapping[str, int], state: SiteState) -> dict[str, int]:
        """How far the site's streams are, by alias, under watermarks by stream; no further than it has promised, and nowhere while it only measures them."""
        aliases = [self.plan.inputs[n] for n in self.homes]
        reached = {i.alias: max(marks[i.stream], state.own.get(i.alias, NEVER)) for i in aliases}
        limit = NEVER if self._holds(state) and LAST not in reached.values() else state.agreement.limit
        return reached if limit is None else {alias: min(mark, limit) for alias, mark in reached.items()}

    def _holds(self, state: SiteState) -> bool:
        """Whether tuples are only measured: a plan by what was measured is about to be agreed on."""
        return self.measures_first and state.is_held

    def spans(self, state: SiteState, own: Mapping[str, int]) -> list[Span]:
        """The plans under way, and how far everything is under each."""
        known = {**state.streams, **own}
        streams = [known.get(alias, NEVER) for alias in self.plan.aliases]
        out = []
        for epoch in state.epochs:
            paths = self.paths(epoch)
            frontiers = Frontiers(paths, self.site, streams, epoch.told)
            out.append(
                Span(self.plan, paths, frontiers, epoch.prefix, epoch.reached, self.units, epoch.since, epoch.until)
            )
        return out

    def find_results_mark(self, state: SiteState, own: Mapping[str, int]) -> int:
        """How far the results of all sites are, as far as this one knows."""
        told = [state.results.get(self.names[n], NEVER) for n in self.others]
        return min([find_mark(self.spans(state, own), own), *told])

    # ------------------------------------------------------------ before a batch

    def take(self, state: SiteState, letters: Iterable[Letter]) -> SiteState:
        """The state of a batch that takes letters."""
        after = clone(state)
        for letter in letters:
            expected = after.taken.get(letter.sender, 0) + 1
            if letter.number != expected:
                raise CheckpointError(
                    f"letter {letter.number} from {letter.sender} to {self.name} comes where letter {expected} should; put the one back that was sent"
                )
            after.taken[letter.sender] = letter.number
            after.streams |= letter.streams
            self._forget(after, letter)
            if "watch" in letter.news:
                after.survey.watch(letter.news["watch"], letter.news["wanted"])
            elif letter.news:
                after.choice.hear(letter.sender, letter.news)
            self._agree(after, letter)
            if RESULTS in letter.channels:
                after.results[letter.sender] = letter.channels[RESULTS]
            for epoch in after.epochs:
                epoch.told.hear(_of_epoch(epoch, letter.channels))
        return after

    def deal(self, state: SiteState, letters: Iterable[Letter]) -> list[Message]:
        """What letters bring the units in a batch that has taken them."""
        inbox: list[Message] = []
        for letter in letters:
            tables = letter.tables()
            for kind in (k for k in tables if k.startswith(f"{MET} ")):
                inbox += [Message(unit, kind, tables[kind]) for unit in range(self.units)]
            if RESULTS in tables:
                inbox.append(Message(letter.number % self.units, FOUND, tables[RESULTS]))
            for epoch in state.epochs:
                channels = _of_epoch(epoch, letter.channels)
                for kind, table in _of_epoch(epoch, tables).items():
                    inbox += self._deal(epoch, kind, table, channels)
        return inbox

    def _agree(self, state: SiteState, letter: Letter) -> None:
        """What a letter says of plans."""
        for said in letter.more.get("epochs", []):
            state.begin(**said)
        others = [self.names[n] for n in self.others]
        agreed = state.agreement.hear(letter.sender, letter.more, state.furthest, others)
        if agreed is not None:
            state.begin(**asdict(agreed))
        if state.agreement.ended or letter.more.get("ended"):
            state.is_held = False  # the first plan by what was measured is there, or some stream did not wait for it

    def propose(
        self, state: SiteState, sequences: Sequences, ahead_us: int, expects: Mapping[str, float] | None = None
    ) -> None:
        """Let all sites change to a plan, for heads that are so far ahead of all that is known; for all heads if none has set out."""
        known = [*state.streams.values(), *state.own.values()]
        if len(known) < len(self.plan.aliases) or state.agreement.proposed is not None:
            return  # somebody has not been heard of yet
        number = max(state.newest, state.agreement.ended) + 1
        begin = NEVER if max(known) == NEVER else add_span(max(known), ahead_us)
        since = max([begin, *(epoch.since for epoch in state.epochs)])  # never before another
        proposal = Proposal(number, sequences, since, dict(expects or {}))
        if self.others:
            state.agreement.propose(proposal)
        else:
            state.begin(**asdict(proposal))

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

    def settle(
        self, state: SiteState, marks: Mapping[str, int], measures: Iterable[Mapping[str, Any]] = ()
    ) -> tuple[SiteState, list[Span]]:
        """The state after a batch that has reached these watermarks by stream, and whose units have measured this; and how far everything is."""
        after, own = copy(state), self.own(marks, state)
        spans = self.spans(state, own)
        after.own, after.cuts, under_way = own, {}, list[Epoch]()
        for n in self.homes:
            after.cuts[self.plan.aliases[n]] = min(
                (span.frontiers.window_cut(n) for span in spans), default=own[self.plan.aliases[n]]
            )
        for epoch, span in zip(after.epochs, spans, strict=True):
            epoch.reached = {span.paths.name(n): span.frontiers.of(n) for n in range(len(span.paths.homes))}
            epoch.told.answer(span.frontiers)
            is_over = epoch.until < LAST and span.frontiers.have_passed(epoch.until)
            after.cuts |= {epoch.prefix + name: LAST if is_over else cut for name, cut in self._cuts(span).items()}
            if not is_over:
                under_way.append(epoch)
        after.epochs = under_way
        after.ended = self._find_ended(spans)
        for n in (n for n in list_preserved(self.plan) if n in self.homes):
            alias = self.plan.aliases[n]
            begin = state.fates.get(alias, [NEVER, NEVER])[1]
            after.fates[alias] = [begin, max(begin, find_fate(spans, n))]
            after.cuts |= {alias: min(after.cuts[alias], begin), name_notes(n): begin}
        self._survey(state, after, marks, list(measures))
        return after, spans

    def _survey(
        self, before: SiteState, after: SiteState, marks: Mapping[str, int], measures: list[Mapping[str, Any]]
    ) -> None:
        """Take in what was measured of streams that have come to these watermarks; the deciding site chooses."""
        placed = self.plan.sites
        assert placed is not None
        arrived = {self.plan.aliases[n]: marks[self.plan.inputs[n].stream] for n in self.homes}
        reached, released = max(arrived.values(), default=NEVER), max(after.own.values(), default=NEVER)
        if placed.search is None or reached in (NEVER, LAST) or not after.epochs:
            return
        longest_s, newest = placed.placement.longest, after.epochs[-1]
        after.survey.note(measures, arrived, longest_s)
        after.is_held = after.is_held and after.survey.batches < MOST_HELD
        if released > NEVER:
            advanced = [m - before.own[a] for a, m in after.own.items() if before.own.get(a, NEVER) > NEVER]
            settled_us = max(advanced, default=0)
            after.survey.follow(newest.number, newest.since, released, settled_us, longest_s * 1e6)
        if self.name == self.decider and after.agreement.proposed is None:
            after.choice.follow(after.newest)
            if len(after.epochs) == 1:
                self._choose(after, reached / 1e6)

    def _choose(self, state: SiteState, now_s: float) -> None:
        outlook, before = self.look(state, now_s), state.newest
        change = outlook.begin() if outlook.is_held else outlook.choose()
        if change is not None:
            self.propose(state, change.sequences, round(outlook.ahead_us), change.expects)
            if state.agreement.proposed is not None:
                state.choice.propose(state.agreement.proposed.number, change)
            elif state.newest > before:
                state.choice.propose(state.newest, change)

    def look(self, state: SiteState, now_s: float = 0.0) -> Outlook:
        """What the site knows of plans."""
        newest = state.epochs[-1] if state.epochs else Epoch()
        plan = self.plan.at(newest.sequences)
        held = self._holds(state)
        return Outlook(plan, self.name, state.survey, state.choice, newest.number, newest.expects, now_s, held)

    def expect(self, before: SiteState, after: SiteState) -> dict[str, float]:
        """By site the bytes that letters to it were expected to take in a batch; nothing before a plan has been chosen."""
        begins = {**after.survey.begins, **{a: m for a, m in before.own.items() if m > NEVER}}
        known = [m - begins[a] for a, m in after.own.items() if a in begins and NEVER < m < LAST]
        seconds, expects = max(known, default=0) / 1e6, after.epochs[-1].expects if after.epochs else {}
        ours = {pair.split(">")[1]: size for pair, size in expects.items() if pair.split(">")[0] == self.name}
        return {to: size * seconds for to, size in ours.items()}

    def _find_ended(self, spans: list[Span]) -> dict[str, list[Any]]:
        """Before which heads tuples of ROWS windows must have ended to be forgotten, at home and where copies are."""
        out: dict[str, list[Any]] = {}
        for source in self.plan.sequenced:
            n = source.position
            if n in self.homes:
                sent = [
                    span.prefix + kept.name_sent(n, leg.at) for span in spans for leg in span.paths.all if leg.to == n
                ]
                mark = min(span.frontiers.heads_at_home(n) for span in spans)
                out[source.alias] = [name_ends(n), mark, *dict.fromkeys(sent)]
                continue
            for span in spans:
                mark = span.frontiers.heads_at_copy(n)
                out[span.prefix + kept.copy(n)] = [span.prefix + name_ends(n), mark]
        return out

    def _cuts(self, span: Span) -> dict[str, int]:
        """By name the time before which is dead what a plan keeps besides windows."""
        out, frontiers = dict[str, int](), span.frontiers
        for n in range(span.paths.arriving, len(span.paths.homes)):
            if span.paths.homes[n] == self.site:
                out[kept.window(n)] = frontiers.window_cut(n)
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
        self,
        state: SiteState,
        spans: Iterable[Span],
        batch: int,
        outs: Mapping[int, Sequence[Item]],
        due: Collection[str] = (),
    ) -> tuple[SiteState, list[Letter]]:
        """The letters of a batch whose units have these things to send, by site; a site to which nothing is new gets none, unless a letter to it is due."""
        after, letters, spans = copy(state), list[Letter](), list(spans)
        for site in self.others:
            name, items = self.names[site], outs.get(site, ())
            letter = Letter(
                self.name,
                name,
                state.sent.get(name, 0) + 1,
                streams=dict(state.own),
                channels=self._channels(state, spans, site),
                taken=state.taken.get(name, 0),
                more=self._more(after, name),
                news=self._news(after, name),
                items=items,
            )
            if items or letter.news or name in due or letter.says != state.said.get(name):
                after.sent[name], after.said[name] = letter.number, letter.says
                after.batches[name] = [*state.batches.get(name, []), batch]
                letters.append(letter)
            after.cuts[kept.name_out(site)] = min(after.batches.get(name, []), default=batch + 1)
        return after, letters

    def count(self, state: SiteState, letter: Letter, sizes: Mapping[str, int], total: int) -> None:
        """Note what a letter of this batch takes on the line, by kind of item and in all."""
        state.survey.count(letter.to, sizes, total)

    def _channels(self, state: SiteState, spans: Iterable[Span], site: int) -> dict[str, int]:
        """How far everything is that another site waits for."""
        out = {span.prefix + c: m for span in spans for c, m in span.frontiers.says.get(site, {}).items()}
        return out | {RESULTS: find_mark(spans, state.own)} if site == self.results_site else out

    def _news(self, state: SiteState, to: str) -> dict[str, Any]:
        """What is said once: surveys to the deciding site, and from there which values are to be watched."""
        if to == self.decider:
            return state.survey.tell()
        asked, told = {"watch": state.survey.watched, "wanted": state.survey.wanted}, state.choice.watch_told
        if self.name != self.decider or asked == told.get(to, {"watch": {}, "wanted": TOLD}):
            return {}
        state.choice.watch_told = {**told, to: asked}
        return dict(asked)

    def _more(self, state: SiteState, to: str) -> dict[str, Any]:
        """What a letter says of plans."""
        following = state.sent.get(to, 0) + 1
        taken = following - 1 - len(state.batches.get(to, []))
        unknown = [e for e in state.epochs if e.number and e.named.setdefault(to, following) > taken]
        epochs = [asdict(Proposal(e.number, e.sequences, e.since, e.expects)) for e in unknown]
        return {**({"epochs": epochs} if epochs else {}), **state.agreement.says()}


def _of_epoch(epoch: Epoch, given: Mapping[str, Any]) -> dict[str, Any]:
    """What is of an epoch, under its own names."""
    return {name.removeprefix(epoch.prefix): v for name, v in given.items() if name.startswith(epoch.prefix)}
