"""Streams at sites as the rounds runtimes join them: the query across sites, its lines, and the plan of the moment.

Keys travel as 64-bit codes, whatever their type, so a partial tuple has eight bytes. Streams that no equality connects meet on
a constant: then every key is equal, and only the simple joins make sense.

Invariant: the plan is that of one epoch; everything else holds for the whole life of a query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from watersmeet.query.sites import Sites
from watersmeet.sites.planning.cost import LineCost, PerTuple, Setting
from watersmeet.sites.planning.letters import Placement
from watersmeet.sites.planning.model import Algorithm, LinearPlan, OneWayStep, SiteQuery
from watersmeet.sites.planning.optimize import Found, Optimizer, Search, SearchKind, cheapest, together
from watersmeet.sites.planning.statistics import Statistics
from watersmeet.sites.planning.trees import FoundTree, Level, TreeOptimizer, TreePlan, find_tree, share_copies

KEY_BYTES = 8
ANYTHING = "*"
"""The column that streams without an equality meet on."""

Sequences = dict[str, list[list[str]]]
"""A plan as JSON. Linear: by head, (stream, algorithm) of every step. A tree, under no name: (first stream), then (stream, upward, downward) of every level."""
TREE = ""


@dataclass(frozen=True)
class SitesPlan:
    """A query across sites and how it is run now."""

    query: SiteQuery
    plan: LinearPlan | TreePlan
    lines: Sites
    search: SearchKind | None
    """How plans are found; None: the user has given one, and it stays."""
    statistics: Statistics
    """What is assumed before anything has been measured."""
    placement: Placement
    """What of the query the prices of letters depend on."""
    delay_us: int = 0
    """The most lateness of any stream: tuples are kept so much longer."""

    def make_setting(self, interval_us: int, per_tuple: PerTuple | None = None) -> Setting:
        """The system that plans are priced for; an interval is a micro-batch, in event time."""
        alike = self.line("", "") if not self.lines.lines else self.line
        return Setting(max(1, interval_us), alike, self.delay_us, per_tuple or PerTuple())

    def line(self, sender: str, receiver: str) -> LineCost:
        given = self.lines.between(sender, receiver)
        return LineCost(given.latency_us / 1e6, float(given.bandwidth))

    def optimizer(self, statistics: Statistics, interval_us: int, per_tuple: PerTuple | None = None) -> Optimizer:
        setting = self.make_setting(interval_us, per_tuple)
        return Optimizer(self.query, statistics, setting, tuple(Algorithm), self.lines.results_at)

    def search_plan(
        self, statistics: Statistics, interval_us: int, per_tuple: PerTuple | None = None
    ) -> Found | FoundTree:
        """The plan of choice under statistics; the given one, if it is given."""
        optimizer = self.optimizer(statistics, interval_us, per_tuple)
        return self.price(optimizer) if self.search is None else find_cheapest(optimizer, self.search)

    def price(self, optimizer: Optimizer) -> Found | FoundTree:
        """The present plan."""
        if isinstance(self.plan, TreePlan):
            return share_copies(TreeOptimizer(optimizer).price(self.plan))
        given = self.search is None or self.search == "tree"
        kind: Any = "given" if given else optimizer.kind(cast(Search, self.search))
        return together(optimizer.price(self.plan, kind), optimizer)

    def to_json(self) -> Sequences:
        return write_plan(self.plan)

    def under(self, sequences: Mapping[str, Sequence[Sequence[str]]]) -> SitesPlan:
        """The same query under another plan."""
        return replace(self, plan=read_plan(self.query, sequences))


def find_cheapest(optimizer: Optimizer, search: SearchKind) -> Found | FoundTree:
    """The plan of choice: linear, or a tree."""
    if search == "tree":
        return find_tree(optimizer)
    return cheapest(optimizer, search)


def write_plan(plan: LinearPlan | TreePlan) -> Sequences:
    """A plan as JSON."""
    if isinstance(plan, TreePlan):
        levels = [[level.stream, level.upward.value, level.downward.value] for level in plan.levels]
        return {TREE: [[plan.first], *levels]}
    return {head: [[s.to, s.algorithm.value] for s in steps] for head, steps in plan.sequences.items()}


def read_plan(query: SiteQuery, sequences: Mapping[str, Sequence[Sequence[str]]]) -> LinearPlan | TreePlan:
    """The plan of JSON."""
    if TREE in sequences:
        (first,), *levels = sequences[TREE]
        return TreePlan(query, first, tuple(Level(s, Algorithm.of(up), Algorithm.of(down)) for s, up, down in levels))
    return LinearPlan(
        query,
        {head: tuple(OneWayStep(to, Algorithm.of(name)) for to, name in steps) for head, steps in sequences.items()},
    )
