"""Bloom filters as they travel between sites: one row with the bits.

Invariant: a filter passes every code that is in it; what it passes besides costs bytes, never correctness.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.kernels import bloom
from watersmeet.sites.one_way.kept import BITS
from watersmeet.sites.planning.cost import HASHES, filter_bytes


def build_filter(codes: np.ndarray) -> pa.Table:
    bits = bloom.build(codes, filter_bytes(len(codes)), HASHES)
    return pa.table({BITS: pa.array([bits.tobytes()], pa.binary())})


def find_passing(table: pa.Table, codes: np.ndarray) -> np.ndarray:
    """Which codes pass a filter, or one of several."""
    out = np.zeros(len(codes), np.bool_)
    for blob in table.column(BITS).to_pylist():
        out |= bloom.find_passing(np.frombuffer(blob, np.uint8).copy(), codes, HASHES)
    return out
