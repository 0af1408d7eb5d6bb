"""The query object behind `wm.sql` and `wm.join`: bind early, explain, run on Spark.

Invariant: whatever is wrong with a query is raised where it is made, in the driver.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import cached_property
from typing import Any

from watersmeet.errors import OptionError, StreamError
from watersmeet.plan.build import Options
from watersmeet.plan.explain import explain
from watersmeet.plan.model import Plan
from watersmeet.query.join import Join
from watersmeet.query.scaling import Scaling
from watersmeet.query.stream import Stream, StreamSpec
from watersmeet.runtime import sources
from watersmeet.sql.fluent import Builder
from watersmeet.sql.parse import parse

_OPTIONS = {f.name for f in fields(Options)}
_METHODS = (
    "on", "where", "window", "within", "dwindow", "path", "range", "rows", "select", "distinct", "group_by", "cross",
)  # fmt: skip


class Query:
    """A bound query over streams."""

    def __init__(
        self, bind: Callable[[Mapping[str, StreamSpec]], Join], streams: Mapping[str, Stream], options: Options
    ) -> None:
        self._streams, self._options = dict(streams), options
        specs = {name: sources.spec(name, stream) for name, stream in streams.items()}
        self._join = bind(specs)
        self._used = {i.stream: self._streams[i.stream] for i in self._join.inputs}

    @cached_property
    def plan(self) -> Plan:
        """The plan that `dataframe` runs."""
        return sources.plan(self._join, self._used, self._options)

    def explain(self) -> str:
        """Window graph, routing, kernel, join orders and state bound, as text."""
        return explain(self.plan, sources.runtime_name(self._used, self._options.runtime, self.plan))

    def dataframe(self) -> Any:
        """The result as a Spark DataFrame: streaming if the streams are, static if they are."""
        if self._options.runtime == "rounds" or self.plan.shipping == "semijoin":
            why = "runtime='rounds'" if self._options.runtime == "rounds" else "shipping='semijoin' needs rounds"
            raise OptionError(f"{why}: a DataFrame cannot run rounds; use start(sink=..., checkpoint=...)")
        if self.plan.sites is not None:
            raise OptionError(
                f"streams at sites ({', '.join(self.plan.site_names)}) are joined by messages between them, in rounds: "
                "a DataFrame cannot run those; use start(sink=..., checkpoint=...)"
            )
        return sources.dataframe(self.plan, self._used)

    def start(
        self,
        *,
        sink: Any,
        checkpoint: Any,
        trigger: Any = None,
        name: str | None = None,
        scaling: Scaling | None = None,
    ) -> Any:
        """Run on the rounds runtime, exactly once; returns a handle.

        `sink` is a folder for Parquet files, "console", "memory", "noop" or a function (rows, batch_id); `checkpoint` a
        folder of this query's own; `trigger` a duration, "availableNow" or Spark's keywords as a dict (default: as fast
        as batches come); `name` Spark's query name; `scaling` lets the units of a biclique grow and shrink with the load.
        """
        if self._options.runtime == "stream":
            raise OptionError("runtime='stream': start() is the rounds runtime; use dataframe(), or runtime='rounds'")
        if scaling is not None and not isinstance(scaling, Scaling):
            raise OptionError(f"scaling={scaling!r}: give wm.Scaling(unit_bytes=...)")
        return sources.start(
            self.plan, self._used, sink_=sink, checkpoint=checkpoint, trigger=trigger, name=name, scaling=scaling
        )


class JoinBuilder:
    """The fluent form: every method returns a new builder; `explain` and `dataframe` bind it."""

    def __init__(self, builder: Builder, streams: Mapping[str, Stream], options: Options) -> None:
        self._builder, self._streams, self._options = builder, dict(streams), options

    def __getattr__(self, name: str) -> Callable[..., JoinBuilder]:
        if name not in _METHODS:
            raise AttributeError(name)
        method = getattr(self._builder, name)
        return lambda *args, **kwargs: JoinBuilder(method(*args, **kwargs), self._streams, self._options)

    def options(self, **options: Any) -> JoinBuilder:
        """Force choices: kernel=, routing=, order=, driver=, units=, shipping=, runtime=, sites=."""
        return JoinBuilder(self._builder, self._streams, _options(options))

    def query(self) -> Query:
        """The bound query."""
        return Query(self._builder.bind, self._streams, self._options)

    def explain(self) -> str:
        """See `Query.explain`."""
        return self.query().explain()

    def dataframe(self) -> Any:
        """See `Query.dataframe`."""
        return self.query().dataframe()

    def start(self, **kwargs: Any) -> Any:
        """See `Query.start`."""
        return self.query().start(**kwargs)


def sql(text: str, /, **named: Any) -> Query:
    """A query from SQL text; keywords are the streams by name, and options (kernel=, routing=, order=, driver=, units=, shipping=, runtime=, sites=)."""
    streams, options = _split(named)
    return Query(lambda specs: parse(text, specs), streams, options)


def join(**named: Any) -> JoinBuilder:
    """A query without SQL text: `join(a=..., b=...).on("a.k = b.k").window("a", "b", "10s")`; keywords are aliases."""
    streams, options = _split(named)
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
) -> Any:
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


def _split(named: Mapping[str, Any]) -> tuple[dict[str, Stream], Options]:
    streams = {name: value for name, value in named.items() if isinstance(value, Stream)}
    rest = {name: value for name, value in named.items() if name not in streams}
    for name, value in rest.items():
        if name not in _OPTIONS:
            raise StreamError(
                f"{name}={type(value).__name__}: wrap it as wm.Stream({name}, time=...), or name one of the options {', '.join(sorted(_OPTIONS))}"
            )
    return streams, _options(rest)


def _options(options: Mapping[str, Any]) -> Options:
    unknown = set(options) - _OPTIONS
    if unknown:
        raise OptionError(f"no option {', '.join(sorted(unknown))}; there are {', '.join(sorted(_OPTIONS))}")
    return Options(**options)
