"""Rewrites a Spark expression for DuckDB, so that it means what Spark 4.3 (ANSI mode) says.

Every rule takes a Spark tree and gives a DuckDB tree with its Spark type. Where types meet, both operands are cast to the
type in which Spark would compute; literals are cast too, since DuckDB lets a literal take its neighbour's type (127 of
a TINYINT + 1 overflows there). An expression is portable if rules are known, and tested against Spark, all the way down:
tests/sql/evaluator/test_agrees_with_spark.py. What has no rule is left to sqlglot's translation and is not portable.

Evaluation needs DuckDB's TimeZone set to the session's, and the macros of `expressions.evaluator`; no text depends on the zone. Values are promised, the order of evaluation is not: Spark skips the right
operand (and an error in it) where AND, OR or a NULL on the left has settled the answer, DuckDB may compute it and raise.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from sqlglot import exp

from watersmeet.sql.copies import copy_tree
from watersmeet.sql.evaluator.arithmetic import ARITHMETIC
from watersmeet.sql.evaluator.functions import FUNCTIONS
from watersmeet.sql.evaluator.settled import find_settled
from watersmeet.sql.evaluator.types import (
    BOOLEAN,
    INTERVAL,
    NULL,
    STRING,
    Lower,
    Rule,
    SparkType,
    Typed,
    call,
    cast,
    common,
    common_of,
    duckdb,
    interval,
    literal_type,
    paren,
    read_type,
)
from watersmeet.sql.windows.time_conditions import interval_us


class Lowered(NamedTuple):
    """A tree for DuckDB."""

    node: Any
    is_portable: bool
    settled: str
    """Its Spark type, if DuckDB need not be asked, see `evaluator.settled`."""


def for_duckdb(node: Any) -> Lowered:
    """The tree for DuckDB of one for Spark."""
    typed = lower(node)
    return Lowered(interval(typed), typed.type not in (None, INTERVAL), find_settled(node, typed.type))


def type_of(node: Any) -> SparkType | None:
    """The Spark type of a resolved expression, if all its rules are known."""
    return read_type(node.meta.get("spark_type", "")) if type(node) is exp.Column else lower(node).type


def lower(node: Any) -> Typed:
    """Applies the rule of the node's class, or leaves the node to sqlglot."""
    rule = _RULES.get(type(node))
    return rule(node, lower) if rule is not None else _unproven(node)


def _unproven(node: Any) -> Typed:
    """Rules still apply to the operands; the result has no type."""
    copy = copy_tree(node)
    for name, value in node.args.items():
        if isinstance(value, exp.Expression):
            copy.set(name, interval(lower(value)))
        elif isinstance(value, list):
            copy.set(name, [interval(lower(v)) if isinstance(v, exp.Expression) else v for v in value])
    return Typed(copy, None)


def _column(node: Any, _: Lower) -> Typed:
    return Typed(copy_tree(node), read_type(node.meta.get("spark_type", "")))


def _dot(node: Any, lower: Lower) -> Typed:
    return Typed(call("struct_extract", lower(node.this).node, exp.Literal.string(node.expression.name)), None)


def _bracket(node: Any, lower: Lower) -> Typed:
    """`list[i]` and `map[key]`: Spark counts a list from 0, DuckDB from 1. sqlglot sees to numbers; of what is computed it cannot know whether it is an index."""
    indexes = node.expressions
    if len(indexes) != 1 or isinstance(indexes[0], exp.Literal):
        return _unproven(node)
    this, index = lower(node.this).node, lower(indexes[0])
    if index.kind == "string":
        return _unproven(node)
    at = duckdb("CASE WHEN typeof(x) NOT LIKE '%]' THEN i WHEN i >= 0 THEN i + 1 END", x=this, i=interval(index))
    return Typed(exp.Bracket(this=paren(this), expressions=[at], offset=1), None)


def _literal(node: Any, _: Lower) -> Typed:
    if node.is_string:
        return Typed(copy_tree(node), STRING)
    kind = literal_type(node.name)
    return Typed(copy_tree(node) if kind is None else cast(copy_tree(node), kind), kind)


def _paren(node: Any, lower: Lower) -> Typed:
    inner = lower(node.this)
    return Typed(exp.Paren(this=inner.node), inner.type)


def _interval(node: Any, _: Lower) -> Typed:
    us = interval_us(node)
    return Typed(copy_tree(node), None) if us is None else Typed(duckdb(f"CAST({us} AS BIGINT)"), INTERVAL)


def _comparison(node: Any, lower: Lower) -> Typed:
    return _compare(type(node), lower(node.this), lower(node.expression))


def _compare(op: Any, left: Typed, right: Typed) -> Typed:
    """Both sides in the type in which Spark compares them."""
    if left.type is None or right.type is None:
        return Typed(op(this=interval(left), expression=interval(right)), None)
    meet = common(left.type, right.type)
    if meet is None:
        left, right = _coerce_strings(left, right)
        return Typed(op(this=left.node, expression=right.node), None)
    return Typed(op(this=left.cast(meet), expression=right.cast(meet)), BOOLEAN)


