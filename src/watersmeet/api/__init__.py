"""What users call: `sql` and `join` make queries, `subscriptions` a registry of them.

Invariant: whatever is wrong with a query is raised where it is made, in the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watersmeet.api.builder import JoinBuilder
from watersmeet.api.options import split
from watersmeet.api.query import Query
from watersmeet.errors import StreamError
from watersmeet.query.stream import Stream
from watersmeet.runtime import sources
from watersmeet.sql.fluent import Builder
from watersmeet.sql.parse import parse

if TYPE_CHECKING:
    from watersmeet.runtime.subscriptions.handle import Subscriptions

__all__ = ["JoinBuilder", "Query", "join", "sql", "subscriptions"]


def sql(text: str, /, **named: Any) -> Query:
    """A query from SQL text; keywords are the streams by name, and options (kernel=, routing=, order=, driver=, units=, shipping=, runtime=, sites=)."""
    streams, options = split(named)
    return Query(lambda specs, session: parse(text, specs, session), streams, options)


def join(**named: Any) -> JoinBuilder:
    """A query without SQL text: `join(a=..., b=...).on("a.k = b.k").window("a", "b", "10s")`; keywords are aliases."""
    streams, options = split(named)
    if len(streams) < 2:
        raise StreamError("join() needs two or more streams: join(a=wm.Stream(...), b=wm.Stream(...))")
    return JoinBuilder(Builder(tuple((alias, alias) for alias in streams)), streams, options)


def subscriptions(
    streams: Mapping[str, Stream] | None = None,
    /,
    *,
    checkpoint: Any,
    sink: Any,
    trigger: Any = None,
    feed: Any = None,
    per_query: bool = False,
    units: Any = "auto",
    engine: Any = "auto",
    name: str | None = None,
    **named: Stream,
) -> Subscriptions:
    """Continuous queries over the same streams, which come and go while these run: `add`, `remove`, `list`, `start`.

    Streams are given as a mapping or as keywords. `sink` takes the answers of all queries, as rows (query, ts, answer); with
    `per_query` it is a folder with a sub-folder for each, or a function (id, rows, batch_id). `feed` is a streaming DataFrame of
    rows (id, action, sql) that adds and removes queries. `checkpoint` and `trigger` are as for `Query.start`. `engine` is 'shared'
    (the default) or 'rjoin': they give the same answers at different costs.
    """
    given = {**(streams or {}), **named}
    for key, stream in given.items():
        if not isinstance(stream, Stream):
            raise StreamError(f"{key}={type(stream).__name__}: wrap it as wm.Stream({key}, time=...)")
    if not given:
        raise StreamError("subscriptions need a stream: subscriptions(clicks=wm.Stream(...), ...)")
    return sources.subscriptions(
        given,
        checkpoint=checkpoint,
        sink=sink,
        trigger=trigger,
        feed=feed,
        per_query=per_query,
        units=units,
        engine=engine,
        name=name,
    )
