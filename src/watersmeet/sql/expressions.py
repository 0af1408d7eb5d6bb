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
from watersmeet.sql.write import DUCKDB_RULES, SPARK_RULES, Pen, Unwritten

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
    try:
        spark = slots.write(node)
        duckdb, portable, kind = _lower_once(spark, node, slots)
    except (SqlglotError, ValueError, AttributeError, TypeError, KeyError) as error:
        raise UnsupportedError(
            f"cannot translate {show(node)}: {error}; compute it in the stream's source instead"
        ) from error
    spark, duckdb = (slots.unmark(text) for text in (spark, duckdb))
    text = spark.format(*slots.texts)
    return Expr(text, spark, duckdb, tuple(slots.refs), portable, "" if portable else find_mismatch(node, show), kind)


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
        self._marks: dict[int, str] = {}
        """By the identity of the nodes that they stand for."""

    def write(self, node: Any) -> str:
        """The template for Spark, with marks for numbers."""
        template = self._write_plain(node)
        if template is not None and len(_MARKED.findall(template)) == len(self.numbers):
            return template
        for part in (self.refs, self.types, self.texts, self.numbers, self._marks):
            part.clear()
        return _template(_write(self.copy(node), SPARK), self.names)

    def _write_plain(self, node: Any) -> str | None:
        try:
            return Pen(SPARK_RULES, self._write_column, self._write_number, double_braces).write(node)
        except (Unwritten, RecursionError):
            return None

    def _write_column(self, column: Any) -> str:
        return f"{{{self._number(column)}}}"

    def _write_number(self, literal: Any) -> str:
        mark = self._mark(literal)
        return str(literal.args["this"]) if mark is None else mark

    def copy(self, node: Any) -> Any:
        """A copy with placeholders; each keeps its Spark type for the evaluator. What has been written keeps the numbers and marks that it has."""
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

    def _mark(self, literal: Any) -> str | None:
        """The mark that stands for a number, if one does."""
        known = self._marks.get(id(literal))
        if known is not None or not self._is_marked or type(literal.parent) not in _OPERATIONS:
            return known
        if literal.is_string or not _OPERAND.fullmatch(literal.this) or len(self.numbers) >= _MOST_MARKS:
            return None
        self.numbers.append(literal.this)
        mark = self._marks[id(literal)] = str(_FIRST_MARK + len(self.numbers) - 1)
        return mark

    def _put(self, node: Any) -> Any:
        if isinstance(node, exp.Column):
            slot = exp.Column(this=exp.to_identifier(f"{self.prefix}{self._number(node)}x"))
            slot.meta["spark_type"] = node.meta.get("spark_type", "")
            return slot
        mark = self._mark(node) if type(node) is exp.Literal else None
        return None if mark is None else exp.Literal.number(mark)

    def _number(self, column: Any) -> int:
        """The number of a column's slot."""
        number = self.refs.setdefault(ref_of(column), len(self.refs))
        if number == len(self.texts):
            self.texts.append(show(column))
            self.types.append(column.meta.get("spark_type", ""))
        return number


_known: OrderedDict[tuple[str, ...], tuple[str, str]] = OrderedDict()
"""DuckDB's templates, and types, by Spark's templates with marks and the types of columns."""
_MOST_KNOWN, _MOST_KEPT = 4_096, 1_000


def _lower_once(spark: str, node: Any, slots: _Slots) -> tuple[str, bool, str]:
    """The template for DuckDB, whether it is portable, and the type if it is settled."""
    key = (spark, *slots.types)
    known = _known.get(key)
    if known is not None:
        return known[0], True, known[1]
    again = slots.copy(node)
    lowered = for_duckdb(again)
    template = _write_lowered(lowered.node, slots.names)
    if lowered.is_portable and len(spark) <= _MOST_KEPT:
        _known[key] = template, lowered.settled
        if len(_known) > _MOST_KNOWN:
            _known.popitem(last=False)
    return template, lowered.is_portable, lowered.settled


def _write_lowered(node: Any, names: list[str]) -> str:
    """The template of a tree for DuckDB whose columns are slots."""
    slots = {name: f"{{{n}}}" for n, name in enumerate(names)}
    try:
        template = Pen(DUCKDB_RULES, lambda column: slots[column.name], text=double_braces).write(node)
    except (Unwritten, KeyError, RecursionError):
        return _template(_write(node, DUCKDB), names)
    for slot in slots.values():
        if slot not in template:
            raise ValueError(f"an argument is lost in {template}")
    return template


def show(node: Any) -> str:
    """The tree as Spark SQL on one line, without comments."""
    if isinstance(node, exp.Column):
        parts = node.parts
        if all(type(part) is exp.Identifier for part in parts):
            return _column_text(tuple((part.name, bool(part.args.get("quoted"))) for part in parts))
        return _generate(node, SPARK)
    try:
        return _SHOW.write(node)
    except (Unwritten, RecursionError):
        return _generate(node, SPARK)


_SHOW = Pen(SPARK_RULES, show)


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
    sql = double_braces(sql)
    for i, name in enumerate(names):
        if name not in sql:
            raise ValueError(f"an argument is lost in {sql}")
        sql = sql.replace(name, f"{{{i}}}")
    return sql


def double_braces(text: str) -> str:
    """Text in a template that is no slot."""
    return text.replace("{", "{{").replace("}", "}}")
