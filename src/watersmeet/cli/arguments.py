"""What the user typed, checked before Spark is started.

    --stream clicks=data/clicks:json   --time clicks=ts   --lateness clicks='10 seconds'   --schema clicks='id bigint, ts timestamp'
    --stream clicks=kafka:clicks@localhost:9092        --sink kafka:pairs@localhost:9092   --sink delta:/lake/pairs

Invariant: a mistake in the command line is reported at once; starting Spark takes seconds. What is refused here, Spark would make us
refuse, too. Where files could tell Spark more than they tell here (folders named key=value, files that differ, types that are not
plain), columns are not checked, and the query is bound when Spark is there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.columns.spark_types import spark_name
from watersmeet.errors import OptionError, StreamError, WindowError
from watersmeet.plan.types import refuse_mismatches
from watersmeet.query.duration import parse_us
from watersmeet.query.session import UTC, Session
from watersmeet.query.stream import Stream, StreamSpec
from watersmeet.runtime.arrow_types import normal, session_in
from watersmeet.runtime.kafka.address import NAME as KAFKA
from watersmeet.runtime.kafka.address import Topic, topic_of
from watersmeet.runtime.kafka.probe import require_broker
from watersmeet.sql.parse import parse

FORMATS = ("parquet", "csv", "json")
SINKS = ("parquet", "json", "delta", KAFKA, "console")
_BY_ROUNDS = ("delta", KAFKA)
"""Sinks that only the rounds runtime has."""
AVAILABLE_NOW = ("available-now", "once")


@dataclass(frozen=True)
class Source:
    """A folder of files, or a topic, that is read as a stream."""

    name: str
    path: Path
    format: str = "parquet"
    time: str | None = None
    """None: the column named ts, or the only timestamp column."""
    lateness: str = "0 seconds"
    idle: str | None = None
    schema: str | None = None
    """Spark's; of a topic with Avro, Avro's own."""
    topic: Topic | None = None


@dataclass(frozen=True)
class Pace:
    """When micro-batches run, and how much of each stream they take."""

    trigger: Mapping[str, Any]
    files: int | None = None
    rows: int | None = None


@dataclass(frozen=True)
class SinkArgument:
    """Where results go; a console has no path, and a topic's is its name and its brokers."""

    format: str
    path: str | None = None

    @property
    def folder(self) -> str | None:
        """The folder of files, or of a table."""
        return None if self.format == KAFKA else self.path

    @property
    def text(self) -> str:
        return self.format if self.path is None else f"{self.format}:{self.path}"


def query_text(query: str | None, file: Path | None) -> str:
    """The SQL: as typed, from @file.sql, or from --query-file."""
    if query is not None and query.startswith("@"):
        file, query = Path(query[1:]), None
    if (query is None) == (file is None):
        raise OptionError("give the query once: as text, as @file.sql, or with --query-file file.sql")
    if file is None:
        return query or ""
    try:
        return file.read_text()
    except (OSError, UnicodeDecodeError) as error:
        raise OptionError(
            f"cannot read the query from {file}: {getattr(error, 'strerror', None) or 'it is not text'}"
        ) from error


def sources(
    streams: Sequence[str] | None,
    times: Sequence[str] | None = None,
    latenesses: Sequence[str] | None = None,
    idles: Sequence[str] | None = None,
    schemas: Sequence[str] | None = None,
    *,
    streaming: bool = True,
) -> tuple[Source, ...]:
    """The streams of --stream with what the other options say of them.

    >>> [stream] = sources(["s=.:json"], times=["s=at"], schemas=["s=at timestamp"])
    >>> stream.format, stream.time, stream.lateness
    ('json', 'at', '0 seconds')
    """
    if not streams:
        raise OptionError("no stream: name each folder or topic, as in --stream clicks=data/clicks")
    paths = _by_name("--stream", streams, "clicks=data/clicks")
    given = {
        "time": _by_name("--time", times, "clicks=ts"),
        "lateness": _by_name("--lateness", latenesses, "clicks='10 seconds'"),
        "idle": _by_name("--idle", idles, "clicks='10 minutes'"),
        "schema": _by_name("--schema", schemas, "clicks='id bigint, ts timestamp'"),
    }
    for option, values in given.items():
        for name in values.keys() - paths.keys():
            raise OptionError(f"--{option} {name}=...: there is no --stream {name}; there are {', '.join(paths)}")
    for option in ("lateness", "idle"):
        for name, span in given[option].items():
            _check_span(f"--{option} {name}={span}", span)
    return tuple(
        _source(name, where, {o: v[name] for o, v in given.items() if name in v}, streaming)
        for name, where in paths.items()
    )


