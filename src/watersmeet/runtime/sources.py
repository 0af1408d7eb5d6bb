"""Streams by the kind of their source, DataFrames or Arrow tables: what planning knows of them, who plans them, who runs them.

Invariant: pyspark is imported only when a stream is a Spark DataFrame. A table is read as it is; nothing is sorted or dropped.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from copy import copy
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.columns.spark_types import spark_name
from watersmeet.errors import OptionError, StreamError
from watersmeet.expressions.lookup import schemas_by_alias
from watersmeet.plan.build import build
from watersmeet.plan.model import Plan
from watersmeet.plan.options import Options
from watersmeet.plan.types import refuse_mismatches
from watersmeet.query.join import Join
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.stream import RemoteStream, Stream, StreamSpec
from watersmeet.query.table import Spec, Table, TableSpec
from watersmeet.runtime.arrow_types import DuckDBTypes, normal
from watersmeet.runtime.given import is_frame

_WATERMARK_MS = "spark.watermarkDelayMs"
"""Metadata of a column on which withWatermark was called."""
ROUNDS = "rounds (start(): supersteps, state in files under the checkpoint, exactly once)"


def place_remote(given: Mapping[str, Stream | Table]) -> dict[str, Stream | Table]:
    """The streams of a query, those of other sites with an empty frame in place of a source: planning needs their columns."""
    frames = [s.source for s in given.values() if is_frame(s.source)]
    out = dict(given)
    for name, stream in given.items():
        if isinstance(stream, RemoteStream):
            if not frames:
                raise StreamError(f"stream {name} is at another site: give at least one DataFrame of this one")
            placed = copy(stream)
            placed.source = frames[0].sparkSession.createDataFrame([], stream.schema)
            out[name] = placed
    return out


def spec(name: str, given: Stream | Table) -> Spec:
    """What planning may know of a stream or a table."""
    what = _kind_of(given)
    if isinstance(given.source, pa.Table):
        schema = {f.name: spark_name(f.type) for f in normal(given.source.slice(0, 0)).schema}
        columns = given.source.column_names
    elif is_frame(given.source):
        schema, columns = _spark_schema(given.source), given.source.columns
        if isinstance(given, Stream):
            _warn_of_watermarks(name, given.source)
    else:
        raise StreamError(
            f"{what} {name}: {type(given.source).__name__} is neither a Spark DataFrame nor a pyarrow table"
        )
    twice = sorted({c for c in columns if columns.count(c) > 1})
    if twice:
        raise StreamError(f"{what} {name}: column {twice[0]!r} is there twice; rename one")
    if isinstance(given, Table):
        return TableSpec(name, schema)
    return StreamSpec(name, schema, given.time, given.lateness_us, given.idle_us, given.site, given.max_ahead_us)


def _spark_schema(frame: Any) -> dict[str, str]:
    from watersmeet.runtime.spark.types import type_name

    return {f.name: type_name(f.dataType) for f in frame.schema.fields}


def _kind_of(given: Any) -> str:
    return "table" if isinstance(given, Table) else "stream"


def _warn_of_watermarks(name: str, frame: Any) -> None:
    """The join keeps a watermark of its own: Spark's is not obeyed, and stands in the way of one on the result.

    A warning, not an error: an operator before the join may need it, such as dropDuplicatesWithinWatermark.
    """
    for column in frame.schema.fields:
        if _WATERMARK_MS in column.metadata:
            span = f"{column.metadata[_WATERMARK_MS] / 1000:g} seconds"
            warnings.warn(
                f"stream {name}: withWatermark({column.name!r}, {span!r}) means nothing to the join; "
                f"write wm.Stream(..., lateness={span!r}) instead, and leave it away unless an operator before the join needs it",
                UserWarning,
                stacklevel=2,
            )


def session(streams: Mapping[str, Stream | Table]) -> Session:
    """The session in which a query over these streams is bound; tables have none, and are read in UTC."""
    frames = [s.source for s in streams.values() if is_frame(s.source)]
    if not frames:
        return IN_UTC
    from watersmeet.runtime.spark import plan as spark_plan

    return spark_plan.session_of(frames[0].sparkSession)


def runtime_name(given: Mapping[str, Stream | Table], wanted: str, plan: Plan) -> str:
    """The runtime that a query's streams run on, for explain."""
    streams = {name: stream for name, stream in given.items() if isinstance(stream, Stream)}
    if not all(is_frame(s.source) for s in streams.values()):
        return "local (in process)"
    if wanted == "rounds" or plan.shipping == "semijoin" or plan.sites is not None:
        return ROUNDS
    if all(s.source.isStreaming for s in streams.values()):
        return "stream (transformWithState, RocksDB, exactly once)"
    return "stream on static data (a backfill in event-time slices)"


