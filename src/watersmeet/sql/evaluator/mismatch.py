"""Operations on types that Spark's analyser refuses in ANSI mode, as far as our own rules know the types.

For runs without Spark: with Spark its analyser decides. What has no known type is never called a mismatch.

    compared, chosen among     numbers with numbers, text with anything plain, dates and times with each other
    + - * / % div              numbers and text; a point in time and a span; a date and a whole number
    AND OR NOT, CASE WHEN      truth values and text
    CAST                       no dates of numbers, no truth values of times, ...

Invariant: what is called a mismatch here, Spark refuses (tests/sql/evaluator/test_mismatch.py).
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import combinations
from typing import Any

from sqlglot import exp

from watersmeet.query.stream import INTEGERS
from watersmeet.sql.evaluator.lower import lower
from watersmeet.sql.evaluator.types import NULL, NUMERIC, STRING, TIMES, SparkType, read_type

_ZONED, _LOCAL, _DAY = "timestamp", "timestamp_ntz", "date"
_COMPARED = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.NullSafeEQ, exp.NullSafeNEQ)
_COMPUTED = {exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.Div: "/", exp.Mod: "%", exp.IntDiv: "div"}
_FIELDS = (
    exp.Year,
    exp.Quarter,
    exp.Month,
    exp.Day,
    exp.Hour,
    exp.Minute,
    exp.Second,
    exp.TimestampTrunc,
    exp.DayOfWeek,
)
_NO_NUMBER = ("boolean", *TIMES)


def find_mismatch(node: Any, show: Callable[[Any], str]) -> str:
    """The innermost operation of a resolved expression that Spark refuses, with its types; '' if none is known."""
    for child in node.iter_expressions():
        found = find_mismatch(child, show)
        if found:
            return found
    found = _check(node)
    return f"{show(node)}: {found}" if found else ""


def _check(node: Any) -> str:
    kind = type(node)
    if kind in _COMPARED:
        return _check_meet(_types(node.this, node.expression), "compared")
    if kind is exp.Between:
        low, high = node.args["low"], node.args["high"]
        return _check_meet(_types(node.this, low), "compared") or _check_meet(_types(node.this, high), "compared")
    if kind is exp.In and node.expressions:
        return _check_meet(_types(node.this, *node.expressions), "compared")
    if kind in _COMPUTED:
        return _check_operands(_COMPUTED[kind], *_types(node.this, node.expression))
    if kind in (exp.Neg, exp.Abs):
        return _check_kind(node.this, _NO_NUMBER, "a number")
    if kind in (exp.And, exp.Or):
        texts = _types(node.this, node.expression) == [STRING, STRING]
        return (
            _check_truth(node.this)
            or _check_truth(node.expression)
            or ("it takes true or false, not string; cast it" if texts else "")
        )
    if kind is exp.Not:
        return _check_truth(node.this)
    if kind in _FIELDS:
        inner = node.this.this if isinstance(node.this, exp.TsOrDsToDate) else node.this
        return _check_kind(inner, (*NUMERIC, "boolean", "interval"), "a date or a timestamp")
    if kind in (exp.Cast, exp.TryCast) and not node.args.get("safe"):
        return _check_cast(_types(node.this)[0], read_type(node.to.sql("spark")))
    return _check_choice(node)


def _check_choice(node: Any) -> str:
    """Values among which one is chosen must have a common type."""
    if isinstance(node, exp.Case):
        whens = [branch.this for branch in node.args["ifs"]]
        values = [branch.args["true"] for branch in node.args["ifs"]] + [node.args.get("default")]
        wrong = "" if node.this is None else _check_meet(_types(node.this, *whens), "compared")
        if node.this is None:
            wrong = next((w for when in whens if (w := _check_truth(when, "string"))), "")
        return wrong or _check_meet(_types(*(v for v in values if v is not None)), "brought together")
    if isinstance(node, exp.If) and not isinstance(node.parent, exp.Case):
        values = [v for v in (node.args["true"], node.args.get("false")) if v is not None]
        return _check_truth(node.this, "string") or _check_meet(_types(*values), "brought together")
    if isinstance(node, exp.Nullif):
        return _check_meet(_types(node.this, node.expression), "compared")
    if isinstance(node, exp.Coalesce | exp.Greatest | exp.Least):
        types = _types(node.this, *node.expressions)
        return _check_meet(types, "brought together") or ("" if isinstance(node, exp.Coalesce) else _check_text(types))
    return ""


def _types(*nodes: Any) -> list[SparkType | None]:
    return [lower(node).type for node in nodes]


def _check_meet(types: list[SparkType | None], what: str) -> str:
    """Two of the types that have no common one."""
    known = list(dict.fromkeys(t for t in types if t is not None))  # a list of constants has few types
    pair = next(((a, b) for a, b in combinations(known, 2) if not meet(a, b)), None)
    return "" if pair is None else f"{pair[0]} and {pair[1]} cannot be {what}; cast one to the other's type"


def _check_text(types: list[SparkType | None]) -> str:
    """greatest() and least() turn no text into another type."""
    others = [t for t in types if t not in (None, NULL, STRING)]
    return (
        f"{others[0]} and string cannot be ordered; cast one to the other's type" if STRING in types and others else ""
    )


def meet(left: SparkType, right: SparkType) -> bool:
    """Whether Spark has a type in which both are compared.

    >>> meet(SparkType("int"), SparkType("string")), meet(SparkType("timestamp"), SparkType("bigint"))
    (True, False)
    """
    kinds = {left.kind, right.kind}
    if len(kinds) == 1 or NULL in (left, right):
        return True
    if "string" in kinds:
        return "interval" not in kinds
    return kinds <= set(NUMERIC) or kinds <= set(TIMES)


def _check_operands(op: str, left: SparkType | None, right: SparkType | None) -> str:
    if left is None or right is None or NULL in (left, right) or _computes(op, left.kind, right.kind):
        return ""
    return f"{op} does not take {left} and {right}; cast one of them"


def _computes(op: str, left: str, right: str) -> bool:
    kinds = {left, right}
    if kinds <= {*NUMERIC, "string"}:
        return kinds != {"string"}
    if "interval" in kinds:
        return _spans(op, left, right)
    if op == "-" and kinds <= {*TIMES, "string"}:
        return True
    if left == _DAY and op in ("+", "-") and right in INTEGERS[:3]:
        return True
    return op == "+" and right == _DAY and left in INTEGERS[:3]


def _spans(op: str, left: str, right: str) -> bool:
    """What goes with an interval."""
    if op in ("+", "-"):
        return (right == "interval" and left in ("interval", "string", *TIMES)) or (
            op == "+" and right in (*TIMES, "string")
        )
    number = (*NUMERIC, "string")
    return (op == "*" and (left in number or right in number)) or (op == "/" and left == "interval" and right in number)


def _check_truth(node: Any, *more: str) -> str:
    """What is true or false; what chooses a branch is no text, either."""
    return _check_kind(node, (*NUMERIC, *TIMES, "interval", *more), "true or false")


def _check_kind(node: Any, refused: tuple[str, ...], wanted: str) -> str:
    (kind,) = _types(node)
    return f"it takes {wanted}, not {kind}; compare or cast it" if kind is not None and kind.kind in refused else ""


def _check_cast(source: SparkType | None, to: SparkType | None) -> str:
    if source is None or to is None or not _never_cast(source.kind, to.kind):
        return ""
    return f"{source} cannot be cast to {to}; convert it with a function"


def _never_cast(source: str, to: str) -> bool:
    if source in NUMERIC:
        return to in (_DAY, _LOCAL)
    if source == "boolean":
        return to in TIMES
    if source in (_DAY, _LOCAL):
        return to in (*NUMERIC, "boolean")
    return source == _ZONED and to == "boolean"
