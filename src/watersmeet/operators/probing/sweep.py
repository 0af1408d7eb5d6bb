"""The join of a step as one problem of arrays, for kernels that sweep over time or go tuple by tuple.

    side a   [ old 0 ][ old 1 ][ new ]     ->     stream 0:  ts, codes of its keys and of what residuals compare, new or not
    side b   [ old 0 ][ new ]              ->     stream 1:  ...           of the tuples that a new one can meet, see `nearby`

Keys and residuals become tests of the kernel; windows of aliases that are not their side's reference become bands of
times. What has no code (any other condition, and the values behind codes that may collide) is tested on what the kernel
finds.

At a unit that stores one side only, the probing tuples are the new ones and the stored ones are old; of two tuples of this
batch the later in (time, number of the side) counts as the probe, as everywhere else.

Invariant: the combinations are those of `multiway.Multiway`, each once, in chunks of at most `limit`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from watersmeet.kernels.instants import shift
from watersmeet.kernels.problem import PairTest, Problem, equal_keys, in_time
from watersmeet.kernels.residual import BAND, LESS, LESS_EQUAL, REAL_BAND
from watersmeet.operators.probing.nearby import Nearby, find_nearby
from watersmeet.operators.probing.side import Member, VisibleSide
from watersmeet.operators.probing.tactics import kernel_of
from watersmeet.plan.model import TIME, Plan
from watersmeet.plan.residual import Compare, Residual
from watersmeet.query.window import UNBOUNDED, WindowGraph


def run_kernel(
    plan: Plan,
    sides: Sequence[VisibleSide],
    members: Mapping[str, Member],
    orders: Sequence[Sequence[VisibleSide]],
    kernel: str,
    limit: int,
    probing: VisibleSide | None = None,
) -> Iterator[dict[str, np.ndarray]]:
    """Row numbers by alias of what a kernel finds; `orders` are the sides in which each side's tuples probe."""
    near = find_nearby(plan.join.windows, sides, probing)
    if any(one.size == 0 for one in near):
        return
    new = tuple(one.new for one in near)
    order = tuple((n, *(sides.index(s) for s in others)) for n, others in enumerate(orders))
    columns = _Columns(plan, near, members)
    problem = Problem(
        tuple(one.ts for one in near),
        tuple(tuple(c) for c in columns.arrays),
        _windows(plan.join.windows, sides),
        columns.tests,
        new,
        order,
    )
    run, takes_arrival = kernel_of(kernel)
    arrival = None
    if takes_arrival:
        arrival = in_time(problem)
        arrival = arrival[np.argsort(np.concatenate(new)[arrival], kind="stable")]
    for found in run(problem, arrival, None, limit):
        rows = np.stack([one.row_idx[found[n]] for n, one in enumerate(near)])
        if probing is not None:
            rows = _in_turn(sides, probing, rows)
        if rows.shape[1]:
            yield {a: rows[n] for n, side in enumerate(sides) for a in side.spec.aliases}


def _in_turn(sides: Sequence[VisibleSide], probing: VisibleSide, rows: np.ndarray) -> np.ndarray:
    """Of pairs of this batch those in which the probing tuple is the later one in (time, number of the side)."""
    p = sides.index(probing)
    stored = sides[1 - p]
    latest = shift(probing.ts()[rows[p]], -int(p < 1 - p))
    keep = (rows[1 - p] < stored.offsets[len(stored.old)]) | (stored.ts()[rows[1 - p]] <= latest)
    return rows if keep.all() else rows[:, keep]


def _windows(graph: WindowGraph, sides: Sequence[VisibleSide]) -> np.ndarray:
    """The largest differences of the sides' times."""
    references = [s.spec.reference for s in sides]
    return np.array([[0 if x == y else graph.hi(x, y) for y in references] for x in references], np.int64)


@dataclass
class _Columns:
    """The tests between sides, and the columns that they look at."""

    plan: Plan
    near: Sequence[Nearby]
    members: Mapping[str, Member]

    def __post_init__(self) -> None:
        self.arrays: list[list[np.ndarray]] = [[] for _ in self.near]
        self._at: list[dict[tuple[str, str], int]] = [{} for _ in self.near]
        self._side_of = {a: n for n, one in enumerate(self.near) for a in one.side.spec.aliases}
        self.tests = (*self._keys(), *self._residuals(), *self._more_windows())

    def _column(self, alias: str, name: str, kind: str) -> int:
        n = self._side_of[alias]
        key = (self.near[n].side.spec.column(alias, name), kind)
        if key not in self._at[n]:
            self._at[n][key] = len(self.arrays[n])
            self.arrays[n].append(self.near[n].codes(*key))
        return self._at[n][key]

    def _keys(self) -> Iterator[PairTest]:
        for c, key in enumerate(self.plan.classes):
            having = {self._side_of[a]: a for a in reversed(self._side_of) if c in self.members[a].keys}
            columns = {n: self._column(a, self.members[a].keys[c], key.kind) for n, a in having.items()}
            yield from equal_keys(c, columns)

    def _residuals(self) -> Iterator[PairTest]:
        for residual in self.plan.residuals:
            (x, x_name), (y, y_name) = residual.left, residual.right
            if x in self._side_of and y in self._side_of and self._side_of[x] != self._side_of[y]:
                op, kind, lo, hi = _encode(residual)
                at_x, at_y = self._column(x, x_name, kind), self._column(y, y_name, kind)
                yield PairTest(op, self._side_of[x], at_x, self._side_of[y], at_y, lo, hi)

    def _more_windows(self) -> Iterator[PairTest]:
        """Windows between aliases of which one is not its side's reference."""
        graph, references = self.plan.join.windows, {one.side.spec.reference for one in self.near}
        for x, n in self._side_of.items():
            for y, m in self._side_of.items():
                lo, hi = graph.lo(x, y), graph.hi(x, y)
                if n < m and not {x, y} <= references and (lo > -UNBOUNDED or hi < UNBOUNDED):
                    at_x, at_y = self._column(x, TIME, "integer"), self._column(y, TIME, "integer")
                    yield PairTest(BAND, m, at_y, n, at_x, lo, hi)


def _encode(residual: Residual) -> tuple[int, str, float | None, float | None]:
    """A residual's test, the kind of its codes, and its bounds."""
    if isinstance(residual, Compare):
        return LESS if residual.op == "<" else LESS_EQUAL, residual.kind, None, None
    return BAND if residual.is_exact else REAL_BAND, residual.kind, residual.lo, residual.hi
