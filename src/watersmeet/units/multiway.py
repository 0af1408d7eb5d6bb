"""The multi-way window join of one step: semi-naive over drivers, successive probes.

    new results = sum over drivers j of   new(j) x  for i before j: old(i) + new(i)   x  for i after j: old(i)

so every combination with at least one new member is made exactly once, by the last of its new members in driver order.
A driver's tuples probe one alias after another; each probe is an index look-up inside the period that the closed window
graph leaves, given all members bound so far:

    max over bound x of (x.ts + lo(x, y))  <=  y.ts  <=  min over bound x of (x.ts + hi(x, y))

Invariant: no intermediate holds more than `limit` combinations per alias probed, however hot one key is.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.1 (the period shrinks with every member), sections 5.1 and 5.2.
Departs from the paper: the period is exact per pair, so no refinement step is needed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernels import hash_window, nested_loop
from watersmeet.kernels.expand import pairs
from watersmeet.kernels.residual import EQUAL, LESS, LESS_EQUAL, band_floats, band_integers, compare
from watersmeet.plan.encoding import exact
from watersmeet.plan.model import Compare, Difference, Plan
from watersmeet.plan.order import probe_order
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.window import UNBOUNDED
from watersmeet.routing.hypercube import dimension_code
from watersmeet.units.evaluator import mask
from watersmeet.units.side import Side

CHUNK = 131_072
"""The most combinations that one chunk holds."""

Bound = dict[str, np.ndarray]
"""Combinations so far: for every bound alias the row number of its member."""


class FanoutStats:
    """Measured fan-outs by (bound aliases, probed alias); old batches fade by half."""

    def __init__(self, memory: Mapping[str, list[float]]) -> None:
        self._fading = {key: [probes / 2, matches / 2] for key, (probes, matches) in memory.items()}

    def __call__(self, bound: frozenset[str], y: str) -> float | None:
        probes, matches = self._fading.get(self._key(bound, y), (0.0, 0.0))
        return matches / probes if probes >= 1 else None

    def record(self, bound: frozenset[str], y: str, probes: int, matches: int) -> None:
        entry = self._fading.setdefault(self._key(bound, y), [0.0, 0.0])
        entry[0] += probes
        entry[1] += matches

    def memory(self) -> dict[str, list[float]]:
        return {key: [round(p, 1), round(m, 1)] for key, (p, m) in self._fading.items() if p >= 0.5}

    @staticmethod
    def _key(bound: frozenset[str], y: str) -> str:
        return f"{','.join(sorted(bound))}>{y}"


class Multiway:
    """The join of one step over the sides of all aliases."""

    def __init__(self, plan: Plan, sides: Mapping[str, Side], stats: FanoutStats, limit: int = CHUNK) -> None:
        self.plan, self.sides, self.stats, self.limit = plan, sides, stats, limit
        self._done: set[str] = set()

    def combinations(self) -> Iterator[Bound]:
        """All new combinations, in bounded chunks; drivers go in the order of FROM."""
        for driver in self.plan.aliases:
            rows = self.sides[driver].new_idx
            if len(rows):
                order = probe_order(self.plan, driver, self.stats)
                yield from self._extend({driver: rows}, order)
            self._done.add(driver)

    def _extend(self, bound: Bound, order: tuple[str, ...]) -> Iterator[Bound]:
        if not order:
            yield bound
            return
        y, rest = order[0], order[1:]
        for probe_idx, rows in self._matches(bound, y):
            grown = {x: idx[probe_idx] for x, idx in bound.items()}
            grown[y] = rows
            grown = self._filtered(grown, y)
            if len(grown[y]):
                yield from self._extend(grown, rest)

    def _matches(self, bound: Bound, y: str) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Chunks of (position in bound, row of y) that agree in keys and period."""
        side = self.sides[y]
        classes = self._shared(bound, y) if self.plan.kernel == "hw" else ()
        lo, hi = self._period(bound, y)
        key = dimension_code(classes, {c: self._bound_codes(bound, c) for c in classes}) if classes else None
        probes, matches = len(lo), 0
        held: list[tuple[np.ndarray, np.ndarray]] = []
        room = self.limit
        earliest, latest = int(lo.min()), int(hi.max())
        for offset, segment in side.visible(y in self._done):
            if segment.max_ts < earliest or segment.min_ts > latest:
                continue
            index = segment.index(self.plan, side.source, classes)
            if isinstance(index, hash_window.HashIndex):
                first, count = hash_window.probe(index, key, lo, hi)  # type: ignore[arg-type]
            else:
                first, count = nested_loop.probe(index, lo, hi)
            for probe_idx, row_idx in pairs(first, count, index.rows, self.limit):
                matches += len(row_idx)
                if len(row_idx) > room and held:
                    yield _joined(held)
                    held, room = [], self.limit
                held.append((probe_idx, row_idx + offset))
                room -= len(row_idx)
        self.stats.record(frozenset(bound), y, probes, matches)
        if held:
            yield _joined(held)

    def _shared(self, bound: Bound, y: str) -> tuple[int, ...]:
        return tuple(c for c in sorted(self.sides[y].source.keys) if any(c in self.sides[x].source.keys for x in bound))

    def _bound_codes(self, bound: Bound, c: int) -> np.ndarray:
        x = next(x for x in bound if c in self.sides[x].source.keys)
        return self.sides[x].codes(self.sides[x].source.keys[c], self.plan.classes[c].kind)[bound[x]]

    def _period(self, bound: Bound, y: str) -> tuple[np.ndarray, np.ndarray]:
        rows = len(next(iter(bound.values())))
        lo, hi = np.full(rows, -UNBOUNDED, np.int64), np.full(rows, UNBOUNDED, np.int64)
        for x, idx in bound.items():
            ts = self.sides[x].ts()[idx]
            low, high = self.plan.join.windows.lo(x, y), self.plan.join.windows.hi(x, y)
            if low > -UNBOUNDED:
                np.maximum(lo, ts + low, out=lo)
            if high < UNBOUNDED:
                np.minimum(hi, ts + high, out=hi)
        return lo, hi

    def _filtered(self, grown: Bound, y: str) -> Bound:
        """Drop what keys, residuals and conditions that y completes refuse."""
        for test in self._tests(grown, y):
            if len(grown[y]) == 0:
                break
            keep = test(grown)
            if not keep.all():
                grown = {x: idx[keep] for x, idx in grown.items()}
        return grown

    def _tests(self, grown: Bound, y: str):  # type: ignore[no-untyped-def]
        before = {x: idx for x, idx in grown.items() if x != y}
        shared = self._shared(before, y)
        for c in shared:
            x = next(x for x in before if c in self.sides[x].source.keys)
            if self.plan.kernel == "nlw" or len(shared) > 1:
                yield lambda b, x=x, c=c: self._equal_codes(b, x, y, c)
            if not exact(self.plan.classes[c].kind):
                yield lambda b, x=x, c=c: self._equal_values(b, x, y, c)
        for residual in self.plan.residuals:
            pair = {residual.left[0], residual.right[0]}
            if y in pair and pair <= grown.keys():
                yield lambda b, r=residual: self._residual(b, r)
        for condition in self.plan.inside:
            if y in condition.aliases and condition.aliases <= grown.keys():
                yield lambda b, e=condition: self._condition(b, e)

    def _equal_codes(self, bound: Bound, x: str, y: str, c: int) -> np.ndarray:
        kind = self.plan.classes[c].kind
        left, right = (self.sides[s].codes(self.sides[s].source.keys[c], kind) for s in (x, y))
        return compare(left, bound[x], right, bound[y], EQUAL)

    def _equal_values(self, bound: Bound, x: str, y: str, c: int) -> np.ndarray:
        left, right = (self.sides[s].take(self.sides[s].source.keys[c], bound[s]) for s in (x, y))
        return np.asarray(pc.equal(left, right).to_numpy(zero_copy_only=False), np.bool_)

    def _residual(self, bound: Bound, residual: Compare | Difference) -> np.ndarray:
        (x, left_name), (y, right_name) = residual.left, residual.right
        left, right = self.sides[x], self.sides[y]
        if isinstance(residual, Compare):
            kind, op = residual.kind, LESS if residual.op == "<" else LESS_EQUAL
            return compare(left.codes(left_name, kind), bound[x], right.codes(right_name, kind), bound[y], op)
        if residual.integers:
            lo = np.iinfo(np.int64).min if residual.lo is None else int(residual.lo)
            hi = np.iinfo(np.int64).max if residual.hi is None else int(residual.hi)
            return band_integers(
                left.codes(left_name, "integer"), bound[x], right.codes(right_name, "integer"), bound[y], lo, hi
            )
        lo_f = -np.inf if residual.lo is None else residual.lo
        hi_f = np.inf if residual.hi is None else residual.hi
        return band_floats(
            left.codes(left_name, "double"), bound[x], right.codes(right_name, "double"), bound[y], lo_f, hi_f
        )

    def _condition(self, bound: Bound, condition: Expr) -> np.ndarray:
        columns = {f"{n}": self.column(bound, ref) for n, ref in enumerate(condition.columns)}
        names = {ref: f'"{n}"' for n, ref in enumerate(condition.columns)}
        return mask(pa.table(columns), condition.duckdb(lambda ref: names[ref]))

    def column(self, bound: Bound, ref: ColumnRef) -> pa.Array:
        """The values of a plain column for combinations."""
        side = self.sides[ref.alias]
        return side.take(side.source.column(ref), bound[ref.alias])


def _joined(held: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    if len(held) == 1:
        return held[0]
    return np.concatenate([p for p, _ in held]), np.concatenate([r for _, r in held])
