"""The plan: everything that a runtime needs to run a query, and nothing that it must decide again.

What units ask in every batch is derived when an object is made (`_derive`), and pickled with it.

Invariant: a plan is a pure function of the query, the schemas and the options. It is frozen, small,
and holds no data. `fingerprint` covers what stored state depends on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeVar

import numpy as np

from watersmeet.plan.fingerprint import describe_placement, fingerprint
from watersmeet.plan.finish import FinishPlan
from watersmeet.plan.residual import Hint, Residual
from watersmeet.plan.types import Kind, exact
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.join import Input, Join
from watersmeet.query.predicate import Predicate
from watersmeet.query.session import UTC
from watersmeet.query.stream import StreamSpec
from watersmeet.query.table import Lookup
from watersmeet.query.tree import Node
from watersmeet.query.window import UNBOUNDED, reach
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.sites import BySite
from watersmeet.routing.spread import Spread
from watersmeet.sites.planning.placed import SitesPlan

Kernel = Literal["hw", "sorted", "nlw", "mw", "lca", "ripple", "xjoin"]
Policy = Literal["auto", "timestamp", "round_robin", "consumption_rate", "initial_output_size", "output_rate"]
"""What orders the drivers of a batch."""
INTERLEAVED = ("timestamp", "round_robin")
"""Policies that go from input to input tuple by tuple; all others take a buffer whole."""
EARLY = 0.02
"""How much of the cost `auto` gives for early results, at most."""
TIME = "_ts"
"""The wire column of event time."""
SEQUENCE = "_seq"
"""The wire column of a tuple's number in its stream, of an alias with a ROWS window."""
ROWS_ONLY = "_row"
"""The only column of results of a query that selects no column of any stream."""
_Count = TypeVar("_Count", int, np.ndarray)


@dataclass(frozen=True)
class KeyClass:
    """Expressions of different aliases that must be equal, in one type."""

    type: str
    kind: Kind
    members: Mapping[str, Expr] = field(hash=False)
    is_exact: bool = field(init=False, compare=False)
    """Whether equal codes mean equal values."""

    def __post_init__(self) -> None:
        _derive(self, is_exact=exact(self.kind))

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
    """Aliases of the same stream that count its late tuples before this one."""
    rows: int | None = None
    """n of [ROWS n], and of [TUMBLING n ROWS] where `rows_tumble`."""
    payload: tuple[str, ...] = ()
    """Wire columns that are fetched for matches only."""
    max_ahead_us: int | None = None
    """How far ahead of the clock a tuple may be; None: as far as it likes."""
    own: tuple[Expr, ...] = ()
    """Conditions without which a tuple has no partner in the join where it enters, and which it survives: its side is preserved."""
    lookups: tuple[Lookup, ...] = ()
    """Tables that its tuples are joined with before anything else."""
    rows_tumble: bool = False
    wire_of: Mapping[ColumnRef, str] = field(init=False, compare=False, repr=False)
    """The wire columns of plain columns."""

    def __post_init__(self) -> None:
        plain = [c for c in self.columns if c.expr.is_column and not c.cast]
        _derive(self, wire_of={c.expr.columns[0]: c.name for c in reversed(plain)})

    def column(self, ref: ColumnRef) -> str:
        """The wire column of a plain column."""
        return self.wire_of[ref]

    def find_beyond(self, counts: _Count) -> _Count:
        """Up to which number the tuples of a ROWS window are out of reach, once the stream has so many tuples."""
        assert self.rows is not None
        return (counts - 1) // self.rows * self.rows if self.rows_tumble else counts - self.rows

    @property
    def rows_text(self) -> str:
        """A ROWS window in words; '' without one."""
        if self.rows is None:
            return ""
        return f"block of {self.rows} rows" if self.rows_tumble else f"last {self.rows} rows"


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
    tag: str = ""
    """Tells sides of one query apart that have the same aliases."""
    either: tuple[str, ...] = ()
    """Where no alias is always present: the side's time is that of the first of these that is, and the reference is an alias for it, beside the others."""
    name: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        _derive(self, name="+".join(self.aliases) + self.tag)

    @property
    def real_aliases(self) -> tuple[str, ...]:
        """The aliases, less one that stands for the first that is present."""
        return self.aliases[1:] if self.either else self.aliases

    def column(self, alias: str, wire: str) -> str:
        """How an alias' wire column is called in the side's tables."""
        own = len(self.aliases) == 1 or (alias, wire) == (self.reference, TIME)
        return wire if own else f"{alias}.{wire}"


@dataclass(frozen=True)
class Part:
    """What belongs to one join of a tree: which of the plan's classes, residuals and conditions, as (first, end)."""

    node: Node
    predicates: tuple[Predicate, ...] = ()
    """Those of the join, as they are decided."""
    classes: tuple[int, int] = (0, 0)
    residuals: tuple[int, int] = (0, 0)
    inside: tuple[int, int] = (0, 0)


