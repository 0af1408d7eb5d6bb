"""A run across sites: its protocol, its joins and what they are waiting for, and its counts."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from watersmeet.errors import OptionError
from watersmeet.sites.planning.model import Algorithm
from watersmeet_lab.simulate.sites.halves import Destination, Sent, Source
from watersmeet_lab.simulate.sites.streams import Keys
from watersmeet_lab.simulate.sites.window import Arrival, Rows

Constraint = Literal["delayed probe", "delayed removal", "limited match"]


@dataclass(frozen=True)
class SiteProtocol:
    """How sites act and how they bear delays."""

    interval_us: int = 100_000
    """tau."""
    bound: Literal["delta", "heartbeats"] = "delta"
    delta_us: int | Literal["auto"] = "auto"
    """The longest that a message takes; auto: what the network's links say."""
    without: tuple[Constraint, ...] = ()
    """Constraints of section 2.2 to leave out, to see what they are for."""

    def __post_init__(self) -> None:
        if not isinstance(self.interval_us, int) or self.interval_us < 1:
            raise OptionError(f"interval_us={self.interval_us!r}: give a whole number of 1 or more")
        if self.bound not in ("delta", "heartbeats"):
            raise OptionError(f"bound={self.bound!r}: there are 'delta' and 'heartbeats'")
        if self.delta_us != "auto" and (not isinstance(self.delta_us, int) or self.delta_us < 0):
            raise OptionError(f"delta_us={self.delta_us!r}: give whole microseconds, or 'auto'")
        known = ("delayed probe", "delayed removal", "limited match")
        if strange := [c for c in self.without if c not in known]:
            raise OptionError(f"without={strange[0]!r}: there are {', '.join(known)}")


class Envelope(NamedTuple):
    """What travels: a message of a half, or a heartbeat, which says that an interval is told or over."""

    joining: int
    to: Literal["source", "destination"]
    message: Sent | None
    told: int | None = None


@dataclass
class Counts:
    """What a run cost; shipments are messages, heartbeats by themselves not among them."""

    pairs: dict[tuple[str, str], tuple[int, int, int]]
    """Shipments, rows and bytes by (sender, receiver)."""
    shipments: int
    rows: int
    bytes: int
    heartbeats: int
    processing_s: float
    """Of all sites together, measured."""
    intervals: int
    delta_us: int | None
    """The longest that a head is under way, as far as it is known."""
    latest_us: int
    """The longest that a result came after the end of its interval."""


@dataclass
class Outcome:
    """All results, and what they cost."""

    results: Rows
    counts: Counts


@dataclass
class Joining:
    """One one-way join of the plan, at two sites."""

    number: int
    algorithm: Algorithm
    at: str
    there: str
    keys: Keys
    arrivals: Callable[[tuple[int, int]], Arrival]
    source: Source = field(repr=False)
    destination: Destination = field(repr=False)
    results: Callable[[int, Rows], None] = field(repr=False, default=lambda tick, rows: None)
    beat_on: Callable[[int], None] = field(repr=False, default=lambda tick: None)
    offset_us: int = 0
    """How much later than the end of an interval it acts."""
    under_way_us: int | None = 0
    """How long heads may be under way after that."""
    held: deque[tuple[int, Rows]] = field(default_factory=deque)
    fed: int = -1
    """The last interval whose rows have come to the source."""
    mirrored: int = -1
    """The last interval whose update has come to the copy; of SM-D2, the last that is over there."""
    over_here: int = -1
    """The last interval that is over at the source."""
    over_there: int = -1
    told: int = -1
    """The last interval of which the destination knows that the source has sent everything."""

    @property
    def at_source(self) -> bool:
        return self.algorithm.at_source
