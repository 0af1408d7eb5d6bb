"""The ways to run the queries on Spark, and what a run shows.

    registered   all queries in one `wm.subscriptions`; in the middle of the run one is added and one removed
    rjoin        the same, with engine="rjoin"
    jobs         every query a `wm.sql(...).start()` of its own
    spark        every query a chain of Spark's own joins, as a streaming query of its own (default state store)

All read the same files, one of each relation in a micro-batch, keep a checkpoint on disk and write Parquet.

Invariant: `Outcome.right` is said only of runs that came to their end; answers are DuckDB's count and sum of `CHECKED` queries.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import watersmeet as wm
from watersmeet_lab.bench.registered.spark_join import join_frames
from watersmeet_lab.bench.registered.watch import Limits, Watch, steady
from watersmeet_lab.bench.registered.workload import ask_duckdb, frames, streams, sums
from watersmeet_lab.bench.trials.systems import CONF

CHECKED = 5


@dataclass(frozen=True)
class Load:
    """What every system gets."""

    folder: Path
    """Of the relations."""
    texts: list[str]
    scratch: Path
    window_ms: int
    batches: int
    rows: int
    """Tuples of a micro-batch, of all relations together."""
    limits: Limits


@dataclass(frozen=True)
class Outcome:
    """What one run showed."""

    system: str
    queries: int
    rate: float
    """Tuples/s that every query has seen, after the first micro-batches."""
    whole_rate: float
    """Tuples/s from the first start to the end."""
    first_seconds: float
    """The first micro-batch: registered queries are compiled in it."""
    adding_ms: float
    """To register one query, or to start one job."""
    answers: int
    state_rows: int
    state_bytes: int
    memory_bytes: int
    stopped: str
    """The limit that stopped it, or what failed; empty if it came to its end."""
    right: bool | None
    """Whether the answers are DuckDB's; None if it did not come to its end."""
    changed_ms: float = 0.0
    """To add a query while it runs."""
    batch_seconds: list[float] = field(default_factory=list)
    """Of registered queries: every micro-batch."""


def run_registry(spark: Any, load: Load, engine: str = "shared") -> Outcome:
    """All queries in one registry. The last one leaves in the middle of the run, so its answers are not checked."""
    out, texts = load.scratch / "out", load.texts
    subs = wm.subscriptions(
        streams(spark, load.folder), checkpoint=load.scratch / "ck", sink=out, trigger="availableNow", engine=engine
    )
    began = time.monotonic()
    ids = subs.add_all(texts)
    adding = (time.monotonic() - began) * 1000 / len(texts)
    changed: list[float] = []

    def change(progress: Any) -> None:
        if progress.batch_id == load.batches // 4:
            at = time.monotonic()
            subs.add(texts[0], id="added")
            changed.append((time.monotonic() - at) * 1000)
            subs.remove(ids[-1])

    subs.on_batch(change)
    watch = Watch(load.limits)
    watch.wait([subs.start()])
    seen, done = steady([subs.query], load.batches), subs.history()
    of = "SELECT count(*), sum((answer->>'$.x')::BIGINT + (answer->>'$.y')::BIGINT) FROM '{}/*.parquet' WHERE query = '{}'"
    return Outcome(
        "registered" if engine == "shared" else engine, len(texts), seen.batches_per_second * load.rows, _whole(load, watch), seen.first_seconds, adding,
        sum(p.results for p in done),
        sum(done[-1].state_rows.values()) + done[-1].rewritten if done else 0,
        done[-1].state_bytes if done else 0,
        watch.memory_bytes, watch.stopped,
        _right(load, watch, {of.format(out, id): text for id, text in zip(ids[:-1], texts, strict=False)}),
        changed[0] if changed else 0.0,
        [p.seconds for p in done],
    )  # fmt: skip


