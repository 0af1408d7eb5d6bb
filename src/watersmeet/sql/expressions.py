"""Resolved sqlglot trees to `Expr`: the two templates.

Each distinct column becomes a placeholder name that cannot occur in the text, the tree is generated as Spark SQL and as
DuckDB SQL, and then the names become numbered slots. So slots survive whatever the generators rewrite.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import SqlglotError

from watersmeet.errors import UnsupportedError
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.sql.dialects import DUCKDB, SPARK
from watersmeet.sql.evaluator import for_duckdb
from watersmeet.sql.mismatch import find_mismatch
from watersmeet.sql.names import ref_of
from watersmeet.sql.types import read_type


def to_expr(node: Any) -> Expr:
    """The expression of a resolved tree."""
    text = show(node)
    if isinstance(node, exp.Column):
        return Expr(text, "{0}", "{0}", (ref_of(node),), read_type(node.meta.get("spark_type", "")) is not None)
    refs = list(dict.fromkeys(ref_of(column) for column in node.find_all(exp.Column)))
    prefix = "wm_slot"
    while prefix in text.lower():
        prefix += "_"
    slots = {ref: f"{prefix}{i}x" for i, ref in enumerate(refs)}
    names, slotted = list(slots.values()), _slotted(node, slots)
    try:
        spark = _template(_generate(slotted, SPARK), names)
        duck, portable = for_duckdb(slotted)
        duckdb = _template(_generate(duck, DUCKDB), names)
    except (SqlglotError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise UnsupportedError(
            f"cannot translate {text}: {error}; compute it in the stream's source instead"
        ) from error
    return Expr(text, spark, duckdb, tuple(refs), portable, "" if portable else find_mismatch(node, show))


def show(node: Any) -> str:
    """The tree as Spark SQL on one line, without comments."""
    if isinstance(node, exp.Column):
        parts = node.parts
        if all(type(part) is exp.Identifier for part in parts):
            return _column_text(tuple((part.name, bool(part.args.get("quoted"))) for part in parts))
    return _generate(node, SPARK)


@lru_cache(4096)
def _column_text(parts: tuple[tuple[str, bool], ...]) -> str:
    """A column as Spark SQL; queries by the thousand show the same ones."""
    names = [exp.to_identifier(name, quoted=quoted) for name, quoted in parts]
    return _generate(exp.column(*reversed(names)), SPARK)


def _generate(node: Any, dialect: Dialect) -> str:
    return str(node.sql(dialect=dialect, comments=False))


def _slotted(node: Any, slots: dict[ColumnRef, str]) -> Any:
    """A copy with placeholder names for columns; each keeps its Spark type for the evaluator."""
    holder = exp.Paren(this=node.copy())
    for column in list(holder.find_all(exp.Column)):
        ref = ref_of(column)
        slot = exp.Column(this=exp.to_identifier(slots[ref]))
        slot.meta["spark_type"] = column.meta.get("spark_type", "")
        column.replace(slot)
    return holder.this


def _template(sql: str, names: list[str]) -> str:
    """Literal braces doubled, placeholder names as slots; longer names cannot be prefixes of others (they end in x)."""
    sql = sql.replace("{", "{{").replace("}", "}}")
    for i, name in enumerate(names):
        if name not in sql:
            raise ValueError(f"an argument is lost in {sql}")
        sql = sql.replace(name, f"{{{i}}}")
    return sql
