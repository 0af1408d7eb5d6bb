"""Resolved sqlglot trees to `Expr`: the two templates; and the dialects in which text is read and written.

Each distinct column becomes a placeholder name that cannot occur in the text, the tree is generated as Spark SQL and as
DuckDB SQL, and then the names become numbered slots. So slots survive whatever the generators rewrite.

What is generated for DuckDB depends on the operations and the types of columns and numbers, not on which columns and numbers these are. So numbers that are operands become marks, and
what is generated is kept by the Spark SQL with its marks: `o.user % 37 = 2` and `p.id % 5 = 3` are lowered once. Only what is portable is kept, since its rules are known all the way down.

Functions that sqlglot reads as something else than Spark does, or writes without one of their arguments, are read as names and
arguments only, and written as they were: to_char(x, '99G999') would become CAST(x AS STRING). tests/sql/evaluator/test_agrees_with_spark.py
goes through the examples of all functions that Spark has.
"""

from __future__ import annotations

import re
from collections import OrderedDict
from functools import lru_cache
from typing import Any, ClassVar

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.dialects.duckdb import DuckDB
from sqlglot.dialects.spark import Spark
from sqlglot.errors import SqlglotError

from watersmeet.errors import ParseError, UnsupportedError
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.sql.copies import copy_tree, list_nodes
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

    def parser(self, **options: Any) -> Any:
        """A parser of ours; a compiled one cannot be inherited from."""
        try:
            return super().parser(**options)
        except TypeError as error:
            raise ParseError(
                "the sqlglot that is installed is the compiled one (sqlglot[c]), whose classes watersmeet cannot extend; pip uninstall sqlglotc"
            ) from error


SPARK, DUCKDB = WatersmeetSpark(), DuckDB()
"""Made once: sqlglot would make a new dialect for every expression."""


def to_expr(node: Any) -> Expr:
    """The expression of a resolved tree."""
    if isinstance(node, exp.Column):
        return Expr(show(node), "{0}", "{0}", (ref_of(node),), read_type(node.meta.get("spark_type", "")) is not None)
    slots = _Slots()
    holder = slots.copy(node)
    try:
        spark = _template(_write(holder, SPARK), slots.names)
        duckdb, portable = _lower_once(spark, node, slots)
    except (SqlglotError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise UnsupportedError(
            f"cannot translate {show(node)}: {error}; compute it in the stream's source instead"
        ) from error
    spark, duckdb = (slots.unmark(text) for text in (spark, duckdb))
    text = spark.format(*slots.texts)
    return Expr(text, spark, duckdb, tuple(slots.refs), portable, "" if portable else find_mismatch(node, show))


_PREFIX = "wm_slot"
_FIRST_MARK = 817_263_000
_MARKED = re.compile(rf"(?<!\d){_FIRST_MARK // 1000}\d{{3}}(?!\d)")
_MOST_MARKS = 500
_OPERAND = re.compile(r"[2-9]|[1-9]\d{1,8}")
"""Whole numbers of Spark's type int that no rule tells apart."""
_OPERATIONS = (exp.EQ, exp.NEQ, exp.LT, exp.LTE, exp.GT, exp.GTE, exp.Add, exp.Sub, exp.Mul, exp.Div, exp.Mod, exp.In, exp.Between)  # fmt: skip
"""What takes a number as a value of its type, whatever it is."""


_NAMED = (exp.Literal, exp.Identifier, exp.Var, exp.Anonymous)


class _Slots:
    """Placeholders for the columns and numbers of one tree."""

    def __init__(self) -> None:
        self.refs: dict[ColumnRef, int] = {}
        self.types: list[str] = []
        self.texts: list[str] = []
        """The columns as Spark SQL."""
        self.numbers: list[str] = []
        self.prefix = _PREFIX
        self._is_marked = True

    def copy(self, node: Any) -> Any:
        """A copy with placeholders; each keeps its Spark type for the evaluator."""
        for part in list_nodes(node):
            if not isinstance(part, _NAMED):
                continue
            name = str(part.this).lower()
            self._is_marked = self._is_marked and _MARKED.search(name) is None
            while self.prefix in name:
                self.prefix += "_"
        return copy_tree(node, self._put)

    @property
    def names(self) -> list[str]:
        return [f"{self.prefix}{n}x" for n in range(len(self.refs))]

    def unmark(self, text: str) -> str:
        """A text with the numbers in the place of their marks."""
        return _MARKED.sub(lambda found: self.numbers[int(found[0]) - _FIRST_MARK], text) if self.numbers else text

    def _put(self, node: Any) -> Any:
        if isinstance(node, exp.Column):
            return self._put_slot(node)
        is_operand = type(node) is exp.Literal and self._is_marked and type(node.parent) in _OPERATIONS
        if not is_operand or node.is_string or not _OPERAND.fullmatch(node.this) or len(self.numbers) >= _MOST_MARKS:
            return None
        self.numbers.append(node.this)
        return exp.Literal.number(str(_FIRST_MARK + len(self.numbers) - 1))

    def _put_slot(self, node: Any) -> Any:
        number = self.refs.setdefault(ref_of(node), len(self.refs))
        kind = node.meta.get("spark_type", "")
        if number == len(self.texts):
            self.texts.append(show(node))
            self.types.append(kind)
        slot = exp.Column(this=exp.to_identifier(f"{self.prefix}{number}x"))
        slot.meta["spark_type"] = kind
        return slot


_known: OrderedDict[tuple[str, ...], str] = OrderedDict()
"""DuckDB's templates by those of Spark with marks, and the types of columns."""
_MOST_KNOWN, _MOST_KEPT = 4_096, 1_000


def _lower_once(spark: str, node: Any, slots: _Slots) -> tuple[str, bool]:
    """The template for DuckDB, and whether it is portable."""
    key = (spark, *slots.types)
    known = _known.get(key)
    if known is not None:
        return known, True
    again = _Slots()
    duck, portable = for_duckdb(again.copy(node))
    template = _template(_write(duck, DUCKDB), again.names)
    if portable and len(spark) <= _MOST_KEPT:
        _known[key] = template
        if len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    return template, portable


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
    """The text of a tree that others have, too: generators change trees."""
    return _write(copy_tree(node), dialect)


def _write(node: Any, dialect: Dialect) -> str:
    return str(dialect.generate(node, copy=False, comments=False))


def _template(sql: str, names: list[str]) -> str:
    """Literal braces doubled, placeholder names as slots; longer names cannot be prefixes of others (they end in x)."""
    sql = sql.replace("{", "{{").replace("}", "}}")
    for i, name in enumerate(names):
        if name not in sql:
            raise ValueError(f"an argument is lost in {sql}")
        sql = sql.replace(name, f"{{{i}}}")
    return sql