def jobs(spark: Any, load: Load) -> Outcome:
    """Every query a job of its own, with its own state."""

    def start(text: str, n: int) -> Any:
        query = wm.sql(text, **streams(spark, load.folder, text), units=spark.sparkContext.defaultParallelism)
        sink, checkpoint = load.scratch / f"out-{n}", load.scratch / f"ck-{n}"
        return query.start(sink=sink, checkpoint=checkpoint, trigger="availableNow")

    def state(handle: Any) -> tuple[int, int]:
        last = handle.progress()
        return (0, 0) if last is None else (sum(last.state_rows.values()), last.state_bytes)

    return _apart("jobs", load, start, lambda handle: handle.query, state)


def spark_jobs(spark: Any, load: Load) -> Outcome:
    """Every query a streaming query of Spark's own joins."""
    own = spark.newSession()
    for name, value in CONF["spark-default"].items():
        own.conf.set(name, value)

    def start(text: str, n: int) -> Any:
        rows = join_frames(frames(own, load.folder, text), text, load.window_ms)
        writer = rows.writeStream.format("parquet").option("checkpointLocation", str(load.scratch / f"ck-{n}"))
        return _Started(writer.trigger(availableNow=True).start(str(load.scratch / f"out-{n}")))

    def state(job: _Started) -> tuple[int, int]:
        last = job.query.lastProgress
        operators = last["stateOperators"] if last else []
        return sum(o["numRowsTotal"] for o in operators), sum(o["memoryUsedBytes"] for o in operators)

    return _apart("spark", load, start, lambda job: job.query, state)


@dataclass(frozen=True)
class _Started:
    """Spark's streaming query, awaited as our handles are."""

    query: Any

    def await_termination(self, timeout: float) -> bool:
        try:
            return bool(self.query.awaitTermination(timeout))
        except Exception as error:
            raise wm.WatersmeetError(str(error)) from error


def _apart(
    system: str,
    load: Load,
    start: Callable[[str, int], Any],
    query_of: Callable[[Any], Any],
    state_of: Callable[[Any], tuple[int, int]],
) -> Outcome:
    """Jobs side by side: started one after the other, awaited together."""
    watch, started, handles = Watch(load.limits), list[float](), list[Any]()
    for n, text in enumerate(load.texts):
        if not watch.look():
            break
        began = time.monotonic()
        handles.append(start(text, n))
        started.append((time.monotonic() - began) * 1000)
    watch.wait(handles)
    queries = [query_of(handle) for handle in handles]
    seen, states = steady(queries, load.batches), [state_of(handle) for handle in handles]
    is_all = len(handles) == len(load.texts)
    files = [f"'{load.scratch}/out-{n}/*.parquet'" for n in range(len(load.texts))]
    return Outcome(
        system, len(load.texts),
        seen.batches_per_second * load.rows / len(load.texts) if is_all else 0.0,
        _whole(load, watch), seen.first_seconds,
        statistics.fmean(started) if started else 0.0,
        0 if watch.stopped else sum(sums(f"SELECT count(*), 0 FROM {f}")[0] for f in files),
        sum(rows for rows, _ in states), sum(size for _, size in states),
        watch.memory_bytes, watch.stopped,
        _right(load, watch, {f"SELECT count(*), sum(x + y) FROM {f}": t for f, t in zip(files, load.texts, strict=True)}),
    )  # fmt: skip


def _whole(load: Load, watch: Watch) -> float:
    return 0.0 if watch.stopped else load.batches * load.rows / watch.seconds


def _right(load: Load, watch: Watch, found: Mapping[str, str]) -> bool | None:
    """Whether the answers of some queries, by the SQL that sums them up, are DuckDB's."""
    if watch.stopped:
        return None
    some: Sequence[tuple[str, str]] = list(found.items())[:CHECKED]
    return all(sums(sql) == ask_duckdb(load.folder, load.window_ms, text) for sql, text in some)


@dataclass(frozen=True)
class System:
    """A way to run queries; `apart` is one job for each, so that there cannot be many."""

    run: Callable[[Any, Load], Outcome]
    apart: bool


SYSTEMS: dict[str, System] = {
    "registered": System(run_registry, apart=False),
    "rjoin": System(partial(run_registry, engine="rjoin"), apart=False),
    "jobs": System(jobs, apart=True),
    "spark": System(spark_jobs, apart=True),
}