@dataclass(frozen=True)
class Stage:
    """One join: its sides, and where their tuples go."""

    sides: tuple[Side, ...]
    routing: Hypercube | Biclique | BySite | Spread
    part: Part | None = None
    """Its part of a join tree; None: it joins what a flat plan says."""
    onward: tuple[int, int] | None = None
    """The stage, and the side there, that its results go to; None: the next stage's first side, or out."""

    @property
    def units(self) -> int:
        return self.routing.units

    @property
    def is_spread(self) -> bool:
        """Whether partners of a preserved tuple are found at several units."""
        preserved = () if self.part is None else self.part.node.preserved
        return bool(preserved) and (not self.routing.stores_all or any(self.routing.copies(n) > 1 for n in preserved))

    def partners(self, side: Side) -> tuple[str, ...]:
        """The aliases of the other sides."""
        return tuple(a for other in self.sides if other is not side for a in other.real_aliases)


@dataclass(frozen=True)
class Plan:
    """A bound, typed, placed query: `Query.plan`; `explain` shows it.

    >>> import pyarrow as pa
    >>> import watersmeet as wm
    >>> clicks = wm.Stream(pa.table({"user": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    >>> plan = wm.join(a=clicks, b=clicks).on("a.user = b.user").window("10s").options(units=4).query().plan
    >>> plan.aliases, plan.units, plan.kernel
    (('a', 'b'), 4, 'hw')
    """

    join: Join
    units_wanted: int
    parts: tuple[Part, ...] = ()
    """The joins of a tree, inputs first; none: one flat join."""
    inputs: tuple[InputPlan, ...] = ()
    classes: tuple[KeyClass, ...] = ()
    residuals: tuple[Residual, ...] = ()
    inside: tuple[Expr, ...] = ()
    """Conditions that the units evaluate with the library evaluator."""
    hints: tuple[Hint, ...] = ()
    """Where partners by such conditions can be."""
    after: tuple[Expr, ...] = ()
    """Conditions that Spark evaluates after the join."""
    final: tuple[Expr, ...] = ()
    """Conditions on results, NULL-extended ones among them, that the units of the last join evaluate."""
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
    numbers_rows: bool = False
    """Whether rows are spread by their numbers, not their content: where what a task sends is taken whole, or not at all."""
    may_spread: bool = False
    """Whether hot keys may be spread, and ranges follow the data: nobody has forced a routing."""
    order: tuple[str, ...] | None = None
    """A forced probe order; None: by statistics."""
    driver: Policy = "auto"
    """What orders the drivers inside a batch; it moves nothing, so it is not in the fingerprint."""
    shipping: Literal["full", "semijoin", "auto"] = "full"
    """'auto': whole tuples at first, and on the rounds runtime what is cheaper from then on."""
    bandwidth: float | None = None
    """Bytes per second between units, if the user gives it."""
    notes: tuple[str, ...] = ()
    finish: FinishPlan | None = None
    sets_aside: bool = False
    """Whether rows and combinations that break an expression are set aside, instead of ending the query."""
    """The second stage: DISTINCT or GROUP BY."""
    sites: SitesPlan | None = None
    """How sites join, where streams arrive at sites."""
    aliases: tuple[str, ...] = field(init=False, compare=False, repr=False)
    streams: Mapping[str, StreamSpec] = field(init=False, compare=False, repr=False)
    """The streams' specifications, by name."""
    units: int = field(init=False, compare=False, repr=False)
    """How many units join."""
    by_alias: Mapping[str, InputPlan] = field(init=False, compare=False, repr=False)
    sequenced: tuple[InputPlan, ...] = field(init=False, compare=False, repr=False)
    """The inputs with a ROWS window."""

    def __post_init__(self) -> None:
        _derive(
            self,
            aliases=self.join.aliases,
            streams=self.join.streams,
            units=sum(stage.units for stage in self.stages),
            by_alias={i.alias: i for i in self.inputs},
            sequenced=tuple(i for i in self.inputs if i.rows is not None),
        )

    @property
    def is_keyed(self) -> bool:
        """Whether key classes lead from any alias to all others."""
        return len(reach(self.aliases[:1], [c.members for c in self.classes])) == len(self.aliases)

    @property
    def timezone(self) -> str:
        """The session's time zone, which expressions are evaluated in."""
        return self.join.session.timezone

    def entry(self, alias: str) -> tuple[Stage, int]:
        """The stage in which an alias' tuples enter, and the number of its side there."""
        return next(
            (stage, n)
            for stage in self.stages
            for n, side in enumerate(stage.sides)
            if side.aliases == (alias,) and not side.carried
        )

    def scope(self, part: Part) -> Plan:
        """The plan of one join of a tree, as if it were the whole query: its keys, residuals, conditions and windows."""
        classes, node = range(*part.classes), part.node
        inputs = [replace(i, keys={c: k for c, k in i.keys.items() if c in classes}) for i in self.inputs]
        orders = [node.first_present(n) for n in range(len(node.inputs))]
        aliases = [Input(name, self.inputs[0].stream) for name, order in orders if len(order) > 1]
        for n, alias in enumerate(aliases, start=len(inputs)):
            inputs.append(InputPlan(alias.alias, alias.stream, n, self.inputs[0].columns[:1], {}, (), (), ()))
        join = replace(
            self.join,
            inputs=(*self.join.inputs, *aliases),
            windows=node.certain_bounds((*self.aliases, *(a.alias for a in aliases))),
        )
        return replace(
            self,
            join=join,
            inputs=tuple(inputs),
            residuals=self.residuals[slice(*part.residuals)],
            inside=self.inside[slice(*part.inside)],
        )

    def retention_us(self, stage: Stage, side: Side) -> int:
        """How long a side's tuples can meet later ones."""
        if stage.part is not None:
            return max((hi for _, hi in self.bounds(stage, side)), default=UNBOUNDED)
        if len(stage.sides) == 1:
            return 0
        return max((self.join.windows.hi(side.reference, y) for y in stage.partners(side)), default=UNBOUNDED)

    def bounds(self, stage: Stage, side: Side) -> list[tuple[str, int]]:
        """(stream, hi) of the partners that a side's tuples wait for in a stage; alone they wait for nobody."""
        if stage.part is not None:
            waits = stage.part.node.longest(stage.sides.index(side), side.either or (side.reference,))
            return [(self.by_alias[z].stream, hi) for z, hi in waits.items()]
        if len(stage.sides) == 1:
            return [(self.by_alias[side.name].stream, -UNBOUNDED)]
        graph = self.join.windows
        return [(self.by_alias[y].stream, graph.hi(side.reference, y)) for y in stage.partners(side)]

    @property
    def site_names(self) -> tuple[str, ...]:
        """The sites, by unit; none where streams arrive at no sites."""
        return routing.names if isinstance(routing := self.stages[0].routing, BySite) else ()

    def at(self, sequences: Mapping[str, Sequence[Sequence[str]]]) -> Plan:
        """The same query under other sequences of one-way joins between sites."""
        return self if self.sites is None or not sequences else replace(self, sites=self.sites.under(sequences))

    def description(self) -> dict[str, Any]:
        """What stored state depends on, as JSON: aliases, columns, keys, conditions, windows, routing."""
        more: dict[str, Any] = {} if self.finish is None else {"finish": self.finish.description(self.join)}
        if self.join.windows.alternatives:
            more["alternatives"] = [[list(row) for row in g.bounds] for g in self.join.windows.alternatives]
        ahead = {s.name: s.max_ahead_us for s in self.join.streams.values() if s.max_ahead_us is not None}
        more |= {"max_ahead": ahead} if ahead else {}
        more |= {} if self.join.tree is None else {"joins": self.join.tree.description()}
        if self.join.lookups:
            more["tables"] = [[i.alias, lookup.description()] for i in self.inputs for lookup in i.lookups]
        if self.timezone != UTC and self.join.depends_on_zone:
            more["timezone"] = self.timezone
        if not self.join.session.ansi and self.join.depends_on_ansi:
            more["ansi"] = False
        return more | {
            "inputs": [
                [
                    i.alias,
                    i.stream,
                    [[c.name, c.expr.text, c.type] for c in i.columns],
                    [f.text for f in i.filters],
                    f"TUMBLING {i.rows}" if i.rows_tumble else i.rows,
                ]
                for i in self.inputs
            ],
            "lateness": {s.name: [s.lateness_us, s.idle_us] for s in self.join.streams.values()},
            "classes": [[c.type, {a: e.text for a, e in c.members.items()}] for c in self.classes],
            "conditions": sorted(
                [r.text for r in self.residuals] + [e.text for e in (*self.inside, *self.after, *self.final)]
            ),
            "windows": [list(row) for row in self.join.windows.bounds],
            "routing": describe_placement(self.stages),
        }

    def __repr__(self) -> str:
        return f"Plan({', '.join(self.aliases)}; {self.units} units, kernel {self.kernel}, fingerprint {self.fingerprint()})"

    @property
    def title(self) -> str:
        """The query as checkpoints name it: its text, and the time zone if that matters."""
        text = " ".join(self.join.text.split())
        return f"{text} (time zone {self.timezone})" if self.join.depends_on_zone else text

    def fingerprint(self) -> str:
        """Changes when, and only when, state stored under one plan is of no use to another."""
        return fingerprint(self.description())


def list_required(source: InputPlan) -> list[str]:
    """The expressions without which a row of an alias can match nothing, and is not stored."""
    return sorted({c.expr.text for c in source.columns if c.name in source.required and c.name != TIME})


def _derive(frozen: object, **fields: object) -> None:
    """Set fields of a frozen object that follow from its others."""
    for name, value in fields.items():
        object.__setattr__(frozen, name, value)
