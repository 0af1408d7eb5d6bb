"""A registered query in the form that engines share: what all queries of one shape have in common, and what is its own.

    SELECT a.x FROM r a, s b WHERE a.k = b.j AND a.v = 7 AND b.w > 3 WINDOW = 10 SECONDS

    template    streams (r, s), edge 0.k = 1.j, closed window graph        shared: joined once for all queries that have it
    constants   0.v = 7                                                    found by a hash of the values
    residuals   1.w > ?   with the parameter 3                             evaluated for all queries of that form together
    ranges      1.w from 4 on; lists in the same way                       found by a search, and decided by codes: that residual is not evaluated
    outputs     x = 0.x
    distinct    whether a row is answered once per bucket of event time: a template knows nothing of it

Aliases are numbered in the order of their streams' names, so the order of FROM makes no difference.

An outer, semi or anti join of two streams is two rules: one for its pairs, one for preserved tuples by themselves, with the conditions on these alone.

    SELECT a.x, b.y FROM r a LEFT JOIN s b ON a.k = b.j AND b.w > 3 WHERE a.v = 7

    pair    0.k = 1.j, 0.v = 7, 1.w > 3       x = 0.x, y = 1.y
    lone    0.v = 7                           x = 0.x, y = NULL

Invariant: a `Subscription` that exists can be run by every engine: if it is shared, its edges connect all aliases (it may have one alias alone), its windows are not ROWS,
all its expressions are portable (made of operations that are proven to answer as Spark does: the allow-list), and it
is plain JSON. An equality of texts is an edge and a residual: codes find candidates, values decide. Where rows are told apart
(DISTINCT), 0.0 stands for -0.0, so equal rows are written alike.
Departs from Idreos, Liarou, Koubarakis (2008), section 2: any residual condition is allowed besides equalities, and
windows are the closed window graph instead of one length.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.plan.finish import bucket_of
from watersmeet.plan.types import Kind
from watersmeet.registry.template import Template

Column = tuple[int, str]
"""A column of the alias with a number."""
Constant = tuple[int, str, Kind, "int | str"]
"""`x.column = value`."""
Range = tuple[int, str, Kind, int, int]
"""`x.column` has a code from .. to .."""
Listed = tuple[int, str, Kind, "tuple[int | str, ...]"]
"""`x.column` is one of some values: codes, or texts of kind 'bytes'."""


@dataclass(frozen=True)
class Computed:
    """An expression for the evaluator: a template of DuckDB text whose first slots are columns, the others parameters.

    What would raise an error is NULL: the evaluator sees to overflows, and the template has no other errors.
    """

    template: str
    columns: tuple[Column, ...]
    parameters: tuple[str, ...] = ()
    """Numbers as text; the template casts them."""

    @property
    def is_plain(self) -> bool:
        return self.template == "{0}" and not self.parameters


@dataclass(frozen=True)
class AnswerColumn:
    """One column of the SELECT, with its Spark type."""

    name: str
    type: str
    value: Computed


@dataclass(frozen=True)
class Subscription:
    """A registered query."""

    template: Template
    constants: tuple[Constant, ...]
    residuals: tuple[Computed, ...]
    outputs: tuple[AnswerColumn, ...]
    distinct: bool = False
    ranges: tuple[Range, ...] = ()
    lists: tuple[Listed, ...] = ()
    decided: tuple[int, ...] = ()
    """Which residuals hold wherever ranges and lists do."""
    own: str | None = None
    """The text of a query that shares nothing: it runs as a dataflow of its own. Then the template has its streams and windows only, and residuals are texts."""

    @property
    def open_residuals(self) -> tuple[Computed, ...]:
        """What is left to be evaluated."""
        return tuple(r for n, r in enumerate(self.residuals) if n not in self.decided)

    @property
    def columns(self) -> set[Column]:
        """All that it shows or tests of its tuples, but for the equalities that codes decide."""
        computed = (*(o.value for o in self.outputs), *self.residuals)
        ranges = ((r[0], r[1]) for r in self.ranges)
        lists = ((one[0], one[1]) for one in self.lists)
        return {*ranges, *lists, *(place for c in computed for place in c.columns)}

    @property
    def rules(self) -> tuple[Subscription, ...]:
        """What it is compiled to: itself, and preserved tuples by themselves."""
        return (self,) if self.template.outer is None else (self, self._alone())

    def _alone(self) -> Subscription:
        kept = self.template.preserved
        own = [n for n, r in enumerate(self.residuals) if all(x == kept for x, _ in r.columns)]
        return replace(
            self,
            template=self.template.alone(),
            constants=tuple(c for c in self.constants if c[0] == kept),
            residuals=tuple(self.residuals[n] for n in own),
            ranges=tuple(r for r in self.ranges if r[0] == kept),
            lists=tuple(one for one in self.lists if one[0] == kept),
            decided=tuple(at for at, n in enumerate(own) if n in self.decided),
        )

    @property
    def bucket_us(self) -> int | None:
        """The width of DISTINCT's buckets, see `plan.finish`."""
        return bucket_of(self.template.bounds)

    def to_json(self) -> dict[str, Any]:
        return {
            "streams": self.template.streams,
            "edges": self.template.edges,
            "bounds": self.template.bounds,
            **(
                {}
                if self.template.outer is None
                else {"outer": [self.template.outer, self.template.preserved, self.template.needed]}
            ),
            "constants": self.constants,
            "residuals": [_write_computed(r) for r in self.residuals],
            "outputs": [[o.name, o.type, *_write_computed(o.value)] for o in self.outputs],
            "distinct": self.distinct,
            "ranges": self.ranges,
            "lists": self.lists,
            "decided": self.decided,
            **({} if self.own is None else {"own": self.own}),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Subscription:
        return cls(
            Template(
                tuple(raw["streams"]),
                _tuples(raw["edges"]),
                _tuples(raw["bounds"]),
                *_read_outer(raw.get("outer")),
            ),
            _tuples(raw["constants"]),
            tuple(_read_computed(*r) for r in raw["residuals"]),
            tuple(AnswerColumn(name, kind, _read_computed(*rest)) for name, kind, *rest in raw["outputs"]),
            raw.get("distinct", False),
            _tuples(raw.get("ranges", ())),
            tuple((x, column, kind, tuple(values)) for x, column, kind, values in raw.get("lists", ())),
            tuple(raw.get("decided", ())),
            raw.get("own"),
        )


NOT_YET = -1
"""The effect of a query that no batch has answered."""


@dataclass(frozen=True)
class Registered:
    """A query of a registry: it sees tuples that arrived from batch `effect` on."""

    id: str
    effect: int
    query: Subscription
    sql: str = field(default="", compare=False)
    version: int = field(default=0, compare=False)
    """The version that added it: with the id it names the query among all that ever were."""
    backfill: bool = False
    """Whether it also sees the tuples that were kept when it took effect."""

    @property
    def sees_from(self) -> int:
        """The first batch whose tuples it sees, as far as they are kept where it is answered."""
        return 0 if self.backfill else self.effect


def _write_computed(computed: Computed) -> list[Any]:
    return [computed.template, computed.columns, computed.parameters]


def _read_computed(template: str, columns: Sequence[Sequence[Any]], parameters: Sequence[str]) -> Computed:
    return Computed(template, _tuples(columns), tuple(parameters))


def _read_outer(outer: Sequence[Any] | None) -> tuple[Any, ...]:
    return () if outer is None else (outer[0], outer[1], tuple(outer[2]))


def _tuples(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(tuple(row) for row in rows)
