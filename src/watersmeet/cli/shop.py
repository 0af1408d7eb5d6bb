"""The demo's data: a web shop in fast motion, written as parquet files while the query runs.

    clicks   user, page, ts                 orders   id, user, total, ordered_at                refunds   order_id, amount, ts

One second of the wall clock is ten minutes of the shop's. Every event arrives up to ten minutes of event time after it
happened, so each file is out of order. `sent_late` marks rows that were made late on purpose: they are older than a
watermark that the query has already reported, and watermarks only grow, so every one of them is dropped.

Invariant: every other row is in time, however Spark cuts the files into batches. In its own stream it is at most
`DELAY_US` plus one file behind anything that was written before it, which is less than `LATENESS`.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.runtime.progress import Moment

SPEED = 600
FILE_S = 0.5
DELAY_US = 600_000_000
LATENESS = "30 minutes"
SCHEMAS = {
    "clicks": "user bigint, page string, ts timestamp, sent_late boolean",
    "orders": "id bigint, user bigint, total double, ordered_at timestamp, sent_late boolean",
    "refunds": "order_id bigint, amount double, ts timestamp, sent_late boolean",
}
TIMES = {"clicks": "ts", "orders": "ordered_at", "refunds": "ts"}
_PAGES = np.array(["/home", "/search", "/sale", "/shoes", "/books", "/garden", "/cart", "/help"])
_USERS = 2_000
_PER_SECOND = {"clicks": 3_000, "orders": 600}
_REFUNDED = 0.3
_REFUND_US = 9_000_000_000
"""Refunds come up to two and a half hours after their order: some miss the window of two hours."""
_LATE_PER_FILE = 2
_Columns = dict[str, np.ndarray]


class Shop:
    """Writes the three streams below a folder from its own thread, until it is stopped."""

    def __init__(self, folder: Path, seed: int) -> None:
        self.folder, self.random = folder, np.random.default_rng(seed)
        self.opened_us = int(datetime.now(UTC).replace(hour=8, minute=0, second=0, microsecond=0).timestamp() * 1e6)
        self.now_us, self.orders, self.files = self.opened_us, 0, 0
        self.sent = dict.fromkeys(SCHEMAS, 0)
        self.sent_late = dict.fromkeys(SCHEMAS, 0)
        self._watermarks: Mapping[str, Moment] = {}
        self._waiting: dict[str, _Columns] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="shop", daemon=True)
        for name in SCHEMAS:
            (folder / name).mkdir(parents=True)

    def open(self) -> None:
        """Begin to write."""
        self._thread.start()

    def close(self) -> None:
        """Stop; all files are complete when this returns."""
        self._stop.set()
        self._thread.join()

    def watermarks(self, reported: Mapping[str, Moment]) -> None:
        """The query has reached these: what is older is certainly late from now on."""
        self._watermarks = reported

    def _run(self) -> None:
        began = time.monotonic()
        while not self._stop.wait(max(0.0, began + self.files * FILE_S - time.monotonic())):
            self.step()

    def step(self) -> None:
        """One more file of every stream: half a second of the wall clock, five minutes of the shop's."""
        begin, self.now_us = self.now_us, self.now_us + int(FILE_S * SPEED * 1e6)
        orders = self._new_orders(begin)
        made = {"clicks": self._new_clicks(begin), "orders": orders, "refunds": self._new_refunds(orders)}
        for name, columns in made.items():
            arrived = self._take_arrivals(name, columns)
            self._write(name, _concat(arrived, self._late(name, arrived)))
        self.files += 1

    def _new_clicks(self, begin: int) -> _Columns:
        n = int(_PER_SECOND["clicks"] * FILE_S)
        return {
            "user": self.random.integers(0, _USERS, n),
            "page": _PAGES[self.random.integers(0, len(_PAGES), n)],
            "ts": self.random.integers(begin, self.now_us, n),
        }

    def _new_orders(self, begin: int) -> _Columns:
        n = int(_PER_SECOND["orders"] * FILE_S)
        self.orders += n
        return {
            "id": np.arange(self.orders - n, self.orders),
            "user": self.random.integers(0, _USERS, n),
            "total": np.round(self.random.gamma(2.0, 30.0, n) + 5, 2),
            "ordered_at": self.random.integers(begin, self.now_us, n),
        }

    def _new_refunds(self, orders: _Columns) -> _Columns:
        """Some of the new orders will be refunded, in part or in full, some time later."""
        at = np.flatnonzero(self.random.random(len(orders["id"])) < _REFUNDED)
        return {
            "order_id": orders["id"][at],
            "amount": np.round(orders["total"][at] * self.random.uniform(0.1, 1.0, len(at)), 2),
            "ts": orders["ordered_at"][at] + self.random.integers(0, _REFUND_US, len(at)),
        }

    def _take_arrivals(self, name: str, made: _Columns) -> _Columns:
        """What has arrived by now, in the order of arrival: each event after a delay of its own."""
        n = len(made[TIMES[name]])
        made["arrival"] = made[TIMES[name]] + (DELAY_US * self.random.random(n) ** 3).astype(np.int64)
        made["sent_late"] = np.zeros(n, bool)
        waiting = _concat(self._waiting[name], made) if name in self._waiting else made
        order = np.argsort(waiting["arrival"], kind="stable")
        due = int(np.searchsorted(waiting["arrival"][order], self.now_us, side="right"))
        self._waiting[name] = {c: v[order[due:]] for c, v in waiting.items()}
        return {c: v[order[:due]] for c, v in waiting.items()}

    def _late(self, name: str, arrived: _Columns) -> _Columns:
        """A few rows that come after their time: copies of others, but older than the reported watermark."""
        mark = self._watermarks.get(name)
        n = min(_LATE_PER_FILE, len(arrived["arrival"])) if isinstance(mark, datetime) else 0
        rows = {c: v[:n].copy() for c, v in arrived.items()}
        if isinstance(mark, datetime):
            rows[TIMES[name]] = int(mark.timestamp() * 1e6) - self.random.integers(1_000_000, DELAY_US, n)
        rows["sent_late"] = np.ones(n, bool)
        return rows

    def _write(self, name: str, rows: _Columns) -> None:
        """Under a name that Spark ignores, then renamed: a reader never sees half a file."""
        table = pa.table({c: v for c, v in rows.items() if c != "arrival"})
        at = table.schema.get_field_index(TIMES[name])
        table = table.set_column(at, TIMES[name], table[at].cast(pa.timestamp("us", tz="UTC")))
        hidden = self.folder / name / f".{self.files:06d}"
        pq.write_table(table, hidden)
        hidden.rename(self.folder / name / f"{self.files:06d}.parquet")
        self.sent_late[name] += int(np.count_nonzero(rows["sent_late"]))
        self.sent[name] += table.num_rows


def _concat(a: _Columns, b: _Columns) -> _Columns:
    return {c: np.concatenate([a[c], b[c]]) for c in a}
