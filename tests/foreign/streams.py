"""Streams and queries of the foreign suites, as facts: columns, delays, conditions; and the rows that a case adds.

Spark's window(t, '10 seconds')     is the stream's event time here, rounded down by its source: rows of one window have one time
Spark's and Flink's watermark       is one for both streams; here every stream has its own
Spark drops a row that is equal to the watermark, and acts on a watermark in the batch after; here only older rows are late, and a batch's own watermarks count at its end
"""

from __future__ import annotations

from typing import Any

import watersmeet as wm
from watersmeet.testing import QueryTest, table

FOR_EVER = "100000 days"
"""The lateness of a stream without a watermark."""


def stream(columns: str, lateness: str = "0 seconds", **more: Any) -> wm.Stream:
    return wm.Stream(table(f"{columns}, ts timestamp"), time="ts", lateness=lateness, **more)


def pair(text: str, columns: str, lateness: str | tuple[str, str] = "10 seconds", **options: Any) -> QueryTest:
    """A test of a query over the streams lefts and rights of the same columns."""
    delays = (lateness, lateness) if isinstance(lateness, str) else lateness
    lefts, rights = (stream(columns, delay) for delay in delays)
    return QueryTest(wm.sql(text, {"lefts": lefts, "rights": rights}, **options))


def windowed(kind: str, on: str = "", shown: str = "coalesce(l.k, r.k) AS k, l.v AS lv, r.v AS rv", **how: Any) -> QueryTest:  # fmt: skip
    """Spark's setupWindowedJoin: key and window are equal, and perhaps more; rows are `lefts(...)` and `rights(...)`."""
    text = f"SELECT {shown} FROM lefts l {kind} JOIN rights r ON l.k = r.k AND l.ts = r.ts{f' AND {on}' if on else ''}"
    return pair(text, "k int, v int", **how)


def lefts(*values: int) -> list[tuple[int, int, int]]:
    """The value, its double, and the start of its window."""
    return [(value, 2 * value, value // 10 * 10) for value in values]


def rights(*values: int) -> list[tuple[int, int, int]]:
    """The value, its triple, and the start of its window."""
    return [(value, 3 * value, value // 10 * 10) for value in values]


def ranged(kind: str, span: str = "INTERVAL 5 SECONDS", lateness: str = "10 seconds", shown: str = "") -> QueryTest:
    """Spark's setupJoinWithRangeCondition: rows are (k, ts)."""
    shown = shown or "l.k AS lk, r.k AS rk, l.ts AS lt, r.ts AS rt"
    on = f"l.k = r.k AND l.ts BETWEEN r.ts - {span} AND r.ts + {span}"
    return pair(f"SELECT {shown} FROM lefts l {kind} JOIN rights r ON {on}", "k int", lateness)


def self_joined(kind: str, shown: str = "a.id AS i, a.ts AS it, b.id AS j, b.ts AS jt") -> QueryTest:
    """Spark's setupSelfJoin: only even rows are partners, up to five seconds later."""
    on = "a.id = b.id AND b.id % 2 = 0 AND b.ts >= a.ts AND b.ts <= a.ts + INTERVAL 5 SECONDS"
    text = f"SELECT {shown} FROM s a {kind} JOIN s b ON {on}"
    return QueryTest(wm.sql(text, s=stream("id int", "5 seconds")))


def seconds(*values: int) -> list[tuple[int, int]]:
    """Rows whose number is their time."""
    return [(value, value) for value in values]
