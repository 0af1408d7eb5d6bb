"""Bound queries become subscriptions: what engines cannot share is refused, with the reason.

Invariant: a subscription that is made here is within the allow-list, see `registry.subscription`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol

from watersmeet.errors import QueryError, TypeMismatchError, UnsupportedError
from watersmeet.plan.types import Kind, Types, exact, is_plain, kind_of, refuse_mismatch
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.join import Join
from watersmeet.query.predicate import Comparison, Condition, Equality, Predicate
from watersmeet.query.stream import INTEGERS
from watersmeet.query.tree import Node
from watersmeet.query.window import UNBOUNDED, WindowGraph, reach
from watersmeet.registry.ranges import read_condition
from watersmeet.registry.subscription import AnswerColumn, Computed, Constant, Listed, Subscription
from watersmeet.registry.template import Edge, Outer, Template

_TEXT_LITERAL = r"'(?:[^']|'')*'"
_PIECE = re.compile(
    rf"{_TEXT_LITERAL}|(?P<error>ERROR\({_TEXT_LITERAL}\))|CAST\(\(?(?P<number>-?\d[\d.eE+-]*)\)? AS (?P<type>[A-Z]+(?:\(\d+, \d+\))?)\)"
)
"""In DuckDB's text: a text, where an error is raised, a number."""
_ZERO = "CASE WHEN ({0}) = 0 THEN CAST(0 AS {1}) ELSE ({0}) END"
"""A number without a sign at zero."""
_STAR = re.compile(r"\s*SELECT\s+(DISTINCT\s+)?\*", re.IGNORECASE)
_WHOLE = re.compile(r"\{0\} = (-?\d+)")
_TEXT = re.compile(r"\{0\} = '((?:[^'\\]|'')*)'")


class FormTypes(Types, Protocol):
    """Who knows the types of expressions whose numbers are parameters."""

    def type_of_form(self, expr: Expr, form: str, parameters: int) -> str:
        """The Spark name of the type of an expression, given as `Computed` has it."""

    def learn_forms(self, wanted: Iterable[tuple[Expr, str, int]]) -> None:
        """Ask for the types of several expressions at once: those that have none are asked for by themselves."""


def subscription(join: Join, types: FormTypes) -> Subscription:
    """A bound query that can be shared, as a subscription."""
    order = sorted(join.aliases, key=lambda a: (join.spec(a).name, join.aliases.index(a)))
    number = {alias: n for n, alias in enumerate(order)}
    make = _Maker(join, number, types)
    edges = [_edge(join, number, p) if isinstance(p, Equality) else None for p in join.predicates]
    evaluated = [p for p, e in zip(join.predicates, edges, strict=True) if e is None or not exact(e[-1])]
    make.learn((*join.filters, *(p.condition for p in evaluated), *(o.expr for o in join.select)))
    residuals = [make.compute(e) for e in (*join.filters, *(condition(p, types) for p in evaluated))]
    constants = {f: c for f in join.filters if (c := _constant(join, number, f)) is not None}
    decided = {make.compute(f) for f, c in constants.items() if exact(c[2])}
    left = tuple(dict.fromkeys(r for r in residuals if r not in decided))
    asked = _Asked.of(make, [f for f in join.filters if f not in constants])
    return Subscription(
        Template(
            tuple(join.spec(a).name for a in order),
            tuple(sorted({e for e in edges if e is not None})),
            _bounds(join.windows, order, join.distinct),
            *_outer(join, number),
        ),
        tuple(sorted(set(constants.values()))),
        left,
        tuple(make.answer(o.name, o.expr) for o in join.select),
        join.distinct,
        tuple((*place, *ends) for place, ends in sorted(asked.ranges.items())),
        tuple(sorted(asked.lists, key=repr)),
        tuple(n for n, r in enumerate(left) if r in asked.decided),
    )


def _outer(join: Join, number: Mapping[str, int]) -> tuple[Outer | None, int, tuple[str, ...]]:
    """Which rows an outer, semi or anti join lets out, the alias that it preserves, and the columns of it that no partner equals if they are NULL."""
    if join.tree is None:
        return None, 0, ()
    kind = "anti" if join.after else join.tree.kind
    kept = join.tree.inputs[0].aliases[0]
    needed = {side.columns[0].column for side in _sides(join.tree, kept)}
    return kind, number[kept], tuple(sorted(needed))  # type: ignore[return-value]


