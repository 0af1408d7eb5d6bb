"""What a user says of sites: which alias arrives where, how sites join, and the lines between them.

Invariant: a `Sites` that exists has a line for every pair: its own, or the one that holds for all others.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any

from watersmeet.errors import OptionError, WindowError
from watersmeet.query.duration import parse_us


@dataclass(frozen=True)
class Line:
    """A line between two sites: how long a message takes to begin with, and how many bytes per second follow.

    >>> Line("20 ms", 12.5e6).latency_us
    20000
    """

    latency: str | timedelta = "20 ms"
    bandwidth: float = 12.5e6

    def __post_init__(self) -> None:
        _ = self.latency_us
        width = self.bandwidth
        if not isinstance(width, (int, float)) or isinstance(width, bool) or not width > 0:
            raise OptionError(f"bandwidth={width!r} of a line: give bytes per second, such as 12.5e6")

    @property
    def latency_us(self) -> int:
        us = _span_us(self.latency)
        if us < 0:
            raise OptionError(f"latency={self.latency!r} of a line is not a span of time; write it as '20 ms'")
        return us


@dataclass(frozen=True)
class Sites:
    """Where streams arrive, how they are joined, and the lines between sites.

    of: the site of every alias whose stream does not say it with `site=`. plan: "auto", "greedy" or "exhaustive", chosen anew while a
    query runs, or a sequence of one-way joins for every alias, `{"a": "b SM-S1, c SP-D", ...}`, which stays; "tree", or a tree,
    "a, b SP-S/SM-D1, c SM-D2/SM-S1". latency and bandwidth (bytes per second) are of all lines, measured while the query runs where they are not given; `lines` has
    those by pair that differ, both ways unless both are given. patience: how long a site may be silent before the
    others warn of it; results wait for it, and nothing is lost. It is the same at all sites. decider: the site that chooses plans, the first one in FROM if it is not given.
    results_at: the site that all results are shipped to, and that writes them; without it every site writes what it finds.

    >>> far = Sites({"a": "paris", "b": "tokyo"}, latency="5 ms", lines={("paris", "tokyo"): Line("120 ms", 1e6)})
    >>> far.between("tokyo", "paris").latency, far.between("paris", "rome").latency
    ('120 ms', '5 ms')
    """

    of: Mapping[str, str] = field(default_factory=dict, hash=False)
    plan: Any = field(default="auto", hash=False)
    latency: str | timedelta | None = None
    bandwidth: float | None = None
    lines: Mapping[tuple[str, str], Line] = field(default_factory=dict, hash=False)
    patience: str | timedelta = "5 minutes"
    decider: str | None = None
    results_at: str | None = None

    def __post_init__(self) -> None:
        self.between("", "")
        if self.patience_us <= 0:
            raise OptionError(
                f"patience={self.patience!r}: give the time that a site may be silent, such as '5 minutes'"
            )
        if not isinstance(self.of, Mapping) or any(not isinstance(s, str) or not s for s in self.of.values()):
            raise OptionError(f"of={self.of!r}: give a dict from aliases to names of sites, such as {{'a': 'paris'}}")
        for name in ("decider", "results_at"):
            site = getattr(self, name)
            if site is not None and (not isinstance(site, str) or not site):
                raise OptionError(f"{name}={site!r}: give the name of a site, such as 'paris'")
        if not isinstance(self.lines, Mapping):
            raise OptionError(f"lines={self.lines!r}: give a dict from pairs of sites to wm.Line(...)")
        for pair, line in self.lines.items():
            if not _is_pair(pair) or not isinstance(line, Line):
                raise OptionError(
                    f"lines: {pair!r}: {line!r} should be a pair of sites and a line: ('paris', 'tokyo'): wm.Line('120 ms', 1e6)"
                )

    def between(self, sender: str, receiver: str) -> Line:
        """The line from one site to another, as it is given, or as it is assumed to be until it is measured."""
        for pair in ((sender, receiver), (receiver, sender)):
            if pair in self.lines:
                return self.lines[pair]
        latency = Line.latency if self.latency is None else self.latency
        return Line(latency, Line.bandwidth if self.bandwidth is None else self.bandwidth)

    def is_measured(self, sender: str, receiver: str) -> tuple[bool, bool]:
        """Whether the latency of a line is measured, and whether its bandwidth is: what is given is not.

        >>> Sites(latency="5 ms").is_measured("paris", "rome")
        (False, True)
        """
        if (sender, receiver) in self.lines or (receiver, sender) in self.lines:
            return False, False
        return self.latency is None, self.bandwidth is None

    @property
    def patience_us(self) -> int:
        return _span_us(self.patience)

    @property
    def named(self) -> tuple[str, ...]:
        """The sites that lines name."""
        return tuple(dict.fromkeys(site for pair in self.lines for site in pair))


def _span_us(given: Any) -> int:
    """A span of time; -1 if it is none."""
    try:
        return parse_us(given)
    except (WindowError, AttributeError, TypeError):
        return -1


def _is_pair(pair: Any) -> bool:
    return (
        isinstance(pair, tuple)
        and len(pair) == 2
        and all(isinstance(s, str) and s for s in pair)
        and pair[0] != pair[1]
    )
