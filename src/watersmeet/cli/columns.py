"""What the command can know of a query before it starts Spark: the columns that Parquet files and `--schema` name.

Invariant: what is refused here, Spark would make us refuse, too. Where files could tell Spark more than they tell here (folders
named key=value, files that differ, types that are not plain), nothing is checked, and the query is bound when Spark is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.cli.arguments import Source, time_column
from watersmeet.query.stream import Stream, StreamSpec
from watersmeet.runtime.arrow_types import normal, spark_name
from watersmeet.sql.parse import parse

_COLUMN = re.compile(r"\s*(?:`([^`]+)`|(\w+))\s*:?\s+(\w+(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?)\s*(?:NOT\s+NULL\s*)?", re.IGNORECASE)  # fmt: skip
_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float", "dec": "decimal"}
_PLAIN = {"bigint", "int", "smallint", "tinyint", "float", "double", "decimal", "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"}  # fmt: skip


def check_query(text: str, sources: Sequence[Source]) -> None:
    """Refuse names, columns and windows that are wrong, if all columns are known."""
    specs: dict[str, StreamSpec] = {}
    for source in sources:
        schema = schema_of(source)
        if schema is None:
            return
        time = source.time or time_column(source.name, list(schema.items()))
        stream = Stream(None, time=time, lateness=source.lateness, idle=source.idle)
        specs[source.name] = StreamSpec(source.name, schema, time, stream.lateness_us, stream.idle_us)
    parse(text, specs)


def schema_of(source: Source) -> Mapping[str, str] | None:
    """A source's columns and their types as Spark names them; None if only Spark can tell."""
    if source.schema is not None:
        return read_ddl(source.schema)
    return _of_files(source.path) if source.format == "parquet" else None


def read_ddl(text: str) -> dict[str, str] | None:
    """The columns of a schema of plain types.

    >>> read_ddl("id bigint, `a b` DECIMAL(10, 2) NOT NULL, ts timestamp"), read_ddl("m map<int,int>"), read_ddl("k whatever")
    ({'id': 'bigint', 'a b': 'decimal(10,2)', 'ts': 'timestamp'}, None, None)
    """
    found, at = dict[str, str](), 0
    while at < len(text):
        column = _COLUMN.match(text, at)
        if column is None or text[column.end() : column.end() + 1] not in ("", ","):
            return None
        kind = re.sub(r"\s", "", column[3]).lower()
        kind = _NAMES.get(kind, kind)
        if kind.partition("(")[0] not in _PLAIN:
            return None
        found[column[1] or column[2]] = kind
        at = column.end() + 1
    return found or None


def _of_files(path: Path) -> dict[str, str] | None:
    files = [path] if path.is_file() else sorted(path.rglob("*.parquet"))
    shown = [f for f in files if not any(part[0] in "_." for part in f.relative_to(path).parts)]
    if not shown or any("=" in f.name for file in shown for f in file.relative_to(path).parents):
        return None
    try:
        first, last = (pq.read_schema(file) for file in (shown[0], shown[-1]))
        table = normal(pa.Table.from_batches([], first))
    except Exception:  # not Parquet, or being written: Spark will say
        return None
    return {f.name: spark_name(f.type) for f in table.schema} if first.equals(last) else None
