"""Progress on the screen: a live table on a terminal, one line per batch elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from watersmeet.cli.watch import Totals
from watersmeet.runtime.progress import Progress, show_moment

_BARS = "▁▂▃▄▅▆▇█"


class TotalsView:
    """Shows a query's totals; `below` may add something under the table."""

    def __init__(self, totals: Totals, console: Console, below: Callable[[], RenderableType] | None = None) -> None:
        self.totals, self.console, self.below = totals, console, below
        self.live: Live | None = None

    @contextmanager
    def show(self) -> Iterator[None]:
        """The live table stands while this lasts."""
        if not self.console.is_terminal:
            yield
            return
        with Live(get_renderable=self.render, console=self.console, refresh_per_second=4) as self.live:
            yield

    def batch(self, progress: Progress) -> None:
        """A batch has ended; its figures are in the totals."""
        if self.live is None:
            self.console.print(line(progress, self.totals), highlight=False, soft_wrap=True)

    def rows(self, count: int, columns: list[str], rows: list[Any], what: str = "results") -> None:
        """Some of a batch's results."""
        if count:
            title = f"{count:,} {what}" + (f", the first {len(rows)}" if len(rows) < count else "")
            self.console.print(table_of(columns, rows, title))

    def late_rows(self, count: int, columns: list[str], rows: list[Any]) -> None:
        """Some of the rows that a batch has dropped."""
        self.rows(count, columns, rows, "late rows")

    def render(self) -> RenderableType:
        parts: list[RenderableType] = [headline(self.totals), streams_table(self.totals)]
        return Group(*parts, *([self.below()] if self.below else []))


def line(progress: Progress, totals: Totals) -> str:
    """One batch in one line."""
    marks = ", ".join(f"{s} {show_moment(m)}" for s, m in progress.watermarks.items())
    broken = f", set aside {sum(progress.set_aside.values()):,}" if progress.set_aside else ""
    return (
        f"batch {progress.batch_id}: {progress.input_rows:,} rows in {progress.seconds:.1f} s "
        f"({progress.rows_per_second:,.0f} rows/s), {progress.results:,} results ({totals.results:,} in all), "
        f"state {sum(progress.state_rows.values()):,} rows, late {sum(progress.late.values()):,}{broken}, watermarks {marks}"
    )


def headline(totals: Totals) -> Text:
    """The last batch, and the results so far."""
    if not totals.batches:
        return Text("waiting for the first micro-batch: it starts workers and compiles, which takes some seconds")
    last = totals.batches[-1]
    return Text.assemble(
        (f"batch {last.batch_id}", "bold"),
        f"  {last.input_rows:,} rows in {last.seconds:.1f} s = ",
        (f"{last.rows_per_second:,.0f} rows/s", "bold cyan"),
        f"  units {bars(list(last.unit_rows.values()))}  +{last.results:,} = ",
        (f"{totals.results:,} results", "bold green"),
    )


def streams_table(totals: Totals) -> Table:
    """Watermark, late rows and state of every stream."""
    table = Table("stream", box=None, pad_edge=False)
    for title in ("watermark", "state rows", "late rows"):
        table.add_column(title, justify="right")
    last = totals.batches[-1] if totals.batches else None
    for stream, state_rows in totals.state_rows.items():
        mark = last.watermarks.get(stream) if last else None
        table.add_row(stream, show_moment(mark), f"{state_rows:,}", f"{totals.late[stream]:,}")
    return table


def table_of(columns: list[str], rows: list[Any], title: str) -> RenderableType:
    """Rows as a table below a title; each row is a sequence of values."""
    table = Table(*columns, box=None, pad_edge=False)
    for row in rows:
        table.add_row(*(_cell(value) for value in row))
    return Group(Text(title, style="bold"), table)


def _cell(value: Any) -> Text:
    return Text("NULL" if value is None else f"{value:.2f}" if isinstance(value, float) else str(value))


def bars(loads: list[int]) -> str:
    """Loads side by side.

    >>> bars([0, 5, 10])
    '▁▅█'
    """
    most = max(loads, default=0) or 1
    return "".join(_BARS[round(load / most * (len(_BARS) - 1))] for load in loads)
