"""`watersmeet subscribe`: a registry of queries over folders and topics, run from the shell, with an HTTP API on loopback."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

import watersmeet as wm
from watersmeet.cli import folders
from watersmeet.cli.arguments import Pace, SinkArgument, Source
from watersmeet.cli.failure import report_errors
from watersmeet.cli.spark import local_spark, stop_requests
from watersmeet.cli.view import TotalsView
from watersmeet.cli.watch import RoundsWatch, Totals
from watersmeet.errors import OptionError


def subscribe(
    sources: Sequence[Source],
    sink: SinkArgument,
    checkpoint: Path | None,
    pace: Pace,
    timezone: str,
    *,
    units: int | None,
    engine: str,
    port: int,
    token_file: Path | None,
    jars: str | None = None,
) -> None:
    """Answer registered queries until someone stops it, or (available-now) until the input ends."""
    with report_errors():
        if sink.format != "parquet" or sink.path is None:
            raise OptionError(f"--sink {sink.text}: listeners get answers from a folder: write parquet:FOLDER")
        lasting = folders.checkpoint_folder(sink, None, checkpoint)
        assert lasting is not None
    with local_spark("subscribe", timezone, jars) as on, stop_requests() as stop:
        view = TotalsView(Totals({s.name: s.name for s in sources}), on.console)
        subs = wm.subscriptions(
            {s.name: folders.open_stream(on.spark, s, pace) for s in sources},
            checkpoint=lasting.absolute(),
            sink=str(Path(sink.path).absolute()),
            trigger=dict(pace.trigger),
            units="auto" if units is None else units,
            engine=engine,
        )
        subs.start()
        with subs.serve(port, api=True) as page:
            if token_file is not None:
                _write_token(token_file, page.token)
            on.console.print(f"page: {page.url}", highlight=False, soft_wrap=True)
            on.console.print(f"API:  http://127.0.0.1:{page.port}/queries", highlight=False, soft_wrap=True)
            watch = RoundsWatch(subs, view.totals, view.batch)
            try:
                with view.show():
                    watch.until(stop.is_set)
            finally:
                subs.stop()
            watch.catch_up()
        on.console.print(
            f"{view.totals.results:,} answers to {len(subs.list()):,} queries, in {len(view.totals.batches):,} batches"
        )


def _write_token(file: Path, token: str) -> None:
    """Only who runs the command may read it."""
    with os.fdopen(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
        out.write(token)