def _sides(tree: Node, alias: str) -> Iterator[Expr]:
    """What is compared of an alias with its partners."""
    compared = (p for p in tree.predicates if not isinstance(p, Condition))
    yield from (side for p in compared for side in (p.left, p.right) if side.alias == alias)


def _why_not_a_pair(join: Join) -> str:
    """Why an outer, semi or anti join is not one of two streams that can be shared; '' if it is."""
    tree = join.tree
    if tree is None:
        return ""
    if tree.kind not in ("left", "semi", "anti") or len(join.inputs) > 2:
        return f"{tree.kind} joins of {len(join.inputs)} streams"
    if tree.own or any(not f.columns for f in join.filters):
        return "conditions in ON that no partner decides"
    if any(not side.is_column for side in _sides(tree, tree.inputs[0].aliases[0])):
        return "computed keys of an outer join"
    if join.after and not (tree.kind == "left" and all(_is_no_partner(join, tree, e) for e in join.after)):
        return f"{join.after[0]}, which is decided after an outer join"
    return ""


def _is_no_partner(join: Join, tree: Node, expr: Expr) -> bool:
    """Whether a condition on results says that there is no partner: a column of it is NULL that every partner has."""
    partner = tree.inputs[1].aliases[0]
    keys = {
        r
        for p in tree.predicates
        if isinstance(p, Equality)
        for e in (p.left, p.right)
        for r in e.columns
        if e.is_column
    }
    asked = set(expr.columns)
    certain = {r.column for r in keys if r.alias == partner} | {join.spec(partner).time}
    return expr.spark_template == "{0} IS NULL" and all(r.alias == partner and r.column in certain for r in asked)


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
    made: dict[Expr, tuple[Computed, str]] = field(default_factory=dict)
    """What is known already: an expression may be a condition and part of the SELECT."""

    def learn(self, exprs: Iterable[Expr]) -> None:
        """Ask for the types of all expressions that may be used, at once."""
        learn_types(exprs, self.types)

    def compute(self, expr: Expr) -> Computed:
        return self._compute(expr)[0]

    def _compute(self, expr: Expr) -> tuple[Computed, str]:
        """An expression, and its type."""
        found = self.made.get(expr)
        if found is None:
            found = self.made[expr] = self._compute_new(expr)
        return found

    def _compute_new(self, expr: Expr) -> tuple[Computed, str]:
        refuse_unlisted(expr)
        form, parameters = find_form(expr)
        plain = expr.is_column
        kind = _type(self.join, expr.columns[0]) if plain else self.types.type_of_form(expr, form, len(parameters))
        return Computed(form, tuple((self.number[r.alias], r.column) for r in expr.columns), parameters), kind

    def answer(self, name: str, expr: Expr) -> AnswerColumn:
        value, kind = self._compute(expr)
        _refuse_nested(expr, kind)
        if self.join.distinct and kind in ("float", "double"):
            value = replace(value, template=_ZERO.format(value.template, kind.upper()))
        return AnswerColumn(name, kind, value)


def find_form(expr: Expr) -> tuple[str, tuple[str, ...]]:
    """DuckDB's text with numbers as parameters, which stand after the columns, and these; where it would raise an error it is NULL."""
    return _cut_numbers(expr.duckdb_template, len(expr.columns))


@lru_cache(1024)
def _cut_numbers(template: str, columns: int) -> tuple[str, tuple[str, ...]]:
    found: list[str] = []

    def piece(found_one: re.Match[str]) -> str:
        if found_one["error"]:
            return "NULL"
        if found_one["number"] is None:
            return found_one[0]
        found.append(found_one["number"])
        return f"CAST({{{columns + len(found) - 1}}} AS {found_one['type']})"

    return _PIECE.sub(piece, template), tuple(found)


def learn_types(exprs: Iterable[Expr], types: FormTypes) -> None:
    """Ask for the types of expressions that are on the list, at once."""
    computed = [e for e in exprs if e.portable and not (e.settled or e.mismatch or e.is_column)]
    types.learn_forms((e, form, len(parameters)) for e in computed for form, parameters in (find_form(e),))


def why_not_shared(join: Join) -> str:
    """Why a query runs as a dataflow of its own, in words; '' if it is shared."""
    if join.grouping is not None:
        return "it aggregates"
    if any(i.rows is not None for i in join.inputs):
        return "it numbers the tuples of a stream: [ROWS n] or [TUMBLING n ROWS]"
    if join.windows.alternatives:
        return "PATH leaves a choice of windows"
    return _why_not_a_pair(join) or _why_not_connected(join)


