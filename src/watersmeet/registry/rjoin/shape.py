"""A registered query as RJoin rewrites it: its shape is what rewritten rows share, its pose is what it asks for by value.

    SELECT ... FROM r a, s b WHERE a.k = b.j AND a.v = 7 AND b.w > 3

    shape   streams, equalities, windows, and that a.v is asked for      one template of the catalogue
    pose    shape and (7,)                                               one row; queries with the same pose share it

Constants are values of the row and not of the template, so ten thousand queries `a.v = <n>` are one template. Conditions that are no
equality of plain columns, and the SELECT, are the owner's business.

A column is compared by codes of a kind (`plan.types`), so what the ring indexes are coded columns: 'integer:k', 'float:k'.

Invariant: the numbers of streams and coded columns are a pure function of the schemas, since keys of the ring are made of them.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from watersmeet.plan.types import Kind, kind_of
from watersmeet.query.stream import INTEGERS, StreamSpec
from watersmeet.registry.rjoin.catalogue import Place, Slot, merge_places
from watersmeet.registry.subscription import Subscription
from watersmeet.registry.template import Template


def name_code(column: str, kind: Kind) -> str:
    """The name of a coded column.

    >>> name_code("user", "integer")
    'integer:user'
    """
    return f"{kind}:{column}"


def parts(name: str) -> tuple[str, Kind]:
    """Column and kind of a coded column.

    >>> parts("bytes:a:b")
    ('a:b', 'bytes')
    """
    kind, column = name.split(":", 1)
    return column, kind  # type: ignore[return-value]


def code_columns(spec: StreamSpec) -> tuple[str, ...]:
    """All coded columns of a stream, in a fixed order; whole numbers are compared with doubles too.

    >>> code_columns(StreamSpec("s", {"k": "int", "name": "string", "at": "timestamp"}, time="at"))
    ('integer:k', 'float:k', 'bytes:name', 'integer:at')
    """
    out = []
    for column, type_ in spec.schema.items():
        kind = kind_of(str(type_))
        if kind is not None:
            out.append(name_code(column, kind))
        if str(type_) in INTEGERS:
            out.append(name_code(column, "float"))
    return tuple(out)


def code_streams(specs: Mapping[str, StreamSpec]) -> dict[str, tuple[str, ...]]:
    """Coded columns by stream; both in an order that does not depend on how the streams were given."""
    return {name: code_columns(spec) for name, spec in sorted(specs.items())}


@dataclass(frozen=True)
class Shape:
    """A join, and the columns in which its queries ask for constants."""

    join: Template
    wanted: tuple[tuple[int, str, Kind], ...]

    @classmethod
    def of(cls, query: Subscription) -> Shape:
        return cls(query.template, tuple((x, column, kind) for x, column, kind, _ in query.constants))

    @property
    def streams(self) -> tuple[str, ...]:
        return self.join.streams

    def hi(self, x: int, y: int) -> int:
        return self.join.bounds[x][y]

    @cached_property
    def _equal(self) -> list[tuple[Place, Place]]:
        return [((x, name_code(a, kind)), (y, name_code(b, kind))) for x, a, y, b, kind in self.join.edges]

    @cached_property
    def _asked(self) -> list[Place]:
        return [(x, name_code(column, kind)) for x, column, kind in self.wanted]

    @cached_property
    def slots(self) -> tuple[Slot, ...]:
        """What a rewritten row carries a value for."""
        classes = merge_places([*self._equal, *([place] for place in self._asked)])
        return tuple(Slot(places, any(p in self._asked for p in places)) for places in classes)

    @cached_property
    def wanted_slots(self) -> tuple[int, ...]:
        """The slot of every constant."""
        return tuple(next(n for n, s in enumerate(self.slots) if place in s.places) for place in self._asked)

    @cached_property
    def name(self) -> int:
        """A number that no other shape has, in every process: 64 bits of a hash of its text."""
        text = repr((self.join.text, self.wanted)).encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "little", signed=True)

    @property
    def columns(self) -> set[tuple[str, str]]:
        """(stream, coded column) of all that is indexed for it."""
        places = (*(place for pair in self._equal for place in pair), *self._asked)
        return {(self.streams[alias], column) for alias, column in places}


def index_columns(shapes: Iterable[Shape]) -> dict[str, list[str]]:
    """By stream the coded columns under which queries of these shapes find their tuples, in the order of their names."""
    out: dict[str, set[str]] = {}
    for shape in set(shapes):
        for stream in shape.streams:
            out.setdefault(stream, set())
        for stream, column in shape.columns:
            out.setdefault(stream, set()).add(column)
    return {stream: sorted(columns) for stream, columns in sorted(out.items())}
