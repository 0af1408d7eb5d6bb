"""Streams at sites as the rounds runtimes join them: the query across sites, its lines, and the plan of the moment.

Keys travel as 64-bit codes, whatever their type, so a partial tuple has eight bytes. Streams that no equality connects meet on
a constant: then every key is equal, and only the simple joins make sense.

Invariant: the sequences are those of one batch; everything else holds for the whole life of a query.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from watersmeet.query.sites import Sites
from watersmeet.sites.planning.cost import LineCost, PerTuple, Setting
from watersmeet.sites.planning.model import Algorithm, LinearPlan, OneWayStep, SiteQuery
from watersmeet.sites.planning.optimize import Found, Optimizer, Search, cheapest, together
from watersmeet.sites.planning.statistics import Statistics

KEY_BYTES = 8
ANYTHING = "*"
"""The column that streams without an equality meet on."""

Sequences = dict[str, list[list[str]]]
"""A linear plan as JSON: by head, (stream, algorithm) of every step."""


@dataclass(frozen=True)
class SitesPlan:
    """A query across sites and how it is run now."""

    query: SiteQuery
    linear: LinearPlan
    lines: Sites
    search: Search | None
    """How plans are found; None: the user has given one, and it stays."""
    statistics: Statistics
    """What is assumed before anything has been measured."""
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
        return Optimizer(self.query, statistics, self.make_setting(interval_us, per_tuple), tuple(Algorithm))

    def search_plan(self, statistics: Statistics, interval_us: int, per_tuple: PerTuple | None = None) -> Found:
        """The plan of choice under statistics; the given one, if it is given."""
        optimizer = self.optimizer(statistics, interval_us, per_tuple)
        return self.price(optimizer) if self.search is None else cheapest(optimizer, self.search)

    def price(self, optimizer: Optimizer) -> Found:
        """The present plan."""
        kind = "given" if self.search is None else optimizer.kind(self.search)
        return together(optimizer.price(self.linear, kind), optimizer)

    def to_json(self) -> Sequences:
        return write_plan(self.linear)

    def under(self, sequences: Mapping[str, Sequence[Sequence[str]]]) -> SitesPlan:
        """The same query under other sequences."""
        return replace(self, linear=read_plan(self.query, sequences))


def write_plan(linear: LinearPlan) -> Sequences:
    """A linear plan as JSON."""
    return {head: [[s.to, s.algorithm.value] for s in steps] for head, steps in linear.sequences.items()}


def read_plan(query: SiteQuery, sequences: Mapping[str, Sequence[Sequence[str]]]) -> LinearPlan:
    """The linear plan of JSON."""
    return LinearPlan(
        query,
        {head: tuple(OneWayStep(to, Algorithm.of(name)) for to, name in steps) for head, steps in sequences.items()},
    )
