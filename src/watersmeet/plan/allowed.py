"""What SQL that comes from outside may use: only operations that are proven to answer as Spark does, and comparisons of types that meet.

Invariant: an expression that passes is made of operations of the list all the way down, so it reads no file, calls no host and loops
over nothing but its rows.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.errors import UnsupportedError
from watersmeet.plan.model import Types
from watersmeet.query.expr import Expr, binary
from watersmeet.query.join import Join
from watersmeet.query.predicate import Band, Comparison, Equality, Predicate


def refuse_unlisted(expr: Expr) -> None:
    """An expression that is not on the list is refused; a plain column of any type passes."""
    if not (expr.portable or expr.spark_template == "{0}"):
        raise UnsupportedError(
            f"{expr}: not all of it is on the list of functions and types that a subscription may use; compute it in the stream's source"
        )


def compared(left: Expr, op: str, right: Expr, types: Types) -> Expr:
    """`left op right`, if their types meet; equal plain columns of one type are on the list, whatever it is."""
    kinds = types.type_of(left), types.type_of(right)
    if types.common(*kinds) is None:
        raise UnsupportedError(f"{left} {op} {right}: {kinds[0]} is not compared with {kinds[1]}; cast one of them")
    made = binary(left, op, right)
    is_plain = kinds[0] == kinds[1] and left.spark_template == right.spark_template == "{0}"
    return replace(made, portable=made.portable or (op == "=" and is_plain))


def condition(predicate: Predicate, types: Types) -> Expr:
    """A predicate as one expression."""
    if isinstance(predicate, Equality):
        return compared(predicate.left, "=", predicate.right, types)
    if isinstance(predicate, Comparison):
        return compared(predicate.left, predicate.op, predicate.right, types)
    return predicate.condition if isinstance(predicate, Band) else predicate.expr


def refuse_unlisted_in(join: Join, types: Types) -> None:
    """A query of which some part is not on the list is refused."""
    for expr in (*join.filters, *(condition(p, types) for p in join.predicates), *(o.expr for o in join.select)):
        refuse_unlisted(expr)
    for output in join.results:
        refuse_unlisted(output.expr)
