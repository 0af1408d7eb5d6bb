"""What a page shows of a query: its progress as events, and which stream holds state back.

    Handle, StreamingQuery or checkpoint  --every POLL_S-->  Progress  -->  event  -->  view.hub  -->  page, metrics

Invariant: an event's figures are those of the Progress of its batch. Nothing here runs in the query's own thread: a batch does not wait for whoever looks at it.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from functools import cached_property
from typing import Any, Protocol

from watersmeet.dataflow.clock import NEVER, find_holds
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.plan.explain.explanation import facts_of
from watersmeet.plan.explain.full import list_decisions
from watersmeet.plan.explain.short import bounds
from watersmeet.plan.model import Plan
from watersmeet.query.duration import show_about
from watersmeet.runtime.progress import Figures, Moment, Progress, read, write_figures
from watersmeet.runtime.rounds.checkpoint import PROGRESS, StateFolder
from watersmeet.view.graph import draw_dataflow, draw_windows
from watersmeet.view.hub import Hub
from watersmeet.view.server import Api, Page

_LOG = logging.getLogger(__name__)
POLL_S = 0.25
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_STILL = 2
"""A watermark that has not moved for so many batches is worth a word."""
Waits = Sequence[Sequence[tuple[str, int]]]
"""For every side the (stream, hi) that its tuples wait for."""


class Source(Protocol):
    """Whose batches are shown."""

    def since(self, batch: int) -> Sequence[Progress]:
        """The batches after one, as far as they are known."""

    def find_end(self) -> str | None:
        """How it ended; None while it runs."""


class Gauges(Protocol):
    """Where else the figures of a page are shown."""

    def show(self, hub: Hub) -> None:
        """A batch is over, or the query."""

    def end(self) -> None:
        """Nothing more is shown."""


@dataclass
class OfHandle:
    """A query of `start()` in this process."""

    handle: Any

    def since(self, batch: int) -> Sequence[Progress]:
        last = self.handle.progress()
        return (
            [] if last is None or last.batch_id <= batch else [p for p in self.handle.history() if p.batch_id > batch]
        )

    def find_end(self) -> str | None:
        return None if self.handle.is_active else "ended" if self.handle.exception is None else "failed"


@dataclass
class NewEvents:
    """Progress events of Spark's as they come.

    Spark keeps a hundred, and reading one takes it and Python a millisecond: they are read only if more than one has come. While nothing happens Spark tells the next batch again and
    again, without figures.
    """

    query: Any
    _seen: tuple[int, str] | None = None

    def after(self, batch: int) -> list[Any]:
        """Those that have come since the last call, if they may be of batches after one; some of them may be of earlier ones."""
        last = self.query.lastProgress
        if last is None or (last.batchId, last.timestamp) == self._seen:
            return []
        self._seen = (last.batchId, last.timestamp)
        return [] if last.batchId <= batch else [last] if last.batchId == batch + 1 else list(self.query.recentProgress)


@dataclass
class OfStreamingQuery:
    """Spark's own query over a frame of `dataframe()`."""

    query: Any

    @cached_property
    def _events(self) -> NewEvents:
        return NewEvents(self.query)

    def since(self, batch: int) -> Sequence[Progress]:
        found = map(read, self._events.after(batch))
        return [p for p in found if p is not None and p.batch_id > batch]

    def find_end(self) -> str | None:
        return None if self.query.isActive else "ended" if self.query.exception() is None else "failed"


@dataclass
class OfCheckpoint:
    """A query of `start()` that another process runs, by what it writes into its checkpoint."""

    folder: StateFolder

    def since(self, batch: int) -> Sequence[Progress]:
        found = []
        for number in self.folder.numbers(PROGRESS):
            if number > batch:
                with suppress(CheckpointError):  # a later batch has deleted it
                    found.append(self.folder.load(PROGRESS, number, Figures).progress())
        return found

    def find_end(self) -> str | None:
        """A checkpoint does not say."""
        return None