def _coerce_strings(left: Typed, right: Typed) -> tuple[Typed, Typed]:
    """A string that meets another type becomes that type; whole numbers are met as BIGINT."""
    if left.type != STRING and right.type != STRING:
        return left, right
    other = left.type if right.type == STRING else right.type
    if other is None or other in (NULL, INTERVAL):
        return left, right
    if other.kind in ("tinyint", "smallint", "int"):
        other = SparkType("bigint")
    elif other.kind in ("decimal", "float"):
        other = SparkType("double")
    return Typed(left.cast(other), other), Typed(right.cast(other), other)


def _between(node: Any, lower: Lower) -> Typed:
    if node.args.get("symmetric"):
        return _unproven(node)
    value = lower(node.this)
    low = _compare(exp.GTE, value, lower(node.args["low"]))
    high = _compare(exp.LTE, Typed(copy_tree(value.node), value.type), lower(node.args["high"]))
    return Typed(duckdb("(low AND high)", low=low.node, high=high.node), _boolean(low, high))


def _in(node: Any, lower: Lower) -> Typed:
    members = [lower(node.this), *(lower(member) for member in node.expressions)]
    types = [member.type for member in members if member.type is not None]
    meet = common_of(types) if len(types) == len(members) else None
    if meet is None or len(members) < 2:
        return _unproven(node)
    first, *rest = (member.cast(meet) for member in members)
    return Typed(exp.In(this=first, expressions=rest), BOOLEAN)


def _boolean(*operands: Typed) -> SparkType | None:
    return BOOLEAN if all(operand.type in (BOOLEAN, NULL) for operand in operands) else None


def _logic(node: Any, lower: Lower) -> Typed:
    left, right = lower(node.this), lower(node.expression)
    return Typed(type(node)(this=left.node, expression=right.node), _boolean(left, right))


def _not(node: Any, lower: Lower) -> Typed:
    inner = lower(node.this)
    return Typed(exp.Not(this=paren(inner.node)), _boolean(inner))


def _is(node: Any, lower: Lower) -> Typed:
    inner, what = lower(node.this), node.expression
    proven = inner.type is not None and (
        isinstance(what, exp.Null) or (isinstance(what, exp.Boolean) and inner.type == BOOLEAN)
    )
    test = copy_tree(node)
    test.set("this", inner.node)
    return Typed(test, BOOLEAN if proven else None)


def _case(node: Any, lower: Lower) -> Typed:
    """CASE with and without an operand."""
    operand = lower(node.this) if node.this is not None else None
    whens: list[Typed] = []
    for branch in node.args["ifs"]:
        condition = lower(branch.this)
        whens.append(
            condition if operand is None else _compare(exp.EQ, Typed(copy_tree(operand.node), operand.type), condition)
        )
    default = node.args.get("default")
    values = [lower(branch.args["true"]) for branch in node.args["ifs"]]
    values.append(lower(default) if default is not None else Typed(exp.Null(), NULL))
    return _choice(whens, values)


def _if(node: Any, lower: Lower) -> Typed:
    default = node.args.get("false")
    return _choice(
        [lower(node.this)],
        [lower(node.args["true"]), lower(default) if default is not None else Typed(exp.Null(), NULL)],
    )


def _nullif(node: Any, lower: Lower) -> Typed:
    left = lower(node.this)
    equal = _compare(exp.EQ, Typed(copy_tree(left.node), left.type), lower(node.expression))
    return _choice([equal], [Typed(exp.Null(), NULL), left])


def _choice(whens: list[Typed], values: list[Typed]) -> Typed:
    """CASE over branches of one common type."""
    types = [value.type for value in values if value.type is not None]
    meet = common_of(types) if len(types) == len(values) and _boolean(*whens) else None
    nodes = [value.node if meet is None else value.cast(meet) for value in values]
    ifs = [exp.If(this=when.node, true=node) for when, node in zip(whens, nodes, strict=False)]
    return Typed(exp.Case(ifs=ifs, default=nodes[-1]), meet)


_RULES: dict[Any, Rule] = {
    exp.Column: _column,
    exp.Dot: _dot,
    exp.Bracket: _bracket,
    exp.Literal: _literal,
    exp.Boolean: lambda node, _: Typed(copy_tree(node), BOOLEAN),
    exp.Null: lambda node, _: Typed(copy_tree(node), NULL),
    exp.Paren: _paren,
    exp.Interval: _interval,
    exp.Between: _between,
    exp.In: _in,
    exp.And: _logic,
    exp.Or: _logic,
    exp.Not: _not,
    exp.Is: _is,
    exp.Case: _case,
    exp.If: _if,
    exp.Nullif: _nullif,
    **dict.fromkeys((exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ), _comparison),
    **ARITHMETIC,
    **FUNCTIONS,
}
