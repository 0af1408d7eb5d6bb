"""`watersmeet demo`: three live streams, one query with a window for each pair, and the proof at the end."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote, urlparse

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.syntax import Syntax
from rich.text import Text

import watersmeet as wm
from watersmeet.api import Query
from watersmeet.cli.shop import LATENESS, SCHEMAS, TIMES, Shop
from watersmeet.cli.spark import LocalSpark, local_spark, stop_requests
from watersmeet.cli.view import TotalsView, table_of
from watersmeet.cli.watch import QueryWatch, Totals, count_results
from watersmeet.runtime.progress import Progress

QUERY = """\
SELECT o.id, o.user, c.page, o.total, r.amount
FROM clicks c, orders o, refunds r
WHERE c.user = o.user AND o.id = r.order_id AND r.amount > o.total * 0.5
WINDOW (c, o) = 10 MINUTES AND DWINDOW (o, r) = 2 HOURS"""

_NEWEST = 6


def demo(seconds: float, seed: int) -> None:
    """Generate, join, show; leaves with code 1 if DuckDB disagrees."""
    with local_spark("demo") as on:
        shop = Shop(on.scratch / "data", seed)
        query = _query(on, shop)
        _introduce(on, query)
        screen = Screen(on, query, shop, seconds)
        with stop_requests() as stop:
            screen.run(stop.is_set)
        _conclude(on, shop, screen.view.totals)


def _query(on: LocalSpark, shop: Shop) -> Query:
    reader = on.spark.readStream
    streams = {
        name: wm.Stream(reader.schema(schema).parquet(str(shop.folder / name)), time=TIMES[name], lateness=LATENESS)
        for name, schema in SCHEMAS.items()
    }
    return wm.sql(QUERY, **streams)


def _introduce(on: LocalSpark, query: Query) -> None:
    say = on.console.print
    say(
        "A web shop in fast motion: one second here is ten minutes there. Three streams of files are written while you "
        "watch, out of order, and a few rows come too late. This query joins them on a Spark in this process.\n"
    )
    say(Panel(Syntax(QUERY, "sql", background_color="default"), title="the query", title_align="left"))
    say(Panel(Text(query.explain()), title="the plan", title_align="left"))
    say(
        "The first micro-batch starts Python workers and compiles code: it takes some seconds, the others do not.\n",
        soft_wrap=True,
    )


class Screen:
    """The running demo: the shop, the query, and what is shown of it."""

    def __init__(self, on: LocalSpark, query: Query, shop: Shop, seconds: float) -> None:
        self.on, self.shop, self.seconds = on, shop, seconds
        self.frame = count_results(query.dataframe())
        self.view = TotalsView(
            Totals({i.alias: i.stream for i in query.plan.join.inputs}), on.console, below=self._below
        )
        self.ends: float | None = None
        self.newest: pa.Table | None = None

    def run(self, stop_asked: Callable[[], bool]) -> None:
        """Until the time is over or a stop is asked for; then everything that was written is joined."""
        running = (
            self.frame.writeStream.format("parquet")
            .option("path", str(self.on.scratch / "results"))
            .option("checkpointLocation", str(self.on.scratch / "checkpoint"))
            .trigger(processingTime="1 second")
            .start()
        )
        watch = QueryWatch(running, self.view.totals, self._batch)
        self.shop.open()
        try:
            with self.view.show():
                watch.until(lambda: stop_asked() or (self.ends is not None and time.monotonic() > self.ends))
                self.shop.close()
                running.processAllAvailable()
                watch.catch_up()
        finally:
            self.shop.close()
            running.stop()

    def _batch(self, progress: Progress) -> None:
        if self.ends is None:
            self.ends = time.monotonic() + self.seconds
        self.shop.watermarks(progress.watermarks)
        self.newest = newest_results(self.on.scratch / "results", progress.batch_id) or self.newest
        self.view.batch(progress)

    def _below(self) -> RenderableType:
        left = "" if self.ends is None else f"{max(0, self.ends - time.monotonic()):.0f} s left; Ctrl-C ends it now"
        if self.newest is None:
            return Text(left, style="dim")
        rows = [tuple(row.values()) for row in self.newest.to_pylist()]
        return Group(Text(), table_of(self.newest.column_names, rows, "newest results"), Text(left, style="dim"))


def newest_results(folder: Path, batch_id: int) -> pa.Table | None:
    """Some rows of a batch, by the file sink's own log: files that it does not name may be half written."""
    for log in (folder / "_spark_metadata" / str(batch_id), folder / "_spark_metadata" / f"{batch_id}.compact"):
        if log.exists():
            paths = [unquote(urlparse(json.loads(entry)["path"]).path) for entry in log.read_text().splitlines()[1:]]
            for path in reversed(paths):
                table = pq.read_table(path, partitioning=None)
                if table.num_rows:
                    return table.slice(max(0, table.num_rows - _NEWEST))
    return None


