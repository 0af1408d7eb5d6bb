"""How busy keys are: what a node has counted, and what the others have told.

A batch's tuples are counted by key where they are indexed; counts fade, so that a rate is that of about the last eight batches. A
node tells its busiest keys; every other node reads that when it has to choose where a query waits. A key of which nothing is told is quiet.

Invariant: rates are a function of the batches that have been counted. A wrong or missing rate costs messages, never an answer.
Implements: Idreos, Liarou, Koubarakis (2008), sections 6 and 7, RIC. Departs from them: nodes do not ask candidates one by one, which
would be two rounds more for every rewriting; each tells all others once a batch, so what is known is at most one batch old.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
import pyarrow as pa

from watersmeet.plan.model import TIME
from watersmeet.storage.segment import Segment

TOLD = 8_192
"""So many keys a node tells of."""
_MEMORY = 8
"""Batches that a rate is of."""
_WHOLE = 1_000
"""Rates are in thousandths of tuples per batch."""


def count_rates(before: Segment | None, keys: np.ndarray) -> Segment | None:
    """The rates of a node's busiest keys after a batch that brought tuples under these keys."""
    found, counts = np.unique(keys, return_counts=True)
    rates = counts * (_WHOLE // _MEMORY)
    if before is not None:
        old, faded = before.codes("key", "integer"), before.codes("rate", "integer") * (_MEMORY - 1) // _MEMORY
        both = np.concatenate([found, old])
        found, place = np.unique(both, return_inverse=True)
        rates = np.bincount(place, np.concatenate([rates, faded]), len(found)).astype(np.int64)
    kept = np.lexsort((found, -rates))[:TOLD]
    kept = kept[rates[kept] > 0]
    if not len(kept):
        return None
    zeros = np.zeros(len(kept), np.int64)
    return Segment.of(pa.table({TIME: zeros, "key": found[kept], "rate": rates[kept]}))


def collect_rates(segments: Iterable[Segment]) -> tuple[np.ndarray, np.ndarray]:
    """What all nodes tell: keys in ascending order, and their rates. A key is told by its owner alone."""
    parts = [(s.codes("key", "integer"), s.codes("rate", "integer")) for s in segments]
    keys, rates = (
        (np.concatenate([np.zeros(0, np.int64), *column]) for column in zip(*parts, strict=True))
        if parts
        else (np.zeros(0, np.int64),) * 2
    )
    order = np.argsort(keys)
    return keys[order], rates[order]
