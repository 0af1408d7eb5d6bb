"""Rows for routing, without tables: numbers as keys by class, codes of content, values by column."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from watersmeet.kernels.placement import SEED, hash_codes, hash_longs


class Rows:
    """What `routing.biclique.Content` asks for."""

    def __init__(
        self,
        keys: Mapping[int, Sequence[int]] | None = None,
        spread: Sequence[int] | None = None,
        values: Mapping[str, Sequence[float]] | None = None,
    ) -> None:
        given = [*(keys or {}).values(), *([] if spread is None else [spread]), *(values or {}).values()]
        self.rows = len(given[0]) if given else 1
        self._keys = {c: np.array(codes, np.int64) for c, codes in (keys or {}).items()}
        self._spread = np.array(spread if spread is not None else [0] * self.rows, np.int64)
        self._values = {name: np.array(v, np.float64) for name, v in (values or {}).items()}

    def key(self, classes: tuple[int, ...]) -> np.ndarray:
        return reduce(hash_longs, (self._keys[c] for c in classes), np.full(self.rows, SEED, np.int64))

    def spread(self) -> np.ndarray:
        return hash_codes(self._spread)

    def value(self, column: str) -> np.ndarray:
        return self._values[column]
