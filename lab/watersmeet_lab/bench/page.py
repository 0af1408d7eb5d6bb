"""`watersmeet bench page`: what the live page costs a query whose every batch is watched.

Another process has the page open and asks for the metrics every second. Counted is the CPU time of the page's threads in the driver, and of the JVM's thread that answers them, against the seconds of the batches; a page that nobody has open is counted as well.
With `--played` nothing is joined: figures of batches come at that pace, without Spark. What the page does with them is the same.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import product
from pathlib import Path
from typing import Annotated, Any
from unittest.mock import patch

import typer
from rich.console import Console

import watersmeet as wm
from watersmeet.runtime.observing import serve
from watersmeet.runtime.progress import Progress, read
from watersmeet.runtime.spark.session import local_session
from watersmeet.view.server import Page
from watersmeet_lab.bench.data import START
from watersmeet_lab.bench.soak import make_query, write_stream

OBSERVER, JVM = "watersmeet observer", "JVM"
THREADS = (OBSERVER, "watersmeet page", "process_request_thread")
"""How the page's threads are called: who looks for batches, who listens, and those who answer."""
PATIENCE_S = 60.0
"""Longer nobody waits for a page beyond the time that its batches take."""
STREAMS = ("a", "b", "c")
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
    batches: Annotated[int, typer.Option(help="Micro-batches.", min=5, max=100)] = 40,
    rows: Annotated[int, typer.Option(help="Tuples of each stream per micro-batch.", min=10)] = 2_000,
    played: Annotated[
        float | None, typer.Option(help="No Spark: batches of so many seconds that are played.", show_default=False)
    ] = None,
) -> None:
    """CPU time of the live page by the time of the batches that it shows."""
    console = Console()
    if played is not None:
        for is_open in (False, True):
            _show(console, *measure_played(batches, played, is_open=is_open), batches, is_open=is_open)
        return
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as scratch, console.status("writing streams") as status:
        folder = Path(scratch)
        for number, alias in enumerate("ab"):
            write_stream(folder / alias, batches, rows, number)
        with local_session("bench-page", log=folder / "spark.log") as spark:
            for way, is_open in product(WAYS, (False, True)):
                status.update(f"{batches} micro-batches of {way}()")
                found = measure(spark, folder, way, is_open=is_open)
                _show(console, *found, batches, is_open=is_open, way=f"{way}(), ")


def _show(console: Console, busy_s: float, cpu_s: float, batches: int, *, is_open: bool, way: str = "") -> None:
    who = "open, and scraped every second" if is_open else "nobody looks"
    console.print(
        f"{way}{who}: {cpu_s * 1000:.0f} ms of CPU time in {busy_s:.1f} s of {batches} batches, {cpu_s / busy_s:.2%}",
        highlight=False,
        soft_wrap=True,
    )


def measure(spark: Any, folder: Path, way: str, *, is_open: bool) -> tuple[float, float]:
    """The seconds of a query's batches, and the CPU seconds of its page."""
    threads = spark.sparkContext._jvm.java.lang.management.ManagementFactory.getThreadMXBean()
    with count_cpu(lambda: threads.getCurrentThreadCpuTime() / 1e9) as used:
        running = WAYS[way](make_query(spark, folder), f"{folder / way}-{is_open}")
        with running.serve() as page, look_at(page, is_open=is_open):
            running.wait()
            await_end(page)
            told = page.hub.totals
        await_threads()
    history = running.history()
    assert told.results == sum(p.results for p in history) > 0, "the page has told something else"
    assert told.batches == len(history)
    assert used[JVM] > 0, "the JVM's share is not known"
    return sum(p.seconds for p in history), sum_up(used)


@dataclass
class Running:
    """A query that runs to the end of its files."""

    serve: Callable[[], Page]
    wait: Callable[[], object]
    history: Callable[[], list[Progress]]


def start(query: Any, checkpoint: str) -> Running:
    handle = query.start(sink="noop", checkpoint=checkpoint, trigger="availableNow")
    return Running(handle.serve, handle.await_termination, handle.history)


