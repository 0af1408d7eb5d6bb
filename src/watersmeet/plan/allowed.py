"""What a query may use where Spark does not look at it: types that go together by our own rules.

SQL that comes from outside may use only operations that are proven to answer as Spark does, and comparisons of types that meet.

Invariant: an expression that passes is made of operations of the list all the way down, so it reads no file, calls no host and loops
over nothing but its rows.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.errors import TypeMismatchError, UnsupportedError
from watersmeet.plan.model import Types
from watersmeet.query.expr import Expr
from watersmeet.query.join import Join
from watersmeet.query.predicate import Comparison, Equality, Predicate, as_expr


def refuse_mismatch(expr: Expr) -> None:
    """What Spark would refuse for its types, by our own rules."""
    if expr.mismatch:
        raise TypeMismatchError(expr.mismatch)


def refuse_mismatches(join: Join) -> None:
    """The same for all of a query."""
    for expr in (
        *join.filters,
        *map(as_expr, join.predicates),
        *(o.expr for o in join.select),
        *(o.expr for o in join.results),
    ):
        refuse_mismatch(expr)


def refuse_unlisted(expr: Expr) -> None:
    """An expression that is not on the list is refused; a plain column of any type passes."""
    refuse_mismatch(expr)
    if not (expr.portable or expr.spark_template == "{0}"):
        raise UnsupportedError(
            f"{expr}: not all of it is on the list of functions and types that a subscription may use; compute it in the stream's source"
        )


def compared(predicate: Equality | Comparison, types: Types) -> Expr:
    """A comparison, if the types meet; equal plain columns of one type are on the list, whatever it is."""
    sides = predicate.left, predicate.right
    kinds = [types.type_of(side) for side in sides]
    if types.common(*kinds) is None:
        raise TypeMismatchError(f"{predicate}: {kinds[0]} is not compared with {kinds[1]}; cast one of them")
    is_plain = kinds[0] == kinds[1] and all(side.spark_template == "{0}" for side in sides)
    made = predicate.condition
    return replace(made, portable=made.portable or (isinstance(predicate, Equality) and is_plain))


def condition(predicate: Predicate, types: Types) -> Expr:
    """A predicate as one expression."""
    return compared(predicate, types) if isinstance(predicate, Equality | Comparison) else as_expr(predicate)


def refuse_unlisted_in(join: Join, types: Types) -> None:
    """A query of which some part is not on the list is refused."""
    for expr in (*join.filters, *(condition(p, types) for p in join.predicates), *(o.expr for o in join.select)):
        refuse_unlisted(expr)
    for output in join.results:
        refuse_unlisted(output.expr)
