"""The plan: everything that a runtime needs to run a query, and nothing that it must decide again.

Invariant: a plan is a pure function of the query, the schemas and the options (DESIGN: placement). It is frozen, small,
and holds no data. `fingerprint` covers what stored state depends on.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

from watersmeet.plan.drivers import Policy
from watersmeet.plan.encoding import Kind
from watersmeet.plan.finish import FinishPlan
from watersmeet.plan.sites.placed import SitesPlan
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.join import Join
from watersmeet.query.session import UTC
from watersmeet.query.session_use import depends_on_ansi, depends_on_zone
from watersmeet.query.window import UNBOUNDED
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.sites import BySite

Kernel = Literal["hw", "sorted", "nlw", "mw", "lca", "ripple", "xjoin"]
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
class Side:
    """Aliases whose tuples are bound together in a stage: one alias as it enters, or the results of the stage before."""

    aliases: tuple[str, ...]
    reference: str
    """The alias whose time is the side's time: where the other side's window on it is tightest."""
    keys: Mapping[int, str] = field(hash=False)
    """Class number to column."""
    carried: tuple[tuple[str, str], ...] = ()
    """(alias, wire column) of what the results of an earlier stage bring along."""

    @property
    def name(self) -> str:
        return "+".join(self.aliases)

    def column(self, alias: str, wire: str) -> str:
        """How an alias' wire column is called in the side's tables."""
        own = len(self.aliases) == 1 or (alias, wire) == (self.reference, TIME)
        return wire if own else f"{alias}.{wire}"


@dataclass(frozen=True)
class Stage:
    """One join: its sides, and where their tuples go. Units are numbered from `first`."""

    sides: tuple[Side, ...]
    routing: Hypercube | Biclique | BySite
    first: int = 0

    @property
    def units(self) -> range:
        return range(self.first, self.first + self.routing.units)

    def partners(self, side: Side) -> tuple[str, ...]:
        """The aliases of the other sides."""
        return tuple(a for other in self.sides if other is not side for a in other.aliases)

    def is_primary(self, side: int, unit: int) -> bool:
        """Whether a unit counts a tuple of a side that it stores: of several copies one does."""
        return isinstance(self.routing, Biclique) or self.routing.is_primary(side, unit - self.first)


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
    """The columns of results inside the units: those of SELECT and of `after`, and under DISTINCT all event times."""
    stages: tuple[Stage, ...] = ()
    """One join of all aliases, or a left-deep pipeline of joins of two sides."""
    kernel: Kernel = "hw"
    gca: bool = False
    """Whether the kernel filters with the largest window of all, and every pair's own is tested on what it finds."""
    may_sweep: bool = False
    """Whether a unit may sweep a batch instead, where it estimates that to be cheaper: nobody has forced a kernel."""
    kernel_why: str = ""
    """Who chose the kernel, and what units may make of that, in words."""
    order: tuple[str, ...] | None = None
    """A forced probe order; None: by statistics."""
    driver: Policy = "auto"
    """What orders the drivers inside a batch; it moves nothing, so it is not in the fingerprint."""
    shipping: Literal["full", "semijoin", "auto"] = "full"
    """'auto': whole tuples at first, and on the rounds runtime what is cheaper from then on."""
    bandwidth: float | None = None
    """Bytes per second between units, where the user has said so."""
    notes: tuple[str, ...] = ()
    finish: FinishPlan | None = None
    """The second stage: DISTINCT or GROUP BY."""
    sites: SitesPlan | None = None
    """How sites join, where streams arrive at sites."""

    @property
    def aliases(self) -> tuple[str, ...]:
        return self.join.aliases

    @property
    def timezone(self) -> str:
        """The session's time zone, which expressions are evaluated in."""
        return self.join.session.timezone

    @property
    def units(self) -> int:
        """How many units join; they are numbered stage by stage."""
        return self.stages[-1].units.stop

    def stage_of(self, unit: int) -> Stage:
        """The stage that a unit belongs to; with one stage, units that scaling has added do too."""
        return self.stages[0] if len(self.stages) == 1 else next(s for s in self.stages if unit in s.units)

    def entry(self, alias: str) -> tuple[Stage, int]:
        """The stage in which an alias' tuples enter, and the number of its side there."""
        return next(
            (stage, n) for stage in self.stages for n, side in enumerate(stage.sides) if side.aliases == (alias,)
        )

    def retention_us(self, stage: Stage, side: Side) -> int:
        """How long a side's tuples can meet later ones."""
        return max((self.join.windows.hi(side.reference, y) for y in stage.partners(side)), default=UNBOUNDED)

    @property
    def sequenced(self) -> tuple[InputPlan, ...]:
        """The inputs with a ROWS window."""
        return tuple(i for i in self.inputs if i.rows is not None)

    def input(self, alias: str) -> InputPlan:
        return next(i for i in self.inputs if i.alias == alias)

    @property
    def site_names(self) -> tuple[str, ...]:
        """The sites, by unit; none where streams arrive at no sites."""
        routing = self.stages[0].routing
        return routing.names if isinstance(routing, BySite) else ()

    def at(self, sequences: Mapping[str, Sequence[Sequence[str]]]) -> Plan:
        """The same query under other sequences of one-way joins between sites."""
        return self if self.sites is None or not sequences else replace(self, sites=self.sites.under(sequences))

    def description(self) -> dict[str, Any]:
        """What stored state depends on, as JSON: aliases, columns, keys, conditions, windows, routing."""
        more: dict[str, Any] = {} if self.finish is None else {"finish": self.finish.description(self.join)}
        if self.join.windows.alternatives:
            more["alternatives"] = [[list(row) for row in g.bounds] for g in self.join.windows.alternatives]
        if self.timezone != UTC and depends_on_zone(self.join):
            more["timezone"] = self.timezone
        if not self.join.session.ansi and depends_on_ansi(self.join):
            more["ansi"] = False
        return more | {
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
            "routing": _placement(self.stages),
        }

    def __repr__(self) -> str:
        return f"Plan({', '.join(self.aliases)}; {self.units} units, kernel {self.kernel}, fingerprint {self.fingerprint()})"

    @property
    def title(self) -> str:
        """The query as checkpoints name it: its text, and the time zone if that matters."""
        text = " ".join(self.join.text.split())
        return f"{text} (time zone {self.timezone})" if self._uses_zone else text

    @property
    def _uses_zone(self) -> bool:
        return depends_on_zone(self.join)

    def fingerprint(self) -> str:
        """Changes when, and only when, state stored under one plan is of no use to another."""
        text = json.dumps(self.description(), sort_keys=True)
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def _placement(stages: tuple[Stage, ...]) -> list[Any]:
    """What routing places, as JSON."""
    if len(stages) == 1 and isinstance(stages[0].routing, Hypercube):
        grid = stages[0].routing
        return [grid.kind, list(grid.shares), [list(d) for d in grid.dimensions]]
    return [[[s.name for s in stage.sides], _described(stage.routing)] for stage in stages]


def _described(routing: Hypercube | Biclique | BySite) -> Any:
    if isinstance(routing, Biclique):
        return routing.to_json()
    if isinstance(routing, BySite):
        return [routing.kind, list(routing.names), list(routing.unit_of)]
    return [routing.kind, list(routing.shares), [list(d) for d in routing.dimensions]]