def start_frame(query: Any, checkpoint: str) -> Running:
    writer = query.dataframe().writeStream.format("noop").option("checkpointLocation", checkpoint)
    running = writer.trigger(availableNow=True).start()
    return Running(
        lambda: wm.observe(running, query),
        running.awaitTermination,
        lambda: [p for p in map(read, running.recentProgress) if p is not None],
    )


WAYS: dict[str, Callable[[Any, str], Running]] = {"start": start, "dataframe": start_frame}


def sum_up(used: Mapping[str, float]) -> float:
    """The CPU seconds of a page."""
    return sum(s for n, s in used.items() if any(part in n for part in (*THREADS, JVM)))


def measure_played(batches: int, every_s: float, *, is_open: bool) -> tuple[float, float]:
    """The same of batches that are played."""
    source = Played(batches, every_s)
    with count_cpu() as used:
        page = serve(source, {"title": "played", "query": ""}, [[(s, 0) for s in STREAMS]])
        with page, look_at(page, is_open=is_open):
            await_end(page, source.end_s)
            assert page.hub.totals.batches == batches
        await_threads()
    return batches * every_s, sum_up(used)


@dataclass
class Played:
    """Batches of a query of three streams and eight units, which end at a pace."""

    batches: int
    every_s: float
    began: float = field(default_factory=time.monotonic)

    def since(self, batch: int) -> list[Progress]:
        return [_play(n, self.every_s) for n in range(batch + 1, self._count())]

    def find_end(self) -> str | None:
        return "ended" if self._count() == self.batches and time.monotonic() - self.began > self.end_s else None

    @property
    def end_s(self) -> float:
        return (self.batches + 1) * self.every_s + 1

    def _count(self) -> int:
        return min(self.batches, int((time.monotonic() - self.began) / self.every_s))


def _play(number: int, seconds: float) -> Progress:
    now = START + timedelta(seconds=number * seconds)
    return Progress(
        batch_id=number,
        seconds=seconds,
        input_rows=60_000,
        results=90_000,
        late={"a": number % 7},
        watermarks=dict.fromkeys(STREAMS, now),
        state_rows=dict.fromkeys(STREAMS, 50_000),
        state_bytes=9_000_000,
        unit_rows=dict.fromkeys(range(8), 7_500),
        kernels={"hw": 60_000},
        drivers={"a, b, c": 8},
        phases={"intent": 0.01, "rounds and sink": 0.4, "commit": 0.02, "collection": 0.01},
        fanout={f"{x}>{y}": 1.5 for x in STREAMS for y in STREAMS if x != y},
        oldest=dict.fromkeys(STREAMS, now),
    )


@contextmanager
def look_at(page: Page, *, is_open: bool) -> Iterator[None]:
    """Another process has the page open, or nobody has."""
    reader = [sys.executable, "-c", _READER, page.url, page.metrics_url]
    looking = subprocess.Popen(reader, stderr=subprocess.DEVNULL) if is_open else None
    try:
        yield
    finally:
        if looking is not None:
            looking.kill()
            looking.wait()


def await_end(page: Page, expected_s: float = 0.0) -> None:
    """Until a page has told of the end of its query."""
    _await(lambda: page.hub.status != "running", expected_s, "the page has not noticed the end of its query")


def await_threads() -> None:
    """Until all threads of a page have noticed that it is closed, and are counted."""
    _await(
        lambda: not any(part in thread.name for thread in threading.enumerate() for part in THREADS),
        0.0,
        "threads of a closed page go on",
    )


def _await(is_so: Callable[[], bool], expected_s: float, complaint: str) -> None:
    deadline = time.monotonic() + expected_s + PATIENCE_S
    while not is_so():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{complaint} after {PATIENCE_S:.0f} s")
        time.sleep(0.05)


@contextmanager
def count_cpu(count_jvm: Callable[[], float] | None = None) -> Iterator[dict[str, float]]:
    """The CPU seconds of threads that end inside, by name; `count_jvm` tells those of the JVM's thread that answers the thread that asks."""
    used, run = defaultdict[str, float](float), threading.Thread.run

    def run_and_count(self: threading.Thread) -> None:
        try:
            run(self)
        finally:
            used[self.name] += time.thread_time()
            if count_jvm is not None and self.name == OBSERVER:
                used[JVM] += count_jvm()

    with patch.object(threading.Thread, "run", run_and_count):
        yield used
