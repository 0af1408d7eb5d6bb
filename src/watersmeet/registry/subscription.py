"""A registered query in the form that engines share: what all queries of one shape have in common, and what is its own.

    SELECT a.x FROM r a, s b WHERE a.k = b.j AND a.v = 7 AND b.w > 3 WINDOW = 10 SECONDS

    template    streams (r, s), edge 0.k = 1.j, closed window graph        shared: joined once for all queries that have it
    constants   0.v = 7                                                    found by a hash of the values
    residuals   1.w > ?   with the parameter 3                             evaluated for all queries of that form together
    ranges      1.w from 4 on; lists in the same way                       found by a search, and decided by codes: that residual is not evaluated
    outputs     x = 0.x
    distinct    whether a row is answered once per bucket of event time: a template knows nothing of it

Aliases are numbered in the order of their streams' names, so the order of FROM makes no difference.

Invariant: a `Subscription` that exists can be run by every engine: its edges connect all aliases (it may have one alias alone), its windows are not ROWS,
all its expressions are portable (made of operations that are proven to answer as Spark does: the allow-list), and it
is plain JSON. An equality of texts is an edge and a residual: codes find candidates, values decide. Where rows are told apart
(DISTINCT), 0.0 stands for -0.0, so equal rows are written alike.
Departs from Idreos, Liarou, Koubarakis (2008), section 2: any residual condition is allowed besides equalities, and
windows are the closed window graph instead of one length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

from watersmeet.errors import QueryError, TypeMismatchError, UnsupportedError
from watersmeet.plan.finish import bucket_of
from watersmeet.plan.types import Kind, Types, exact, is_plain, kind_of, refuse_mismatch
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.join import Join
from watersmeet.query.predicate import Comparison, Equality, Predicate
from watersmeet.query.stream import INTEGERS
from watersmeet.query.window import UNBOUNDED, WindowGraph, reach
from watersmeet.registry.ranges import read_condition
from watersmeet.registry.template import Edge, Template

_TEXT_LITERAL = r"'(?:[^']|'')*'"
_PIECE = re.compile(
    rf"{_TEXT_LITERAL}|(?P<error>ERROR\({_TEXT_LITERAL}\))|CAST\(\(?(?P<number>-?\d[\d.eE+-]*)\)? AS (?P<type>[A-Z]+(?:\(\d+, \d+\))?)\)"
)
"""In DuckDB's text: a text, where an error is raised, a number."""
_ZERO = "CASE WHEN ({0}) = 0 THEN CAST(0 AS {1}) ELSE ({0}) END"
"""A number without a sign at zero."""
_WHOLE = re.compile(r"\{0\} = (-?\d+)")
_TEXT = re.compile(r"\{0\} = '((?:[^'\\]|'')*)'")

Column = tuple[int, str]
"""A column of the alias with a number."""
Constant = tuple[int, str, Kind, "int | str"]
"""`x.column = value`."""
Range = tuple[int, str, Kind, int, int]
"""`x.column` has a code from .. to .."""
Listed = tuple[int, str, Kind, "tuple[int | str, ...]"]
"""`x.column` is one of some values: codes, or texts of kind 'bytes'."""


