"""Streams that arrive at sites, the query that joins them, and its answer by DuckDB.

    a   id  k0  text  ts        every stream has a key for each of its neighbours in the chain a.k0 = b.k0, b.k1 = c.k1, ...
    b   id  k0  k1  text  ts

A pair of streams shares so many of its keys that one tuple in `rarity` has a partner in the window of the next stream. Texts are random bytes: nothing compresses them.

Invariant: the same workload has the same tuples. The last tuple of every stream is far ahead of all others, so that all before it is released.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import duckdb
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

SITES = ("paris", "tokyo", "lima")
START_US = 1_767_225_600_000_000
AHEAD_US = 3_600_000_000
_LAST_KEY = -1


@dataclass(frozen=True)
class Workload:
    """Streams, each at a site of its own."""

    streams: int = 2
    tuples: int = 100_000
    """Of every stream."""
    text_bytes: int = 1000
    rarity: int = 100
    """One tuple in so many has partners in the next stream."""
    window_s: float = 10.0
    tuples_per_s: float = 5_000.0
    """Of event time, and of every stream."""
    files: int = 40
    seed: int = 1

    @property
    def names(self) -> str:
        return "abc"[: self.streams]

    @property
    def site_of(self) -> dict[str, str]:
        return dict(zip(self.names, SITES, strict=False))

    def keys_of(self, name: str) -> list[str]:
        """The columns that a stream is joined by."""
        at = self.names.index(name)
        return [f"k{n}" for n in (at - 1, at) if 0 <= n < self.streams - 1]

    def schema(self, name: str) -> str:
        keys = ", ".join(f"{key} bigint" for key in self.keys_of(name))
        return f"id bigint, {keys}, text binary, ts timestamp"

    @property
    def _equalities(self) -> str:
        pairs = zip(self.names, self.names[1:], strict=False)
        return " AND ".join(f"{x}.k{n} = {y}.k{n}" for n, (x, y) in enumerate(pairs))

    @property
    def query(self) -> str:
        ids = ", ".join(f"{n}.id AS {n}_id" for n in self.names)
        size = " + ".join(f"length({n}.text)" for n in self.names)
        return (
            f"SELECT {ids}, {size} AS size FROM {', '.join(self.names)} WHERE {self._equalities}"
            f" WINDOW = {round(self.window_s * 1000)} MILLISECONDS"
        )

    @property
    def values(self) -> int:
        """Of every key: shared values are drawn from so many that a window has about one tuple of each."""
        return max(1, round(self.window_s * self.tuples_per_s))

    def tables(self, name: str) -> Iterator[pa.Table]:
        """A stream in files, the last tuple in a file of its own."""
        at = self.names.index(name)
        rng = np.random.default_rng([self.seed, at])
        per_file = -(-self.tuples // self.files)
        for begin in range(0, self.tuples, per_file):
            ids = np.arange(begin, min(begin + per_file, self.tuples))
            yield self._table(name, ids, {key: self._draw(rng, at, len(ids)) for key in self.keys_of(name)}, rng)
        end = np.array([self.tuples])
        yield self._table(name, end, dict.fromkeys(self.keys_of(name), np.array([_LAST_KEY - at])), rng, AHEAD_US)

    def _draw(self, rng: np.random.Generator, at: int, count: int) -> np.ndarray:
        """Keys of which one in `rarity` is shared with other streams, and the others are the stream's own."""
        shared = rng.random(count) < 1 / self.rarity
        common = rng.integers(0, max(1, self.values // self.rarity), count)
        own = rng.integers(1 << 20, 1 << 50, count) * 8 + at
        return np.where(shared, common, own)

    def _table(
        self, name: str, ids: np.ndarray, keys: Mapping[str, np.ndarray], rng: np.random.Generator, ahead_us: int = 0
    ) -> pa.Table:
        own_us = (
            0 if ahead_us else self.names.index(name)
        )  # all streams end at one time, and each is past all questions
        ts = START_US + (ids * 1e6 / self.tuples_per_s).astype(np.int64) + own_us + ahead_us
        blob, size = rng.bytes(len(ids) * self.text_bytes), self.text_bytes
        texts = [blob[n * size : (n + 1) * size] for n in range(len(ids))]
        columns = {"id": ids, **keys, "text": pa.array(texts, pa.binary())}
        return pa.table({**columns, "ts": pa.array(ts, pa.timestamp("us", tz="UTC"))})

    def compute_expected(self) -> Counter[tuple[Any, ...]]:
        """DuckDB's answer."""
        near = " AND ".join(
            f"abs(epoch_us({x}.ts) - epoch_us({y}.ts)) <= {round(self.window_s * 1e6)}"
            for n, x in enumerate(self.names)
            for y in self.names[n + 1 :]
        )
        ids = ", ".join(f"{n}.id" for n in self.names)
        size = " + ".join(f"{n}.size" for n in self.names)
        with duckdb.connect() as con:
            for name in self.names:
                whole = pa.concat_tables([t.drop_columns(["text"]) for t in self.tables(name)])  # noqa: F841 - named in SQL
                con.execute(f"CREATE TABLE {name} AS SELECT *, {self.text_bytes} AS size FROM whole")
            rows = con.execute(f"SELECT {ids}, {size} FROM {', '.join(self.names)} WHERE {self._equalities} AND {near}")
            return Counter(rows.fetchall())


def feed(workload: Workload, root: Path, files_per_s: float | None) -> dict[str, list[float]]:
    """Write all files of all streams below a folder, at a pace or all at once; by stream when each was there, by the clock."""
    came: dict[str, list[float]] = {name: [] for name in workload.names}
    began = time.monotonic()
    tables = {name: workload.tables(name) for name in workload.names}
    for name in workload.names:
        (root / name).mkdir(parents=True, exist_ok=True)
    for n in range(workload.files + 1):
        if files_per_s is not None:
            time.sleep(max(0.0, began + n / files_per_s - time.monotonic()))
        for name, coming in tables.items():
            table = next(coming, None)
            if table is not None:
                beside = root / f".{name}-{n:05d}"
                pq.write_table(table, beside, compression="none")
                beside.rename(root / name / f"part-{n:05d}.parquet")
                came[name].append(time.time())
    return came
