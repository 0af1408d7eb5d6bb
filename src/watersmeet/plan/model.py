"""The plan: everything that a runtime needs to run a query, and nothing that it must decide again.

Invariant: a plan is a pure function of the query, the schemas and the options (DESIGN: placement). It is frozen, small,
and holds no data. `fingerprint` covers what stored state depends on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from watersmeet.plan.encoding import Kind
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.join import Join
from watersmeet.routing.hypercube import Hypercube

Kernel = Literal["hw", "nlw"]
TIME = "_ts"
"""The wire column of event time."""
SEQUENCE = "_seq"
"""The wire column of a tuple's number in its stream, of an alias with a ROWS window."""
COUNTED = "_counted"
"""The wire column that is true where an earlier alias of the same stream has counted the tuple already."""


class Types(Protocol):
    """Who knows the types of expressions: Spark in its runtimes, DuckDB in the local one."""

    def type_of(self, expr: Expr) -> str:
        """The Spark name of an expression's type."""

    def common(self, left: str, right: str) -> str | None:
        """The type in which values of two types are compared; None if there is none."""


@dataclass(frozen=True)
class KeyClass:
    """Expressions of different aliases that must be equal, in one type."""

    type: str
    kind: Kind
    members: Mapping[str, Expr] = field(hash=False)

    def __str__(self) -> str:
        return " = ".join(str(e) for e in self.members.values())


@dataclass(frozen=True)
class WireColumn:
    """A column that travels with an alias' tuples: an expression, cast to `type` where `cast` says so."""

    name: str
    expr: Expr
    type: str
    cast: bool


@dataclass(frozen=True)
class Compare:
    """`left op right` over codes of wire columns; op is '<' or '<='."""

    left: tuple[str, str]
    op: Literal["<", "<="]
    right: tuple[str, str]
    kind: Kind
    text: str


@dataclass(frozen=True)
class Difference:
    """`lo <= left - right <= hi` over wire columns of integers or doubles."""

    left: tuple[str, str]
    right: tuple[str, str]
    lo: float | None
    hi: float | None
    integers: bool
    text: str


Residual = Compare | Difference


@dataclass(frozen=True)
class InputPlan:
    """One alias: what travels, what is a key, what is filtered before."""

    alias: str
    stream: str
    position: int
    columns: tuple[WireColumn, ...]
    keys: Mapping[int, str] = field(hash=False)
    """Class number to wire column."""
    filters: tuple[Expr, ...]
    required: tuple[str, ...]
    """Wire columns in which NULL can match nothing."""
    earlier: tuple[str, ...]
    """Aliases of the same stream that stand before this one."""
    rows: int | None = None
    payload: tuple[str, ...] = ()
    """Wire columns that are fetched for matches only."""

    def column(self, ref: ColumnRef) -> str:
        """The wire column of a plain column."""
        return next(
            c.name for c in self.columns if not c.cast and c.expr.columns == (ref,) and c.expr.spark_template == "{0}"
        )


@dataclass(frozen=True)
class Plan:
    """A bound, typed, placed query."""

    join: Join
    units_wanted: int
    inputs: tuple[InputPlan, ...] = ()
    classes: tuple[KeyClass, ...] = ()
    residuals: tuple[Residual, ...] = ()
    inside: tuple[Expr, ...] = ()
    """Conditions that the units evaluate with the library evaluator."""
    after: tuple[Expr, ...] = ()
    """Conditions that Spark evaluates after the join."""
    output: tuple[ColumnRef, ...] = ()
    """The columns that leave the units: those of SELECT and of `after`."""
    routing: Hypercube | None = None
    kernel: Kernel = "hw"
    order: tuple[str, ...] | None = None
    """A forced probe order; None: by statistics."""
    shipping: Literal["full", "semijoin"] = "full"
    notes: tuple[str, ...] = ()

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.join.aliases

    @property
    def grid(self) -> Hypercube:
        assert self.routing is not None
        return self.routing

    @property
    def sequenced(self) -> tuple[InputPlan, ...]:
        """The inputs with a ROWS window."""
        return tuple(i for i in self.inputs if i.rows is not None)

    def input(self, alias: str) -> InputPlan:
        return next(i for i in self.inputs if i.alias == alias)

    def description(self) -> dict[str, Any]:
        """What stored state depends on, as JSON: aliases, columns, keys, conditions, windows, routing."""
        shipped = {"shipping": self.shipping} if self.shipping != "full" else {}
        return shipped | {
            "inputs": [
                [
                    i.alias,
                    i.stream,
                    [[c.name, c.expr.text, c.type] for c in i.columns],
                    [f.text for f in i.filters],
                    i.rows,
                ]
                for i in self.inputs
            ],
            "lateness": {s.name: [s.lateness_us, s.idle_us] for s in self.join.streams.values()},
            "classes": [[c.type, {a: e.text for a, e in c.members.items()}] for c in self.classes],
            "conditions": sorted([r.text for r in self.residuals] + [e.text for e in (*self.inside, *self.after)]),
            "windows": [list(row) for row in self.join.windows.bounds],
            "routing": [self.grid.kind, list(self.grid.shares), [list(d) for d in self.grid.dimensions]],
        }

    def fingerprint(self) -> str:
        """Changes when, and only when, state stored under one plan is of no use to another."""
        text = json.dumps(self.description(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]
