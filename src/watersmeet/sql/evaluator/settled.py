"""Expressions whose types our rules settle: DuckDB need not be asked whether it takes their text, and what comes out.

Asking costs DuckDB half a millisecond for a query. What users write is mostly made of comparisons, sums, AND, OR, CASE and a few functions, over numbers, texts and truth values. For these, the rules of `evaluator.lower`
cast every operand, so that DuckDB has nothing left to decide.

Invariant: a type that is settled is the one that DuckDB finds, and DuckDB takes the text (tests/sql/evaluator/test_settled.py asks it, for generated expressions and for those that are compared with Spark).
Everything else has no settled type, and is asked for.
"""

from __future__ import annotations

from typing import Any

from sqlglot import exp

from watersmeet.query.stream import INTEGERS
from watersmeet.sql.copies import list_nodes
from watersmeet.sql.evaluator.types import SparkType, read_type

_KINDS = (*INTEGERS, "float", "double", "decimal", "string", "boolean")
_NODES = frozenset((
    exp.Column, exp.Identifier, exp.Literal, exp.Boolean, exp.Paren, exp.Neg, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE,
    exp.Between, exp.In, exp.Like, exp.And, exp.Or, exp.Not, exp.Is, exp.Case, exp.If, exp.Coalesce, exp.Greatest, exp.Least, exp.Abs, exp.Lower, exp.Upper, exp.Length,
))  # fmt: skip
_MOST_NODES = 300
"""DuckDB refuses what is nested very deeply."""


def find_settled(node: Any, kind: SparkType | None) -> str:
    """The Spark type of a tree for Spark, of which the rules found it; '' if DuckDB is to be asked."""
    if kind is None or kind.kind not in _KINDS:
        return ""
    nodes = list_nodes(node)
    return str(kind) if len(nodes) <= _MOST_NODES and all(map(_is_settled, nodes)) else ""


def _is_settled(node: Any) -> bool:
    if type(node) is exp.Null:
        return type(node.parent) is exp.Is
    if type(node) is exp.Column:
        kind = read_type(node.meta.get("spark_type", ""))
        return kind is not None and kind.kind in _KINDS
    return type(node) in _NODES
