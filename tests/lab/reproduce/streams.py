"""Small streams for the three queries of BiStream's evaluation, without TPC-H."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet_lab.reproduce.bistream.queries import BAND, Q5, Q7, Feed, StreamQuery, assign_times

NATIONS = np.array(["CHINA", "INDIA", "JAPAN"])


def small(query: StreamQuery, rows: int = 600, seed: int = 1, window_s: int | None = None, rate: float = 10.0) -> Feed:
    """`rows` tuples of each stream; a key has a few partners."""
    rng = np.random.default_rng(seed)
    left, right = _equi(rng, rows, query) if query.equality else _band(rng, rows)
    return assign_times(query, left, right, rate, window_s)


def _equi(rng: np.random.Generator, rows: int, query: StreamQuery) -> tuple[pa.Table, pa.Table]:
    keys = rng.permutation(rows)
    supplier = pa.table(
        {"suppkey": keys, "nationkey": pa.array(keys % 3, pa.int32()), "nation": pa.array(NATIONS[keys % 3].tolist())}
    )
    lineitem = {
        "suppkey": rng.integers(0, rows, rows),
        "orderkey": np.arange(rows),
        "price": rng.random(rows).round(2),
        "discount": rng.random(rows).round(2),
    }
    if query is Q7:
        lineitem["year"] = rng.integers(1995, 1997, rows)
    return supplier, pa.table(lineitem)


def _band(rng: np.random.Generator, rows: int) -> tuple[pa.Table, pa.Table]:
    orders = [np.sort(rng.integers(0, rows, rows)) for _ in range(2)]
    modes = pa.array(np.where(rng.random(rows) < 0.8, "TRUCK", "AIR").tolist())
    l1 = pa.table(
        {
            "orderkey": orders[0],
            "line": np.arange(rows) % 7,
            "shipmode": modes,
            "quantity": rng.integers(40, 51, rows).astype(float),
            "nation": pa.array(NATIONS[orders[0] % 3].tolist()),
        }
    )
    instructions = pa.array(np.where(rng.random(rows) < 0.5, "NONE", "COD").tolist())
    return l1, pa.table({"orderkey": orders[1], "line": np.arange(rows) % 7, "shipinstruct": instructions})


SMALL = {q.name: small(q) for q in (Q5, Q7, BAND)}
