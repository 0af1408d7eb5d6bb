"""Values and whole rows as JSON text, by Spark type: what leaves a query where rows have different columns.

Numbers are written so that they read back exactly; times are UTC; NULL is null; a double that is no number is a string, "NaN" or
"Infinity", as Spark reads it; bytes are base64. Nested values are written by DuckDB, and what they have inside as it is outside, but for doubles that are no
numbers: these stand without quotes. Bytes that are no UTF-8 become U+FFFD.

Invariant: Spark's `from_json` reads back what was written, in the type that it had.
"""

from __future__ import annotations

import json

import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.columns.arrow import enlarge, is_bytes, is_text
from watersmeet.columns.retype import map_leaves
from watersmeet.expressions.evaluator import evaluate
from watersmeet.query.session import UTC

_QUOTED = """'"' || {} || '"'"""
_MOMENT = "%Y-%m-%dT%H:%M:%S.%f"
_FIRST_DAY = -9_223_372_022_400_000_000
"""Where DuckDB's calendar begins; 64 bits hold some four hours before it, and its two infinities are instants to Spark."""


def _moment(value: str, local: str) -> str:
    """The text of any instant of 64 bits; `local` is it as a time without a zone."""
    return (
        f"(CASE WHEN isinf({value}) THEN CASE WHEN {value} > make_timestamp(0) THEN '294247-01-10T04:00:54.775807' "
        f"ELSE '-290308-12-21T19:59:05.224193' END WHEN epoch_us({value}) < {_FIRST_DAY} THEN '-290308-12-21T' || "
        f"strftime(make_timestamp(epoch_us({value}) - ({_FIRST_DAY}) + 86_400_000_000), '%H:%M:%S.%f') "
        f"ELSE strftime({local}, '{_MOMENT}') END)"
    )


_INSIDE = {
    "binary": "to_base64({0})",
    "date": "(CASE WHEN abs({0} - DATE '1970-01-01') < 100_000_000 THEN strftime({0}, '%Y-%m-%d') ELSE CAST({0} AS VARCHAR) END)",
    "timestamp": f"""{_moment("{0}", "timezone('UTC', {0})")} || 'Z'""",
    "timestamp_ntz": _moment("{0}", "{0}"),
}
"""What stands in quotes, by type."""
_TEXT = {"string": "CAST(to_json({0}) AS VARCHAR)", **{kind: _QUOTED.format(text) for kind, text in _INSIDE.items()}}
_FLOAT = (
    """CASE WHEN isnan({0}) THEN '"NaN"' WHEN isinf({0}) THEN CASE WHEN {0} > 0 THEN '"Infinity"' ELSE '"-Infinity"' END """
    "ELSE CAST({0} AS VARCHAR) END"
)


def json_text(kind: str) -> str:
    """How a value of a Spark type is written, as a template of DuckDB text."""
    text = _FLOAT if kind in ("float", "double") else _TEXT.get(kind, "CAST({0} AS VARCHAR)")
    return f"coalesce({text}, 'null')"


def json_objects(rows: pa.Table) -> pa.Array:
    """Every row as a JSON object, NULLs included.

    >>> json_objects(pa.table({"k": [1, None], "name": ["o'x", "\\"y\\""]})).to_pylist()
    ['{"k":1,"name":"o\\'x"}', '{"k":null,"name":"\\\\"y\\\\""}']
    """
    if not rows.num_columns or not rows.num_rows:
        return pa.array(["{}"] * rows.num_rows, pa.large_string())
    values = enlarge(pa.table([_writable(column) for column in rows.columns], names=_number_columns(rows.num_columns)))
    texts = [json_text(_kind_of(f.type)).format(f'"{f.name}"') for f in values.schema]
    made = evaluate(values, texts, "the text of a late row", UTC)
    pieces: list[pa.Array | pa.Scalar] = []
    for n, name in enumerate(rows.column_names):
        pieces.append(pa.scalar(f"{',' if n else '{'}{json.dumps(name, ensure_ascii=False)}:", pa.large_string()))
        pieces.append(made.column(n).combine_chunks().cast(pa.large_string()))
    end, between = pa.scalar("}", pa.large_string()), pa.scalar("", pa.large_string())
    return pc.binary_join_element_wise(*pieces, end, between)


def _number_columns(columns: int) -> list[str]:
    return [f"c{n}" for n in range(columns)]


def _writable(column: pa.ChunkedArray) -> pa.Array:
    """A column as DuckDB can write it: inside other values it has no text of Spark's for times, dates and bytes."""
    is_nested = pa.types.is_nested(column.type)
    return map_leaves(column.combine_chunks(), lambda leaf: _write_leaf(leaf, is_nested), _write_keys)


def _write_leaf(leaf: pa.Array, is_nested: bool) -> pa.Array:
    if is_text(leaf.type):
        return _mend(leaf)
    text = _INSIDE.get(_kind_of(leaf.type)) if is_nested else None
    if text is None:
        return leaf
    return _evaluate(leaf, text)


def _write_keys(keys: pa.Array) -> pa.Array:
    """Keys of a map as names of a JSON object: those that have parts are JSON themselves."""
    return _evaluate(keys, "CAST(to_json({0}) AS VARCHAR)") if pa.types.is_nested(keys.type) else keys


def _evaluate(values: pa.Array, text: str) -> pa.Array:
    made = evaluate(pa.table({"c": values}), [text.format('"c"')], "the text of a late row", UTC)
    return made.column(0).combine_chunks()


def _mend(texts: pa.Array) -> pa.Array:
    """Texts with a mark in place of what is no UTF-8: Spark does not mind such bytes, and JSON has no text for them."""
    try:
        texts.validate(full=True)
    except pa.ArrowInvalid:
        values = texts.cast(pa.large_binary()).to_pylist()
        return pa.array([None if v is None else v.decode(errors="replace") for v in values], pa.large_string())
    return texts


def _kind_of(kind: pa.DataType) -> str:
    """The Spark type of Arrow's, as far as its text differs; what has no other text is quoted, or written by DuckDB, as strings are."""
    if pa.types.is_timestamp(kind):
        return "timestamp_ntz" if kind.tz is None else "timestamp"
    if pa.types.is_date(kind):
        return "date"
    if is_bytes(kind):
        return "binary"
    if pa.types.is_floating(kind):
        return "double"
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal(kind) or pa.types.is_boolean(kind)
    return "decimal" if is_number else "string"
