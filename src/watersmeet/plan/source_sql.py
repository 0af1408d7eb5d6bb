"""The select list that turns a source's rows into wire rows, as SQL text.

Invariant: filters come first: an expression is computed only for rows that pass the alias' filters, as it would be in
one SQL query, so a division by zero in a filtered row is nobody's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from watersmeet.plan.model import TIME, InputPlan
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.stream import COPY, COUNTED, TAKEN

PASS = "_pass"
"""The wire column that is true where the alias' filters hold; it does not travel on."""
OWN = "_own"
"""The wire column that is true where a tuple of a preserved side can have a partner; it does not travel on."""


@dataclass(frozen=True)
class Dialect:
    """How one engine writes expressions, columns and types."""

    render: Callable[[Expr, Callable[[ColumnRef], str]], str]
    quote: Callable[[str], str]
    cast: Callable[[str, str], str]
    """A text as a value of a Spark type."""


def _condition(source: InputPlan, dialect: Dialect) -> str | None:
    """Where the alias' filters hold; None if it has none."""
    return _conjunction(source.filters, dialect) if source.filters else None


def _conjunction(conditions: Sequence[Expr], dialect: Dialect) -> str:
    return " AND ".join(f"({dialect.render(e, lambda ref: dialect.quote(ref.column))})" for e in conditions)


def items(
    source: InputPlan, inputs: Sequence[InputPlan], dialect: Dialect, *, wrap_plain: bool
) -> list[tuple[str, str]]:
    """(wire column, text) for every wire column; `inputs` are all aliases, `wrap_plain` also blanks plain columns of rows that do not pass."""
    passes = _condition(source, dialect)
    out = []
    for column in source.columns:
        text = dialect.render(column.expr, lambda ref: dialect.quote(ref.column))
        if column.cast:
            text = dialect.cast(text, column.type)
        plain = column.expr.is_column and not column.cast
        if passes is not None and column.name != TIME and (wrap_plain or not plain):
            text = f"CASE WHEN {passes} THEN {text} END"
        out.append((column.name, text))
    if source.earlier:
        out.append((COUNTED, _counts_elsewhere(source, inputs, dialect)))
    if source.lookups:
        out.append((COPY, f"CASE WHEN {enters(source, dialect)} THEN {dialect.quote(COPY)} END"))
    if passes is not None:
        out.append((PASS, f"coalesce({passes}, false)"))
    if source.own:
        own = _conjunction(source.own, dialect)
        out.append((OWN, f"coalesce({own if passes is None else f'CASE WHEN {passes} THEN {own} END'}, false)"))
    return out


def _counts_elsewhere(source: InputPlan, inputs: Sequence[InputPlan], dialect: Dialect) -> str:
    """True where an earlier alias of the same stream gets the row too, and so counts it if it is late."""
    before = [i for i in inputs if i.alias in source.earlier]
    return " OR ".join(dialect.quote(TAKEN + i.alias) if i.lookups else enters(i, dialect) for i in before)


def asked_tables(source: InputPlan, inputs: Sequence[InputPlan]) -> list[InputPlan]:
    """The earlier aliases of an alias' stream that have tables: whether they take a row, only the tables can say."""
    return [i for i in inputs if i.alias in source.earlier and i.lookups]


def enters(source: InputPlan, dialect: Dialect, name: Callable[[ColumnRef], str] | None = None) -> str:
    """Where a row can match anything, its time aside."""
    name = name or (lambda ref: dialect.quote(ref.column))
    passes = " AND ".join(f"({dialect.render(e, name)})" for e in source.filters)
    parts = [passes] if passes else []
    for column in source.columns:
        if column.name in source.required:
            text = dialect.render(column.expr, name)
            parts.append(f"({f'CASE WHEN {passes} THEN {text} END' if passes else text}) IS NOT NULL")
    return f"coalesce({' AND '.join(parts) or 'true'}, false)"


def list_computed(source: InputPlan, dialect: Dialect) -> list[tuple[str, str, str]]:
    """(wire column, its expression as users wrote it, text) of what is computed of rows that pass the filters."""
    out = []
    for column in source.columns:
        if not column.expr.is_column or column.cast:
            text = dialect.render(column.expr, lambda ref: dialect.quote(ref.column))
            out.append((column.name, str(column.expr), dialect.cast(text, column.type) if column.cast else text))
    if source.own:
        out.append((OWN, " AND ".join(map(str, source.own)), f"coalesce({_conjunction(source.own, dialect)}, false)"))
    return out


def list_filters(source: InputPlan, dialect: Dialect) -> list[tuple[str, str]]:
    """(condition as users wrote it, text) of an alias' filters."""
    return [(str(e), dialect.render(e, lambda ref: dialect.quote(ref.column))) for e in source.filters]