def why_not_rewritten(join: Join) -> str:
    """The same where only inner joins of several streams are shared, see `registry.rjoin`."""
    if len(join.inputs) == 1:
        return "it reads one stream"
    if join.tree is not None:
        return f"it is a join by {join.tree.kind}"
    return why_not_shared(join)


def name_apart(join: Join) -> Join:
    """The query with a name of its own for every column that SELECT * shows: `alias_column` where two are called the same."""
    names = [o.name for o in join.select]
    if not _STAR.match(join.text) or len(set(names)) == len(names):
        return join
    named = [o if names.count(o.name) == 1 else replace(o, name=f"{o.expr.alias}_{o.name}") for o in join.select]
    return replace(join, select=tuple(named))


def refuse_same_names(join: Join) -> None:
    """Answers are objects: every column has a name of its own."""
    names = [o.name for o in join.results]
    twice = [n for n in names if names.count(n) > 1]
    if twice:
        raise QueryError(f"two columns of the SELECT are called {twice[0]!r}: rename one with AS")


def refuse_nested(join: Join) -> None:
    """What a join selects, for its results or for groups, has plain types."""
    for output in join.select:
        if output.expr.is_column:
            _refuse_nested(output.expr, _type(join, output.expr.columns[0]))


def _refuse_nested(expr: Expr, kind: str) -> None:
    if not is_plain(kind):
        raise UnsupportedError(
            f"SELECT {expr}: a subscription answers in plain types, and this is {kind}; select its fields in the stream's source"
        )


def _why_not_connected(join: Join) -> str:
    if len(join.inputs) == 1:
        return ""
    number = {alias: n for n, alias in enumerate(join.aliases)}
    found = [_edge(join, number, p) for p in join.predicates if isinstance(p, Equality)]
    reached = reach([0], [(edge[0], edge[2]) for edge in found if edge is not None])
    lonely = [alias for alias, n in number.items() if n not in reached]
    return f"no equality between plain columns joins {lonely[0]!r} to the rest" if lonely else ""


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


def as_null(template: str) -> str:
    """DuckDB text that is NULL where it would fail.

    >>> as_null("1 / ERROR('CAST(1 AS INT)')")
    'TRY(1 / NULL)'
    """
    return f"TRY({_PIECE.sub(lambda found: 'NULL' if found['error'] else found[0], template)})"


def refuse_unlisted(expr: Expr) -> None:
    """Refuse an expression that is not on the list; a plain column of any type passes."""
    refuse_mismatch(expr)
    if not (expr.portable or expr.is_column):
        raise UnsupportedError(
            f"{expr}: not all of it is on the list of functions and types that a subscription may use; compute it in the stream's source"
        )


def refuse_unlisted_in(join: Join, types: FormTypes) -> None:
    """Refuse a query of which some part is not on the list."""
    outputs = (o.expr for o in (*join.select, *join.results))
    own = () if join.tree is None else (e for node in join.tree.nodes for e in node.own)
    groups = () if join.grouping is None else join.grouping.expressions
    for expr in (*join.filters, *(condition(p, types) for p in join.predicates), *join.after, *own, *outputs, *groups):
        refuse_unlisted(expr)


def condition(predicate: Predicate, types: FormTypes) -> Expr:
    """A predicate as one expression, if its types meet; an equality of plain columns of one type is on the list, whatever it is."""
    expr = predicate.condition
    if not isinstance(predicate, Equality | Comparison):
        return expr
    sides = predicate.left, predicate.right
    kinds = [_type_of(side, types) for side in sides]
    if types.common(*kinds) is None:
        raise TypeMismatchError(f"{predicate}: {kinds[0]} is not compared with {kinds[1]}; cast one of them")
    is_listed = kinds[0] == kinds[1] and all(side.is_column for side in sides)
    return replace(expr, portable=expr.portable or (isinstance(predicate, Equality) and is_listed))


def _type_of(expr: Expr, types: FormTypes) -> str:
    """The type of an expression: of one form it is asked for once."""
    if expr.is_column:
        return types.type_of(expr)
    form, parameters = find_form(expr)
    return types.type_of_form(expr, form, len(parameters))