def _conclude(on: LocalSpark, shop: Shop, totals: Totals) -> None:
    """What happened, and whether it was right."""
    say = on.console.print
    sent, late = sum(shop.sent.values()), sum(shop.sent_late.values())
    say(
        f"\n{sent:,} rows of three streams in {len(totals.batches)} micro-batches, "
        f"{totals.rows_per_second:,.0f} rows/s while busy; state at the end {sum(totals.state_rows.values()):,} rows",
        highlight=False,
        soft_wrap=True,
    )
    with on.console.status("DuckDB computes the same join over the same files"):
        found = verdict(shop.folder, on.scratch / "results")
    counted_late = sum(totals.late.values())
    say(f"late rows: {late:,} sent, {counted_late:,} counted and dropped", highlight=False)
    right = found.is_right and counted_late == late
    say(Text(str(found), style="bold green" if right else "bold red"))
    if not right:
        raise typer.Exit(1)


_DUCKDB = """
    SELECT o.id, o.user, c.page, o.total, r.amount
    FROM clicks c, orders o, refunds r
    WHERE c.user = o.user AND o.id = r.order_id AND r.amount > o.total * 0.5
      AND abs(epoch_us(c.ts) - epoch_us(o.ordered_at)) <= 600_000_000
      AND epoch_us(r.ts) - epoch_us(o.ordered_at) BETWEEN 0 AND 7_200_000_000
"""
"""The demo's query, written out by hand: DuckDB knows no windows between streams."""


@dataclass(frozen=True)
class Verdict:
    """Two counts, and the rows that only one side has."""

    results: int
    expected: int
    missing: int
    surplus: int

    @property
    def is_right(self) -> bool:
        return not self.missing and not self.surplus

    def __str__(self) -> str:
        if self.is_right:
            return f"{self.results:,} results, equal to DuckDB's {self.expected:,}"
        return f"{self.results:,} results, DuckDB has {self.expected:,}: {self.missing:,} are missing and {self.surplus:,} too many"


def verdict(data: Path, results: Path) -> Verdict:
    """Compare the results below a folder with DuckDB's over the generated files; rows that were sent late do not count."""
    con = duckdb.connect()
    con.execute("SET timezone = 'UTC'")
    for name in SCHEMAS:
        con.execute(f"CREATE VIEW {name} AS SELECT * FROM read_parquet('{data / name}/*.parquet') WHERE NOT sent_late")
    con.execute(f"CREATE TABLE expected AS {_DUCKDB}")
    files = [str(f) for f in results.glob("*.parquet")]
    source = "SELECT * FROM read_parquet(?)" if files else "SELECT * FROM expected LIMIT 0"
    con.execute(f"CREATE TABLE results AS {source}", [files] if files else [])
    both = {
        "results": "FROM results",
        "expected": "FROM expected",
        "missing": "FROM expected EXCEPT ALL FROM results",
        "surplus": "FROM results EXCEPT ALL FROM expected",
    }
    return Verdict(**{name: len(con.sql(text)) for name, text in both.items()})
