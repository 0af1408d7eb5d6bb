"""What a batch costs under each way of shipping, and which streams' payloads should follow later.

    seconds  =  rounds * ROUND  +  bytes sent / bandwidth  +  bytes stored / STORE

A whole tuple is sent and stored in every copy. A payload that follows later is stored once, where it was read; every copy
of its tuple carries a reference instead; and every result visits the payload's holder, which is a round more and sends what
the result has gathered so far. Which of the two is cheaper depends on widths and on results per tuple, so it is decided
from what has been measured, not from types.

When a running query may change its plan, here and between sites: the change must pay clearly, and changes become rarer. So n batches see at
most log2(n / PATIENCE) + 1 changes, however the streams behave.

Invariant: the choice is a function of the plan, the line and the traffic, which stand in the manifest: a replay chooses alike.
Implements: Tran and Lee (2010), section 4.1: the cost of a plan is its transmission and its processing, as one number; here
without sites, so all lines are alike.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import REFERENCE_BYTES, offers, payload_refs
from watersmeet.sites.planning.cost import Cost, LineCost

ROUND = 0.05
"""Seconds that one more round takes: a Spark job over little mail."""
STORE = 1e9
"""Bytes per second into a segment's file."""
MEMORY, NETWORK = 1e9, 1.25e8
"""Bytes per second between units, on one machine and between machines."""
MOST_OFFERS = 8
"""Of more streams with payloads only the first so many are weighed: the ways to ship double with each."""
MARGIN = 0.8
"""A change must bring the price below this share of what it is."""
PATIENCE = 2
"""Batches that must have been measured before the first change; after every change, twice as many."""
WHOLE = "of whole tuples"
_NARROW_RESULT = 8
"""Bytes of a column of a result that is no payload."""


@dataclass
class Traffic:
    """What batches have brought, older ones fading by half."""

    rows: dict[str, float] = field(default_factory=dict)
    """By alias: tuples that entered."""
    first: dict[str, float] = field(default_factory=dict)
    """Their bytes without payload."""
    late: dict[str, float] = field(default_factory=dict)
    """Bytes of their payload."""
    kept: dict[str, float] = field(default_factory=dict)
    """Tuples that are stored after the batch."""
    results: float = 0.0
    batches: int = 0
    """That were measured since the last change."""
    changes: int = 0

    def fade(self) -> None:
        """Before a batch is added."""
        for amounts in (self.rows, self.first, self.late):
            for alias in amounts:
                amounts[alias] /= 2
        self.results /= 2
        self.batches += 1

    def count(self, alias: str, rows: int, first: int, late: int) -> None:
        for amounts, amount in ((self.rows, rows), (self.first, first), (self.late, late)):
            amounts[alias] = amounts.get(alias, 0.0) + amount

    @property
    def is_enough(self) -> bool:
        return is_enough(self.batches, self.changes)

    def mean(self, amounts: Mapping[str, float], alias: str) -> float:
        """Per tuple of an alias."""
        return amounts.get(alias, 0.0) / self.rows[alias] if self.rows.get(alias) else 0.0


@dataclass(frozen=True)
class Price:
    """What a batch costs one way."""

    rounds: int
    sent: float
    stored: float
    bandwidth: float

    @property
    def seconds(self) -> float:
        """The cost across sites, for one line: a round is a shipment, writing is processing."""
        line = LineCost(ROUND, self.bandwidth)
        return Cost(self.rounds, self.sent, 0, 0, self.stored / STORE).seconds(line, line)

    def __str__(self) -> str:
        return f"{self.rounds} round{'s' if self.rounds > 1 else ''}, {_size(self.sent)} sent, {_size(self.stored)} stored: {self.seconds:.2f} s"