def sink(text: str, option: str = "--sink") -> SinkArgument:
    """`parquet:folder`, `json:folder`, `delta:path`, `kafka:topic@host:port` or `console`.

    >>> sink("parquet:out/results")
    SinkArgument(format='parquet', path='out/results')
    """
    format, _, path = text.partition(":")
    if format not in SINKS or (format == "delta" and option == "--late"):
        table = "" if option == "--late" else "delta:PATH, "
        raise OptionError(
            f"{option} {text}: write parquet:FOLDER, json:FOLDER, {table}kafka:TOPIC@HOST:PORT or console"
        )
    if format == KAFKA:
        require_broker(topic_of(text, option), f"{option} {text}")
    if (format == "console") == bool(path):
        raise OptionError(
            f"{option} {text}: a console has no folder"
            if path
            else f"{option} {text}: name the folder, as in {format}:out"
        )
    return SinkArgument(format, path or None)


def late_sink(text: str, results: SinkArgument, *, rounds: bool) -> SinkArgument:
    """The sink of late rows; `rounds` says whether the query runs on the runtime that has one."""
    found = sink(text, "--late")
    if not rounds:
        raise OptionError(
            f"--late {text}: late rows have a sink of their own on streams with --runtime rounds: add that"
        )
    if (
        found.folder is not None
        and results.folder is not None
        and Path(found.folder).absolute() == Path(results.folder).absolute()
    ):
        raise OptionError(f"--late {text}: it is the folder of the results; late rows have other columns: name another")
    return found


def runtime_of(given: str | None, to: SinkArgument) -> str:
    """The runtime that is meant: the one that has the sink, if the user does not say.

    >>> runtime_of(None, SinkArgument("parquet", "out")), runtime_of(None, SinkArgument("delta", "out"))
    ('stream', 'rounds')
    """
    if given == "stream" and to.format in _BY_ROUNDS:
        raise OptionError(f"--sink {to.text}: only --runtime rounds writes it; leave --runtime stream out")
    return given or ("rounds" if to.format in _BY_ROUNDS else "stream")


def jars(given: str | None) -> str | None:
    """Spark's jars: all of a folder, or those that are named."""
    if given is None:
        return None
    found = sorted(Path(given).glob("*.jar")) if Path(given).is_dir() else [Path(name) for name in given.split(",")]
    missing = next((path for path in found if not path.is_file()), None)
    if missing is not None or not found:
        raise OptionError(f"--jars {given}: {f'there is no file {missing}' if missing else 'the folder has no jar'}")
    return ",".join(str(path.absolute()) for path in found)


def trigger(text: str) -> Mapping[str, Any]:
    """Spark's trigger: an interval, or all that is there now and then stop.

    >>> trigger("2 seconds"), trigger("available-now")
    ({'processingTime': '2000 milliseconds'}, {'availableNow': True})
    """
    if text.lower() in AVAILABLE_NOW:
        return {"availableNow": True}
    ms = _check_span(f"--trigger {text}", text, "write an interval such as '1 second', or available-now") // 1000
    return {"processingTime": f"{ms} milliseconds"}


