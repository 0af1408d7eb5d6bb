"""Types by their Spark names, without a JVM: of Arrow columns, and of expressions as DuckDB finds them.

Invariant: `normal(table)` has only types that `spark_name` knows, where Spark has an equal; the rest travels untouched. `common_type`
follows Spark's ANSI rules for numbers and times. Text is never compared with anything else implicitly (the same on Spark), so such an equality
is evaluated as written instead of becoming a key.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa

from watersmeet.columns.arrow import rebuilt, shrink
from watersmeet.columns.retype import retype_table
from watersmeet.columns.spark_types import spark_name
from watersmeet.errors import DataError, OptionError, QueryError
from watersmeet.expressions.evaluator import evaluate, knows, quote
from watersmeet.plan.source_sql import Dialect
from watersmeet.query.expr import Expr
from watersmeet.query.session import UTC, Session
from watersmeet.query.stream import DECIMAL, INTEGERS

_EQUALS = {
    pa.uint8(): pa.int16(), pa.uint16(): pa.int32(), pa.uint32(): pa.int64(), pa.uint64(): pa.decimal128(20, 0),
    pa.float16(): pa.float32(), pa.string_view(): pa.string(), pa.binary_view(): pa.binary(), pa.date64(): pa.date32(),
}  # fmt: skip


def normal(table: pa.Table) -> pa.Table:
    """The table in Spark's types, inside of others, too: microseconds, signed integers, 32-bit offsets, no dictionaries.

    >>> normal(pa.table({"t": pa.array([1], pa.timestamp("ms"))})).schema.field("t").type
    TimestampType(timestamp[us])
    """
    table = shrink(table)
    fields = [f.with_type(_normal_type(f.type)) for f in table.schema]
    return retype_table(table, pa.schema(fields), safe=False)


def _normal_type(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_dictionary(kind):
        return _normal_type(kind.value_type)
    if pa.types.is_timestamp(kind):
        return pa.timestamp("us", tz=kind.tz)
    if pa.types.is_duration(kind):
        return pa.duration("us")
    if pa.types.is_fixed_size_list(kind):
        return pa.list_(_normal_type(kind.value_type))
    return _EQUALS.get(kind) or rebuilt(kind, _normal_type)


_DIGITS = {"tinyint": 3, "smallint": 5, "int": 10, "bigint": 20}
_DUCKDB = {"string": "VARCHAR", "binary": "BLOB", "timestamp_ntz": "TIMESTAMP"}


def _cast(text: str, kind: str) -> str:
    """What becomes a timestamp is a date or has no zone: a local time."""
    if kind == "timestamp":
        return f"wm_instant(CAST({text} AS TIMESTAMP))"
    return f"CAST({text} AS {_DUCKDB.get(kind, kind)})"


DUCKDB = Dialect(
    render=lambda expr, name: expr.duckdb(name),
    quote=quote,
    cast=_cast,
)


def session_in(timezone: str) -> Session:
    """The session of a run without Spark."""
    session = Session(timezone)
    if not knows(session.timezone):
        raise OptionError(
            f"unknown time zone {timezone!r}: give a name such as 'Europe/Berlin', spelled so, or an offset as '+02:00'"
        )
    return session


class DuckDBTypes:
    """Knows the types of expressions over Arrow schemas, by alias."""

    def __init__(self, schemas: Mapping[str, pa.Schema]) -> None:
        self.schemas = schemas
        self._known: dict[str, str] = {}

    def type_of(self, expr: Expr) -> str:
        if expr.text not in self._known:
            plain = expr.duckdb_template == "{0}"
            found = self._fields(expr)[0] if plain else self._value_of_nothing(expr).schema.field(0)
            self._known[expr.text] = spark_name(found.type)
        return self._known[expr.text]

    def type_of_form(self, expr: Expr, form: str, parameters: int) -> str:
        """The type of an expression of which `form` has the numbers as parameters: whatever they are, it is asked for once, if it is not settled."""
        if expr.settled:
            return expr.settled
        try:
            return _type_of_form(form, tuple(f.type for f in self._fields(expr)), parameters)
        except DataError as error:
            raise _refuse(expr, error) from error

    def learn_forms(self, wanted: Iterable[tuple[Expr, str, int]]) -> None:
        """Ask for the types of several forms at once. If one of them has none, nothing is learnt, and asking for it by itself says why."""
        unsettled = ((expr, form, count) for expr, form, count in wanted if not expr.settled)
        asked = {(form, tuple(f.type for f in self._fields(expr)), count) for expr, form, count in unsettled}
        fresh = sorted((form for form in asked if form not in _form_types), key=repr)
        if len(fresh) > 1:
            with suppress(DataError):
                _find_form_types(fresh)

    def evaluate_nothing(self, expressions: Iterable[Expr]) -> None:
        """Evaluate expressions over no rows: what cannot be evaluated in process is an error before any row is read."""
        for expr in expressions:
            if expr.duckdb_template != "{0}":
                self._value_of_nothing(expr)

    def _value_of_nothing(self, expr: Expr) -> pa.Table:
        fields = [f.with_name(str(n)) for n, f in enumerate(self._fields(expr))]
        names = {ref: f'"{n}"' for n, ref in enumerate(expr.columns)}
        empty = pa.schema(fields or [pa.field("_", pa.bool_())]).empty_table()
        try:
            return normal(evaluate(empty, [expr.duckdb(lambda ref: names[ref])], f"{expr}", UTC))
        except DataError as error:
            raise _refuse(expr, error) from error

    def _fields(self, expr: Expr) -> list[pa.Field]:
        return [self.schemas[ref.alias].field(ref.column) for ref in expr.columns]

    def common(self, left: str, right: str) -> str | None:
        return common_type(left, right)


def _refuse(expr: Expr, error: DataError) -> QueryError:
    said = str(error.__cause__).splitlines()[0]
    return QueryError(
        f"{expr}: cannot be evaluated in process: {said}; make it a column of the table first, or run the query on Spark"
    )


_FormKey = tuple[str, tuple[pa.DataType, ...], int]
"""A form, the types of its columns, and how many parameters it has."""
_form_types: dict[_FormKey, str] = {}
"""Spark types of forms."""
_MOST_FORMS = 4_096


def _type_of_form(form: str, kinds: tuple[pa.DataType, ...], parameters: int) -> str:
    """The Spark type of a form over columns of some types, with parameters given as texts."""
    key = form, kinds, parameters
    found = _form_types.get(key)
    return _find_form_types([key])[0] if found is None else found


def _find_form_types(keys: Sequence[_FormKey]) -> list[str]:
    """Types by evaluating all forms over no rows: columns of one type are one column there."""
    names = {kind: f"c{n}" for n, kind in enumerate(sorted({k for _, kinds, _ in keys for k in kinds}, key=str))}
    fields = [pa.field(name, kind) for kind, name in names.items()]
    empty = pa.schema([*fields, pa.field("q", pa.string())]).empty_table()
    texts = [
        f"TRY({form.format(*(quote(names[kind]) for kind in kinds), *[quote('q')] * parameters)})"
        for form, kinds, parameters in keys
    ]
    values = normal(evaluate(empty, texts, keys[0][0], UTC))
    found = [spark_name(field.type) for field in values.schema]
    if len(_form_types) + len(keys) > _MOST_FORMS:
        _form_types.clear()
    _form_types.update(zip(keys, found, strict=True))
    return found


def common_type(left: str, right: str) -> str | None:
    """The type in which Spark (ANSI) compares two types.

    >>> common_type("int", "bigint"), common_type("int", "double"), common_type("int", "string")
    ('bigint', 'double', None)
    """
    if left == right:
        return left
    if left in INTEGERS and right in INTEGERS:
        return max(left, right, key=INTEGERS.index)
    pair = {left, right}
    if pair <= {"date", "timestamp", "timestamp_ntz"}:
        return "timestamp" if "timestamp" in pair else "timestamp_ntz"
    decimals = [DECIMAL.fullmatch(t) for t in (left, right)]
    numbers = [
        t in INTEGERS or t in ("float", "double") or d is not None for t, d in zip((left, right), decimals, strict=True)
    ]
    if not all(numbers):
        return None
    if pair & {"float", "double"}:
        return "double"
    shapes = [(int(d[1]), int(d[2])) if d else (_DIGITS[t], 0) for t, d in zip((left, right), decimals, strict=True)]
    scale = max(s for _, s in shapes)
    return f"decimal({min(max(p - s for p, s in shapes) + scale, 38)},{scale})"
