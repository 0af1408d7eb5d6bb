"""Where the results of a join go: to the next join, to units that keep rows or groups, or out.

Where Spark or other units finish, what leaves the join is prepared for them:

    DISTINCT, inside     projected rows with their buckets, each once          p0 ... _ts
    DISTINCT, outside    results with their buckets, for Spark to project      o0 ... _ts
    GROUP BY, inside     the local view of the batch                           g0 ... v0 ...
    GROUP BY, outside    results, for Spark to project and aggregate           o0 ...

Conditions on results are asked here. Where combinations are set aside, so are those for which such a condition, or a column of SELECT, has no value.

Invariant: where a row goes depends on the row alone. One view per unit and batch, however many chunks the results come in. What leaves has a value in every
expression of SELECT, if combinations are set aside.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import fold
from watersmeet.columns.row_hash import by_hash, row_hash
from watersmeet.dataflow.contract import Aside, Message, Pause, Yielded, first_unit
from watersmeet.expressions.broken import find_broken, find_true
from watersmeet.expressions.evaluator import attempt, mask
from watersmeet.operators.enter import route, send_lone, split
from watersmeet.operators.finish.aggregate import group_hash
from watersmeet.operators.finish.distinct import LEFT, add_buckets, first_of_each
from watersmeet.operators.finish.project import project_rows
from watersmeet.operators.finish.views import make_view, merge_views
from watersmeet.operators.late import set_combinations_aside
from watersmeet.plan import model
from watersmeet.plan.model import TIME, Plan
from watersmeet.plan.rules.tree import own_conditions
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.predicate import Band, Comparison

Pieces = Sequence[tuple[str, str]]
"""(text for the evaluator, what users wrote) of expressions."""
Broken = dict[str, np.ndarray]
"""By expression the rows that break it, each once."""


def where(plan: Plan, tables: Iterator[pa.Table | Pause], aside: list[Aside]) -> Iterator[pa.Table | Pause]:
    """Results that satisfy the conditions on results; what breaks an expression over them goes aside, if that is asked for."""
    names = {ref: f'"o{n}"' for n, ref in enumerate(plan.output)}
    conditions = [(e.duckdb(lambda ref: names[ref]), str(e)) for e in plan.final]
    select = [o.expr for o in plan.join.select if not o.expr.is_column] if plan.sets_aside else []
    columns = [(e.duckdb(lambda ref: names[ref]), str(e)) for e in select]
    if not (conditions or columns):
        yield from tables
        return
    known = {ref: f"o{n}" for n, ref in enumerate(plan.output)}
    for table in tables:
        if isinstance(table, Pause) or not table.num_rows:
            yield table
            continue
        holds, broken = ask_conditions(plan, table, conditions)
        table, left = _set_aside(plan, table, known, broken, aside)
        table = table.filter(pa.array(holds[left])) if conditions else table
        yield _set_aside(plan, table, known, _find_broken(plan, table, columns), aside)[0]


def ask_conditions(plan: Plan, table: pa.Table, conditions: Pieces) -> tuple[np.ndarray, Broken]:
    """Which rows satisfy all conditions, and which would but for one that they break."""
    holds, broken = np.ones(table.num_rows, bool), Broken()
    if not plan.sets_aside:
        names = {f"o{n}": str(ref) for n, ref in enumerate(plan.output)}
        for text, shown in conditions:
            holds &= mask(table, text, shown, plan.timezone, names)
        return holds, broken
    answers = [(shown, *find_true(table, text, shown, plan.timezone)) for text, shown in conditions]
    hopeful = np.all([true | breaks for _, true, breaks in answers], axis=0) if answers else holds
    for shown, true, breaks in answers:
        found = hopeful & breaks
        if found.any():
            broken[shown] = found
            hopeful = hopeful & ~found
        holds &= true
    return holds, broken


def _find_broken(plan: Plan, table: pa.Table, columns: Pieces) -> Broken:
    """Which rows break an expression of SELECT."""
    found, seen = Broken(), np.zeros(table.num_rows, bool)
    together = ", ".join(text for text, _ in columns)
    if not columns or not table.num_rows or attempt(table, together, plan.timezone) is not None:
        return found
    for text, shown in columns:
        breaks = find_broken(table, text, plan.timezone) & ~seen
        if breaks.any():
            found[shown], seen = breaks, seen | breaks
    return found


def _set_aside(
    plan: Plan, table: pa.Table, known: Mapping[ColumnRef, str], broken: Broken, aside: list[Aside]
) -> tuple[pa.Table, np.ndarray]:
    """A table without the rows that break an expression, and which of its rows these are; `known` says what the table calls columns of members."""
    left = np.ones(table.num_rows, bool)
    for shown, rows in broken.items():
        some = table.filter(pa.array(rows))
        columns = {ref: some.column(name).combine_chunks() for ref, name in known.items()}
        aside.append(set_combinations_aside(plan, columns, shown))
        left &= ~rows
    return (table if left.all() else table.filter(pa.array(left))), left


@dataclass(frozen=True)
class Out:
    """Results leave the units as they are, or prepared for what Spark does with them."""

    plan: Plan

    @property
    def passing(self) -> frozenset[ColumnRef]:
        """The columns that no condition, no expression of SELECT and no aggregate looks at."""
        if self.plan.finish is not None or self.plan.sets_aside:
            return frozenset()
        asked = [*self.plan.final, *(o.expr for o in self.plan.join.select if o.expr.duckdb_template != "{0}")]
        return frozenset(self.plan.output) - {ref for expr in asked for ref in expr.columns}

    def __call__(self, tables: Iterator[pa.Table | Pause]) -> Iterator[Yielded]:
        aside: list[Aside] = []
        tables = where(self.plan, tables, aside)
        yield from tables if self.plan.finish is None else leave(self.plan, _without_pauses(tables))
        yield from aside


@dataclass(frozen=True)
class ToJoin:
    """What a join binds together is side 0 of the next one."""

    plan: Plan
    number: int
    stage: int
    side: int = 0
    routing: Any = None
    """That of the batch, if it is not the plan's."""

    def __call__(self, tables: Iterator[pa.Table | Pause]) -> Iterator[Yielded]:
        join, aside = self.plan.stages[self.number], list[Aside]()
        for table in _without_pauses(tables):
            if join.part is not None:
                table, lone = can_match(self.plan, join, self.side, table, aside)
                yield from send_lone(join, self.side, lone, self.stage) if lone.num_rows else ()
            yield from route(self.plan, join, self.side, table, self.stage, self.routing)
        yield from aside


