"""`watersmeet bench shipping`: whole tuples, late materialisation, and what `auto` makes of it, on the rounds runtime.

Two streams of tuples with a wide payload, of which one in `one_in` has a partner. Both ways run in turn in one session,
after a warm-up; every answer is checked with DuckDB before a figure is shown.
"""

from __future__ import annotations

import os
import statistics
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import typer
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet.runtime.spark.session import local_session
from watersmeet_lab.bench.data import START, START_US

WAYS = ("full", "semijoin", "auto")
QUERY = "SELECT a.key AS key, a.payload AS a_payload, b.payload AS b_payload FROM a, b WHERE a.key = b.key WINDOW = 10 SECONDS"
_ANSWER = """
    SELECT count(*), sum(length(a.payload) + length(b.payload)), bit_xor(hash(a.payload, b.payload)) FROM a JOIN b USING (key)
    WHERE abs(epoch_us(a.ts) - epoch_us(b.ts)) <= 10000000
"""


@dataclass(frozen=True)
class Shape:
    """What the streams look like."""

    rows: int
    files: int
    payload_bytes: int
    one_in: int


def command(
    rows: Annotated[int, typer.Option(help="Tuples per stream.", min=1000)] = 200_000,
    payload: Annotated[int, typer.Option(help="Bytes of a payload.", min=1)] = 1000,
    one_in: Annotated[int, typer.Option(help="One tuple in so many has a partner.", min=1)] = 100,
    repeat: Annotated[int, typer.Option(help="Runs of each way, in turn.", min=1)] = 2,
    bandwidth: Annotated[
        float | None, typer.Option(help="Bytes per second that 'auto' reckons with; by default those of one machine.")
    ] = None,
) -> None:
    """Bytes shipped and rows/s, whole tuples, keys first and 'auto', on the rounds runtime."""
    console, shape = Console(), Shape(rows, 10, payload, one_in)
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as scratch, console.status("writing streams") as status:
        folder = Path(scratch)
        for number, alias in enumerate("ab"):
            write(folder / alias, shape, number)
        conf = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
        with local_session("bench-shipping", log=folder / "spark.log", conf=conf) as spark:
            found: dict[str, list[Outcome]] = {way: [] for way in WAYS}
            for n in range(repeat + 1):
                for way in WAYS:
                    status.update(f"{way}, {'warm-up' if n == 0 else f'run {n}'}")
                    outcome = run(spark, folder, way, folder / f"{way}-{n}", bandwidth or "auto")
                    if n:
                        found[way].append(outcome)
        want = answer(folder)
    _show(console, shape, found, want)
    if any(o.answer != want for outcomes in found.values() for o in outcomes):
        raise typer.Exit(1)


@dataclass(frozen=True)
class Outcome:
    """What one run showed."""

    answer: tuple[int, int, int]
    shipped: int
    rate: float
    rounds: int
    """Of the last batch."""


def write(folder: Path, shape: Shape, number: int) -> None:
    """One stream: keys that both have every `one_in` tuples, keys of its own otherwise."""
    rng = np.random.default_rng(number)
    folder.mkdir()
    for part, at in enumerate(np.array_split(np.arange(shape.rows), shape.files)):
        keys = np.where(at % shape.one_in == 0, at, -(2 * at + 1 + number))
        letters = (rng.integers(0, 26, len(at) * shape.payload_bytes) + 97).astype(np.uint8)
        offsets = np.arange(len(at) + 1, dtype=np.int32) * shape.payload_bytes
        payload = pa.StringArray.from_buffers(len(at), pa.py_buffer(offsets.tobytes()), pa.py_buffer(letters.tobytes()))
        ts = pa.array(START_US + at * 1000, pa.timestamp("us", tz="UTC"))
        path = folder / f"{part:05d}.parquet"
        pq.write_table(pa.table({"key": keys, "ts": ts, "payload": payload}), path, use_dictionary=False)
        os.utime(path, (START.timestamp() + part, START.timestamp() + part))


def run(spark: Any, folder: Path, way: str, scratch: Path, bandwidth: float | str) -> Outcome:
    """One run of one way, from the first file to the last."""
    schema = "key BIGINT, ts TIMESTAMP, payload STRING"
    reader = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1)
    streams = {alias: wm.Stream(reader.parquet(str(folder / alias)), time="ts") for alias in "ab"}
    query = wm.sql(QUERY, **streams, units=spark.sparkContext.defaultParallelism, shipping=way, bandwidth=bandwidth)
    handle = query.start(sink=scratch / "out", checkpoint=scratch / "checkpoint", trigger="availableNow")
    handle.await_termination()
    with duckdb.connect() as con:
        found = con.execute(
            f"SELECT count(*), sum(length(a_payload) + length(b_payload)), bit_xor(hash(a_payload, b_payload)) FROM '{scratch}/out/*.parquet'"
        ).fetchall()[0]
    batches = handle.history()
    events = [e for e in handle.query.recentProgress if e.numInputRows]
    rates = [e.numInputRows * 1000 / e.durationMs["triggerExecution"] for e in events]
    return Outcome(
        found, sum(p.mail_bytes for p in batches), statistics.median(rates[len(rates) // 2 :]), batches[-1].rounds
    )


def answer(folder: Path) -> tuple[int, int, int]:
    """DuckDB's answer."""
    with duckdb.connect() as con:
        for alias in "ab":
            con.execute(f"CREATE VIEW {alias} AS SELECT * FROM '{folder}/{alias}/*.parquet'")
        return con.execute(_ANSWER).fetchall()[0]


def _show(console: Console, shape: Shape, found: dict[str, list[Outcome]], want: tuple[int, int, int]) -> None:
    table = Table(
        title=f"2 x {shape.rows:,} tuples, payload {shape.payload_bytes:,} bytes, one in {shape.one_in} has a partner",
        title_justify="left",
    )
    table.add_column()
    for way in WAYS:
        table.add_column(way, justify="right")
    shipped = {way: found[way][-1].shipped for way in WAYS}
    rate = {way: statistics.median(o.rate for o in found[way]) for way in WAYS}
    table.add_row("rounds", *(str(found[w][-1].rounds) for w in WAYS))
    table.add_row("MB sent to units", *(f"{shipped[w] / 1e6:,.1f}" for w in WAYS))
    table.add_row("share of full", *(f"{shipped[w] / shipped['full']:.3f}" for w in WAYS))
    table.add_row("rows/s, steady", *(f"{rate[w]:,.0f}" for w in WAYS))
    table.add_row("times full", *(f"{rate[w] / rate['full']:.2f}" for w in WAYS))
    right = {w: all(o.answer == want for o in found[w]) for w in WAYS}
    table.add_row("results", *(f"{found[w][-1].answer[0]:,}" + ("" if right[w] else " [red]wrong[/]") for w in WAYS))
    table.add_row("DuckDB's results", *(f"{want[0]:,}" for _ in WAYS))
    console.print(table)
