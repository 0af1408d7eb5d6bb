"""Joins across sites: streams that arrive at sites, and the plans that join them.

    linear     a: b SP-D, c SM-S1     one sequence of one-way joins for every head stream
               b: a SM-D2, c SP-S
               c: ...

A one-way join goes from a source (the head's new tuples, or what they have been joined to so far) to a destination
(another stream's window). Its algorithm says where the results arise, at the source's site or at the destination's, and
what is shipped for that: whole tuples, or join attributes first.

Invariant: a plan that can be constructed can be run: every stream comes once in every sequence, and is connected with
those before it.
Implements: Tran and Lee (2010), section 3.1 (the six of `PAPER`), definition 1 (linear ordering).
Departs from the paper: several streams may arrive at one site; a one-way join may have several attributes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from functools import cached_property
from typing import NamedTuple

from watersmeet.errors import OptionError, QueryError, UnknownNameError, WindowError


class Algorithm(Enum):
    """The six one-way joins: SP simple, SM semijoin; S at the source, D at the destination; 1 or 2 reductions. And SMB: semijoins
    whose keys travel as a Bloom filter, which the paper names as future work."""

    SP_S = "SP-S"
    SP_D = "SP-D"
    SM_S1 = "SM-S1"
    SM_S2 = "SM-S2"
    SM_D1 = "SM-D1"
    SM_D2 = "SM-D2"
    SMB_S1 = "SMB-S1"
    SMB_S2 = "SMB-S2"
    SMB_D1 = "SMB-D1"
    SMB_D2 = "SMB-D2"

    __hash__ = object.__hash__

    @property
    def at_source(self) -> bool:
        """Whether results arise where the source is."""
        return self in AT_SOURCE

    @classmethod
    def of(cls, name: str) -> Algorithm:
        """By name.

        >>> Algorithm.of("SM-D1").at_source
        False
        """
        try:
            return cls(name)
        except ValueError:
            raise OptionError(f"algorithm {name!r}: there are {', '.join(a.value for a in cls)}") from None


PAPER = (Algorithm.SP_S, Algorithm.SP_D, Algorithm.SM_S1, Algorithm.SM_S2, Algorithm.SM_D1, Algorithm.SM_D2)
AT_SOURCE = frozenset({Algorithm.SP_S, Algorithm.SM_S1, Algorithm.SM_S2, Algorithm.SMB_S1, Algorithm.SMB_S2})


@dataclass(frozen=True)
class SiteStream:
    """A stream that arrives at a site, with its window: a span of time, or its last rows."""

    alias: str
    site: str
    window_us: int | None = None
    window_rows: int | None = None

    def __post_init__(self) -> None:
        if (self.window_us is None) == (self.window_rows is None):
            raise WindowError(
                f"stream {self.alias}: give either window_us (a span) or window_rows (a number of tuples)"
            )
        if self.window_us is not None and self.window_us < 0:
            raise WindowError(f"stream {self.alias}: window_us={self.window_us} is negative; give 0 or more")
        if self.window_rows is not None and self.window_rows < 1:
            raise WindowError(f"stream {self.alias}: window_rows={self.window_rows}; give 1 or more")

    @property
    def window(self) -> str:
        """As explain shows it.

        >>> SiteStream("a", "A", window_us=2_000_000).window
        '2 s'
        """
        return f"{self.window_rows} rows" if self.window_us is None else f"{self.window_us / 1e6:g} s"


Column = tuple[str, str]
"""(alias, column)."""


@dataclass(frozen=True)
class KeyPair:
    """left's column equals right's."""

    left: Column
    right: Column

    def __str__(self) -> str:
        return f"{'.'.join(self.left)} = {'.'.join(self.right)}"


@dataclass(frozen=True)
class SiteQuery:
    """Streams at sites and the equalities between them: a connected join graph.

    A result is one tuple of each stream, equal along all edges, each inside its stream's window at the youngest's time.

    >>> query = SiteQuery.of({"a": "A", "b": "B", "c": "C"}, ["a.k = b.k", "b.x = c.y"], window_us=1_000_000)
    >>> query.neighbours("b"), len(query.classes)
    (('a', 'c'), 2)
    """

    streams: tuple[SiteStream, ...]
    edges: tuple[KeyPair, ...]

    def __post_init__(self) -> None:
        if len(set(self.aliases)) < len(self.aliases):
            raise QueryError("two streams have the same alias; rename one")
        if len(self.aliases) < 2:
            raise QueryError("a join needs two streams or more")
        for edge in self.edges:
            for alias, _ in (edge.left, edge.right):
                if alias not in self.aliases:
                    raise UnknownNameError(f"{edge}: there is no stream {alias}; there are {', '.join(self.aliases)}")
            if edge.left[0] == edge.right[0]:
                raise QueryError(f"{edge}: both sides are of one stream; filter the stream before it is joined")
        reached = {self.aliases[0]}
        while grown := {n for a in reached for n in self.neighbours(a)} - reached:
            reached |= grown
        if apart := [a for a in self.aliases if a not in reached]:
            raise QueryError(f"no equality connects {', '.join(apart)} with {self.aliases[0]}; add one")

    @classmethod
    def of(
        cls,
        sites: Mapping[str, str],
        edges: Iterable[str],
        *,
        window_us: int | Mapping[str, int] | None = None,
        window_rows: int | Mapping[str, int] | None = None,
    ) -> SiteQuery:
        """From sites by alias and edges as text; windows for all streams alike, or by alias."""
        us = window_us if isinstance(window_us, Mapping) else dict.fromkeys(sites, window_us)
        rows = window_rows if isinstance(window_rows, Mapping) else dict.fromkeys(sites, window_rows)
        streams = tuple(SiteStream(a, s, us.get(a), rows.get(a)) for a, s in sites.items())
        return cls(streams, tuple(_edge(text) for text in edges))

    @cached_property
    def aliases(self) -> tuple[str, ...]:
        return tuple(s.alias for s in self.streams)

    @cached_property
    def position(self) -> dict[str, int]:
        """By alias; among tuples of one time, the stream that comes later in the query is younger."""
        return {a: n for n, a in enumerate(self.aliases)}

    def stream(self, alias: str) -> SiteStream:
        return self.streams[self.position[alias]]

    def neighbours(self, alias: str) -> tuple[str, ...]:
        """Streams that an edge connects with this one."""
        ends = [(e.left[0], e.right[0]) for e in self.edges]
        near = {y if x == alias else x for x, y in ends if alias in (x, y)}
        return tuple(a for a in self.aliases if a in near)

    def between(self, done: Iterable[str], alias: str) -> tuple[tuple[Column, str], ...]:
        """What a stream's columns must equal in streams joined before: (column there, column here), each once."""
        bound = set(done)
        pairs = [(e.left, e.right) for e in self.edges] + [(e.right, e.left) for e in self.edges]
        return tuple(dict.fromkeys((there, here[1]) for there, here in pairs if here[0] == alias and there[0] in bound))

    @cached_property
    def classes(self) -> tuple[frozenset[Column], ...]:
        """Columns that edges make equal, directly or through others."""
        found: list[frozenset[Column]] = []
        for edge in self.edges:
            touched = [c for c in found if edge.left in c or edge.right in c]
            found = [c for c in found if c not in touched]
            found.append(frozenset({edge.left, edge.right}).union(*touched))
        return tuple(found)