def check(join: Join, given: Mapping[str, Stream | Table]) -> None:
    """Refuse a query whose streams or types do not go together, as soon as it is bound."""
    frames = {i.alias: given[i.stream].source for i in join.inputs}
    here = {
        i.alias: f
        for i, f in zip(join.inputs, frames.values(), strict=True)
        if not isinstance(given[i.stream], RemoteStream)
    }
    _check_kinds(here, {alias: given[table].source for alias, table in join.tables.items()})
    if all(is_frame(frame) for frame in frames.values()):
        from watersmeet.runtime.spark import plan as spark_plan

        spark_plan.check(join, spark_plan.frames_by_alias(join, {name: s.source for name, s in given.items()}))
    else:
        refuse_mismatches(join)


def _check_kinds(frames: Mapping[str, Any], dimensions: Mapping[str, Any] | None = None) -> None:
    """All sources, by alias, are Arrow tables, or streams of one Spark session, or static DataFrames of one; what they are joined with, too."""
    every = {**frames, **(dimensions or {})}
    tables = [alias for alias, frame in every.items() if not is_frame(frame)]
    if tables and len(tables) < len(every):
        raise StreamError(
            f"alias {tables[0]}: an Arrow table cannot be joined with DataFrames; make it one with spark.createDataFrame, or use wm.local.run"
        )
    if tables:
        return
    if len({frame.isStreaming for frame in frames.values()}) > 1:
        static = [alias for alias, frame in frames.items() if not frame.isStreaming]
        raise StreamError(
            f"{', '.join(static)} is static and the rest streams: Spark cannot union them; read all with spark.readStream, or all with spark.read, or give what has no event time as wm.Table(df)"
        )
    if len({id(frame.sparkSession) for frame in every.values()}) > 1:
        raise StreamError("the streams belong to different Spark sessions; read them all with one session")


def plan(join: Join, given: Mapping[str, Stream | Table], options: Options) -> Plan:
    """The plan of a query over these streams and tables."""
    found = {name: s.source for name, s in given.items()}
    if all(isinstance(f, pa.Table) for f in found.values()):
        schemas = {name: normal(table.slice(0, 0)).schema for name, table in found.items()}
        return build(join, DuckDBTypes(schemas_by_alias(join, schemas)), options, "everything")
    from watersmeet.runtime.spark import plan as spark_plan

    return spark_plan.plan(join, spark_plan.frames_by_alias(join, found), options)


def dataframe(plan: Plan, given: Mapping[str, Stream | Table], *, late: bool = False) -> Any:
    """The query's result as a DataFrame; with `late` also what it drops."""
    frames = _frames(given, "dataframe()")
    if plan.sets_aside and not all(frames[name].isStreaming for name in plan.streams):
        raise OptionError(
            "on_error='set aside' is for streams, and these DataFrames are static: filter them with try_ functions first"
        )
    _check_try(plan, frames)
    from watersmeet.runtime.spark import plan as spark_plan
    from watersmeet.runtime.stream.dataframe import dataframe as joined

    spark_plan.check_session(plan.join, next(iter(frames.values())).sparkSession)
    return joined(plan, frames, late=late)


def late(plan: Plan, given: Mapping[str, Stream | Table]) -> Any:
    """What a query over static DataFrames drops."""
    frames = _frames(given, "late()")
    if plan.sets_aside:
        raise OptionError("on_error='set aside' is for streams: late() of DataFrames has what has no time, or is ahead")
    for name, frame in frames.items():
        if frame.isStreaming:
            raise StreamError(
                f"stream {name} is a streaming DataFrame: what is dropped is known as it runs; give start(late=...) a sink and ask handle.late(), or use dataframe(late=True)"
            )
    from watersmeet.runtime.spark import plan as spark_plan
    from watersmeet.runtime.stream.late import static_late

    spark_plan.check_session(plan.join, next(iter(frames.values())).sparkSession)
    return static_late(plan, frames)


def start_at(plan: Plan, given: Mapping[str, Stream | Table], at: str, **how: Any) -> Any:
    """One site's part of the query as a running query of the rounds runtime."""
    arriving = {} if plan.sites is None else {plan.by_alias[s.alias].stream: s.site for s in plan.sites.query.streams}
    here = {name: s for name, s in given.items() if isinstance(s, Table) or arriving.get(name, at) == at}
    if not any(site == at for site in arriving.values()):
        raise OptionError(
            f"at={at!r}: no stream arrives there; there are {', '.join(plan.site_names) or 'no sites in this query'}"
        )
    for name, stream in here.items():
        if isinstance(stream, RemoteStream):
            raise StreamError(
                f"stream {name} arrives at {at}, and is a RemoteStream: give its DataFrame there, wm.Stream(df, ..., site={at!r})"
            )
    frames = _frames_of_rounds(here, "start()")
    from watersmeet.runtime.sites.start import start_at as start_site
    from watersmeet.runtime.spark import plan as spark_plan

    spark_plan.check_session(plan.join, next(iter(frames.values())).sparkSession)
    return start_site(plan, frames, at=at, **how)


