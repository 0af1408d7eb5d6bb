"""Resolved sqlglot trees to `Expr`: the two templates; and the dialects in which text is read and written.

Each distinct column becomes a placeholder name that cannot occur in the text, the tree is generated as Spark SQL and as
DuckDB SQL, and then the names become numbered slots. So slots survive whatever the generators rewrite.

Functions that sqlglot reads as something else than Spark does, or writes without one of their arguments, are read as names and
arguments only, and written as they were: to_char(x, '99G999') would become CAST(x AS STRING). tests/sql/evaluator/test_agrees_with_spark.py
goes through the examples of all functions that Spark has.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from watersmeet.errors import UnsupportedError
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.sql.evaluator.lower import for_duckdb
from watersmeet.sql.evaluator.mismatch import find_mismatch
from watersmeet.sql.evaluator.types import read_type
from watersmeet.sql.names import ref_of

VERBATIM = ("TO_CHAR", "TO_VARCHAR", "INSTR", "UNIX_DATE", "PARSE_JSON", "TRY_PARSE_JSON")


class WatersmeetSpark(Spark):
    """Spark's dialect, with functions that stay as they are."""

    class Parser(Spark.Parser):
        FUNCTIONS: ClassVar = {name: make for name, make in Spark.Parser.FUNCTIONS.items() if name not in VERBATIM}

    class Generator(Spark.Generator):
        TYPE_MAPPING: ClassVar = {**Spark.Generator.TYPE_MAPPING, exp.DataType.Type.TIME: "TIME"}


SPARK, DUCKDB = WatersmeetSpark(), DuckDB()
"""Made once: sqlglot would make a new dialect for every expression."""


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
    names, holder = list(slots.values()), _put_slots(node, slots)
    try:
        spark = _template(_generate(holder, SPARK), names)
        duck, portable = for_duckdb(holder)
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


def item_of(node: Any) -> tuple[Any, str]:
    """An item of SELECT: its expression, and its name, '' if only its text can be one."""
    if isinstance(node, exp.Aliases):
        raise UnsupportedError(f"several names for one expression are not supported: {show(node)}")
    if isinstance(node, exp.Alias):
        return node.this, node.alias
    bare = node.unnest()
    return node, bare.name if isinstance(bare, exp.Column | exp.Dot) else ""


def is_star(node: Any) -> bool:
    """`*` or `a.*`."""
    return isinstance(node, exp.Star) or (isinstance(node, exp.Column) and isinstance(node.this, exp.Star))


@lru_cache(4096)
def _column_text(parts: tuple[tuple[str, bool], ...]) -> str:
    """A column as Spark SQL; queries by the thousand show the same ones."""
    names = [exp.to_identifier(name, quoted=quoted) for name, quoted in parts]
    return _generate(exp.column(*reversed(names)), SPARK)


def _generate(node: Any, dialect: Dialect) -> str:
    return str(node.sql(dialect=dialect, comments=False))


def _put_slots(node: Any, slots: dict[ColumnRef, str]) -> Any:
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
