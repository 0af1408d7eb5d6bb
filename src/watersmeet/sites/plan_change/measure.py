"""What a unit measures of its new tuples, as the site's survey asks: how many they are, what they take in a letter, and which values their keys have.

Invariant: a measure is JSON, and a function of the tuples and of what is asked.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.kernels.hashing import combine
from watersmeet.plan.model import Plan
from watersmeet.sites.letter import write_item
from watersmeet.sites.planning.key_sample import ALL, KeySample
from watersmeet.sites.planning.values import HEAVY
from watersmeet.storage.segment import Segment, key_columns

_WEIGHED, _WEIGHED_BYTES = 256, 2**16
"""Tuples of a batch that are compressed to see what they take, and their bytes."""
_CODE_ITEM = 175
"""Bytes of an item of codes, besides the codes."""


@dataclass(frozen=True)
class Measured:
    """What units are asked to measure of a batch's tuples."""

    watched: Mapping[str, Sequence[int]] = field(default_factory=dict)
    """By class of keys, hashes of values that are frequent in some stream."""
    weighed: Collection[str] = ()
    """Streams whose tuples need not be weighed."""
    limits: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """By alias and class of keys, the bound of hashes that are sampled; none: all may be."""
    asleep: Collection[str] = ()
    """Streams whose keys need not be measured."""


def measure(plan: Plan, position: int, new: Segment, asked: Measured) -> dict[str, Any]:
    """The measure of a stream's new tuples, as JSON; keys by class, with the counts of watched values."""
    alias = plan.aliases[position]
    weighs, limits = alias not in asked.weighed, asked.limits.get(alias, {})
    own, keys = plan.inputs[position].keys, dict[str, Any]()
    for c in own if alias not in asked.asleep else ():
        codes = new.key(key_columns(plan, own, [c]))
        keys[str(c)] = _measure_key(codes, asked.watched.get(str(c), ()), limits.get(str(c), ALL))
        if weighs:
            keys[str(c)]["code"] = _weigh_code(codes)
    out = {"rows": new.rows, "low": new.min_ts, "high": new.max_ts, "keys": keys}
    part = new.table.slice(0, _count_weighed(new.table) if weighs else 0)
    if part.num_rows > 1:
        one, whole = (len(write_item(part.slice(0, n))) for n in (1, part.num_rows))
        each = max(1.0, (whole - one) / (part.num_rows - 1))
        out |= {"each": each, "item": max(0.0, one - each)}
    return out


def _measure_key(codes: np.ndarray, watched: Sequence[int], below: int) -> dict[str, Any]:
    hashes = combine(np.zeros(len(codes), np.int64), codes) & (ALL - 1)
    values, counts = np.unique(hashes, return_counts=True)
    sample, top = KeySample.of(values, counts, below), np.argsort(-counts, kind="stable")[:HEAVY]
    at = np.minimum(np.searchsorted(values, watched), len(values) - 1)
    return {
        "sample": sample.write(),
        "heavy": np.column_stack([values[top], counts[top]]).tolist(),
        "watched": [[h, int(counts[n]) if values[n] == h else 0] for h, n in zip(watched, at, strict=True)],
    }


def _count_weighed(table: pa.Table) -> int:
    """Tuples that are compressed to see what they take: fewer of large ones."""
    each = table.nbytes / max(table.num_rows, 1)
    return min(_WEIGHED, max(_WEIGHED // 8, int(_WEIGHED_BYTES / max(each, 1.0))))


def _weigh_code(codes: np.ndarray) -> float:
    """The bytes of a code among others."""
    values = np.unique(codes)
    some = values[:: max(1, len(values) // _WEIGHED)]
    return max(0.5, (len(write_item(pa.table({"_code": pa.array(some, pa.int64())}))) - _CODE_ITEM) / len(some))
