"""`watersmeet watch`: a query of `start()` that another process runs, followed by what it writes into its checkpoint. No Spark is started."""

from __future__ import annotations

import time

from rich.console import Console

from watersmeet.cli.spark import stop_requests
from watersmeet.cli.view import TotalsView
from watersmeet.cli.watch import Totals
from watersmeet.errors import CheckpointError
from watersmeet.runtime.checkpoints.stored import Stored, open_checkpoint
from watersmeet.runtime.observing import POLL_S, Events, OfCheckpoint, Waits, serve
from watersmeet.runtime.rounds.checkpoint import PROGRESS


def follow(checkpoint: str, port: int | None, seconds: float | None) -> None:
    """Show every batch, those that are known already first, until someone stops it; with a port on a page, too."""
    stored, console = open_checkpoint(checkpoint), Console()
    if PROGRESS not in stored.folder.files.lengths(stored.folder.path()):
        raise CheckpointError(
            f"{stored.folder.beside()} has no {PROGRESS}: an earlier version has written it, or it is on an object store, where batches are not recorded; use handle.serve() in the process that runs the query"
        )
    source = OfCheckpoint(stored.folder)
    streams = {alias: kind.stream for alias, kind in stored.kinds.items() if kind.stream is not None}
    view, events, last = TotalsView(Totals(streams), console), Events(waits_of(stored)), -1
    page = None if port is None else serve(source, describe(stored), waits_of(stored), port)
    if page is not None:
        console.print(f"live page: {page.url}", highlight=False, soft_wrap=True)
    began = time.monotonic()
    with stop_requests() as stop, view.show():
        while True:
            is_over = stop.is_set() or (seconds is not None and time.monotonic() - began >= seconds)
            for progress in source.since(last):
                last = progress.batch_id
                view.totals.add(progress)
                view.batch(progress)
                held = events.make(progress)["holds"]
                if held and view.live is None:
                    console.print(f"  {held[0]['text']}", highlight=False, soft_wrap=True)
            if is_over:
                break
            stop.wait(POLL_S)
    if page is not None:
        page.close()


def waits_of(stored: Stored) -> Waits:
    """What rows of each alias wait for, by the windows of the checkpoint; nothing of outer and as-of joins, whose plan it does not have."""
    plan = stored.intent.plan
    inputs = plan.get("inputs", [])
    if "joins" in plan:
        return ()
    return [
        [(inputs[y][1], hi) for y, hi in enumerate(row) if y != x]
        for x, row in enumerate(plan.get("windows", []))
        if len(inputs) > 1
    ]


def describe(stored: Stored) -> dict[str, object]:
    """What a page says of a query of which only the checkpoint is known."""
    bounds = {
        name: {"kept_us": kind.kept_us, "late_us": 0, "text": name}
        for name, kind in stored.kinds.items()
        if kind.kept_us is not None
    }
    title = stored.folder.beside().rpartition("/")[2]
    manifest = stored.manifest
    return {"title": title, "query": manifest.query, "fingerprint": manifest.fingerprint, "bounds": bounds}
