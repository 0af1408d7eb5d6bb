"""`watersmeet watch`: a query of `start()` that another process runs, followed by what it writes into its checkpoint. No Spark is started."""

from __future__ import annotations

import time
from collections.abc import Mapping
from itertools import combinations

from rich.console import Console

from watersmeet.cli.spark import stop_requests
from watersmeet.cli.view import TotalsView
from watersmeet.cli.watch import Totals
from watersmeet.errors import CheckpointError
from watersmeet.plan.model import TIME
from watersmeet.query.window import UNBOUNDED
from watersmeet.runtime.checkpoints.described import DescribedInput, DescribedPlan
from watersmeet.runtime.checkpoints.stored import Stored, open_checkpoint
from watersmeet.runtime.observing import POLL_S, Events, OfCheckpoint, Waits, serve
from watersmeet.runtime.rounds.checkpoint import PROGRESS
from watersmeet.view.graph import draw_dataflow, draw_windows


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
    plan, manifest = DescribedPlan(stored.intent.plan), stored.manifest
    late = {alias: plan.streams[i.stream].lateness_us for alias, i in plan.inputs.items() if i.stream in plan.streams}
    bounds = {
        name: {"kept_us": kind.kept_us, "late_us": _find_latest(late, name), "text": name}
        for name, kind in stored.kinds.items()
        if kind.kept_us is not None
    }
    about = {"title": stored.folder.beside().rpartition("/")[2], "query": manifest.query, "bounds": bounds}
    return about | {"fingerprint": manifest.fingerprint} | draw(plan)


def _find_latest(late: Mapping[str, int], alias: str) -> int:
    """The largest lateness of the other streams."""
    return max((us for other, us in late.items() if other != alias), default=0)


def draw(plan: DescribedPlan) -> dict[str, object]:
    """Dataflow and windows of a query, as far as its state has them; nothing of registries and sites."""
    if not plan.inputs or "at" in plan.raw:
        return {}
    spans, windows = plan.streams, plan.raw["windows"]
    routing = [{"sides": list(names), "kind": way.kind, "units": way.units} for names, way in plan.stages]
    facts = {
        "aliases": {
            alias: {"stream": i.stream, "time": _find_time(i), "lateness_us": spans[i.stream].lateness_us}
            for alias, i in plan.inputs.items()
        },
        "routing": routing,
        "windows": [
            {"first": a, "second": b, "least_us": _find_bound(-windows[y][x]), "most_us": _find_bound(windows[x][y])}
            for (x, a), (y, b) in combinations(enumerate(plan.inputs), 2)
        ],
    }
    shown = [f"{r['kind']}: {r['units']} units" for r in routing]
    return {"dataflow": draw_dataflow(facts), "windows": draw_windows(facts), "decisions": [["routing", shown]]}


def _find_time(source: DescribedInput) -> str:
    """The column of event time."""
    return next((c.expr.rpartition(".")[2] for c in source.columns if c.wire == TIME), TIME)


def _find_bound(us: int) -> int | None:
    return None if abs(us) >= UNBOUNDED else us
