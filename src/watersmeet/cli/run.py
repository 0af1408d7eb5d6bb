"""`watersmeet run` and `watersmeet explain`: folders in, a query, a sink out."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import watersmeet as wm
from watersmeet.api import Query
from watersmeet.cli import folders
from watersmeet.cli.arguments import Pace, SinkArgument, Source
from watersmeet.cli.failure import report_errors
from watersmeet.cli.spark import LocalSpark, local_spark, stop_requests
from watersmeet.cli.view import TotalsView
from watersmeet.cli.watch import QueryWatch, RoundsWatch, Totals, count_results


@dataclass(frozen=True)
class How:
    """What `run` takes besides."""

    jars: str | None = None
    port: int | None = None
    """That of the live page; None: there is none."""
    upgrade: bool = False
    keep: int = 2


def stream(
    text: str,
    sources: Sequence[Source],
    options: Mapping[str, Any],
    sink: SinkArgument,
    late: SinkArgument | None,
    checkpoint: Path | None,
    pace: Pace,
    timezone: str,
    how: How,
) -> None:
    """Run a query until its input ends (available-now) or someone stops it."""
    with report_errors():
        lasting = folders.checkpoint_folder(sink, late, checkpoint)
    trigger = dict(pace.trigger)
    with local_spark("run", timezone, how.jars) as on:
        query = _query(on, text, sources, options, pace)
        view = TotalsView(Totals({i.alias: i.stream for i in query.plan.join.inputs}), on.console)
        folder = lasting or on.scratch / "checkpoint"
        with stop_requests() as stop:
            if options.get("runtime") == "rounds":
                to = folders.rounds_sink(sink, view.rows)
                lost = None if late is None else folders.rounds_sink(late, view.late_rows, "late")
                where = folder.absolute()
                with warnings.catch_warnings():
                    if how.upgrade:  # what the warning says is printed below
                        warnings.filterwarnings("ignore", message="the query of .* was changed after batch")
                    running = query.start(
                        sink=to, late=lost, checkpoint=where, trigger=trigger, keep=how.keep, upgrade=how.upgrade
                    )
                if running.upgraded is not None:
                    on.console.print(str(running.upgraded), highlight=False, soft_wrap=True, markup=False)
                watch: QueryWatch = RoundsWatch(running, view.totals, view.batch)
            else:
                grouped = query.plan.join.grouping is not None and query.plan.join.group_window is None
                frame = count_results(query.dataframe())
                running = folders.start(frame, sink, folder, trigger, view.rows, grouped=grouped)
                watch = QueryWatch(running, view.totals, view.batch)
            page = None if how.port is None else wm.observe(running, query, port=how.port)
            if page is not None:
                on.console.print(f"live page: {page.url}", highlight=False, soft_wrap=True)
            try:
                with view.show():
                    watch.until(stop.is_set)
                running.stop()
                watch.catch_up()
            except Exception:
                if not stop.is_set():
                    raise
                # A signal to the whole process group ends Spark's Python workers, too: the batch that they were in
                # is as if it had not begun, and is repeated by the next start.
                with suppress(Exception):
                    running.stop()
            except BaseException:
                running.stop()
                raise
        if page is not None:
            page.close()
        _sum_up(on, view.totals, sink, late, stopped=stop.is_set(), lasting=lasting)


def backfill(
    text: str, sources: Sequence[Source], options: Mapping[str, Any], sink: SinkArgument, timezone: str
) -> None:
    """Run a query once over what the folders hold."""
    with local_spark("run", timezone) as on:
        query = _query(on, text, sources, options, None)
        view = TotalsView(Totals({}), on.console)
        with on.console.status("joining"):
            count = folders.write_static(query.dataframe(), sink, view.rows)
        on.console.print(f"{count:,} results{_where(sink)}", highlight=False, soft_wrap=True)


def explain(
    text: str,
    sources: Sequence[Source],
    options: Mapping[str, Any],
    timezone: str,
    *,
    streaming: bool,
    full: bool,
    jars: str | None = None,
    checkpoint: Path | None = None,
) -> None:
    """Print a query's plan."""
    with local_spark("explain", timezone, jars) as on:
        query = _query(on, text, sources, options, Pace({}) if streaming else None)
        plan = query.explain("full" if full else "short", checkpoint=checkpoint)
        on.console.print(plan, markup=False, highlight=False, soft_wrap=True)


def _query(
    on: LocalSpark,
    text: str,
    sources: Sequence[Source],
    options: Mapping[str, Any],
    pace: Pace | None,
) -> Query:
    """The query over streams, or without a pace over what there is now."""
    streams = {s.name: folders.open_stream(on.spark, s, pace) for s in sources}
    return wm.sql(text, **streams, **options)


def _sum_up(
    on: LocalSpark,
    totals: Totals,
    sink: SinkArgument,
    late: SinkArgument | None,
    *,
    stopped: bool,
    lasting: Path | None,
) -> None:
    lost, kept = sum(totals.late.values()), " dropped" if late is None else _where(late)
    broken = f" and {totals.set_aside:,} that were set aside" if totals.set_aside else ""
    on.console.print(
        f"{totals.results:,} results{_where(sink)} from {totals.rows:,} rows in {_batches(totals)}, "
        f"{totals.rows_per_second:,.0f} rows/s; {lost:,} late rows{broken}{kept}",
        highlight=False,
        soft_wrap=True,
    )
    if stopped and lasting is not None:
        on.console.print(f"stopped; the same command goes on from {lasting}", highlight=False, soft_wrap=True)


def _where(sink: SinkArgument) -> str:
    return "" if sink.path is None else f" in {sink.path}"


def _batches(totals: Totals) -> str:
    return "1 micro-batch" if len(totals.batches) == 1 else f"{len(totals.batches)} micro-batches"
