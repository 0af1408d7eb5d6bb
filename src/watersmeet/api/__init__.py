"""What users call: `sql` and `join` make queries, `subscriptions` a registry of them.

Invariant: whatever is wrong with a query is raised where it is made, in the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from watersmeet.api.builder import JoinBuilder
from watersmeet.api.query import Query
from watersmeet.errors import StreamError
from watersmeet.plan.options import Options
from watersmeet.query.stream import Stream
from watersmeet.query.table import Table
from watersmeet.runtime import sources
from watersmeet.runtime.given import Call
from watersmeet.sql.parse import parse

if TYPE_CHECKING:
    from watersmeet.query.quotas import Quotas
    from watersmeet.runtime.subscriptions.handle import Subscriptions

__all__ = ["JoinBuilder", "Query", "join", "sql", "subscriptions"]


_SQL, _JOIN = Call("sql", "text"), Call("join")
_SUBSCRIPTIONS = Call(
    "subscriptions",
    parameters=("checkpoint", "sink", "trigger", "feed", "per_query", "units", "engine", "quotas", "name"),
    options=(),
    frames=("feed",),
    tables=False,
)


def sql(text: str, streams: Mapping[str, Stream | Table] | None = None, /, **named: Any) -> Query:
    """A query from SQL text.

    Streams, and tables that they are joined with (`wm.Table`), are given in a mapping, as keywords, or both. Other keywords are options: `kernel=`, `routing=`, `order=`, `driver=`, `units=`,
    `shipping=`, `bandwidth=`, `runtime=`, `sites=`. A stream that is called like one of them goes into the mapping.

    >>> import pyarrow as pa
    >>> import watersmeet as wm
    >>> clicks = wm.Stream(pa.table({"user": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    >>> wm.sql("SELECT a.user FROM clicks a, clicks b WHERE a.user = b.user WINDOW = 10 SECONDS", clicks=clicks, units=4).plan.units
    4
    """
    found, options = _SQL.split(streams, named)
    return Query(lambda specs, session: parse(text, specs, session), found, Options(**options))


def join(streams: Mapping[str, Stream | Table] | None = None, /, **named: Any) -> JoinBuilder:
    """A query without SQL text; the names of streams are its aliases. Streams and options are given as to `sql`.

    >>> import pyarrow as pa
    >>> import watersmeet as wm
    >>> clicks = wm.Stream(pa.table({"user": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    >>> wm.join({"a": clicks, "b": clicks}).on("a.user = b.user").window("a", "b", "10s")
    JoinBuilder: SELECT * FROM a AS a, b AS b WHERE (a.user = b.user) AND WINDOW (a, b) = 10s
    """
    found, options = _JOIN.split(streams, named)
    if len(found) < 2:
        raise StreamError("join() needs two or more streams: join(a=wm.Stream(...), b=wm.Stream(...))")
    return JoinBuilder(found, Options(**options))


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
    quotas: Quotas | None = None,
    name: str | None = None,
    **named: Stream,
) -> Subscriptions:
    """Continuous queries over the same streams, which come and go while these run: `add`, `remove`, `list`, `start`.

    Streams are given as a mapping or as keywords. `sink` takes the answers of all queries, as rows (query, version, ts, answer); with
    `per_query` it is a folder with a sub-folder for each, or a function (id, rows, batch_id). `feed` is a streaming DataFrame of
    rows (id, action, sql) that adds and removes queries. `checkpoint` and `trigger` are as for `Query.start`. `engine` is 'shared'
    or 'rjoin': they give the same answers at different costs; 'auto' estimates these. `units` may be another number after a restart. `quotas` limits what one query may take.

    >>> import watersmeet as wm
    >>> wm.subscriptions(checkpoint="state", sink="answers")
    Traceback (most recent call last):
    watersmeet.errors.StreamError: subscriptions() needs streams: subscriptions({'clicks': wm.Stream(...)}), or as keywords, clicks=...
    """
    how = {
        "checkpoint": checkpoint,
        "sink": sink,
        "trigger": trigger,
        "feed": feed,
        "per_query": per_query,
        "units": units,
        "engine": engine,
        "quotas": quotas,
        "name": name,
    }
    found, _ = _SUBSCRIPTIONS.split(streams, named, how)
    return sources.subscriptions(found, **how)
