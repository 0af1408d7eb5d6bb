"""What a site sees of its streams in a batch: how many tuples, how wide, when, and a sample of their keys.

    sample of a key: the SAMPLE values with the smallest hashes, and how many tuples have each

Invariant: whether a value is in a sample depends on its hash alone, so samples of two streams have the same values of what they
have in common: the chance that two tuples are equal can be told from them without bias, inside a stream and between two.
Implements: Tran and Lee (2010), section 4.1, table 4: r, F and f of a stream, as the streams flow.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from watersmeet.kernels.hashing import combine
from watersmeet.plan.model import Plan, Side
from watersmeet.units.segment import Segment

SAMPLE = 256
HASH_BITS = 62


def measured(plan: Plan, stream: Side, new: Segment) -> dict[str, Any]:
    """The measure of a stream's new tuples, as JSON; keys by class."""
    keys = {str(c): sample(new.key(plan, stream.keys, (c,))) for c in stream.keys}
    return {"rows": new.rows, "bytes": int(new.table.nbytes), "low": new.min_ts, "high": new.max_ts, "keys": keys}


def sample(codes: np.ndarray) -> dict[str, Any]:
    """The values with the smallest hashes: `below` is the hash that all of them are below, `counts` their tuples.

    >>> found = sample(np.array([7, 7, 9]))
    >>> sorted(n for _, n in found["counts"]), found["below"] == 2**62
    ([1, 2], True)
    """
    hashes = combine(np.zeros(len(codes), np.int64), codes) & (2**HASH_BITS - 1)
    values, counts = np.unique(hashes, return_counts=True)
    below = int(values[SAMPLE]) if len(values) > SAMPLE else 2**HASH_BITS
    return {"below": below, "counts": list(zip(values[:SAMPLE].tolist(), counts[:SAMPLE].tolist(), strict=True))}
