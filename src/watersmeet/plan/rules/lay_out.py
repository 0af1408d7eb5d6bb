"""Which columns travel with each alias' tuples, and what ROWS windows compare.

Event time, keys in their class's type, operands of residuals in their common type, and the plain columns that
conditions and the SELECT need. Each (expression, type) travels once. Under DISTINCT all event times stay with a result.

ROWS windows become comparisons of sequence numbers. Let s(a) be the number of a's tuple in its stream, in (ts, content hash) order, and N_a(t) the
number of a's tuples up to time t. The member of `a [ROWS n]` is among the last n tuples up to the youngest member of the result if

    s(a) > N_a(y.ts) - n      for every other member y (and for a itself)

That of `a [TUMBLING n ROWS]` is in the block of n tuples that the youngest member finds, where blocks begin with the stream's first tuple:

    s(a) > n * floor((N_a(y.ts) - 1) / n)

A sequencer knows s and N_a once a's watermark has passed, and sends both along with the tuples: `_seq` with a's, and
`_n_a`, the right side, with the others'. So the join sees nothing but comparisons.

Invariant: keys and operands of residuals are `required`: NULL there can match nothing, so such tuples are not routed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TypeVar

from watersmeet.plan.model import SEQUENCE, TIME, InputPlan, Part, Plan, WireColumn
from watersmeet.plan.options import Given
from watersmeet.plan.residual import Clue, Compare, Near
from watersmeet.plan.rules.place_conditions import find_operands
from watersmeet.plan.rules.tree import own_conditions
from watersmeet.plan.types import Types
from watersmeet.query.expr import ColumnRef, Expr, column, column_at
from watersmeet.query.predicate import Band, Comparison, Condition, Predicate
from watersmeet.query.tree import Leaf

C = TypeVar("C", bound=Clue)


def lay_out(plan: Plan, given: Given) -> Plan:
    """Lay out every input, and name the residuals' columns on the wire."""
    types = given.types
    results = (*(o.expr for o in plan.join.select), *plan.after, *plan.final, *plan.join.last_expressions)
    needed = [ref for e in results for ref in e.columns if ref.alias in plan.join.aliases]
    times = [ColumnRef(alias, plan.join.spec(alias).time) for alias in plan.join.aliases] if plan.join.distinct else []
    output = tuple(dict.fromkeys([*needed, *times]))
    inputs = tuple(_input(plan, types, position, output) for position in range(len(plan.join.inputs)))
    on_wire = {(i.alias, f"{c.expr}::{c.type}"): c.name for i in inputs for c in i.columns}
    residuals = tuple(_put_on_wire(r, on_wire) for r in plan.residuals)
    hints = tuple(
        replace(hint, ways=tuple(tuple(_put_on_wire(clue, on_wire) for clue in way) for way in hint.ways))
        for hint in plan.hints
    )
    return replace(plan, inputs=inputs, residuals=residuals, hints=hints, output=output)


def _input(plan: Plan, types: Types, position: int, output: tuple[ColumnRef, ...]) -> InputPlan:
    source = plan.join.inputs[position]
    spec = plan.join.spec(source.alias)
    columns = [WireColumn(TIME, column(source.alias, spec.time), spec.schema[spec.time], False)]

    def travel(expr: Expr, type_: str | None = None) -> str:
        own = types.type_of(expr)
        wanted = type_ or own
        for c in columns:
            if c.expr.text == expr.text and c.type == wanted:
                return c.name
        columns.append(WireColumn(f"c{len(columns) - 1}", expr, wanted, wanted != own))
        return columns[-1].name

    entry = find_entry(plan, source.alias)
    keys = {n: travel(c.members[source.alias], c.type) for n, c in enumerate(plan.classes) if source.alias in c.members}
    required = [name for n, name in keys.items() if entry is None or n in range(*entry[0].classes)]
    for predicate, expr, type_ in _operands(plan, types, source.alias):
        name = travel(expr, type_)
        if entry is None or predicate in entry[0].predicates:
            required.append(name)
    own: list[Expr] = []
    if entry is not None and entry[1] in entry[0].node.preserved:
        required, own = (
            [],
            own_conditions(entry[0].node, entry[1]),
        )
    later = [
        e
        for part in plan.parts
        for e in part.node.own
        if len(e.aliases) > 1 or part.node is not (entry and entry[0].node)
    ]
    for ref in (*(ref for e in (*plan.inside, *later) for ref in e.columns), *output):
        if ref.alias == source.alias:
            travel(column_at(ref))
    for expr, type_ in _find_clued(plan, types, source.alias):
        travel(expr, type_)
    return InputPlan(
        source.alias, source.stream, position, tuple(columns), keys, plan.join.filters_of(source.alias),
        tuple(dict.fromkeys(required)), _earlier(plan, position), source.rows, own=tuple(own), max_ahead_us=spec.max_ahead_us,
        lookups=source.lookups, rows_tumble=source.rows_tumble,
    )  # fmt: skip


