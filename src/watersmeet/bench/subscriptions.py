"""`watersmeet bench subscriptions`: many registered queries over the same streams, on Spark, and the same queries as jobs of their own.

The workload of Idreos, Liarou, Koubarakis (2008), section 8: 10 relations of 10 attributes with 100 values each, relations and
values by a Zipf distribution of 0.9, queries R.A = S.B AND S.C = J.F AND J.G = K.D over relations and attributes chosen at random.
Departs from the paper: queries have a window. Without one, 1,000 tuples and 20,000 queries are expected to have 120 million
answers, and what is measured is how fast they are written.

Every size runs in the same session, after a warm-up, over the same files; while it runs, queries are added and removed. The answers of
some queries are checked with DuckDB, as a count and a sum, before a figure is shown.
"""

from __future__ import annotations

import json
import os
import statistics
import tempfile
import time
from dataclasses import asdict, dataclass
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
from watersmeet.bench.data import START, START_US
from watersmeet.bench.machine import describe
from watersmeet.runtime.session import local_session

RELATIONS, ATTRIBUTES, VALUES, THETA, WAYS = 10, 10, 100, 0.9, 4
TUPLES_PER_SECOND = 1_000
CHECKED = 5
_SCHEMA = ", ".join([*(f"a{n} INT" for n in range(ATTRIBUTES)), "ts TIMESTAMP"])


def command(
    sizes: Annotated[str, typer.Option(help="Numbers of queries.")] = "200,2000,20000",
    batches: Annotated[int, typer.Option(help="Micro-batches of each run.", min=4)] = 8,
    rows: Annotated[int, typer.Option(help="Tuples of a micro-batch, of all relations together.", min=100)] = 5_000,
    window: Annotated[int, typer.Option(help="Milliseconds; there are 1,000 tuples per second.", min=1)] = 50,
    jobs: Annotated[str, typer.Option(help="Numbers of queries that run as jobs of their own.")] = "1,4,8",
    quick: Annotated[bool, typer.Option("--quick", help="Small sizes.")] = False,
    seed: Annotated[int, typer.Option(help="Of queries and tuples.")] = 1,
    raw: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
) -> None:
    """Tuples/s and state of registered 4-way queries, and of the same queries as separate jobs."""
    counts = [20, 200] if quick else [int(n) for n in sizes.split(",")]
    alone = [1, 2] if quick else [int(n) for n in jobs.split(",") if n]
    rows = 1_000 if quick else rows
    console = Console()
    with tempfile.TemporaryDirectory(prefix="watersmeet-") as scratch, console.status("writing streams") as status:
        folder = Path(scratch)
        write(folder, batches, rows, seed)
        texts = queries(max(*counts, *alone), window, seed)
        conf = {"spark.sql.streaming.numRecentProgressUpdates": "1000"}
        with local_session("bench-subscriptions", log=folder / "spark.log", conf=conf) as spark:
            status.update("warm-up")
            registered(spark, folder, texts[:10], folder / "warm", window)
            found = []
            for count in counts:
                status.update(f"{count:,} registered queries")
                found.append(registered(spark, folder, texts[:count], folder / f"subs-{count}", window))
            apart = []
            for count in alone:
                status.update(f"{count} jobs")
                apart.append(separate(spark, folder, texts[:count], folder / f"jobs-{count}", window))
    _show(console, found, apart, batches * rows)
    if raw is not None:
        said = {"seed": seed, "machine": describe(), "rows": rows, "batches": batches, "window_ms": window}
        raw.write_text(
            json.dumps({**said, "registered": [asdict(o) for o in found], "jobs": [asdict(o) for o in apart]})
        )
    if not all(o.right for o in (*found, *apart)):
        raise typer.Exit(1)


@dataclass(frozen=True)
class Outcome:
    """What one run showed."""

    queries: int
    rate: float
    """Tuples/s in the second half of the batches; of jobs, tuples over the time until all of them were done."""
    first_seconds: float
    """The first batch: the queries are compiled in it."""
    adding_ms: float
    """To register one query."""
    answers: int
    state_rows: int
    state_bytes: int
    right: bool
    changed_ms: float = 0.0
    """To add a query while it runs."""