def _own_conditions(plan: Plan, join: model.Stage, side: int) -> list[Expr]:
    """What tuples of a side must satisfy by themselves, besides having their keys and operands."""
    assert join.part is not None
    part, compiled = join.part, {r.text for r in plan.residuals}
    coded = {e.text for c in plan.classes[slice(*part.classes)] for e in c.members.values()}
    for predicate in (p for p in part.predicates if isinstance(p, Comparison | Band) and str(p) in compiled):
        coded |= {predicate.left.text, predicate.right.text}
    return [e for e in own_conditions(join.part.node, side) if e.text.removesuffix(" IS NOT NULL") not in coded]


def can_match(
    plan: Plan, join: model.Stage, side: int, table: pa.Table, aside: list[Aside]
) -> tuple[pa.Table, pa.Table]:
    """The tuples of a side that can have partners, and those that leave at once: none if the side is not preserved. Tuples that break a condition are neither."""
    assert join.part is not None
    spec, keep = join.sides[side], np.ones(table.num_rows, bool)
    operands = {end for r in plan.residuals for end in (r.left, r.right)}
    needed = {*spec.keys.values(), *(spec.column(a, name) for a, name in operands if a in spec.aliases)}
    needed |= {spec.column(a, TIME) for a in join.part.node.required if a in spec.aliases}
    for column in needed:
        keep &= np.asarray(pc.is_valid(table.column(column)).to_numpy(), bool)

    def name(ref: ColumnRef) -> str:
        return spec.column(ref.alias, plan.by_alias[ref.alias].column(ref))

    conditions = [(e.duckdb(lambda ref: f'"{name(ref)}"'), str(e)) for e in _own_conditions(plan, join, side)]
    holds, broken = ask_conditions(plan, table, conditions)
    if broken:
        known = {ref: name(ref) for a in spec.real_aliases for ref in plan.by_alias[a].wire_of}
        known = {ref: column for ref, column in known.items() if column in table.column_names}
        table, left = _set_aside(plan, table, known, broken, aside)
        keep, holds = keep[left], holds[left]
    hopeful, lone = split(table, pa.array(keep & holds))
    return hopeful, lone if side in join.part.node.preserved else lone.slice(0, 0)


@dataclass(frozen=True)
class ToKeepers:
    """Rows or local views, by hash, to the units that keep them."""

    plan: Plan
    stage: int

    def __call__(self, tables: Iterator[pa.Table | Pause]) -> Iterator[Yielded]:
        assert self.plan.finish is not None
        aside: list[Aside] = []
        for table in leave(self.plan, _without_pauses(where(self.plan, tables, aside))):
            hashes = row_hash(table.drop_columns([TIME])) if self.plan.join.distinct else group_hash(self.plan, table)
            for unit, part in by_hash(table, hashes, self.plan.finish.units):
                yield Message(first_unit(self.stage) + unit, LEFT, part)
        yield from aside


def leave(plan: Plan, results: Iterator[pa.Table]) -> Iterator[pa.Table]:
    """The tables that leave a join after a batch, from its tables of results."""
    assert plan.finish is not None
    if not plan.finish.inside:
        yield from (add_buckets(plan, table, table) if plan.join.distinct else table for table in results)
    elif plan.join.distinct:
        rows = (first_of_each(add_buckets(plan, project_rows(plan, t), t)) for t in results if t.num_rows)
        yield from fold(rows, lambda held: first_of_each(pa.concat_tables(held).combine_chunks()))
    else:
        views = (make_view(plan, project_rows(plan, t)) for t in results if t.num_rows)
        yield from fold(views, lambda held: merge_views(plan, held))


def _without_pauses(tables: Iterator[pa.Table | Pause]) -> Iterator[pa.Table]:
    return (t for t in tables if not isinstance(t, Pause))