def price(plan: Plan, traffic: Traffic, aliases: Collection[str], bandwidth: float) -> Price:
    """What a batch like the measured ones costs if these aliases' payloads follow later. `plan` has all payloads offered."""
    sent = stored = 0.0
    for source in plan.inputs:
        alias = source.alias
        stage, side = plan.entry(alias)
        copies = stage.routing.copies(side)
        stays = min(1.0, traffic.kept.get(alias, 0.0) / (traffic.rows.get(alias) or 1.0))
        first, late = traffic.first.get(alias, 0.0), traffic.late.get(alias, 0.0)
        if alias in aliases:
            first += REFERENCE_BYTES * traffic.rows.get(alias, 0.0)
            stored += late
        else:
            first += late
        sent += copies * first
        stored += stage.routing.homes(side) * stays * first
    return Price(1 + len(aliases), sent + sum(_visits(plan, traffic, aliases)), stored, bandwidth)


def _visits(plan: Plan, traffic: Traffic, aliases: Collection[str]) -> Iterator[float]:
    """Bytes that results send in every round: what they have, and the references that are left."""
    late = [i for i in plan.inputs if i.alias in aliases]
    payloads = {ref for i in plan.inputs for ref in payload_refs(plan, i)}
    width = float(_NARROW_RESULT) * sum(ref not in payloads for ref in plan.output)
    width += sum(traffic.mean(traffic.late, i.alias) for i in plan.inputs if i.payload and i not in late)
    for n, source in enumerate(late):
        yield traffic.results * (width + REFERENCE_BYTES * (len(late) - n))
        width += traffic.mean(traffic.late, source.alias)


def choose(plan: Plan, traffic: Traffic, now: tuple[str, ...], bandwidth: float) -> tuple[tuple[str, ...], Price]:
    """The aliases whose payloads should follow later, and the price; `now` unless another way is clearly cheaper."""
    offered = offers(plan)[:MOST_OFFERS]
    ways = [way for n in range(len(offered) + 1) for way in combinations(offered, n)]
    best = min(ways, key=lambda way: (price(plan, traffic, way, bandwidth).seconds, len(way)))
    standing = price(plan, traffic, now, bandwidth)
    found = price(plan, traffic, best, bandwidth)
    if best == now or not traffic.is_enough or not is_clear(found.seconds, standing.seconds):
        return now, standing
    return best, found


def break_even(plan: Plan, alias: str, late: float) -> float:
    """Results per tuple of an alias below which a payload that follows later sends fewer bytes, if it is so wide.

    A copy saves the payload and costs the reference; a result costs the payload.
    """
    stage, side = plan.entry(alias)
    return stage.routing.copies(side) * (1 - REFERENCE_BYTES / late)


def why(plan: Plan, traffic: Traffic, aliases: tuple[str, ...], bandwidth: float) -> Iterator[str]:
    """The choice in words."""
    for alias in offers(plan):
        rows = traffic.rows.get(alias)
        if rows:
            yield (
                f"{alias}: {traffic.mean(traffic.late, alias):,.0f} bytes of payload and {traffic.results / rows:.3g} results per tuple"
            )
    yield f"a batch {show_shipping(aliases)} takes {price(plan, traffic, aliases, bandwidth)}"
    others = [way for way in ((), offers(plan)[:MOST_OFFERS]) if way != aliases]
    yield from (f"{show_shipping(way)} {price(plan, traffic, way, bandwidth)}" for way in others)


def show_shipping(aliases: Collection[str]) -> str:
    """A way to ship in words."""
    return f"with payloads of {', '.join(aliases)} later" if aliases else WHOLE


def _size(bytes_: float) -> str:
    return f"{bytes_ / 1e6:,.1f} MB"


def is_enough(batches: int, changes: int) -> bool:
    """Whether so many batches since the last change are enough for another.

    >>> [is_enough(2, 0), is_enough(3, 1), is_enough(4, 1)]
    [True, False, True]
    """
    return batches >= PATIENCE * 2**changes


def is_clear(price: float, standing: float) -> bool:
    """Whether a price is clearly below another."""
    return price <= MARGIN * standing