@dataclass
class Events:
    """Progress, batch by batch, as events."""

    waits: Waits = ()
    """Empty: nothing is known of windows, and a stream is waited for as long as its watermark is behind."""
    _marks: dict[str, int] = field(default_factory=dict)
    _still: dict[str, int] = field(default_factory=dict)
    """For how many batches a watermark has not moved."""

    def make(self, progress: Progress) -> dict[str, Any]:
        """The event of a batch: all its figures, as JSON takes them, and what follows from them."""
        own = {f.name: getattr(progress, f.name) for f in fields(progress)}
        marks = {stream: _us(mark) for stream, mark in progress.watermarks.items()}
        self._count_still(marks)
        furthest = max(marks.values(), default=NEVER)
        return own | {
            "batch": own.pop("batch_id"),
            "told_at": datetime.now(UTC).isoformat(timespec="milliseconds"),
            "rows_per_second": progress.rows_per_second,
            "watermarks": {s: None if m <= NEVER else m for s, m in marks.items()},
            "lag_us": {s: None if m <= NEVER else furthest - m for s, m in marks.items()},
            "oldest": {alias: _us(ts) for alias, ts in progress.oldest.items()},
            "age_us": {alias: furthest - _us(ts) for alias, ts in progress.oldest.items() if furthest > NEVER},
            "holds": self._find_holds(marks),
            "skew": progress.skew,
            "scaled": list(progress.scaled),
            "late_sample": [dict(row) for row in progress.late_sample],
            "shipped": [[*sites, *sums] for sites, sums in progress.shipped.items()],
            "expected": [[*sites, size] for sites, size in progress.expected.items()],
            "suspended": dict(progress.suspended),
            "dearest": [q._asdict() for q in write_figures(progress.dearest)],
            "refused": dict(progress.refused),
            "failed": dict(progress.failed),
        }

    def _count_still(self, marks: Mapping[str, int]) -> None:
        moved = any(mark != self._marks.get(stream) for stream, mark in marks.items())
        for stream, mark in marks.items():
            if mark != self._marks.get(stream):
                self._still[stream] = 0
            elif moved:  # when all stand still, nobody is waited for
                self._still[stream] = self._still.get(stream, 0) + 1
        self._marks = dict(marks)

    def _find_holds(self, marks: Mapping[str, int]) -> list[dict[str, Any]]:
        """The streams that hold state back, the worst first, in figures and in words."""
        waits = self.waits or [[(stream, 0) for stream in marks]]
        found = find_holds(waits, marks)
        worst = sorted(found.items(), key=lambda hold: (hold[1] is not None, -(hold[1] or 0)))
        return [
            {"stream": stream, "held_us": us, "still": self._still.get(stream, 0), "text": self._say(stream, us)}
            for stream, us in worst
        ]

    def _say(self, stream: str, held_us: int | None) -> str:
        if held_us is None:
            return f"{stream} holds all state back: no row of it has come yet"
        still = self._still.get(stream, 0)
        stands = f"; its watermark has not moved for {still} batches" if still >= _STILL else ""
        return f"{stream} holds state back: {show_about(held_us)} of event time is kept for it alone{stands}"


def describe_plan(plan: Any, title: str | None, runtime: str) -> dict[str, Any]:
    """What does not change while a query runs: of a registry its name alone."""
    if not isinstance(plan, Plan):
        return {"title": title or "subscriptions", "query": plan.title, "fingerprint": plan.fingerprint()}
    facts = facts_of(plan, runtime)
    kept = {b.name: {"kept_us": b.kept_us, "late_us": b.late_us, "text": str(b)} for b in bounds(plan)}
    about = {
        "title": title or "query",
        "bounds": kept,
        "dataflow": draw_dataflow(facts),
        "windows": draw_windows(facts),
    }
    told = ("query", "runtime", "kernel", "driver", "order", "shipping", "units", "warnings", "fingerprint", "aliases")
    decisions = [[title or "sites", lines] for title, lines in list_decisions(plan)]
    return about | {"decisions": decisions} | {name: facts[name] for name in told}


