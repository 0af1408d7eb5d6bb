"""`watersmeet bench alerts`: many alerts over three streams in process: a third watches for values, a third for ranges and lists, a third for what does not happen.

    orders, payments, refunds     1,000 tuples per second of event time; four of five orders are paid within 5 s, one of ten is refunded

Answers of some alerts are checked with DuckDB, over the streams as a whole: as a count and a sum for each. Rates are tuples per second of CPU time of one process: that is what one core does, whatever else runs. The
first micro-batches of each run warm up and are not measured: the first compiles the alerts, and the next ones fill caches and windows. All numbers of alerts go through the same.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any

import duckdb
import numpy as np
import pyarrow as pa
import typer
from rich.box import SIMPLE
from rich.console import Console
from rich.table import Table

import watersmeet as wm
from watersmeet_lab.bench import registration as registering
from watersmeet_lab.bench.data import START_US
from watersmeet_lab.bench.machine import describe

USERS, TUPLES_PER_SECOND, CHECKED = 20_000, 1_000, 200
WARM_UP = 3
"""Micro-batches of each run that are not measured."""
KINDS = ("equality", "ranges", "joins")
_TS = pa.timestamp("us", tz="UTC")
_WINDOWS = (2, 5, 10)


@dataclass(frozen=True)
class Alert:
    """A registered query, and what DuckDB is asked: rows of `x` with a number, over streams whose watermark is `{mark}`."""

    sql: str
    check: str


@dataclass
class Outcome:
    """One run."""

    alerts: int
    rows: int
    tuples: int
    answers: int
    rate: float
    """Tuples per second of CPU time."""
    adding_ms: float
    first_seconds: float
    checked: int
    right: bool


def make_streams(batches: int, rows: int, seed: int) -> list[dict[str, pa.Table]]:
    """The tuples of every micro-batch, by stream."""
    rng, total = np.random.default_rng(seed), batches * rows
    orders, payments, refunds = (int(total * share) for share in (0.53, 0.42, 0.05))
    at = np.sort(rng.integers(0, total * (1_000_000 // TUPLES_PER_SECOND), orders))
    user = rng.integers(0, USERS, orders)
    paid, back = (np.sort(rng.permutation(orders)[:n]) for n in (payments, refunds))
    made: dict[str, tuple[np.ndarray, dict[str, np.ndarray]]] = {
        "orders": (at, {"user": user, "total": np.round(rng.exponential(100, orders), 2)}),
        "payments": (
            at[paid] + rng.integers(0, 5_000_000, payments),
            {"order_id": paid, "user": user[paid], "amount": np.round(rng.exponential(100, payments), 2)},
        ),
        "refunds": (
            at[back] + rng.integers(0, 5_000_000, refunds),
            {"order_id": back, "user": user[back], "reason": rng.integers(0, 1_000, refunds)},
        ),
    }
    return _cut({name: _stream(ts, columns) for name, (ts, columns) in made.items()}, batches, rows)


def _stream(at: np.ndarray, columns: Mapping[str, np.ndarray]) -> pa.Table:
    order = np.argsort(at, kind="stable")
    ids = np.arange(len(at))[order]
    ts = pa.array(START_US + at[order]).cast(_TS)
    return pa.table({"id": ids, **{name: values[order] for name, values in columns.items()}, "ts": ts})


def _cut(streams: Mapping[str, pa.Table], batches: int, rows: int) -> list[dict[str, pa.Table]]:
    """Batches by event time, of about so many tuples."""
    span = rows * (1_000_000 // TUPLES_PER_SECOND)
    edges = START_US + span * np.arange(batches + 1)
    edges[-1] = np.iinfo(np.int64).max
    places = {s: np.searchsorted(t.column("ts").cast(pa.int64()).to_numpy(), edges) for s, t in streams.items()}
    return [
        {s: t.slice(places[s][n], places[s][n + 1] - places[s][n]) for s, t in streams.items()} for n in range(batches)
    ]


def make_alerts(count: int, seed: int, kinds: tuple[str, ...] = KINDS) -> list[Alert]:
    """So many alerts, the same number of each kind."""
    rng = np.random.default_rng(seed + 1)
    makers: dict[str, Callable[[np.random.Generator], Alert]] = {
        "equality": _watch_value, "ranges": _watch_range, "joins": _watch_absence,
    }  # fmt: skip
    return [makers[kinds[n % len(kinds)]](rng) for n in range(count)]


def _one_stream(stream: str, where: str) -> Alert:
    return Alert(f"SELECT x.id FROM {stream} x WHERE {where}", f"SELECT x.id AS n FROM {stream} x WHERE {where}")


def _watch_value(rng: np.random.Generator) -> Alert:
    stream = ("orders", "orders", "payments", "refunds")[rng.integers(4)]
    return _one_stream(stream, f"x.user = {rng.integers(USERS)}")


def _watch_range(rng: np.random.Generator) -> Alert:
    low, many = int(rng.integers(0, 800)), ", ".join(map(str, rng.integers(0, USERS, 5)))
    forms = [
        ("orders", f"x.total > {rng.integers(900, 1_500)}"),
        ("orders", f"x.total BETWEEN {low} AND {low}.05"),
        ("payments", f"x.amount > {rng.integers(900, 1_500)}.5"),
        ("orders", f"x.user IN ({many})"),
        ("payments", f"x.user IN ({many})"),
        ("refunds", f"x.reason BETWEEN {low} AND {low + 1}"),
    ]
    return _one_stream(*forms[rng.integers(len(forms))])


def _watch_absence(rng: np.random.Generator) -> Alert:
    """Orders without a payment or a refund: as an anti join, or as rows of a left join."""
    seconds, other = int(_WINDOWS[rng.integers(3)]), ("payments", "refunds")[rng.integers(2)]
    where = (f"x.user = {rng.integers(USERS)}", f"x.total > {rng.integers(700, 1_500)}")[rng.integers(2)]
    on = "y.order_id = x.id" + (
        "" if rng.integers(2) or other == "refunds" else f" AND y.amount > {rng.integers(5, 50)}"
    )
    window = f"DWINDOW (x, y) = {seconds} SECONDS"
    near = f"{on} AND y.ts BETWEEN x.ts AND x.ts + INTERVAL {seconds} SECONDS"
    lone = f"x.ts + INTERVAL {seconds} SECONDS < (SELECT max(ts) FROM {other})"
    none = (
        f"SELECT x.id AS n FROM orders x WHERE {where} AND {lone} AND NOT EXISTS (SELECT 1 FROM {other} y WHERE {near})"
    )
    if rng.integers(2):
        return Alert(f"SELECT x.id FROM orders x LEFT ANTI JOIN {other} y ON {on} WHERE {where} {window}", none)
    pairs = f"SELECT x.id + y.id AS n FROM orders x JOIN {other} y ON {near} WHERE {where}"
    text = f"SELECT x.id, y.id AS other FROM orders x LEFT JOIN {other} y ON {on} WHERE {where} {window}"
    return Alert(text, f"{none} UNION ALL {pairs}")


def run(alerts: list[Alert], batches: list[dict[str, pa.Table]], checked: int) -> Outcome:
    """Register alerts, and let all batches arrive."""
    subs = wm.local.subscriptions({s: wm.Stream(t.slice(0, 0), time="ts") for s, t in batches[0].items()})
    begin = time.process_time()
    subs.add_all({str(n): alert.sql for n, alert in enumerate(alerts)})
    added = time.process_time() - begin
    spent, answers, found = [], 0, dict[str, list[int]]()
    watched = {str(n) for n in _choose(len(alerts), checked)}
    for batch in batches:
        begin = time.process_time()
        out = subs.push(batch)
        spent.append(time.process_time() - begin)
        answers += out.num_rows
        _collect(out, watched, found)
    assert all(entry.state == "running" for entry in subs.list())
    tuples = [sum(t.num_rows for t in batch.values()) for batch in batches]
    return Outcome(
        len(alerts), tuples[-1], sum(tuples), answers, sum(tuples[WARM_UP:]) / sum(spent[WARM_UP:]), 1_000 * added / len(alerts),
        spent[0], len(watched), check(alerts, batches, watched, found),
    )  # fmt: skip


def _choose(alerts: int, checked: int) -> list[int]:
    return np.unique(np.linspace(0, alerts - 1, min(checked, alerts)).astype(int)).tolist()


def _collect(out: pa.Table, watched: set[str], found: dict[str, list[int]]) -> None:
    mine = out.filter(pa.array(np.isin(out.column("query").to_numpy(), list(watched))))
    for id, answer in zip(mine.column("query").to_pylist(), mine.column("answer").to_pylist(), strict=True):
        values: list[Any] = list(json.loads(answer).values())
        found.setdefault(id, []).append(sum(v for v in values if v is not None))


def check(
    alerts: list[Alert], batches: list[dict[str, pa.Table]], watched: set[str], found: Mapping[str, list[int]]
) -> bool:
    """Whether DuckDB finds as many answers, with the same sums."""
    with duckdb.connect() as con:
        con.execute("SET TimeZone = 'UTC'")
        for stream in batches[0]:
            con.register(stream, pa.concat_tables([batch[stream] for batch in batches]))
        for id in sorted(watched, key=int):
            count, total = con.execute(
                f"SELECT count(*), coalesce(sum(n), 0) FROM ({alerts[int(id)].check})"
            ).fetchall()[0]
            mine = found.get(id, [])
            if (len(mine), sum(mine)) != (count, int(total)):
                typer.echo(
                    f"alert {id}: {len(mine)} answers of sum {sum(mine)}, DuckDB {count} of {total}: {alerts[int(id)].sql}"
                )
                return False
    return True


def command(
    sizes: Annotated[str, typer.Option(help="Numbers of alerts.")] = "200,20000",
    batches: Annotated[
        int, typer.Option(help=f"Micro-batches of each run; the first {WARM_UP} warm up.", min=WARM_UP + 1)
    ] = 12,
    rows: Annotated[int, typer.Option(help="Tuples of a micro-batch, of all streams together.", min=100)] = 5_000,
    kinds: Annotated[str, typer.Option(help=f"Of {', '.join(KINDS)}.")] = ",".join(KINDS),
    checked: Annotated[int, typer.Option(help="Alerts whose answers DuckDB checks.", min=1)] = CHECKED,
    seed: Annotated[int, typer.Option(help="Of alerts and tuples.")] = 1,
    registration: Annotated[
        int,
        typer.Option(
            help="Instead: register so many queries of new forms of each kind, beside the first number of alerts.",
            min=0,
        ),
    ] = 0,
    raw: Annotated[Path | None, typer.Option("--json", help="Write all figures here.")] = None,
) -> None:
    """Tuples per second of CPU time with many alerts on one core, answers checked; or the CPU time of registering queries."""
    named = tuple(kind for kind in kinds.split(",") if kind)
    if unknown := set(named) - set(KINDS):
        raise typer.BadParameter(f"{', '.join(sorted(unknown))}: not among {', '.join(KINDS)}", param_hint="--kinds")
    if registration:
        others = int(sizes.split(",")[0])
        timed = registering.measure(
            registration, seed, {f"alert {n}": a.sql for n, a in enumerate(make_alerts(others, seed, named))}
        )
        registering.show(Console(), timed, others)
        _write(raw, seed, {"registration": [asdict(one) for one in timed], "beside": others})
        return
    streams, found = make_streams(batches, rows, seed), list[Outcome]()
    run(make_alerts(60, seed, named), streams[: WARM_UP + 1], 60)  # kernels are compiled
    for size in sizes.split(","):
        found.append(run(make_alerts(int(size), seed, named), streams, checked))
    _show(Console(), found)
    _write(raw, seed, {"kinds": named, "runs": [asdict(o) for o in found]})
    if not all(o.right for o in found):
        raise typer.Exit(1)


def _write(raw: Path | None, seed: int, told: Mapping[str, Any]) -> None:
    if raw is not None:
        raw.write_text(json.dumps({"seed": seed, "machine": describe(), **told}))


def _show(console: Console, runs: list[Outcome]) -> None:
    table = Table(
        "alerts", "tuples a batch", "tuples/CPU-s", "of the first", "answers", "add ms", "first batch, CPU-s", "",
        title=f"{runs[0].tuples:,} tuples of three streams, one process; answers checked by DuckDB", title_justify="left",
        box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for column in table.columns[:-1]:
        column.justify = "right"
    for o in runs:
        said = f"{o.checked} right" if o.right else "[red]wrong[/]"
        table.add_row(
            f"{o.alerts:,}", f"{o.rows:,}", f"{o.rate:,.0f}", f"{o.rate / runs[0].rate:.2f}", f"{o.answers:,}",
            f"{o.adding_ms:.2f}", f"{o.first_seconds:.1f}", said,
        )  # fmt: skip
    console.print(table)