def _by_name(option: str, texts: Sequence[str] | None, example: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not equals or not name.strip() or not value.strip():
            raise OptionError(f"{option} {text}: write NAME=VALUE, as in {option} {example}")
        if name.strip() in found:
            raise OptionError(f"{option} {name.strip()}=... is there twice")
        found[name.strip()] = value.strip()
    return found


def _topic_source(name: str, where: str, given: dict[str, str], streaming: bool) -> Source:
    topic = topic_of(where, f"--stream {name}")
    if not streaming:
        raise StreamError(f"stream {name}: a topic is read as a stream; leave --static out")
    if "schema" not in given:
        how = "'id bigint, ts timestamp'" if topic.payload == "json" else "@FILE.avsc"
        raise StreamError(f"stream {name}: records do not tell their types; say them with --schema {name}={how}")
    if given["schema"].startswith("@"):
        try:
            given["schema"] = Path(given["schema"][1:]).read_text()
        except OSError as error:
            raise OptionError(
                f"--schema {name}={given['schema']}: the file cannot be read: {error.strerror}"
            ) from error
    elif topic.payload == "avro":
        raise StreamError(
            f"stream {name}: Avro has a schema of its own; give its file, as in --schema {name}=@{name}.avsc"
        )
    require_broker(topic, f"stream {name}")
    return Source(name, Path(where), KAFKA, topic=topic, **given)


def _source(name: str, where: str, given: dict[str, str], streaming: bool) -> Source:
    if where.startswith(f"{KAFKA}:"):
        return _topic_source(name, where, given, streaming)
    path, format = _split_format(where)
    folder = Path(path)
    if not folder.exists():
        raise StreamError(f"stream {name}: there is no folder {path}")
    if streaming and not folder.is_dir():
        raise StreamError(f"stream {name}: {path} is a file; a stream is a folder of files (or add --static)")
    if format == "parquet" and "schema" not in given and folder.is_dir() and not any(folder.rglob("*.parquet")):
        for other in FORMATS[1:]:
            if any(folder.rglob(f"*.{other}")):
                raise StreamError(f"stream {name}: {path} holds {other} files; write --stream {name}={path}:{other}")
        raise StreamError(
            f"stream {name}: {path} holds no parquet file yet, so its columns are unknown; say them with --schema {name}='...'"
        )
    if format != "parquet" and streaming and "schema" not in given:
        raise StreamError(
            f"stream {name}: {format} files do not tell their types; say them with --schema {name}='id bigint, ts timestamp'"
        )
    return Source(name, folder, format, topic=None, **given)


def time_column(name: str, dtypes: Sequence[tuple[str, str]]) -> str:
    """The column of event time, if it is not given: the one named ts, or the only timestamp."""
    times = [column for column, kind in dtypes if kind in ("timestamp", "timestamp_ntz")]
    if "ts" in times:
        return "ts"
    if len(times) != 1:
        found = f"its timestamp columns are {', '.join(times)}" if times else "it has no timestamp column"
        raise StreamError(f"stream {name}: which column is the event time? {found}; say it with --time {name}=COLUMN")
    return times[0]


def _split_format(where: str) -> tuple[str, str]:
    """`path[:format]`; without one, parquet."""
    path, colon, format = where.rpartition(":")
    if colon and format in FORMATS:
        return path, format
    if colon and not Path(where).exists() and Path(path).exists():
        raise OptionError(f"--stream ...={where}: {format!r} is not a format; there are {', '.join(FORMATS)}")
    return where, "parquet"


def _check_span(option: str, span: str, remedy: str = "write a span such as '10 seconds'") -> int:
    try:
        us = parse_us(span)
    except WindowError as error:
        raise OptionError(f"{option}: {remedy}") from error
    if us < 0:
        raise OptionError(f"{option}: a span cannot be negative")
    return us


_COLUMN = re.compile(r"\s*(?:`([^`]+)`|(\w+))\s*:?\s+(\w+(?:\s*\(\s*\d+\s*(?:,\s*\d+\s*)?\))?)\s*(?:NOT\s+NULL\s*)?", re.IGNORECASE)  # fmt: skip
_NAMES = {"long": "bigint", "integer": "int", "short": "smallint", "byte": "tinyint", "real": "float", "dec": "decimal"}
_PLAIN = {"bigint", "int", "smallint", "tinyint", "float", "double", "decimal", "string", "boolean", "date", "timestamp", "timestamp_ntz", "binary"}  # fmt: skip


def check_query(text: str, sources: Sequence[Source], timezone: str = UTC) -> Session:
    """Refuse a time zone that there is not, and names, columns, types and windows that are wrong, if all columns are known; the session of the query."""
    session = session_in(timezone)
    specs: dict[str, StreamSpec] = {}
    for source in sources:
        schema = schema_of(source)
        if schema is None:
            return session
        time = source.time or time_column(source.name, list(schema.items()))
        stream = Stream(None, time=time, lateness=source.lateness, idle=source.idle)
        specs[source.name] = StreamSpec(source.name, schema, time, stream.lateness_us, stream.idle_us)
    refuse_mismatches(parse(text, specs, session))
    return session


def schema_of(source: Source) -> Mapping[str, str] | None:
    """A source's columns and their types as Spark names them; None if only Spark can tell."""
    if source.topic is not None and source.topic.payload == "avro":
        return None
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
