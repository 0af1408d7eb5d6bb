"""Which plan the sites should have next: the deciding site prices plans under what all sites have measured, and corrects prices by what was counted.

    before a tuple sets out: surveys of all sites --> facts --> search --> the first plan
    surveys of all sites --> facts --> search, corrected --> another plan that pays clearly --> a proposal (`sites.plan_change.agree`)
    counts of all sites  --> counted / expected, item by item --> corrections

A plan that has been under way for a window has been counted, item by item, and so has every plan before it: their prices are what they have shipped. So a change that
does not pay is taken back, and not tried again until its corrections are forgotten; a plan that has never run must promise more than one that has. A plan that was left
and taken up again stays unless another one is clearly cheaper: counts differ by chance, too, and two plans that cost about the same would follow each other for ever.

A change costs: the new plan's copies and values are filled anew. It must bring that back within PAYBACK of the longest windows. Changes become rarer.

Invariant: a choice is JSON; it follows from what the site has measured and was told, so a batch that is repeated chooses alike. Results never depend on it.
Implements: Tran and Lee (2010), section 7's adaptivity.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

from watersmeet.plan.model import Plan
from watersmeet.sites.plan_change.survey import Survey
from watersmeet.sites.planning.carriers import HEAD_BYTES
from watersmeet.sites.planning.cost import LineCost
from watersmeet.sites.planning.key_sample import ALL, SAMPLE, TOLD_BYTES
from watersmeet.sites.planning.letters import Facts, Letters, StreamFacts
from watersmeet.sites.planning.placed import Sequences, write_plan
from watersmeet.sites.planning.search import Corrections, PlanSearch, PricedPlan
from watersmeet.sites.planning.trees import TreePlan
from watersmeet.sites.planning.values import KeyShares, Values, choose_watched, want_values

MARGIN, COUNTED_MARGIN = 0.9, 0.97
"""A change must bring the price below this share of what it is; if all of the other plan has been counted and this one was never left before, below that."""
PAYBACK = 20.0
FIRST_BATCHES = 4
"""Batches before the first change."""
MOST_WAITING = 16
"""Batches after which a first change does not wait any longer for the counts of watched values."""
MOST_UNCOUNTED = 64
"""Batches after which a change does not wait any longer for the counts of a site, whose streams may stand still."""
MOST_UNWATCHED, MOST_HELD = 8, 16
"""Batches after which the first plan does not wait any longer for the counts of watched values; and after which streams do not wait any longer for it."""
MOST_AHEAD = 64.0
MOVED, MOVED_FAR = 0.05, 0.25
"""Figures that differ by less are as they were. Those that differ by more are looked at in the next batch, however often a search has found nothing."""
MOST_RESTING = 32
"""Batches between two searches, at most: twice as many after every one that has found nothing."""
RARER = 1.3
"""After every change, so many times the batches before the next one."""
FORGETTING = 200
"""Windows after which a correction is forgotten."""
MOST_FACTORS, MOST_CHANGES, MOST_LEFT = 256, 8, 16
LEAST_FACTOR, MOST_FACTOR = 0.05, 20.0
FINER, SAMPLING_SHARE = 2.0, 0.02
"""A larger sample is asked for if it is so many times larger. Of what a plan ships until a change must have paid, so much may be spent on it."""
_SURVEY_BYTES = 300.0
"""What a survey of a key takes besides its sample, about."""
_SMALL_BYTES = 50.0
"""Per second: an item of less is not worth a correction."""


@dataclass
class Choice:
    """What the deciding site remembers; JSON. Other sites have an empty one. Values of fields are replaced, never changed, so a copy of it is another one."""

    heard: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By site: what it said of its streams, of its counts and of its lines."""
    watch_told: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By site the values that it was asked to watch, and how many sampled ones it should tell."""
    factors: dict[str, list[float]] = field(default_factory=dict)
    """By item: what was counted over what was expected, and the event time in seconds when that was."""
    epoch: int = 0
    batches: int = 0
    """Since the plan has changed, or since the beginning."""
    waits: float = FIRST_BATCHES
    is_new: bool = False
    """Whether something has been heard since it was last thought of a change."""
    figures: list[float] = field(default_factory=list)
    """What prices depended on at the last search."""
    searched: int = 0
    """The number of batches, of these, when that was."""
    rests: int = 1
    """Batches before the next one."""
    ahead: float = 2.0
    """Batches that a change is ahead of what is known; more after one that some stream had got to before."""
    left: dict[str, float] = field(default_factory=dict)
    """Plans that others have followed, as JSON, and the event time in seconds when that was."""
    leaving: list[Any] = field(default_factory=list)
    """The same of the present one, if what is proposed is adopted."""
    proposed: int = 0
    """The number of the change that is proposed; 0: none."""
    why: str = ""
    changes: list[str] = field(default_factory=list)
    """The last ones, in words, the newest last."""

    def propose(self, number: int, change: Change) -> None:
        """A change has been proposed."""
        self.proposed, self.why, self.leaving = number, change.why, list(change.leaves)

    def follow(self, newest: int) -> None:
        """See what has become of it, the newest plan being this: adopted, or withdrawn since some stream had got there before. Then the next one is further ahead."""
        if self.proposed and self.proposed <= newest:
            self.changes = [*self.changes, self.why][-MOST_CHANGES:]
            if self.leaving:
                self.left = {**self.left, self.leaving[0]: self.leaving[1]}
        elif self.proposed:
            self.ahead, self.figures = min(2 * self.ahead, MOST_AHEAD), []
        self.proposed, self.leaving = 0, []

    def hear(self, sender: str, news: Mapping[str, Any]) -> None:
        """What a letter says for the first time."""
        known = self.heard.get(sender, {"streams": {}})
        said = {name: news[name] for name in ("counts", "lines") if name in news}
        said["streams"] = {**known["streams"], **news.get("streams", {})}
        self.heard, self.is_new = {**self.heard, sender: {**known, **said}}, True


class Change(NamedTuple):
    """Another plan."""

    sequences: Sequences
    expects: dict[str, float]
    """By 'sender>receiver' the bytes per second of its letters."""
    why: str
    leaves: tuple[str, float] | tuple[()] = ()
    """The plan that it follows, as JSON, and the event time in seconds; none: nothing has set out under that."""


@dataclass(frozen=True)
class Outlook:
    """Everything that a choice depends on, at one site, after a batch."""

    plan: Plan
    """Under the present sequences."""
    site: str
    survey: Survey
    choice: Choice
    epoch: int
    expects: Mapping[str, float]
    """By 'sender>receiver' what was expected of the present plan when it was chosen, in bytes per second."""
    now_s: float
    """Event time."""
    is_held: bool = False
    """Whether nothing sets out before a plan has been chosen."""

    def facts(self) -> Facts | None:
        """What has been measured of all streams; None while one is unknown."""
        told = self.told
        if not all(alias in told for alias in self.plan.aliases):
            return None
        streams = {
            a: StreamFacts(
                max(said["rate"], 1e-6), said["each"], said["item"], max(said["interval"], 1e-6), _find_memory(said)
            )
            for a, said in told.items()
        }
        values, codes = {}, {}
        for number, members in enumerate(self.plan.classes):
            shares = self._shares(number)
            if len(shares) < len(members.members):
                return None
            values[number] = Values.of(shares)
            codes[number] = max(told[a]["codes"][str(number)] for a in shares)
        return Facts(streams, values, codes)

    def _shares(self, number: int) -> dict[str, KeyShares]:
        """By alias what was told of a class of keys."""
        told, c = self.told, str(number)
        return {a: KeyShares(**told[a]["keys"][c]) for a in self.plan.classes[number].members if c in told[a]["keys"]}

    @cached_property
    def told(self) -> dict[str, dict[str, Any]]:
        """By alias what is known of streams."""
        told = {alias: seen.tell(SAMPLE) for alias, seen in self.survey.streams.items() if seen.is_known}
        for known in self.choice.heard.values():
            told |= known["streams"]
        return told

    def watch(self, facts: Facts) -> None:
        """See that values that are frequent in one stream are counted in all, and that samples are large enough."""
        watched, wanted = {}, [self.survey.wanted]
        for number in range(len(self.plan.classes)):
            shares = self._shares(number)
            if found := choose_watched(shares.values(), self.survey.watched.get(str(number), ())):
                watched[str(number)] = found
            if len(shares) > 1:
                wanted.append(want_values(shares))
        most = max(wanted)
        if most > FINER * self.survey.wanted:
            most = max(self.survey.wanted, min(most, self._afford(facts)))
        else:
            most = self.survey.wanted
        if (watched, most) != (self.survey.watched, self.survey.wanted):
            self.survey.watch(watched, most)

    def _afford(self, facts: Facts) -> int:
        """How many sampled values of each key may be told: what that takes is a small part of what the plan ships until a change must have paid."""
        placed = self.plan.sites
        assert placed is not None
        ships = self.search(facts).price(placed.plan).bytes * PAYBACK * self.longest_s
        keys = sum(len(self.told[a]["keys"]) for known in self.choice.heard.values() for a in known["streams"])
        return int(SAMPLING_SHARE * ships / (TOLD_BYTES * max(keys, 1)))

    def is_watched(self) -> bool:
        """Whether all streams have said how often the watched values come, and told as many values as are wanted."""
        for number in range(len(self.plan.classes)):
            for shares in self._shares(number).values():
                known = {int(h) for h, _ in shares.heavy}
                is_sampled = shares.values >= self.survey.wanted or shares.below == ALL
                if not (is_sampled and known.issuperset(self.survey.watched.get(str(number), ()))):
                    return False
        return True

    def counts(self) -> dict[str, dict[str, Any]]:
        """By site what its letters have carried under the present plan, per second; none of a site that has not counted enough."""
        out = {}
        if self.survey.counts.epoch == self.epoch and self.survey.counts.is_known:
            out[self.site] = self.survey.counts.tell()
        for site, known in self.choice.heard.items():
            if known.get("counts", {}).get("epoch") == self.epoch:
                out[site] = known["counts"]
        return out

    def search(self, facts: Facts, *, corrected: bool = True) -> PlanSearch:
        placed = self.plan.sites
        assert placed is not None
        factors = {name: factor for name, (factor, _) in self.choice.factors.items()} if corrected else {}
        return PlanSearch(placed.query, Letters(placed.placement, facts), self.line, Corrections(factors))

    def line(self, sender: str, receiver: str) -> LineCost:
        """What is given of a line, else what both of its ends have measured, else what is assumed."""
        placed = self.plan.sites
        assert placed is not None
        assumed, pair = placed.line(sender, receiver), f"{sender}>{receiver}"
        views = [self.survey.fit_lines(), *(known.get("lines", {}) for known in self.choice.heard.values())]
        seen = [view[pair] for view in views if pair in view]
        latency, width = placed.lines.is_measured(sender, receiver)
        per_byte = sum(one[1] for one in seen)
        return LineCost(
            sum(one[0] for one in seen) if latency and seen else assumed.latency_s,
            1 / per_byte if width and per_byte else assumed.bytes_per_s,
        )

    @property
    def ahead_us(self) -> float:
        """How far ahead of all that is known a change should be: so far that no stream gets there before all have promised."""
        told = [seen.seconds / seen.batches for seen in self.survey.streams.values() if seen.batches]
        told += [said["interval"] for known in self.choice.heard.values() for said in known["streams"].values()]
        return self.choice.ahead * max(told, default=1.0) * 1e6

    @property
    def longest_s(self) -> float:
        assert self.plan.sites is not None
        return self.plan.sites.placement.longest

    # ------------------------------------------------------------ what is learnt, and what follows

    def learn(self, facts: Facts) -> None:
        """Compare what was counted with what was expected, item by item."""
        counts, choice = self.counts(), self.choice
        assert self.plan.sites is not None
        expected = self.search(facts, corrected=False).price(self.plan.sites.plan)
        factors = dict(choice.factors)
        for item in expected.items:
            if item.sender in counts:
                counted = counts[item.sender]["kinds"].get(item.receiver, {}).get(item.kind, 0.0)
                factor = (counted + _SMALL_BYTES) / (item.bytes + _SMALL_BYTES)
                factors[item.name] = [min(max(factor, LEAST_FACTOR), MOST_FACTOR), self.now_s]
        fresh = {n: f for n, f in factors.items() if self.now_s - f[1] < FORGETTING * self.longest_s}
        newest = sorted(fresh.items(), key=lambda item: (-item[1][1], item[0]))
        choice.factors = dict(newest[:MOST_FACTORS])
        left = sorted(choice.left.items(), key=lambda one: (-one[1], one[0]))[:MOST_LEFT]
        choice.left = {text: s for text, s in left if self.now_s - s < FORGETTING * self.longest_s}

    def begin(self) -> Change | None:
        """The cheapest plan, before a tuple has set out; None: too little is known yet."""
        choice, placed = self.choice, self.plan.sites
        assert placed is not None
        choice.batches += 1
        facts = self.facts() if self._is_time() else None
        if facts is None or placed.search is None:
            return None
        choice.is_new = False
        self.watch(facts)
        if not self.is_watched() and choice.batches < MOST_UNWATCHED:
            return None
        best = self.search(facts).find(placed.plan, placed.search)
        why = f"begins with {best.plan}, by what was measured before anything was sent: {best.bytes:,.0f} bytes/s"
        return Change(write_plan(best.plan), self.expect(best, facts), why)

    def choose(self) -> Change | None:
        """Another plan that pays clearly; None: the present one stays."""
        choice, placed = self.choice, self.plan.sites
        assert placed is not None
        if choice.epoch != self.epoch:
            choice.epoch, choice.batches, choice.waits = self.epoch, 0, choice.waits * RARER
            choice.searched, choice.rests = 0, 1
        choice.batches += 1
        facts = self.facts() if self._is_time() else None
        if facts is None or placed.search is None:
            return None
        choice.is_new = False
        self.watch(facts)
        if choice.batches < choice.waits or (
            not self.epoch and choice.batches < MOST_WAITING and not self.is_watched()
        ):
            return None
        if self.counts():
            self.learn(facts)
        search = self.search(facts)
        standing = search.price(placed.plan)
        if not self._has_moved(facts, standing):
            return None
        best = search.find(placed.plan, placed.search)
        if not self.pays(best, standing):
            choice.rests = min(2 * choice.rests, MOST_RESTING)
            return None
        why, leaves = self._explain_change(best, standing), (name_plan(standing), self.now_s)
        return Change(write_plan(best.plan), self.expect(best, facts), why, leaves)

    def expect(self, priced: PricedPlan, facts: Facts) -> dict[str, float]:
        """By 'sender>receiver' the bytes per second of a plan's letters, with what surveys take: they are told after twice as many batches each time."""
        out = expect_bytes(priced, facts)
        for site, known in self.choice.heard.items():
            streams, pair = known["streams"].values(), f"{site}>{self.site}"
            sizes = [TOLD_BYTES * k["sample"][1] + _SURVEY_BYTES for said in streams for k in said["keys"].values()]
            seconds = self.survey.tells_at * min((said["interval"] for said in streams), default=1.0)
            out[pair] = round(out.get(pair, 0.0) + sum(sizes) / max(seconds, 1e-6), 1)
        return out

    def _is_time(self) -> bool:
        """Whether there is something new to see, and it might lead to something: a plan that has begun is left alone until it has been counted."""
        choice = self.choice
        is_new = choice.is_new or choice.batches % max(8, choice.rests) == 0 or not choice.heard
        if not self.epoch or not is_new:
            return is_new
        is_counted = len(self.counts()) == len(self.plan.site_names) or choice.batches >= MOST_UNCOUNTED
        return is_counted and choice.batches >= choice.waits

    def _has_moved(self, facts: Facts, standing: PricedPlan) -> bool:
        """Whether prices may be others than those of the last search: under the same figures it would find the same. Searches that find nothing become rarer, since figures move by chance, too."""
        choice, now = self.choice, [*facts.list_figures(), standing.seconds]
        is_known = len(now) == len(choice.figures)
        by = max(
            (abs(x - y) / max(abs(x), abs(y), 1e-12) for x, y in zip(now, choice.figures, strict=is_known)), default=0.0
        )
        if is_known and by <= (MOVED if choice.batches >= choice.searched + choice.rests else MOVED_FAR):
            return False
        choice.figures, choice.searched = now, choice.batches
        return True

    def pays(self, best: PricedPlan, standing: PricedPlan) -> bool:
        """Whether a plan is worth leaving the present one for it."""
        if write_plan(best.plan) == write_plan(standing.plan):
            return False
        is_taken_back = self._is_counted(best) and name_plan(standing) not in self.choice.left
        if best.seconds > (COUNTED_MARGIN if is_taken_back else MARGIN) * standing.seconds:
            return False
        is_tree = isinstance(best.plan, TreePlan)  # its levels are made anew of what windows have
        filled = sum(item.bytes for item in best.items if is_tree or item.kind.startswith("@"))
        share = filled / max(best.bytes, 1e-9)
        fill_s = best.seconds * share * self.longest_s
        return fill_s <= (standing.seconds - best.seconds) * PAYBACK * self.longest_s

    def _is_counted(self, priced: PricedPlan) -> bool:
        """Whether all that a plan ships has been counted, under this plan or others."""
        return all(item.name in self.choice.factors for item in priced.items)

    def _explain_change(self, best: PricedPlan, standing: PricedPlan) -> str:
        why = "which was counted to be cheaper" if self._is_counted(best) else "which is expected to be cheaper"
        return (
            f"to {best.plan}, {why}: {best.seconds:.3g} s of line per second of the streams instead of {standing.seconds:.3g}"
            f" ({best.bytes:,.0f} bytes/s instead of {standing.bytes:,.0f})"
        )


def name_plan(priced: PricedPlan) -> str:
    """The plan as JSON, to know it again."""
    return json.dumps(write_plan(priced.plan), sort_keys=True, separators=(",", ":"))


def _find_memory(said: Mapping[str, Any]) -> float:
    """Seconds of a stream whose values were sampled."""
    sampled = [shares["rows"] for shares in said["keys"].values()]
    return max(min(sampled, default=0.0) / max(said["rate"], 1e-6), 1e-6)


def expect_bytes(priced: PricedPlan, facts: Facts) -> dict[str, float]:
    """By 'sender>receiver' the bytes per second of a plan's letters, with what letters take besides their items."""
    placed, by_line = priced.plan.query, priced.by_line
    sites = {s.alias: s.site for s in placed.streams}
    intervals = {
        site: min(facts.streams[a].interval for a, at in sites.items() if at == site) for site in sites.values()
    }
    pairs = [(x, y) for x in intervals for y in intervals if x != y]
    return {f"{x}>{y}": round(by_line.get((x, y), 0.0) + HEAD_BYTES / intervals[x], 1) for x, y in pairs}