def _edge(text: str) -> KeyPair:
    sides = [tuple(side.strip().split(".")) for side in text.split("=")]
    if len(sides) != 2 or any(len(s) != 2 or not all(s) for s in sides):
        raise QueryError(f"edge {text!r}: write alias.column = alias.column")
    (a, x), (b, y) = sides
    return KeyPair((a, x), (b, y))


class OneWayStep(NamedTuple):
    """One one-way join of a sequence: to which stream, and how."""

    to: str
    algorithm: Algorithm

    def __str__(self) -> str:
        return f"{self.to} {self.algorithm.value}"


Sequence = tuple[OneWayStep, ...]


@dataclass(frozen=True)
class LinearPlan:
    """One sequence for each head stream.

    >>> query = SiteQuery.of({"a": "A", "b": "B"}, ["a.k = b.k"], window_us=1)
    >>> print(LinearPlan.of(query, {"a": "b SM-S1", "b": "a SP-D"}))
    a: b SM-S1; b: a SP-D
    """

    query: SiteQuery
    sequences: Mapping[str, Sequence] = field(hash=False)

    def __post_init__(self) -> None:
        if set(self.sequences) != set(self.query.aliases):
            raise OptionError(f"a linear plan has one sequence for each of {', '.join(self.query.aliases)}")
        for head, steps in self.sequences.items():
            others = [a for a in self.query.aliases if a != head]
            if sorted(s.to for s in steps) != sorted(others):
                raise OptionError(f"the sequence of {head} must name each of {', '.join(others)} once")
            done = [head]
            for step in steps:
                if not self.query.between(done, step.to):
                    raise OptionError(f"the sequence of {head}: no equality connects {step.to} with {', '.join(done)}")
                done.append(step.to)

    @classmethod
    def of(cls, query: SiteQuery, sequences: Mapping[str, str]) -> LinearPlan:
        """From text: 'b SM-S1, c SP-D' for each head."""
        return cls(query, {head: tuple(_steps(head, text)) for head, text in sequences.items()})

    def places(self, head: str) -> tuple[str, ...]:
        """The site of the head, then that of the results of every step."""
        at = [self.query.stream(head).site]
        for step in self.sequences[head]:
            at.append(at[-1] if step.algorithm.at_source else self.query.stream(step.to).site)
        return tuple(at)

    def __str__(self) -> str:
        return "; ".join(f"{h}: {', '.join(map(str, s))}" for h, s in self.sequences.items())


def _steps(head: str, text: str) -> Iterable[OneWayStep]:
    for item in text.split(","):
        words = item.split()
        if len(words) != 2:
            raise OptionError(f"the sequence of {head}: {item.strip()!r} should be a stream and an algorithm: b SM-S1")
        yield OneWayStep(words[0], Algorithm.of(words[1]))
