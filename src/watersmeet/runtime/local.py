"""The local runtime: the same plan and the same units, in process, no JVM.

A batch takes the next `batch_rows` rows of every stream, in the order of the tables. The end of the tables is a
watermark of infinity.

Invariant: results are those of the streaming runtimes on the same arrivals; nothing depends on `batch_rows` as long as
no tuple is late.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any

import pyarrow as pa

from watersmeet.errors import OptionError
from watersmeet.extensions import explain_missing, find_pieces, load
from watersmeet.plan.explain.explanation import Detail, Explanation
from watersmeet.plan.explain.explanation import explain as explain_plan
from watersmeet.plan.options import Options, change
from watersmeet.query.quotas import Quotas
from watersmeet.query.session import UTC
from watersmeet.query.sites import Sites
from watersmeet.query.stream import Stream, StreamSpec
from watersmeet.query.table import Spec, Table
from watersmeet.runtime.arrow_types import session_in
from watersmeet.runtime.counts import Counts
from watersmeet.runtime.given import Call
from watersmeet.runtime.in_process import LocalRun
from watersmeet.runtime.late import (
    BATCH_ROWS,
    SET_ASIDE,
    check_late,
    check_rows,
    check_span,
    collect,
    instant,
    mark_late,
)
from watersmeet.runtime.sources import source_of
from watersmeet.runtime.subscriptions.local import LocalSubscriptions
from watersmeet.sql.parse import parse

SIMULATED = ("Link", "Network", "Protocol")
"""Names of this module that the laboratory brings."""
__all__ = ["Counts", "LocalRun", "LocalSubscriptions", "counts", "explain", "run", "subscriptions", *SIMULATED]
_RUN = Call(
    "run",
    "text",
    plain=True,
    parameters=("batch_rows", "batch_time", "late", "network", "now", "protocol", "sites", "timezone"),
)
_EXPLAIN = Call("explain", "text", plain=True, parameters=("detail", "sites", "timezone"))
_SUBSCRIPTIONS = Call(
    "subscriptions", plain=True, parameters=("units", "engine", "timezone", "quotas"), options=(), tables=False
)


def __getattr__(name: str) -> Any:
    if name not in SIMULATED:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    if not find_pieces("watersmeet.lab"):
        raise AttributeError(explain_missing(f"local.{name}"))
    return getattr(_laboratory(f"local.{name}"), name)


def __dir__() -> list[str]:
    return sorted({*globals(), *SIMULATED})


def _laboratory(wanted: str) -> Any:
    """The module that simulates networks."""
    return load("watersmeet.lab", "local", wanted)


def run(
    text: str,
    tables: Mapping[str, pa.Table | Stream | Table] | None = None,
    /,
    *,
    batch_rows: int = BATCH_ROWS,
    batch_time: str | timedelta | None = None,
    late: bool = False,
    now: datetime | None = None,
    network: Any = None,
    protocol: Any = None,
    sites: Mapping[str, str] | Sites | None = None,
    timezone: str = UTC,
    **named: Any,
) -> pa.Table:
    """Run a query over Arrow tables, in a mapping or as keywords; other keywords are the options of `wm.sql`.

    A batch is `batch_rows` rows of every stream or, with `batch_time="10 seconds"`, the rows of a span of event time: then a stream that bursts
    brings many rows at once. A plain table's time is its only timestamp column, or the one named ts, and its lateness is the disorder found in
    it; a `Stream` says both itself. A `wm.Table` is a table without event time, which streams are joined with. `counts(result)` is what was counted on the way. With `late` the result has a column `_late` more,
    a struct, and a row for every row that was dropped (see `Query.late`). `now` is the clock that `max_ahead` of streams is held against. With a
    `Network` there are no batches: tuples travel one by one, under a `Protocol`, and the counts are those of the traffic.
    With `sites` (`wm.Sites`, or a site for every alias), or if streams have sites themselves, streams arrive far apart, and sites send each other letters, keys first where that pays;
    over a `Network` these take time. Networks are simulated by `watersmeet-lab`. Times are local times of `timezone`, as they are in Spark of the session's.

    >>> t = pa.table({"k": [1, 2], "ts": pa.array([0, 5], pa.timestamp("us"))})
    >>> run("SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND", s=t).column("k").to_pylist()
    [1, 2]
    """
    found, options = _RUN.split(
        tables,
        named,
        {
            "batch_rows": batch_rows,
            "batch_time": batch_time,
            "late": late,
            "now": now,
            "network": network,
            "protocol": protocol,
            "sites": sites,
            "timezone": timezone,
        },
    )
    check_rows(batch_rows)
    batch_us = check_span(batch_time, batch_rows)
    if protocol is not None and network is None:
        raise OptionError("protocol= says how tuples travel over a simulated network; give network= too")
    sources = {name: source_of(name, given) for name, given in found.items()}
    options = options if sites is None else {**options, "sites": sites}
    if network is not None:
        _refuse_late(sources, late)
        if options.get("on_error", "raise") != "raise":
            raise OptionError(
                "on_error='set aside' goes with batches, and a simulation has none: leave it out, or network="
            )
    prepared = _prepare(text, sources, timezone, options, late=late, now_us=instant(now))
    check_late(late, prepared.plan.join)
    if prepared.plan.sets_aside and not late:
        raise OptionError(f"{SET_ASIDE}: run(late=True)")
    if network is None:
        result = prepared.run(batch_rows, batch_us)
        return mark_late(result, collect(prepared)) if late else result
    return prepared.finish(*_laboratory("network=").simulate(prepared, network, protocol))


def explain(
    text: str,
    tables: Mapping[str, pa.Table | Stream | Table] | None = None,
    /,
    *,
    sites: Mapping[str, str] | Sites | None = None,
    detail: Detail = "short",
    timezone: str = UTC,
    **named: Any,
) -> Explanation:
    """The plan that `run` would follow, as text, in short or in full; across sites, with what each one-way join is expected to ship.

    Tables and options are given as to `run`. The text is also an object: `to_dict()` has the facts for programs.

    >>> t = pa.table({"k": [1, 2], "ts": pa.array([0, 5], pa.timestamp("us"))})
    >>> text = "SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND"
    >>> print(explain(text, s=t).splitlines()[1])
    state      a 1 s, b 1 s of event time
    >>> explain(text, {"s": t}).to_dict()["kernel"]
    'hw'
    """
    found, options = _EXPLAIN.split(tables, named, {"detail": detail, "sites": sites, "timezone": timezone})
    sources = {name: source_of(name, given) for name, given in found.items()}
    options = options if sites is None else {**options, "sites": sites}
    return explain_plan(_prepare(text, sources, timezone, options).plan, "local, in process", detail)


def counts(result: pa.Table) -> Counts:
    """What was counted while a result of `run` was made: late rows, retained rows, batches, kernels and so on.

    >>> t = pa.table({"k": [1, 2], "ts": pa.array([0, 5], pa.timestamp("us"))})
    >>> counts(run("SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND", s=t))
    Counts: 1 batch, nothing late, retained a 2, b 2, kernels hw 4
    """
    return Counts.of(result)


def _prepare(
    text: str, sources: Mapping[str, tuple[pa.Table, Spec]], timezone: str, options: dict[str, Any], **how: Any
) -> LocalRun:
    join = parse(text, {name: spec for name, (_, spec) in sources.items()}, session_in(timezone))
    tables = {name: table for name, (table, _) in sources.items()}
    return LocalRun(join, tables, change(Options(units=1), options), **how)


def _refuse_late(sources: Mapping[str, tuple[pa.Table, Spec]], late: bool) -> None:
    """A simulation has no batches, whose time and watermarks these need."""
    specs = {name: spec for name, (_, spec) in sources.items() if isinstance(spec, StreamSpec)}
    bounded = [f"max_ahead= of stream {name}" for name, spec in specs.items() if spec.max_ahead_us is not None]
    for what in ["late=True", *bounded] if late else bounded:
        raise OptionError(f"{what} goes with batches, and a simulation has none: leave it out, or network=")


def subscriptions(
    streams: Mapping[str, pa.Table | Stream] | None = None,
    /,
    *,
    units: int = 1,
    engine: str = "shared",
    timezone: str = UTC,
    quotas: Quotas | None = None,
    **named: pa.Table | Stream,
) -> LocalSubscriptions:
    """A registry of queries in process: `add`, `remove`, `list`, and `push` for batches of tuples.

    The tables, in a mapping or as keywords, say the schemas; the tuples come by `push`. Of a plain table the lateness is 0. `timezone` is as for `run`, `quotas` as for `wm.subscriptions`.

    >>> t = pa.table({"k": [1], "ts": pa.array([0], pa.timestamp("us"))})
    >>> subs = subscriptions(s=t.slice(0, 0))
    >>> id = subs.add("SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND")
    >>> subs.push({"s": t}).column("answer").to_pylist()
    ['{"k":1}']
    """
    how: dict[str, Any] = {"units": units, "engine": engine, "timezone": timezone, "quotas": quotas}
    found, _ = _SUBSCRIPTIONS.split(streams, named, how)
    sources = {name: source_of(name, given) for name, given in found.items()}
    specs = {n: s for n, (_, s) in sources.items() if isinstance(s, StreamSpec)}
    return LocalSubscriptions(specs, {n: t.schema for n, (t, _) in sources.items()}, **how)
