"""`watersmeet bench page`: what the live page costs a query of `start()` whose every batch is watched.

Another process has the page open and asks for the metrics every second. Counted is the CPU time of the page's threads in the driver, against the seconds of the batches; a page that nobody has open is counted as well.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console

from watersmeet.runtime.spark.session import local_session
from watersmeet_lab.bench.soak import make_query, write_stream

THREADS = ("watersmeet observer", "watersmeet page", "process_request_thread")
"""How the page's threads are called: who looks for batches, who listens, and those who answer."""
_READER = """
import sys, threading, time, urllib.request
def scrape():
    while True:
        urllib.request.urlopen(sys.argv[2]).read()
        time.sleep(1)
threading.Thread(target=scrape, daemon=True).start()
for line in urllib.request.urlopen(sys.argv[1].replace("/?", "/events?")):
    pass
"""


def command(
    batches: Annotated[int, typer.Option(help="Micro-batches.", min=5)] = 40,
    rows: Annotated[int, typer.Option(help="Tuples of each stream per micro-batch.", min=10)] = 20_000,
) -> None:
    """CPU time of the live page by the time of the batches that it shows."""
    console = Console()
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as scratch, console.status("writing streams") as status:
        folder = Path(scratch)
        for number, alias in enumerate("ab"):
            write_stream(folder / alias, batches, rows, number)
        with local_session("bench-page", log=folder / "spark.log") as spark:
            for is_open in (False, True):
                status.update(f"{batches} micro-batches")
                busy_s, cpu_s = measure(spark, folder, f"{is_open}", is_open=is_open)
                who = "open in a browser, scraped every second" if is_open else "nobody looks"
                console.print(
                    f"{who}: {cpu_s * 1000:.0f} ms of CPU time in {busy_s:.1f} s of {batches} batches, {cpu_s / busy_s:.2%}",
                    highlight=False,
                )


def measure(spark: Any, folder: Path, name: str, *, is_open: bool) -> tuple[float, float]:
    """The seconds of a query's batches, and the CPU seconds of its page."""
    with count_cpu() as used:
        handle = make_query(spark, folder).start(sink="noop", checkpoint=folder / name, trigger="availableNow")
        with handle.serve() as page:
            reader = [sys.executable, "-c", _READER, page.url, page.metrics_url]
            looking = subprocess.Popen(reader, stderr=subprocess.DEVNULL) if is_open else None
            handle.await_termination()
            while page.hub.status == "running":
                time.sleep(0.05)
            told = page.hub.totals
        if looking is not None:
            looking.kill()
            looking.wait()
        time.sleep(2)  # threads that answer notice that nobody listens any more
    history = list(handle.history())
    assert told.results == sum(p.results for p in history) > 0, "the page has told something else"
    assert told.batches == len(history)
    return sum(p.seconds for p in history), sum(s for n, s in used.items() if any(t in n for t in THREADS))


@contextmanager
def count_cpu() -> Iterator[Counter[str]]:
    """The CPU seconds of threads that end inside, by name."""
    used, run = Counter[str](), threading.Thread.run

    def timed(self: threading.Thread) -> None:
        try:
            run(self)
        finally:
            used[self.name] += time.thread_time()  # type: ignore[assignment]

    with patch.object(threading.Thread, "run", timed):
        yield used
