"""The query object behind `wm.sql` and `wm.join`: bind early, explain, run on Spark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import TYPE_CHECKING, Any

from watersmeet.errors import OptionError
from watersmeet.plan.explain.explanation import Detail, Explanation, explain, explain_measured, explain_stored
from watersmeet.plan.explain.short import show_windows
from watersmeet.plan.model import Plan
from watersmeet.plan.options import Options
from watersmeet.query.join import Join
from watersmeet.query.scaling import Scaling
from watersmeet.query.session import Session
from watersmeet.query.stream import Stream
from watersmeet.query.table import Spec, Table
from watersmeet.runtime import sources
from watersmeet.runtime.arrow_types import session_in
from watersmeet.runtime.checkpoints.stored import open_checkpoint
from watersmeet.runtime.checkpoints.verdicts import judge, show_instant
from watersmeet.runtime.given import is_frame
from watersmeet.runtime.in_process import LocalRun
from watersmeet.runtime.late import SET_ASIDE, check_late, check_rows, collect, instant
from watersmeet.runtime.progress import read
from watersmeet.runtime.sources import source_of
from watersmeet.view.notebook import draw_plan, show_lines

if TYPE_CHECKING:
    from watersmeet.runtime.rounds.handle import Handle


class Runnable:
    """What a query and a join in the making have in common: both are explained and run."""

    def _bind(self) -> Query:
        """The query that runs."""
        raise NotImplementedError

    def explain(self, detail: Detail = "short", *, checkpoint: Any = None, progress: Any = None) -> Explanation:
        """The plan as text: windows, state, warnings and fingerprint; "full": also routing, kernel, orders, conditions, shipping.

        The text is also an object: `to_dict()` has the facts for programs. With the `checkpoint` of a query of `start()` it says part by part what of the stored state this query keeps.
        With the `progress` of a running `dataframe()` (`running.lastProgress`) it warns of skew that was measured, and names the option to set.
        """
        query = self._bind()
        plan = query.plan
        found = explain(plan, sources.runtime_name(query._used, query._options.runtime, plan), detail)
        measured = None if progress is None else read(progress)
        if measured is not None:
            found = explain_measured(found, measured.skew, measured.advice)
        if checkpoint is None:
            return found
        stored = open_checkpoint(checkpoint)
        judged = judge(stored, plan)
        since = None if judged.since is None else show_instant(judged.since)
        where = stored.folder.beside()
        return explain_stored(found, where, stored.batch, stored.manifest.query, judged.changes, since)

    def dataframe(self, *, late: bool = False) -> Any:
        """The result as a Spark DataFrame: streaming if the streams are, static if they are.

        With `late` it has a column `_late` more, which is NULL, and a row for every row that was dropped, which is in `_late`: see `late`.
        """
        query = self._bind()
        plan = query.plan
        check_late(late, plan.join)
        if plan.sets_aside and not late:
            raise OptionError(f"{SET_ASIDE}: dataframe(late=True)")
        if query._options.runtime == "rounds" or plan.shipping == "semijoin":
            why = "runtime='rounds'" if query._options.runtime == "rounds" else "shipping='semijoin' needs rounds"
            raise OptionError(f"{why}: a DataFrame cannot run rounds; use start(sink=..., checkpoint=...)")
        if plan.sites is not None:
            raise OptionError(
                f"streams at sites ({', '.join(plan.site_names)}) are joined by letters between them, which a DataFrame cannot send;"
                f" use start(at={plan.site_names[0]!r}, exchange=..., sink=..., checkpoint=...)"
            )
        return sources.dataframe(plan, query._used, late=late)

    def late(self, *, batch_rows: int | None = None, now: datetime | None = None) -> Any:
        """What the query drops of static DataFrames, as a DataFrame, or of Arrow tables, as a table: stream, ts, lag_us, batch, reason, row.

        A row is dropped if it is older than its stream's watermark before its batch (`late`; in static DataFrames nothing is), further
        ahead of the clock than the stream's `max_ahead` (`ahead`), or has no event time (`no time`). `lag_us` is how far the watermark was
        past it, in microseconds; `row` the whole row as JSON. Tables arrive in batches of `batch_rows` rows, under a clock that shows `now`.
        """
        query = self._bind()
        if any(is_frame(stream.source) for stream in query._used.values()):
            if batch_rows is not None or now is not None:
                raise OptionError(
                    "late(): batch_rows= and now= are for Arrow tables; DataFrames have Spark's batches and clock"
                )
            return sources.late(query.plan, query._used)
        run = query._in_process(query._join.session.timezone, late=True, now_us=instant(now))
        run.run(check_rows(batch_rows))
        return collect(run)

    def start(
        self,
        *,
        sink: Any,
        checkpoint: Any,
        trigger: Any = None,
        name: str | None = None,
        scaling: Scaling | None = None,
        late: Any = None,
        partition_by: Any = None,
        keep: int = 2,
        upgrade: bool = False,
        at: str | None = None,
        exchange: Any = None,
    ) -> Handle:
        """Run on the rounds runtime, exactly once; returns a handle.

        `sink` is a folder for Parquet files, "delta:PATH" for a Delta table, "iceberg:CATALOG.NAMESPACE.TABLE" for an Iceberg table, "kafka:TOPIC@HOST:PORT" for a topic (at least once), "console", "memory", "noop" or a function (rows, batch_id); `checkpoint` a
        folder of this query's own; `trigger` a duration, "availableNow" or Spark's keywords as a dict (default: as fast
        as batches come); `name` Spark's query name; `scaling` lets the units of inner joins grow and shrink with the load. `late` is
        a sink, too: it takes the rows that are dropped, with the columns of `Query.late`, and `Handle.late` reads it. `partition_by` names columns
        of the result: a folder as sink has a sub-folder for each of their values, as `day=2026-01-31`, and files without these columns; a table is partitioned by them. `keep` is for how many batches the state stays,
        so that `watersmeet state --restore` can set the checkpoint back to any of them. With `upgrade` a checkpoint of another query is handed over to this one, as far as `explain(checkpoint=...)` says
        that it can be, and what is not complete is a warning; `watersmeet state --undo` takes it back.
        Where streams arrive at sites far apart, `at` is the site whose part of the query this is, and `exchange` a folder that all sites reach, or
        "kafka:PREFIX@HOST:PORT" for topics that begin so.
        """
        query = self._bind()
        if query._options.runtime == "stream":
            raise OptionError("runtime='stream': start() is the rounds runtime; use dataframe(), or runtime='rounds'")
        if scaling is not None and not isinstance(scaling, Scaling):
            raise OptionError(f"scaling={scaling!r}: give wm.Scaling(unit_bytes=...) or wm.Scaling(unit_time=...)")
        if query.plan.sets_aside and late is None:
            raise OptionError(f"{SET_ASIDE}: start(late=...) takes a sink for them")
        if at is not None or exchange is not None:
            given = {"scaling": scaling is not None, "keep": keep != 2, "upgrade": upgrade}
            refused = [name for name, is_given in given.items() if is_given]
            if at is None or refused:
                why = "exchange= needs at=" if at is None else f"{refused[0]}= does not go with at="
                raise OptionError(
                    f"{why}: at= names the site whose part of the query runs here, exchange= the folder or the topics through which sites send letters"
                )
        if at is None and query.plan.sites is not None:
            names = query.plan.site_names
            raise OptionError(
                f"streams arrive at sites ({', '.join(names)}), and every site runs an application of its own: start(at={names[0]!r}, exchange=...)"
                f" here, and the same query at the others; without site= of streams and sites=, one application joins all of them"
            )
        how = {
            "sink_": sink,
            "checkpoint": checkpoint,
            "trigger": trigger,
            "name": name,
            "late": late,
            "partition_by": partition_by,
            "keep": keep,
            "upgrade": upgrade,
        }
        if at is not None:
            del how["keep"], how["upgrade"]
            return sources.start_at(query.plan, query._used, at, exchange=exchange, **how)
        return sources.start(query.plan, query._used, scaling=scaling, **how)


class Query(Runnable):
    """A bound query over streams; `wm.sql` and `JoinBuilder.query` make it.

    >>> import pyarrow as pa
    >>> import watersmeet as wm
    >>> clicks = wm.Stream(pa.table({"user": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    >>> wm.sql("SELECT a.user FROM clicks a, clicks b WHERE a.user = b.user WINDOW = 10 SECONDS", clicks=clicks)
    Query    SELECT a.user FROM clicks a, clicks b WHERE a.user = b.user WINDOW = 10 SECONDS
    streams  clicks (time ts, lateness 0 s)
    windows  |b - a| <= 10 s
    result   user
    """

    def __init__(
        self,
        bind: Callable[[Mapping[str, Spec], Session], Join],
        streams: Mapping[str, Stream | Table],
        options: Options,
    ) -> None:
        streams = sources.place_remote(streams)
        self._streams, self._options, self._read = streams, options, bind
        specs = {name: sources.spec(name, stream) for name, stream in streams.items()}
        self._join = bind(specs, sources.session(streams))
        used = [*(i.stream for i in self._join.inputs), *self._join.tables.values()]
        self._used = {name: self._streams[name] for name in used}
        sources.check(self._join, self._used)

    def __repr__(self) -> str:
        return "\n".join(f"{title:<9}{text}" for title, text in self._lines())

    def _repr_html_(self) -> str:
        (title, text), *rest = self._lines()
        return show_lines(title, [("", text), *rest], *draw_plan(self.explain().to_dict()))

    def _lines(self) -> Iterator[tuple[str, str]]:
        yield "Query", " ".join(self._join.text.split())
        for title, kind in (("streams", Stream), ("tables", Table)):
            if found := [f"{name} {given.show()}" for name, given in self._used.items() if isinstance(given, kind)]:
                yield title, ", ".join(found)
        yield "windows", show_windows(self._join.windows)
        yield "result", ", ".join(o.name for o in self._join.results)

    @cached_property
    def plan(self) -> Plan:
        """The plan that `dataframe` runs."""
        return sources.plan(self._join, self._used, self._options)

    def _in_process(self, timezone: str, **how: Any) -> LocalRun:
        """The query over its tables in this process, bound in a time zone; at one unit, unless it is told how many."""
        given = {name: source_of(name, stream) for name, stream in self._used.items()}
        session, join = session_in(timezone), self._join
        if session != join.session:
            join = self._read({name: spec for name, (_, spec) in given.items()}, session)
        options = replace(self._options, units=1) if self._options.units == "auto" else self._options
        return LocalRun(join, {name: table for name, (table, _) in given.items()}, options, **how)

    def _bind(self) -> Query:
        return self
