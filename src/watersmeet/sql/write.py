"""The text of common trees, without sqlglot's generator.

A generator is made for every text, copies the tree it writes, and goes through a dozen calls for every node. Most of what queries are made of needs none of that: columns, constants, operators, CASE and functions
that are written as they are read.

Invariant: what is written here is what the generator of the dialect writes, on one line and without comments. A tree with anything else in it is not written: the caller asks the generator.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from sqlglot import exp

_PLAIN_TEXT = re.compile(r"[^'\\\x00-\x1f\x7f]*")
"""A string constant in which no dialect escapes anything."""
_PLAIN_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_TYPES = exp.DataType.Type
_SPARK_TYPES = {
    _TYPES.TINYINT: "TINYINT", _TYPES.SMALLINT: "SMALLINT", _TYPES.INT: "INT", _TYPES.BIGINT: "BIGINT", _TYPES.FLOAT: "FLOAT", _TYPES.DOUBLE: "DOUBLE",
    _TYPES.BOOLEAN: "BOOLEAN", _TYPES.DATE: "DATE",
}  # fmt: skip
_DUCKDB_TYPES = {
    **_SPARK_TYPES,
    _TYPES.FLOAT: "REAL",
    _TYPES.TEXT: "TEXT",
    _TYPES.TIMESTAMPTZ: "TIMESTAMPTZ",
    _TYPES.DECIMAL: "DECIMAL",
}

Write = Callable[[Any, "Pen"], str]


class Unwritten(Exception):
    """A tree has a node that only the generator writes."""


class Pen:
    """Writes trees by a dialect's rules. What stands for a column, a number or a text is the caller's, who may count them."""

    __slots__ = ("column", "number", "rules", "text")

    def __init__(
        self,
        rules: Mapping[Any, Write],
        column: Callable[[Any], str],
        number: Callable[[Any], str] | None = None,
        text: Callable[[str], str] | None = None,
    ) -> None:
        self.rules, self.column, self.number, self.text = rules, column, number, text

    def write(self, node: Any) -> str:
        """A tree's text.

        >>> from sqlglot import parse_one
        >>> Pen(SPARK_RULES, lambda column: column.name.upper()).write(parse_one("a + 2 > abs(b)", dialect="spark"))
        'A + 2 > ABS(B)'
        """
        rule = self.rules.get(type(node))
        if rule is None:
            raise Unwritten
        return rule(node, self)

    def write_all(self, nodes: Any) -> str:
        return ", ".join([self.write(node) for node in nodes])


def _write_binary(sign: str) -> Write:
    middle = f" {sign} "

    def write(node: Any, pen: Pen) -> str:
        args = node.args
        if args.get("negate") or args.get("operator") or args.get("typed"):
            raise Unwritten
        return pen.write(args["this"]) + middle + pen.write(args["expression"])

    return write


def _write_like(node: Any, pen: Pen) -> str:
    args = node.args
    if isinstance(args["expression"], exp.All | exp.Any):
        raise Unwritten
    return f"{pen.write(args['this'])} {'NOT LIKE' if args.get('negate') else 'LIKE'} {pen.write(args['expression'])}"


def _write_rlike(node: Any, pen: Pen) -> str:
    if node.args.get("flag"):
        raise Unwritten
    return f"{pen.write(node.args['this'])} RLIKE {pen.write(node.args['expression'])}"


def _write_mod(node: Any, pen: Pen) -> str:
    above = node.parent
    if isinstance(above, exp.Mul | exp.Div | exp.IntDiv | exp.Mod) and above.args.get("expression") is node:
        raise Unwritten
    return f"{pen.write(node.args['this'])} % {pen.write(node.args['expression'])}"


def _write_column(node: Any, pen: Pen) -> str:
    return pen.column(node)


def _write_literal(node: Any, pen: Pen) -> str:
    value = node.args["this"]
    if not node.args["is_string"]:
        return value if pen.number is None else pen.number(node)
    if not _PLAIN_TEXT.fullmatch(value):
        raise Unwritten
    return f"'{value if pen.text is None else pen.text(value)}'"


def _write_is(node: Any, pen: Pen) -> str:
    if type(node.args["expression"]) is not exp.Null:
        raise Unwritten
    return f"{pen.write(node.args['this'])} {'IS NOT' if node.args.get('negate') else 'IS'} NULL"


def _write_neg(node: Any, pen: Pen) -> str:
    inner = pen.write(node.args["this"])
    return f"- {inner}" if inner[0] == "-" else f"-{inner}"


def _write_between(node: Any, pen: Pen) -> str:
    args = node.args
    if args.get("symmetric"):
        raise Unwritten
    return f"{pen.write(args['this'])} BETWEEN {pen.write(args['low'])} AND {pen.write(args['high'])}"


def _write_in(node: Any, pen: Pen) -> str:
    args = node.args
    if args.get("query") or args.get("unnest") or args.get("field") or args.get("is_global"):
        raise Unwritten
    return f"{pen.write(args['this'])} IN ({pen.write_all(args.get('expressions') or ())})"


def _write_case(node: Any, pen: Pen) -> str:
    args = node.args
    parts = [f"CASE {pen.write(args['this'])}" if args.get("this") is not None else "CASE"]
    for branch in args["ifs"]:
        parts.append(f"WHEN {pen.write(branch.args['this'])} THEN {pen.write(branch.args['true'])}")
    if args.get("default") is not None:
        parts.append(f"ELSE {pen.write(args['default'])}")
    return f"{' '.join(parts)} END"


def _write_if(node: Any, pen: Pen) -> str:
    parts = (node.args.get(name) for name in ("this", "true", "false"))
    return f"IF({pen.write_all([part for part in parts if part is not None])})"


def _write_cast(types: Mapping[Any, str]) -> Write:
    def write(node: Any, pen: Pen) -> str:
        args, kind = node.args, node.args["to"].args
        name = types.get(kind["this"])
        if name is None or kind.get("nested") or kind.get("collate"):
            raise Unwritten
        if kind.get("expressions"):
            name += f"({', '.join(map(_read_digits, kind['expressions']))})"
        if args.get("format") or args.get("safe") or args.get("action") or args.get("default"):
            raise Unwritten
        return f"CAST({pen.write(args['this'])} AS {name})"

    return write


def _read_digits(part: Any) -> str:
    """A parameter of a type, if it is a number."""
    if type(part) is not exp.DataTypeParam or type(part.this) is not exp.Literal or part.args.get("expression"):
        raise Unwritten
    return str(part.this.args["this"])


def _write_function(name: str) -> Write:
    """A function of one argument, or of one and a list."""

    def write(node: Any, pen: Pen) -> str:
        args, first = node.args, node.args.get("this")
        if args.get("binary") or args.get("encoding") or args.get("count"):
            raise Unwritten
        return f"{name}({pen.write_all([*(() if first is None else (first,)), *(args.get('expressions') or ())])})"

    return write


def _write_lone(name: str) -> Write:
    """A function of one argument that has another name if there are more."""
    write = _write_function(name)

    def write_one(node: Any, pen: Pen) -> str:
        if node.args.get("expressions"):
            raise Unwritten
        return write(node, pen)

    return write_one


def _write_anonymous(node: Any, pen: Pen) -> str:
    name = node.args["this"]
    if type(name) is not str or not _PLAIN_NAME.fullmatch(name) or isinstance(node.parent, exp.Dot):
        raise Unwritten
    return f"{name.upper()}({pen.write_all(node.args.get('expressions') or ())})"


def _write_star(node: Any, _: Pen) -> str:
    if any(node.args.values()):
        raise Unwritten
    return "*"


_BINARY = {
    exp.Add: "+", exp.Sub: "-", exp.Mul: "*", exp.EQ: "=", exp.NEQ: "<>", exp.LT: "<", exp.LTE: "<=", exp.GT: ">", exp.GTE: ">=", exp.And: "AND", exp.Or: "OR",
}  # fmt: skip
_RULES: dict[Any, Write] = {
    **{kind: _write_binary(sign) for kind, sign in _BINARY.items()},
    exp.Column: _write_column,
    exp.Literal: _write_literal,
    exp.Like: _write_like,
    exp.Mod: _write_mod,
    exp.Is: _write_is,
    exp.Neg: _write_neg,
    exp.Not: lambda node, pen: f"NOT {pen.write(node.args['this'])}",
    exp.Paren: lambda node, pen: f"({pen.write(node.args['this'])})",
    exp.Null: lambda _, __: "NULL",
    exp.Boolean: lambda node, _: "TRUE" if node.args["this"] else "FALSE",
    exp.Between: _write_between,
    exp.In: _write_in,
    exp.Case: _write_case,
    exp.Anonymous: _write_anonymous,
    exp.Abs: _write_function("ABS"),
    exp.Length: _write_function("LENGTH"),
}
SPARK_RULES: Mapping[Any, Write] = {
    **_RULES,
    exp.If: _write_if,
    exp.Div: _write_binary("/"),
    exp.RegexpLike: _write_rlike,
    exp.Cast: _write_cast(_SPARK_TYPES),
    exp.Star: _write_star,
    exp.Coalesce: _write_function("COALESCE"),
    exp.Greatest: _write_function("GREATEST"),
    exp.Least: _write_function("LEAST"),
    exp.Lower: _write_function("LOWER"),
    exp.Upper: _write_function("UPPER"),
    exp.Sum: _write_function("SUM"),
    exp.Avg: _write_function("AVG"),
    exp.Count: _write_function("COUNT"),
    exp.Max: _write_lone("MAX"),
    exp.Min: _write_lone("MIN"),
}
DUCKDB_RULES: Mapping[Any, Write] = {**_RULES, exp.Cast: _write_cast(_DUCKDB_TYPES)}
