"""What processing a tuple costs at a site, measured here: c_p, c_u, c_h and c_i of appendix B.

Small batches into a window of middling size, as sites have them: the fixed cost of an operation is spread over the batch.

Implements: Tran and Lee (2010), appendix B, table 4 (the paper does not say how its costs were found).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from watersmeet.sites.planning.cost import PerTuple
from watersmeet.sites.window import Rows, Tuples, Values, Window


def calibrate(batch: int = 30, window: int = 900, values: int = 100, repeats: int = 30) -> PerTuple:
    """Seconds per tuple, for intervals of `batch` tuples and windows of `window`."""
    rng = np.random.default_rng(0)
    w = Window(_tuples(rng, 0, window, values))
    codes, at = rng.integers(0, values, batch), np.full(batch, window + batch)
    lowest = np.zeros(batch, np.int64)
    probe_idx, _ = w.join(codes, lowest, at, True)
    known = Values()
    known.add(np.arange(values))
    rows = Rows(at, {"a": np.arange(batch)})

    def update(n: int) -> None:
        w.insert(_tuples(rng, window + n * batch, batch, values))
        w.remove_before((n + 1) * batch + window)
        w.join(codes[:1], lowest[:1], lowest[:1], True)

    hash_s = _least(lambda n: known.find(codes), repeats) / batch
    # A probe that meets nothing, then one that meets all: the difference is what the pairs cost.
    nothing = _least(lambda n: w.join(codes, lowest, lowest - 1, True), repeats)
    everything = _least(lambda n: w.join(codes, lowest, at, True), repeats)
    update_s = _least(update, repeats) / batch
    insert_s = _least(lambda n: rows.take(np.arange(batch)), repeats) / batch
    return PerTuple(max(everything - nothing, 1e-12) / max(len(probe_idx), 1), update_s, hash_s, insert_s)


def _tuples(rng: np.random.Generator, first: int, count: int, values: int) -> Tuples:
    pos = np.arange(first, first + count)
    return Tuples(pos, pos, pos + 2 * count, rng.integers(0, values, count))


def _least(work: Callable[[int], object], repeats: int) -> float:
    """The least seconds of several tries: the others waited for something."""
    out = []
    for n in range(repeats):
        began = perf_counter()
        work(n)
        out.append(perf_counter() - began)
    return min(out)