def start(plan: Plan, given: Mapping[str, Stream | Table], **how: Any) -> Any:
    """The query as a running query of the rounds runtime."""
    frames = _frames_of_rounds(given, "start()")
    _check_try(plan, frames)
    from watersmeet.runtime.rounds.handle import start as start_rounds
    from watersmeet.runtime.spark import plan as spark_plan

    spark_plan.check_session(plan.join, next(iter(frames.values())).sparkSession)
    return start_rounds(plan, frames, **how)


def _check_try(plan: Plan, frames: Mapping[str, Any]) -> None:
    """Refuse to set rows aside where Spark cannot tell which."""
    if not plan.sets_aside:
        return
    from watersmeet.runtime.stream.guarded import knows_try

    if not knows_try(next(iter(frames.values()))):
        raise OptionError("on_error='set aside': this Spark does not tell which rows break an expression; leave it out")


def subscriptions(streams: Mapping[str, Stream], **how: Any) -> Any:
    """A registry of queries over the streams, on the rounds runtime."""
    frames = _frames_of_rounds(streams, "subscriptions()")
    from watersmeet.runtime.subscriptions.handle import Subscriptions

    specs = {name: found for name, s in streams.items() if isinstance(found := spec(name, s), StreamSpec)}
    return Subscriptions(specs, frames, **how)


def _frames(given: Mapping[str, Stream | Table], what: str) -> dict[str, Any]:
    """The DataFrames of streams, and of tables, by name; streams first."""
    for name, stream in given.items():
        if not is_frame(stream.source):
            raise StreamError(
                f"{_kind_of(stream)} {name} is a {type(stream.source).__name__}: {what} needs Spark DataFrames; wm.local.run runs Arrow tables in process"
            )
    return {name: s.source for name, s in sorted(given.items(), key=lambda item: isinstance(item[1], Table))}


def _frames_of_rounds(given: Mapping[str, Stream | Table], what: str) -> dict[str, Any]:
    """The same, of a session that the rounds runtime runs on."""
    frames = _frames(given, what)
    from watersmeet.runtime.spark.versions import check_connect, check_version

    any_frame = next(iter(frames.values()))
    check_version(any_frame.sparkSession)
    check_connect(any_frame, what)
    return frames


def source_of(name: str, given: Any) -> tuple[pa.Table, Spec]:
    """The rows of a stream or a table, and what planning may know of it."""
    table = given.source if isinstance(given, Stream | Table) else given
    if isinstance(table, pa.RecordBatch):
        table = pa.Table.from_batches([table])
    if not isinstance(table, pa.Table):
        raise StreamError(
            f"{_kind_of(given)} {name}: the local runtime reads pyarrow tables, not {type(table).__name__}"
        )
    table = normal(table)
    schema = {f.name: spark_name(f.type) for f in table.schema}
    if len(schema) < len(table.schema):
        raise StreamError(f"{_kind_of(given)} {name}: two columns have the same name; rename one")
    if isinstance(given, Table):
        return table, TableSpec(name, schema)
    if isinstance(given, Stream):
        how = (given.time, given.lateness_us, given.idle_us, given.site, given.max_ahead_us)
        return table, StreamSpec(name, schema, *how)
    times = [c for c, t in schema.items() if t in ("timestamp", "timestamp_ntz")]
    if "ts" in times:
        times = ["ts"]
    if len(times) != 1:
        found = f"its timestamp columns are {', '.join(times)}" if times else "it has no timestamp column"
        raise StreamError(f"stream {name}: which column is the event time? {found}; give wm.Stream(table, time=...)")
    return table, StreamSpec(name, schema, times[0], _disorder_us(table.column(times[0])))


def _disorder_us(time: pa.ChunkedArray) -> int:
    """How far behind the highest event time so far a row is, at most."""
    known = time.drop_null()
    if len(known) == 0:
        return 0
    ts = integers(known.combine_chunks())
    behind = np.maximum.accumulate(ts).view(np.uint64) - ts.view(np.uint64)  # more than 63 bits, if years are far apart
    return int(behind.max())
