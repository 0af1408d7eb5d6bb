"""The benchmark's streams: parquet folders that Spark's file source reads in event-time order.

Each stream has `rows` tuples (key, ts, payload) at 1,000 tuples per second of event time: tuple i of a stream stands
at START + i ms + a uniform jitter below 1 ms, so a stream is sorted and two streams are not in phase. Keys are uniform
over KEYS or follow a Zipf law (key k with probability proportional to 1 / k^THETA). Payloads are PAYLOAD_BYTES random
characters of a 64-letter alphabet, so no codec makes them vanish.

Invariant: a folder is a pure function of its `Dataset`; file i's modification time is i seconds after START, hence the
source's order is the time order. A folder with a `_done` file is complete and is used again.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

Keys = Literal["uniform", "zipf"]

ALIASES = ("a", "b", "c")
START = datetime(2026, 1, 1, tzinfo=UTC)
START_US = int(START.timestamp()) * 1_000_000
INTERARRIVAL_US = 1_000
KEYS = 10_000
THETA = 0.9
PAYLOAD_BYTES = 100
SCHEMA = "key BIGINT, ts TIMESTAMP, payload STRING"

_ALPHABET = np.frombuffer(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_", np.uint8)


@dataclass(frozen=True)
class Dataset:
    """What a set of streams is made of."""

    rows: int
    files: int
    keys: Keys = "uniform"
    seed: int = 1

    @property
    def name(self) -> str:
        """The folder's name.

        >>> Dataset(rows=1000, files=20, keys="zipf").name
        'zipf-1000x20-seed1'
        """
        return f"{self.keys}-{self.rows}x{self.files}-seed{self.seed}"


def default_folder() -> Path:
    """Where data that takes long to make is kept, if no folder is named."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "watersmeet"


def generate(dataset: Dataset, ways: int, root: Path) -> Path:
    """Write the first `ways` streams of a dataset below `root`, unless they are there; return the dataset's folder."""
    folder = root / dataset.name
    for number, alias in enumerate(ALIASES[:ways]):
        if not (folder / alias / "_done").exists():
            _write_stream(dataset, np.random.default_rng([dataset.seed, number]), folder / alias)
    return folder


def stream_tables(dataset: Dataset, rng: np.random.Generator) -> Iterator[pa.Table]:
    """The tables of one stream, one per file, in time order."""
    probabilities = _zipf() if dataset.keys == "zipf" else None
    edges = np.linspace(0, dataset.rows, dataset.files + 1).astype(np.int64)
    for start, stop in pairwise(edges):
        count = int(stop - start)
        ts_us = START_US + np.arange(start, stop) * INTERARRIVAL_US + rng.integers(0, INTERARRIVAL_US, count)
        if probabilities is None:
            keys = rng.integers(0, KEYS, count)
        else:
            keys = np.searchsorted(probabilities, rng.random(count))
        times = pa.array(ts_us, pa.timestamp("us", tz="UTC"))
        yield pa.table({"key": pa.array(keys), "ts": times, "payload": payloads(rng, count)})


def _zipf() -> np.ndarray:
    weights = np.arange(1, KEYS + 1) ** -THETA
    cumulative = np.cumsum(weights / weights.sum())
    cumulative[-1] = 1.0
    return cumulative


def payloads(rng: np.random.Generator, count: int, size: int = PAYLOAD_BYTES) -> pa.StringArray:
    """Random texts of so many bytes."""
    letters = _ALPHABET[np.frombuffer(rng.bytes(count * size), np.uint8) & 63]
    offsets = np.arange(count + 1, dtype=np.int32) * size
    return pa.StringArray.from_buffers(count, pa.py_buffer(offsets.tobytes()), pa.py_buffer(letters.tobytes()))


def _write_stream(dataset: Dataset, rng: np.random.Generator, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for number, table in enumerate(stream_tables(dataset, rng)):
        path = folder / f"part-{number:05d}.parquet"
        pq.write_table(table, path, compression="snappy", use_dictionary=False)
        mtime = START.timestamp() + number
        os.utime(path, (mtime, mtime))
    (folder / "_done").touch()
