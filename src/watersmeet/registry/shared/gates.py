"""Gates: what a tuple must satisfy to be of any use to a template under an alias.

If every query of a template asks something of one alias alone, tuples that satisfy none of them need not be joined:

    template 4:   q1 ... AND o.total > 500      q2 ... AND o.user = 42        gate of o:   o.total > 500 OR o.user = 42

Rows that do not pass stay out of the index that the template's probes use, and drive nothing.

Constants, ranges and lists are compared by codes, a few microseconds for thousands of rows; if every query asks for some of these, its other conditions are left out of the gate.
Otherwise the gate is evaluated as text, which costs a millisecond however few the rows are.

Invariant: a gate only spares work: whatever satisfies a query passes. Queries decide for themselves in the end.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from watersmeet.columns.arrow import codes
from watersmeet.registry.subscription import Computed, Subscription
from watersmeet.storage.segment import CodedTest


@dataclass(frozen=True)
class TextGate:
    """A condition as a template of DuckDB text, and the columns of the stream that stand in its slots."""

    template: str
    columns: tuple[str, ...]


@dataclass(frozen=True)
class CodedGate:
    """Ways to pass, each of tests of the stream's columns that all hold."""

    ways: tuple[tuple[CodedTest, ...], ...]


Gate = TextGate | CodedGate
MOST_WAYS = 8
"""A gate of more alternatives than this would cost more than it spares."""


def gates(queries: Sequence[Subscription]) -> tuple[Gate | None, ...]:
    """The gates of a template's aliases, by the queries that have it; None lets every tuple pass."""
    return tuple(_gate(queries, alias) for alias in range(len(queries[0].template.streams)))


def _gate(queries: Sequence[Subscription], alias: int) -> Gate | None:
    ways: dict[tuple[CodedTest, ...], None] = {}
    for query in queries:
        asked = tuple(sorted(_find_tests(query, alias)))
        if not asked:
            return _write_gate(queries, alias)
        ways[asked] = None
        if len(ways) > MOST_WAYS:
            return None
    return CodedGate(tuple(ways))


def _find_tests(query: Subscription, alias: int) -> Iterator[CodedTest]:
    """What a query asks of one alias by codes."""
    for x, column, kind, value in query.constants:
        if x == alias:
            yield column, kind, (_point(value),)
    for x, column, kind, low, high in query.ranges:
        if x == alias:
            yield column, kind, ((low, high),)
    for x, column, kind, values in query.lists:
        if x == alias:
            yield column, kind, tuple(_point(value) for value in values)


def _point(value: int | str) -> tuple[int, int]:
    code = code_of(value)
    return code, code


def code_of(value: int | str) -> int:
    """The code of a constant."""
    return value if isinstance(value, int) else int(codes(pa.array([value]), "bytes")[0])


def _write_gate(queries: Sequence[Subscription], alias: int) -> TextGate | None:
    """The gate as text."""
    columns: dict[str, int] = {}
    ways: dict[str, None] = {}
    for query in queries:
        asked = [_constant(columns, c, v) for x, c, _, v in query.constants if x == alias]
        asked += [_residual(columns, r) for r in query.residuals if r.columns and all(x == alias for x, _ in r.columns)]
        if not asked:
            return None
        ways[" AND ".join(sorted(asked))] = None
        if len(ways) > MOST_WAYS:
            return None
    return TextGate(" OR ".join(f"({way})" for way in ways), tuple(columns))


def _constant(columns: dict[str, int], column: str, value: int | str) -> str:
    slot = columns.setdefault(column, len(columns))
    literal = str(value) if isinstance(value, int) else _escape(_quote(value))
    return f"{{{slot}}} = {literal}"


def _residual(columns: dict[str, int], residual: Computed) -> str:
    slots = [columns.setdefault(c, len(columns)) for _, c in residual.columns]
    marks = [f"\0{slot}\0" for slot in slots]
    text = _escape(residual.template.format(*marks, *(_quote(p) for p in residual.parameters)))
    for slot, mark in zip(slots, marks, strict=True):
        text = text.replace(mark, f"{{{slot}}}")
    return f"TRY({text})"


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _escape(text: str) -> str:
    """Text whose braces survive another round of formatting."""
    return text.replace("{", "{{").replace("}", "}}")
