"""Batches of a query of three streams, of which one falls silent: what pages, metrics and screenshots are tested with."""

from __future__ import annotations

import random
from datetime import UTC, datetime, timedelta

import pyarrow as pa

import watersmeet as wm
from watersmeet.runtime.observing import Events, describe_plan, tell_all, waits_of
from watersmeet.runtime.progress import Progress, QueryFigures
from watersmeet.view.hub import Hub

TEXT = (
    "SELECT o.user, c.v AS page, p.v AS paid FROM orders o, clicks c, payments p "
    "WHERE o.user = c.user AND p.user = o.user WINDOW (o, c) = 10 MINUTES AND WINDOW (o, p) = 30 MINUTES"
)
STEP = timedelta(seconds=20)
BEGIN = datetime(2026, 1, 31, 10, 0, tzinfo=UTC)


def query() -> wm.Query:
    rows = pa.table({"user": [1], "v": [1.0], "ts": pa.array([0], pa.timestamp("us", "UTC"))})
    late = {"orders": "10 seconds", "clicks": "5 seconds", "payments": "0 seconds"}
    return wm.sql(TEXT, {n: wm.Stream(rows, time="ts", lateness=span) for n, span in late.items()}, units=8)


def batches(count: int, silent_from: int) -> list[Progress]:
    """`silent_from`: the last batch that brings payments."""
    chance = random.Random(1)
    return [_batch(n, BEGIN + n * STEP, BEGIN + min(n, silent_from) * STEP, chance) for n in range(count)]


def _batch(number: int, now: datetime, paid: datetime, chance: random.Random) -> Progress:
    rows, seconds = chance.randint(80_000, 120_000), chance.uniform(0.8, 1.4)
    return Progress(
        batch_id=number,
        seconds=seconds,
        input_rows=rows,
        results=int(rows * chance.uniform(1.5, 2.5)),
        late={"clicks": chance.randint(1, 30)} if number % 3 else {},
        set_aside={"orders": number % 4} if number % 4 else {},
        late_sample=(
            {
                "stream": "clicks",
                "ts": 1_000_000 * int(now.timestamp() - 60),
                "lag_us": 55_000_000,
                "batch": number,
                "reason": "late",
                "row": f'{{"user":{number},"v":"<b>"}}',
            },
        )
        if number % 3
        else (),
        watermarks={"orders": now - timedelta(seconds=10), "clicks": now - timedelta(seconds=5), "payments": paid},
        state_rows={"o": 20_000 + 600 * number, "c": 60_000 + 900 * number, "p": 9_000 + 10 * number},
        state_bytes=(90_000 + 1_500 * number) * 140,
        unit_rows={unit: int(rows / 8 * chance.uniform(0.6, 1.7)) for unit in range(8)},
        mail_bytes=rows * 90,
        kernels={"hw": rows},
        pruned=number,
        drivers={"p, o, c": 8},
        scaled=("payloads of c are sent for matches only: one row in 40 matches",) if number == 17 else (),
        phases={"intent": 0.01 * seconds, "rounds and sink": 0.93 * seconds, "commit": 0.02, "collection": 0.04},
        queries=2,
        dearest=(
            QueryFigures("user 42", 0.75, 40 * number + 30, 30, now - timedelta(seconds=10), 5_000_000, 29_000),
            QueryFigures("007", 0.25, number, 1, now - timedelta(seconds=20), 0, 1_000),
        ),
        fanout={"o>c": 2.31, "c>o": 0.77, "o>p": 0.42, "p>o": 1.8},
        oldest={"o": paid - timedelta(minutes=30), "c": paid - timedelta(minutes=10), "p": now - timedelta(minutes=30)},
    )


def hub(count: int = 40, silent_from: int = 30, title: str = "orders") -> Hub:
    """All batches, told."""
    plan = query().plan
    made = Hub(describe_plan(plan, title, "rounds"))
    tell_all(made, Events(waits_of(plan)), batches(count, silent_from))
    return made