def _earlier(plan: Plan, position: int) -> tuple[str, ...]:
    """The aliases of the same stream that count before an alias: those whose tuples are looked up nowhere come first, since all others know what those get."""
    inputs = plan.join.inputs
    same = [n for n, i in enumerate(inputs) if i.stream == inputs[position].stream]
    same.sort(key=lambda n: (bool(inputs[n].lookups), n))
    return tuple(inputs[n].alias for n in same[: same.index(position)])


def find_entry(plan: Plan, alias: str) -> tuple[Part, int] | None:
    """The join of a tree that an alias is an input of, and which of them."""
    places = ((part, n) for part in plan.parts for n, tree in enumerate(part.node.inputs) if tree == Leaf(alias))
    return next(places, None)


def _operands(plan: Plan, types: Types, alias: str) -> list[tuple[Predicate, Expr, str]]:
    """The predicates that are compiled residuals, and their sides that belong to an alias, with the type they are compared in."""
    compiled = {r.text for r in plan.residuals}
    out: list[tuple[Predicate, Expr, str]] = []
    for predicate in plan.join.predicates:
        if isinstance(predicate, Comparison | Band) and str(predicate) in compiled:
            common = types.common(types.type_of(predicate.left), types.type_of(predicate.right))
            assert common is not None
            out += [(predicate, side, common) for side in (predicate.left, predicate.right) if side.alias == alias]
    return out


def _find_clued(plan: Plan, types: Types, alias: str) -> Iterator[tuple[Expr, str]]:
    """What of an alias hints look at, with the types."""
    hinted = {hint.text for hint in plan.hints}
    for predicate in plan.join.predicates:
        if isinstance(predicate, Condition) and str(predicate) in hinted:
            for clue in (clue for way in predicate.ways for clue in way):
                yield from (one for one in find_operands(clue, types) or () if one[0].alias == alias)


def _put_on_wire(known: C, on_wire: dict[tuple[str, str], str]) -> C:
    """A residual or a clue with the names of wire columns."""
    left, right = ((place[0], on_wire[place]) for place in (known.left, known.right))
    named = replace(known, left=left, right=right)
    return replace(named, radius=(named.radius[0], on_wire[named.radius])) if isinstance(named, Near) else named


def sequence(plan: Plan, given: Given) -> Plan:
    """Add the comparisons of every ROWS window."""
    residuals = list(plan.residuals)
    for a in plan.sequenced:
        for y in (alias for alias in plan.aliases if alias != a.alias):
            text = show_reach(a, y)
            residuals.append(Compare((y, reach(a.alias)), "<", (a.alias, SEQUENCE), "integer", text))
    return replace(plan, residuals=tuple(residuals))


def show_reach(source: InputPlan, other: str) -> str:
    """What a ROWS window demands of its tuple, up to another member.

    >>> show_reach(InputPlan("a", "s", 0, (), {}, (), (), (), rows=3), "b")
    'a is among its last 3 rows up to b'
    """
    if source.rows_tumble:
        return f"{source.alias} is in its block of {source.rows} rows at {other}"
    return f"{source.alias} is among its last {source.rows} rows up to {other}"


def reach(alias: str) -> str:
    """The wire column that says up to which number the tuples of `alias` are out of reach."""
    return f"_n_{alias}"