def waits_of(plan: Any) -> Waits:
    """What tuples of every side of a plan wait for."""
    if not isinstance(plan, Plan):
        return ()
    return [plan.bounds(stage, side) for stage in plan.stages for side in stage.sides]


def serve(
    source: Source,
    about: Mapping[str, Any],
    waits: Waits,
    port: int = 0,
    api: Api | None = None,
    gauges: Gauges | None = None,
) -> Page:
    """A page of a query, that follows it until it is closed; `api` answers other paths of the same server."""
    page = Page(Hub(about), port, api)
    threading.Thread(
        target=_follow, args=(source, page, Events(waits), gauges), name="watersmeet observer", daemon=True
    ).start()
    return page


def _follow(source: Source, page: Page, events: Events, gauges: Gauges | None) -> None:
    last = -1
    while not page.is_closed:
        before = last
        try:
            ended = source.find_end()
            last = tell_all(page.hub, events, source.since(last), last)
        except Exception as error:  # the session is gone, and the query with it
            ended = f"not to be reached: {type(error).__name__}"
        if ended is not None:
            page.hub.end(ended)
        if gauges is not None and (ended is not None or last > before):
            gauges = _show(gauges, page.hub)
        if ended is not None:
            return
        page.wait(POLL_S)
    with suppress(Exception):
        if gauges is not None:
            gauges.end()


def _show(gauges: Gauges, hub: Hub) -> Gauges | None:
    """Show the latest batch elsewhere, too; None if that cannot be."""
    try:
        gauges.show(hub)
    except Exception as error:
        _LOG.warning("the figures of %s are not shown among Spark's metrics any more: %s", hub.about["title"], error)
        return None
    return gauges


def tell_all(hub: Hub, events: Events, batches: Iterable[Progress], last: int = -1) -> int:
    """Tell batches that have not been told; the last of them."""
    for progress in batches:
        if progress.batch_id > last:
            last = progress.batch_id
            hub.tell(events.make(progress))
    return last


def observe(running: Any, query: Any = None, *, port: int = 0, spark_metrics: bool = False) -> Page:
    """Serve a live page of a query that runs: a `StreamingQuery` over the frame of `dataframe()`, or a `Handle`.

    The page is on this machine's loopback, under an address with a token; `page.url` has it, and `page.close()` ends it. `/metrics` of the same server is for Prometheus. Give the `Query`, too, that
    `dataframe()` was called of: then the page knows its windows and draws its plan. `spark_metrics` puts the same figures among Spark's own metrics, too.

    >>> import watersmeet as wm
    >>> running = query.dataframe().writeStream.start("results", checkpointLocation="ck")  # doctest: +SKIP
    >>> wm.observe(running, query).url  # doctest: +SKIP
    'http://127.0.0.1:41233/?token=...'
    """
    if hasattr(running, "serve"):
        page: Page = running.serve(port=port, **({"spark_metrics": True} if spark_metrics else {}))
        return page
    if not hasattr(running, "recentProgress"):
        raise OptionError(
            f"observe({type(running).__name__}): give what writeStream.start() has returned, or a handle of start()"
        )
    plan = None if query is None else query.plan
    about = {"title": running.name or "query", "query": "", "fingerprint": ""}
    about = about if plan is None else describe_plan(plan, running.name, "stream")
    return serve(OfStreamingQuery(running), about, waits_of(plan), port, gauges=_make_gauges(running, spark_metrics))


def _make_gauges(running: Any, wanted: bool) -> Gauges | None:
    if not wanted:
        return None
    from watersmeet.runtime.spark.gauges import gauges_of

    return gauges_of(running)


def _us(moment: Moment) -> int:
    if moment is None:
        return NEVER
    return moment if isinstance(moment, int) else (moment - _EPOCH) // timedelta(microseconds=1)
