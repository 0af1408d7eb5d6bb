"""A sample of the values of a key that all streams draw alike: of all values those whose hashes are below a bound.

    hash   0 ........ below ........................ ALL
           |sampled |                                       the same values at every stream, so samples show what streams have in common

Of two samples with different bounds the part below the smaller one is a sample with that bound. So samples of batches and of streams can be put together, and a part of one can be told.

Invariant: hashes are ascending, each once; there are at most SAMPLE of them. A sample as text is a function of it.
"""

from __future__ import annotations

import zlib
from base64 import b64decode, b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

ALL = 2**32
"""Hashes are below this."""
SAMPLE = 4096
"""Values that are kept. Where half a percent of the values is shared, that shows twenty of these: known to a fifth."""
TOLD_BYTES = 2.6
"""What a value takes in a letter, about: a gap between two hashes, and how often it came."""
_MOST = 2**16 - 1
_FASTEST = 1


@dataclass(frozen=True, eq=False)
class KeySample:
    """Hashes of values, and how many tuples have each."""

    below: int
    hashes: np.ndarray
    counts: np.ndarray

    @classmethod
    def of(cls, values: np.ndarray, counts: np.ndarray, below: int = ALL, most: int = SAMPLE) -> KeySample:
        """From all values below a bound, ascending."""
        end = int(np.searchsorted(values, below))
        if end > most:
            below, end = int(values[most]), most
        return cls(below, values[:end], counts[:end])

    @classmethod
    def read(cls, written: Sequence[Any]) -> KeySample:
        """What was written.

        >>> KeySample.read(KeySample(50, np.array([7, 40]), np.array([1, 300])).write()).counts.tolist()
        [1, 300]
        """
        below, _, text = written
        return cls(below, *_decode(text))

    def write(self) -> list[Any]:
        """As it is kept and told, JSON: the bound, the number of values, and they as text. Gaps are small and most counts are one, so bytes of one rank are alike."""
        values = len(self.hashes)
        if not values:
            return [self.below, 0, ""]
        gaps, planes = self.hashes.astype("<u4"), np.empty((6, values), np.uint8)
        gaps[1:] -= self.hashes[:-1].astype("<u4")
        planes[:4] = gaps.view(np.uint8).reshape(-1, 4).T
        planes[4:] = np.minimum(self.counts, _MOST).astype("<u2").view(np.uint8).reshape(-1, 2).T
        return [self.below, values, b64encode(zlib.compress(planes.tobytes(), _FASTEST)).decode()]

    @classmethod
    def join(cls, parts: Sequence[KeySample], most: int = SAMPLE) -> KeySample:
        """All together.

        >>> one, two = (KeySample.of(np.array(values), np.array([1, 1, 2])) for values in ([3, 5, 9], [5, 8, 9]))
        >>> both = KeySample.join([one, two], most=3)
        >>> both.below, both.hashes.tolist(), both.counts.tolist()
        (9, [3, 5, 8], [1, 2, 1])
        """
        if len(parts) == 1:
            return cls.of(parts[0].hashes, parts[0].counts, parts[0].below, most)
        below = min((part.below for part in parts), default=ALL)
        hashes = np.concatenate([part.hashes for part in parts]) if parts else np.zeros(0, np.int64)
        counts = np.concatenate([part.counts for part in parts]) if parts else hashes
        values, where = np.unique(hashes, return_inverse=True)
        return cls.of(values, np.bincount(where, counts, len(values)).astype(np.int64), below, most)


@lru_cache(maxsize=64)
def _decode(text: str) -> tuple[np.ndarray, np.ndarray]:
    """Hashes and counts: what was told is read whenever plans are thought of."""
    planes = np.frombuffer(zlib.decompress(b64decode(text)) if text else b"", np.uint8).reshape(6, -1).T
    gaps = np.ascontiguousarray(planes[:, :4]).view("<u4").reshape(-1)
    counts = np.ascontiguousarray(planes[:, 4:]).view("<u2").reshape(-1)
    return np.cumsum(gaps, dtype=np.int64), counts.astype(np.int64)