class FormTypes(Types, Protocol):
    """Who knows the types of expressions whose numbers are parameters."""

    def type_of_form(self, expr: Expr, form: str, parameters: int) -> str:
        """The Spark name of the type of an expression, given as `Computed` has it."""


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

    @property
    def open_residuals(self) -> tuple[Computed, ...]:
        """What is left to be evaluated."""
        return tuple(r for n, r in enumerate(self.residuals) if n not in self.decided)

    @property
    def bucket_us(self) -> int | None:
        """The width of DISTINCT's buckets, see `plan.finish`."""
        return bucket_of(self.template.bounds)

    def to_json(self) -> dict[str, Any]:
        return {
            "streams": self.template.streams,
            "edges": self.template.edges,
            "bounds": self.template.bounds,
            "constants": self.constants,
            "residuals": [_write_computed(r) for r in self.residuals],
            "outputs": [[o.name, o.type, *_write_computed(o.value)] for o in self.outputs],
            "distinct": self.distinct,
            "ranges": self.ranges,
            "lists": self.lists,
            "decided": self.decided,
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Subscription:
        return cls(
            Template(tuple(raw["streams"]), _tuples(raw["edges"]), _tuples(raw["bounds"])),
            _tuples(raw["constants"]),
            tuple(_read_computed(*r) for r in raw["residuals"]),
            tuple(AnswerColumn(name, kind, _read_computed(*rest)) for name, kind, *rest in raw["outputs"]),
            raw.get("distinct", False),
            _tuples(raw.get("ranges", ())),
            tuple((x, column, kind, tuple(values)) for x, column, kind, values in raw.get("lists", ())),
            tuple(raw.get("decided", ())),
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


def subscription(join: Join, types: FormTypes) -> Subscription:
    """A bound query as a subscription; what engines cannot share is refused, with the reason."""
    _refuse(join)
    order = sorted(join.aliases, key=lambda a: (join.spec(a).name, join.aliases.index(a)))
    number = {alias: n for n, alias in enumerate(order)}
    make = _Maker(join, number, types)
    edges, residuals = [], [make.compute(f) for f in join.filters]
    for predicate in join.predicates:
        edge = _edge(join, number, predicate) if isinstance(predicate, Equality) else None
        edges += [edge] if edge is not None else []
        if edge is None or not exact(edge[-1]):
            residuals.append(make.compute(condition(predicate, types)))
    if len(order) > 1:
        _refuse_unconnected(order, edges)
    constants = tuple(sorted(c for f in join.filters if (c := _constant(join, number, f)) is not None))
    decided = {make.compute(f) for f in join.filters if (c := _constant(join, number, f)) is not None and exact(c[2])}
    left = tuple(dict.fromkeys(r for r in residuals if r not in decided))
    asked = _Asked.of(make, [f for f in join.filters if _constant(join, number, f) is None])
    return Subscription(
        Template(
            tuple(join.spec(a).name for a in order),
            tuple(sorted(set(edges))),
            _bounds(join.windows, order, join.distinct),
        ),
        constants,
        left,
        tuple(make.answer(o.name, o.expr) for o in join.select),
        join.distinct,
        tuple((*place, *ends) for place, ends in sorted(asked.ranges.items())),
        tuple(sorted(asked.lists, key=repr)),
        tuple(n for n, r in enumerate(left) if r in asked.decided),
    )


def _bounds(windows: WindowGraph, order: Sequence[str], distinct: bool) -> tuple[tuple[int, ...], ...]:
    """The window graph; a stream by itself has none, and a row of it that is answered once is answered once for ever."""
    if len(order) == 1:
        return ((UNBOUNDED if distinct else 0,),)
    return tuple(tuple(windows.hi(x, y) for y in order) for x in order)


@dataclass
class _Asked:
    """The ranges and the list of a query's conditions; ranges of one column are one."""

    ranges: dict[tuple[int, str, Kind], tuple[int, int]] = field(default_factory=dict)
    lists: list[Listed] = field(default_factory=list)
    decided: set[Computed] = field(default_factory=set)

    @classmethod
    def of(cls, make: _Maker, filters: Iterable[Expr]) -> _Asked:
        out = cls()
        for expr in filters:
            if len(expr.columns) == 1 and expr.portable:
                out._take(make, expr, expr.columns[0])
        return out

    def _take(self, make: _Maker, expr: Expr, ref: ColumnRef) -> None:
        found = read_condition(expr.spark_template, _type(make.join, ref))
        if found is None or (found.values is not None and self.lists):  # a query is found by one list
            return
        place = make.number[ref.alias], ref.column, found.kind
        if found.values is not None:
            self.lists.append((*place, found.values))
        else:
            low, high = self.ranges.get(place, (found.low, found.high))
            self.ranges[place] = max(low, found.low), min(high, found.high)
        if found.exact:
            self.decided.add(make.compute(expr))


@dataclass(frozen=True)
class _Maker:
    """Turns expressions of one query into those of a subscription."""

    join: Join
    number: Mapping[str, int]
    types: FormTypes

    def compute(self, expr: Expr) -> Computed:
        return self._compute(expr)[0]

    def _compute(self, expr: Expr) -> tuple[Computed, str]:
        """An expression, and its type."""
        refuse_unlisted(expr)
        found: list[str] = []

        def piece(found_one: re.Match[str]) -> str:
            if found_one["error"]:
                return "NULL"
            if found_one["number"] is None:
                return found_one[0]
            found.append(found_one["number"])
            return f"CAST({{{len(expr.columns) + len(found) - 1}}} AS {found_one['type']})"

        template = _PIECE.sub(piece, expr.duckdb_template)
        plain = expr.is_column
        kind = _type(self.join, expr.columns[0]) if plain else self.types.type_of_form(expr, template, len(found))
        return Computed(template, tuple((self.number[r.alias], r.column) for r in expr.columns), tuple(found)), kind

    def answer(self, name: str, expr: Expr) -> AnswerColumn:
        value, kind = self._compute(expr)
        if not is_plain(kind):
            raise UnsupportedError(
                f"SELECT {expr}: a subscription answers in plain types, and this is {kind}; select its fields in the stream's source"
            )
        if self.join.distinct and kind in ("float", "double"):
            value = replace(value, template=_ZERO.format(value.template, kind.upper()))
        return AnswerColumn(name, kind, value)


def _refuse(join: Join) -> None:
    if join.grouping is not None:
        raise UnsupportedError("aggregates are not supported in a subscription: aggregate the answers")
    if join.tree is not None:
        raise UnsupportedError(
            "outer, semi, anti and as-of joins are not supported in a subscription: run the query by itself, with wm.sql"
        )
    counted = [i.alias for i in join.inputs if i.rows is not None]
    if counted:
        raise UnsupportedError(f"[ROWS n] of {counted[0]!r} is not supported in a subscription: give a window of time")
    if join.windows.alternatives:
        raise UnsupportedError(
            "PATH is not supported in a subscription: it leaves a choice of windows; register one query for each direction, with DWINDOW"
        )
    names = [o.name for o in join.select]
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise QueryError(f"two columns of the SELECT are called {twice[0]!r}: rename one with AS")


def _refuse_unconnected(order: Sequence[str], edges: Sequence[Edge]) -> None:
    reached = reach([0], [(x, y) for x, _, y, _, _ in edges])
    lonely = [a for n, a in enumerate(order) if n not in reached]
    if lonely:
        raise UnsupportedError(
            f"no equality between plain columns joins {lonely[0]!r} to {order[0]!r}: a subscription needs a path of them (=) between all its streams; run other joins with wm.sql"
        )


def _edge(join: Join, number: Mapping[str, int], predicate: Equality) -> Edge | None:
    """An equality of plain columns whose codes are equal if the values are."""
    if any(not e.is_column for e in (predicate.left, predicate.right)):
        return None
    (left,), (right,) = predicate.left.columns, predicate.right.columns
    kind = _common_kind(_type(join, left), _type(join, right))
    if kind is None:
        return None
    (x, a), (y, b) = sorted(((number[left.alias], left.column), (number[right.alias], right.column)))
    return x, a, y, b, kind


def _common_kind(left: str, right: str) -> Kind | None:
    """How values of two types are coded alike.

    >>> _common_kind("int", "bigint"), _common_kind("int", "double"), _common_kind("date", "timestamp")
    ('integer', 'float', None)
    """
    if left == right or (left in INTEGERS and right in INTEGERS):
        return kind_of(left)
    floating = (*INTEGERS, "float", "double")
    return "float" if left in floating and right in floating else None


def _constant(join: Join, number: Mapping[str, int], expr: Expr) -> Constant | None:
    """`x.column = 7` or `x.column = 'text'`."""
    if len(expr.columns) != 1:
        return None
    (ref,) = expr.columns
    kind, whole, text = _type(join, ref), _WHOLE.fullmatch(expr.spark_template), _TEXT.fullmatch(expr.spark_template)
    if whole is not None and kind in INTEGERS and -(2**63) <= int(whole[1]) < 2**63:
        return number[ref.alias], ref.column, "integer", int(whole[1])
    if text is not None and kind == "string":
        return number[ref.alias], ref.column, "bytes", text[1].replace("''", "'").replace("{{", "{").replace("}}", "}")
    return None


def _type(join: Join, ref: ColumnRef) -> str:
    return str(join.spec(ref.alias).schema[ref.column])


def _write_computed(computed: Computed) -> list[Any]:
    return [computed.template, computed.columns, computed.parameters]


def _read_computed(template: str, columns: Sequence[Sequence[Any]], parameters: Sequence[str]) -> Computed:
    return Computed(template, _tuples(columns), tuple(parameters))


def _tuples(rows: Sequence[Sequence[Any]]) -> tuple[Any, ...]:
    return tuple(tuple(row) for row in rows)


def refuse_unlisted(expr: Expr) -> None:
    """Refuse an expression that is not on the list; a plain column of any type passes."""
    refuse_mismatch(expr)
    if not (expr.portable or expr.is_column):
        raise UnsupportedError(
            f"{expr}: not all of it is on the list of functions and types that a subscription may use; compute it in the stream's source"
        )


def refuse_unlisted_in(join: Join, types: Types) -> None:
    """Refuse a query of which some part is not on the list."""
    outputs = (o.expr for o in (*join.select, *join.results))
    for expr in (*join.filters, *(condition(p, types) for p in join.predicates), *outputs):
        refuse_unlisted(expr)


def condition(predicate: Predicate, types: Types) -> Expr:
    """A predicate as one expression, if its types meet; an equality of plain columns of one type is on the list, whatever it is."""
    expr = predicate.condition
    if not isinstance(predicate, Equality | Comparison):
        return expr
    sides = predicate.left, predicate.right
    kinds = [types.type_of(side) for side in sides]
    if types.common(*kinds) is None:
        raise TypeMismatchError(f"{predicate}: {kinds[0]} is not compared with {kinds[1]}; cast one of them")
    is_listed = kinds[0] == kinds[1] and all(side.is_column for side in sides)
    return replace(expr, portable=expr.portable or (isinstance(predicate, Equality) and is_listed))
