"""The oracle of groups that end: which windows a time lies in, and after which batch no result can fall into a group any more.

    window(x.ts, size, slide, start)    all [s, s + size) around x.ts where s - start is a multiple of slide
    a group [s, e) leaves               after the first batch n with   watermark_n(z) - lag(z) >= e   for every alias z

`lag(z)` is how much later than x.ts a result may leave, by z: in an inner join the largest z.ts - x.ts, in a tree as `oracle_tree.delays` says.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tests.oracle_tree import Tree, closure, delays, leaves, variants


@dataclass(frozen=True)
class Windows:
    """`column` is the position of x.ts in the rows; all in microseconds."""

    alias: str
    column: int
    size: int
    slide: int
    start: int = 0

    def around(self, ts: int | None) -> Iterator[int]:
        """The starts of all windows that a time lies in; none without a time."""
        if ts is None:
            return
        first = ts - self.size + 1
        s = self.start + self.slide * math.ceil((first - self.start) / self.slide)
        while s <= ts:
            yield s
            s += self.slide

    def assign(self, row: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
        """The row, with the start of a window in place of its time, for every window."""
        for s in self.around(row[self.column]):
            yield (*row[: self.column], s, *row[self.column + 1 :])


def lags_in(tree: Tree, x: str) -> dict[str, float]:
    """By leaf z how much later than x.ts a row of the tree with a tuple of x may leave."""
    out: dict[str, float] = {}
    for present in (v for v in variants(tree) if x in v):
        hi, late = closure(tree, present), delays(tree, present)
        for z in leaves(tree):
            lag = min(hi[x, y] + late[y, z] for y in present)
            out[z] = max(out.get(z, lag), lag)
    return {z: lag for z, lag in out.items() if lag > -math.inf}


def batch_of(
    end: int, lags: Mapping[str, float], mark: Callable[[str, int], float], count: int, *, ends: bool
) -> float:
    """The batch in which a group with this end leaves; one more than all if the input ends, and never otherwise."""
    over = (n for n in range(count) if all(mark(z, n) - lag >= end for z, lag in lags.items()))
    return next(over, count if ends else math.inf)


def leaving(
    windows: Windows,
    found: Sequence[tuple[int, int, tuple[Any, ...]]],
    batch: Callable[[int], float],
) -> dict[int, list[tuple[Any, ...]]]:
    """The rows of all groups by the batch in which these leave; no row comes after its group."""
    out: dict[int, list[tuple[Any, ...]]] = {}
    for at, _, row in found:
        for assigned in windows.assign(row):
            over = batch(assigned[windows.column] + windows.size)
            assert at <= over, "a result fell into a group that had left"
            if over < math.inf:
                out.setdefault(int(over), []).append(assigned)
    return out
