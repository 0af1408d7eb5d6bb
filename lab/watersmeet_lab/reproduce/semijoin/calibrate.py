"""What processing a tuple costs at a site, measured here: c_p, c_u, c_h and c_i of appendix B.

Small batches into a window of middling size, as sites have them: the fixed cost of an operation is spread over the batch.

Implements: Tran and Lee (2010), appendix B, table 4 (the paper does not say how its costs were found).
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter

import numpy as np

from watersmeet.kernels.hash_window import HashIndex, build, pairs, probe
from watersmeet.sites.planning.cost import PerTuple


def calibrate(batch: int = 30, window: int = 900, values: int = 100, repeats: int = 30) -> PerTuple:
    """Seconds per tuple, for intervals of `batch` tuples and windows of `window`."""
    rng = np.random.default_rng(0)
    held = (np.arange(window), np.arange(window), rng.integers(0, values, window))
    new = (np.arange(window, window + batch), np.arange(window, window + batch), rng.integers(0, values, batch))
    index, known = build(held[2], held[1]), build(np.arange(values), np.zeros(values, np.int64))
    first, last = np.zeros(batch, np.int64), np.full(batch, window + batch)

    def join(into: HashIndex, until: np.ndarray) -> list[tuple[np.ndarray, np.ndarray]]:
        return list(pairs(*probe(into, new[2], first, until), into.rows, window * batch))

    def update(n: int) -> None:
        whole = [np.concatenate([old[batch:], more]) for old, more in zip(held, new, strict=True)]
        build(whole[2], whole[1])

    hash_s = _least(lambda n: probe(known, new[2], first, first), repeats) / batch
    # A probe that meets nothing, then one that meets all: the difference is what the pairs cost.
    nothing = _least(lambda n: join(index, first - 1), repeats)
    everything = _least(lambda n: join(index, last), repeats)
    met = sum(len(probe_idx) for probe_idx, _ in join(index, last))
    update_s = _least(update, repeats) / batch
    insert_s = _least(lambda n: [column[first] for column in new], repeats) / batch
    return PerTuple(max(everything - nothing, 1e-12) / max(met, 1), update_s, hash_s, insert_s)


def _least(work: Callable[[int], object], repeats: int) -> float:
    """The least seconds of several tries: the others waited for something."""
    out = []
    for n in range(repeats):
        began = perf_counter()
        work(n)
        out.append(perf_counter() - began)
    return min(out)
