"""The select list that turns a source's rows into wire rows, as SQL text.

Invariant: filters come first: an expression is computed only for rows that pass the alias' filters, as it would be in
one SQL query, so a division by zero in a filtered row is nobody's error.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from watersmeet.plan.model import TIME, InputPlan
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.stream import COUNTED


@dataclass(frozen=True)
class Dialect:
    """How one engine writes expressions, columns and types."""

    render: Callable[[Expr, Callable[[ColumnRef], str]], str]
    quote: Callable[[str], str]
    cast: Callable[[str, str], str]
    """A text as a value of a Spark type."""


def condition(source: InputPlan, dialect: Dialect) -> str | None:
    """Where the alias' filters hold; None if it has none."""
    if not source.filters:
        return None
    return " AND ".join(f"({dialect.render(f, lambda ref: dialect.quote(ref.column))})" for f in source.filters)


def own_condition(source: InputPlan, dialect: Dialect) -> str | None:
    """Where a tuple can have a partner, of a preserved side; None: everywhere."""
    if not source.own:
        return None
    own = " AND ".join(f"({dialect.render(e, lambda ref: dialect.quote(ref.column))})" for e in source.own)
    passes = condition(source, dialect)
    return own if passes is None else f"CASE WHEN {passes} THEN {own} END"


def items(
    source: InputPlan, inputs: Sequence[InputPlan], dialect: Dialect, *, wrap_plain: bool
) -> list[tuple[str, str]]:
    """(wire column, text) for every wire column; `inputs` are all aliases, `wrap_plain` also blanks plain columns of rows that do not pass."""
    passes = condition(source, dialect)
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
    return out


def _counts_elsewhere(source: InputPlan, inputs: Sequence[InputPlan], dialect: Dialect) -> str:
    """True where an earlier alias of the same stream gets the row too, and so counts it if it is late."""
    cases = []
    for other in (i for i in inputs if i.alias in source.earlier):
        parts = [p for p in [condition(other, dialect)] if p]
        for column in other.columns:
            if column.name in other.required:
                text = dialect.render(column.expr, lambda ref: dialect.quote(ref.column))
                guarded = f"CASE WHEN {parts[0]} THEN {text} END" if other.filters else text
                parts.append(f"({guarded}) IS NOT NULL")
        cases.append(f"coalesce({' AND '.join(parts) or 'true'}, false)")
    return " OR ".join(cases)