def write(folder: Path, batches: int, rows: int, seed: int) -> None:
    """The relations' files, one for every batch."""
    rng = np.random.default_rng(seed)
    for n in range(batches):
        of = _zipf(rng, RELATIONS, rows)
        ts = START_US + (n * rows + np.arange(rows)) * (1_000_000 // TUPLES_PER_SECOND)
        for relation in range(RELATIONS):
            mine = of == relation
            columns = {f"a{a}": _zipf(rng, VALUES, int(mine.sum())).astype(np.int32) for a in range(ATTRIBUTES)}
            path = folder / f"r{relation}" / f"{n:05d}.parquet"
            path.parent.mkdir(exist_ok=True)
            pq.write_table(pa.table({**columns, "ts": pa.array(ts[mine], pa.timestamp("us", tz="UTC"))}), path)
            os.utime(path, (START.timestamp() + n, START.timestamp() + n))


def _zipf(rng: np.random.Generator, count: int, size: int) -> np.ndarray:
    weights = 1 / np.arange(1, count + 1) ** THETA
    return rng.choice(count, size=size, p=weights / weights.sum())


def queries(count: int, window: int, seed: int) -> list[str]:
    """So many different queries."""
    rng, found = np.random.default_rng(seed + 1), dict[str, None]()
    while len(found) < count:
        r = [f"r{n}" for n in rng.permutation(RELATIONS)[:WAYS]]
        a = [f"a{n}" for n in rng.integers(0, ATTRIBUTES, 2 * WAYS)]
        joined = " AND ".join(f"{r[n]}.{a[2 * n]} = {r[n + 1]}.{a[2 * n + 1]}" for n in range(WAYS - 1))
        text = f"SELECT {r[0]}.{a[-2]} AS x, {r[-1]}.{a[-1]} AS y FROM {', '.join(r)} WHERE {joined} WINDOW = {window} MILLISECONDS"
        found[text] = None
    return list(found)


def _streams(spark: Any, folder: Path, relations: range | list[int]) -> dict[str, wm.Stream]:
    reader = spark.readStream.schema(_SCHEMA).option("maxFilesPerTrigger", 1)
    return {f"r{n}": wm.Stream(reader.parquet(str(folder / f"r{n}")), time="ts") for n in relations}


def registered(spark: Any, folder: Path, texts: list[str], scratch: Path, window: int) -> Outcome:
    """All queries in one registry; in the middle of the run one is added and one removed."""
    out = scratch / "out"
    subs = wm.subscriptions(
        _streams(spark, folder, range(RELATIONS)), checkpoint=scratch / "ck", sink=out, trigger="availableNow"
    )
    began = time.monotonic()
    ids = subs.add_all(texts)
    adding = (time.monotonic() - began) * 1000 / len(texts)
    changed: list[float] = []

    def change(progress: Any) -> None:
        if progress.batch_id == 2:
            at = time.monotonic()
            subs.add(texts[0], id="added")
            changed.append((time.monotonic() - at) * 1000)
            subs.remove(ids[-1])

    subs.on_batch(change)
    subs.start().await_termination()
    done = subs.history()
    half = done[len(done) // 2 :]
    return Outcome(
        len(texts),
        statistics.median(p.rows_per_second for p in half),
        done[0].seconds,
        adding,
        sum(p.results for p in done),
        sum(done[-1].state_rows.values()),
        done[-1].state_bytes,
        _right(folder, window, dict(zip(ids[:CHECKED], texts, strict=False)), f"'{out}/*.parquet'"),
        changed[0],
    )


def separate(spark: Any, folder: Path, texts: list[str], scratch: Path, window: int) -> Outcome:
    """The same queries, each a job of its own with its own state, all at once."""
    handles = []
    began = time.monotonic()
    for n, text in enumerate(texts):
        used = [r for r in range(RELATIONS) if f"r{r}." in text]
        query = wm.sql(text, **_streams(spark, folder, used), units=spark.sparkContext.defaultParallelism)
        handles.append(query.start(sink=scratch / f"out-{n}", checkpoint=scratch / f"ck-{n}", trigger="availableNow"))
    started = (time.monotonic() - began) * 1000 / len(texts)
    for handle in handles:
        handle.await_termination()
    seconds = time.monotonic() - began
    tuples = sum(pq.read_metadata(f).num_rows for f in folder.glob("r*/*.parquet"))
    last = [h.progress() for h in handles]
    right = all(
        _sums(f"SELECT count(*), sum(x + y) FROM '{scratch}/out-{n}/*.parquet'") == _expected(folder, window, text)
        for n, text in enumerate(texts[:CHECKED])
    )
    return Outcome(
        len(texts),
        tuples / seconds,
        max(h.history()[0].seconds for h in handles),
        started,
        sum(p.results for h in handles for p in h.history()),
        sum(n for p in last for n in p.state_rows.values()),
        sum(p.state_bytes for p in last),
        right,
    )


def _right(folder: Path, window: int, texts: dict[str, str], files: str) -> bool:
    """Whether the answers of some queries have DuckDB's count and sum."""
    of = "SELECT count(*), sum((answer->>'$.x')::BIGINT + (answer->>'$.y')::BIGINT) FROM {} WHERE query = '{}'"
    return all(_sums(of.format(files, id)) == _expected(folder, window, text) for id, text in texts.items())


def _expected(folder: Path, window: int, text: str) -> tuple[int, int]:
    """DuckDB's count and sum; a second equality, the bucket of time, keeps it from meeting all tuples with all."""
    select, rest = text.removeprefix("SELECT ").split(" FROM ")
    names, rest = rest.split(" WHERE ")
    first, *others = names.split(", ")
    condition = rest.split(" WINDOW ")[0]
    us = window * 1000
    sources = [
        f"{first} AS (SELECT *, epoch_us(ts) AS t, epoch_us(ts) // {us} AS bucket FROM '{folder}/{first}/*.parquet')"
    ]
    for name in others:
        at = f"SELECT *, epoch_us(ts) AS t, unnest([-1, 0, 1]) + epoch_us(ts) // {us} AS bucket"
        sources.append(f"{name} AS ({at} FROM '{folder}/{name}/*.parquet')")
    near = [f"abs({x}.t - {y}.t) <= {us}" for n, x in enumerate((first, *others)) for y in (first, *others)[:n]]
    buckets = [f"{first}.bucket = {name}.bucket" for name in others]
    x, y = (item.split(" AS ")[0] for item in select.split(", "))
    where = " AND ".join([condition, *buckets, *near])
    return _sums(f"WITH {', '.join(sources)} SELECT count(*), sum({x} + {y}) FROM {names} WHERE {where}")


def _sums(sql: str) -> tuple[int, int]:
    with duckdb.connect() as con:
        count, total = con.execute(sql).fetchall()[0]
    return int(count), int(total or 0)


def _show(console: Console, found: list[Outcome], apart: list[Outcome], tuples: int) -> None:
    table = Table("", title=f"4-way queries over 10 relations, {tuples:,} tuples", title_justify="left")
    for o in found:
        table.add_column(f"{o.queries:,} registered", justify="right")
    for o in apart:
        table.add_column(f"{o.queries:,} job{'s' if o.queries > 1 else ''}", justify="right")
    runs = [*found, *apart]
    table.add_row("tuples/s", *(f"{o.rate:,.0f}" for o in runs))
    table.add_row("of the first column", *(f"{o.rate / found[0].rate:.2f}" for o in runs))
    table.add_row("queries x tuples/s", *(f"{o.queries * o.rate:,.0f}" for o in runs))
    table.add_row("answers", *(f"{o.answers:,}" for o in runs))
    table.add_row("state, rows", *(f"{o.state_rows:,}" for o in runs))
    table.add_row("state, MB", *(f"{o.state_bytes / 1e6:.2f}" for o in runs))
    table.add_row("ms to register or start one", *(f"{o.adding_ms:,.1f}" for o in runs))
    table.add_row("ms to add one while it runs", *(f"{o.changed_ms:,.1f}" if o.changed_ms else "" for o in runs))
    table.add_row("first batch, s", *(f"{o.first_seconds:,.1f}" for o in runs))
    table.add_row(f"answers of {CHECKED} queries", *("right" if o.right else "[red]wrong[/]" for o in runs))
    console.print(table)
