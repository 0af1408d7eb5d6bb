"""The multi-way window join of one step: semi-naive over drivers, successive probes.

    new results = sum over drivers j of   new(j) x  for i before j: old(i) + new(i)   x  for i after j: old(i)

so every combination with at least one new member is made exactly once, by the last of its new members in driver order.
A driver's tuples probe one alias after another; each probe is an index look-up inside the period that the closed window
graph leaves, given all members bound so far (`operators.probing.side`).

Kernels that sweep over time (`mw`, `lca`) or go tuple by tuple (`ripple`, `xjoin`) take all drivers at once, as one problem
of arrays; see `problem`. Under the global conservative approach (`gca(...)`) the period is that of the largest window, and
every pair's own is tested at the end.

Instead of one driver after another, all may take turns tuple by tuple (`interleave`): then `before` is the order of ranks.

A side may be several aliases that an earlier stage has bound together: it is found by the time of one of them, its
reference, and the windows of the others are tested. So are the alternatives of a PATH, after every probe.

Invariant: no intermediate holds more than `limit` combinations per alias probed, however hot one key is.
Implements: Hammad, Aref, Elmagarmid (2002), section 3.1 (the period shrinks with every member), sections 5.1, 5.2, 5.2.1.
Departs from the paper: the period is exact per pair, so no refinement step is needed.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from itertools import product

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.kernels.instants import shift
from watersmeet.kernels.residual import EQUAL, LESS, LESS_EQUAL, band_floats, band_integers, compare
from watersmeet.operators.probing.broken import Conditions
from watersmeet.operators.probing.side import Bound, Member, VisibleSide, check_windows, find_period, in_blocks
from watersmeet.operators.probing.sweep import run_kernel
from watersmeet.operators.probing.tactics import Lookup, PartnerTimes, Tactics
from watersmeet.plan.model import Plan
from watersmeet.plan.order import probe_order
from watersmeet.plan.residual import Compare, Difference
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.window import widest

Test = Callable[[Bound], np.ndarray]
"""Which combinations pass."""
CHUNK = 131_072
"""The most combinations that one chunk holds."""


class FanoutStats:
    """Measured fan-outs by (bound aliases, probed alias); old batches fade by half."""

    def __init__(self, memory: Mapping[str, list[float]]) -> None:
        self._fading = {key: [n / 2 for n in (*entry, 0.0)[:3]] for key, entry in memory.items()}
        self.looked = 0
        """Combinations that look-ups have found in this turn, before conditions were tested."""

    def __call__(self, bound: frozenset[str], y: str) -> float | None:
        probes, matches, _ = self._fading.get(self._key(bound, y), (0.0, 0.0, 0.0))
        return matches / probes if probes >= 1 else None

    def selectivity(self, bound: frozenset[str], y: str) -> float | None:
        """Matches per probe and row that was there to be met."""
        _, matches, candidates = self._fading.get(self._key(bound, y), (0.0, 0.0, 0.0))
        return matches / candidates if candidates >= 1 else None

    def record(self, bound: frozenset[str], y: str, probes: int, matches: int, rows: int) -> None:
        self.looked += matches
        entry = self._fading.setdefault(self._key(bound, y), [0.0, 0.0, 0.0])
        for n, more in enumerate((probes, matches, probes * rows)):
            entry[n] += more

    def memory(self) -> dict[str, list[float]]:
        return {key: [round(n, 1) for n in entry] for key, entry in self._fading.items() if entry[0] >= 0.5}

    @staticmethod
    def _key(bound: frozenset[str], y: str) -> str:
        return f"{','.join(sorted(bound))}>{y}"


class Multiway:
    """The join of one step over its sides."""

    def __init__(self, plan: Plan, sides: Sequence[VisibleSide], stats: FanoutStats, limit: int = CHUNK) -> None:
        self.plan, self.sides, self.stats, self.limit = plan, sides, stats, limit
        self.members = {a: Member(side, plan.by_alias[a]) for side in sides for a in side.spec.aliases}
        self._side_of = {a: side for side in sides for a in side.spec.aliases}
        self._windows = widest(plan.join.windows) if plan.gca else plan.join.windows
        self._tactics = Tactics(plan)
        self.pruned = 0
        """New tuples that were dropped by time alone."""
        self.conditions = Conditions(plan)
        self._done: set[str] = set()
        self._ordered = False
        self._rank: Mapping[str, np.ndarray] | None = None

    def drive(self, driver: VisibleSide) -> Iterator[Bound]:
        """The combinations of a driver's new tuples with old ones and those of the drivers before it, in bounded chunks."""
        if len(driver.new_idx):
            yield from self._extend(self._bind_driver(driver), self._order(driver))
        self._done.add(driver.spec.name)

    def interleave(self, rank: Mapping[str, np.ndarray], slice_rows: int) -> Iterator[Bound]:
        """The same for all drivers at once: a new tuple meets old ones and new ones of lower rank.

        That is tuple-at-a-time processing in the order of the ranks, of which `slice_rows` at a time are looked up together.
        """
        self._rank = {
            s.spec.name: np.concatenate([np.full(s.offsets[len(s.old)], -1), rank[s.spec.name]]) for s in self.sides
        }
        for first in range(
            0, max((len(s.new_idx) and int(rank[s.spec.name].max()) + 1) for s in self.sides), slice_rows
        ):
            for driver in self.sides:
                ranks = rank[driver.spec.name]
                mine = driver.new_idx[(ranks >= first) & (ranks < first + slice_rows)]
                if len(mine):
                    yield from self._extend(dict.fromkeys(driver.spec.aliases, mine), self._order(driver))

    def probes(self, driver: VisibleSide) -> Iterator[Bound]:
        """The combinations that a driver's tuples make at a unit that stores the other side only.

        Of two new tuples that match, the later in (time, number of the side) probes, here or where the other is stored.
        """
        self._ordered = True
        if self.sweep is not None:
            yield from self.sweep_all(driver)
        elif len(driver.new_idx):
            yield from self._extend(self._bind_driver(driver), self._order(driver))

    @cached_property
    def sweep(self) -> str | None:
        """The kernel that takes all drivers of this turn at once, if one does; all sides must have their new tuples by now."""
        return self._tactics.sweep(self._partner_times)

    @property
    def _partner_times(self) -> PartnerTimes:
        """What samples say of the sides' times; where all new tuples come first, they are taken once for all drivers."""
        return self._sampled_once if self.needs_all else PartnerTimes(self._windows, self.sides)

    @cached_property
    def _sampled_once(self) -> PartnerTimes:
        return PartnerTimes(self._windows, self.sides)

    @property
    def needs_all(self) -> bool:
        """Whether all new tuples must be there before the first driver."""
        return self._tactics.needs_all

    @property
    def kernel_name(self) -> str:
        """What this turn runs, as `kernel=` spells it."""
        return self._tactics.name(self.sweep)

    def sweep_all(self, probing: VisibleSide | None = None) -> Iterator[Bound]:
        """All new combinations, by a kernel that takes the join as one problem; then what such a kernel cannot test."""
        orders = [self._order(side) for side in self.sides]
        for bound in run_kernel(self.plan, self.sides, self.members, orders, self.kernel_name, self.limit, probing):
            bound = _keep_passing(bound, self._make_uncoded_tests())
            if _count(bound):
                yield bound

    def _make_uncoded_tests(self) -> Iterator[Test]:
        """Alternatives of the windows, equality of values whose codes may collide, conditions without codes, across sides."""
        if self.plan.join.windows.alternatives:
            yield self._within
        for n, side in enumerate(self.sides[1:], start=1):
            before = [a for s in self.sides[:n] for a in s.spec.aliases]
            for c in self._share_keys(before, side):
                if not self.plan.classes[c].is_exact:
                    x = next(x for x in before if c in self.members[x].keys)
                    y = next(y for y in side.spec.aliases if c in self.members[y].keys)
                    yield partial(self._equal_values, x=x, y=y, c=c)
        sides_of = {a: side.spec.name for side in self.sides for a in side.spec.aliases}
        for condition in self.plan.inside:
            if condition.aliases <= {*sides_of} and len({sides_of[a] for a in condition.aliases}) > 1:
                yield partial(self._condition, condition=condition)

    def keep_matching(self, bound: Bound) -> Bound:
        """Of combinations that agree in their keys, those in the window graph that satisfy every condition."""
        return _keep_passing(bound, self._all_tests())

    def _all_tests(self) -> Iterator[Test]:
        yield self._within
        for residual in self.plan.residuals:
            yield partial(self._residual, residual=residual)
        for condition in self.plan.inside:
            yield partial(self._condition, condition=condition)

    def _bind_driver(self, driver: VisibleSide) -> Bound:
        """A driver's new tuples, less those without a window partner where that pays."""
        rows = self._partner_times.worth_probing(driver)
        self.pruned += len(driver.new_idx) - len(rows)
        return dict.fromkeys(driver.spec.aliases, rows)

    def _order(self, driver: VisibleSide) -> tuple[VisibleSide, ...]:
        if len(self.sides) == 2:
            return tuple(s for s in self.sides if s is not driver)
        return tuple(self._side_of[a] for a in probe_order(self.plan, driver.spec.name, self.stats))

    def _extend(self, bound: Bound, order: tuple[VisibleSide, ...]) -> Iterator[Bound]:
        if _count(bound) == 0:
            return
        if not order:
            bound = _keep_passing(bound, [self._within]) if self.plan.gca else bound  # within every pair's own window
            if _count(bound):
                yield bound
            return
        side, rest = order[0], order[1:]
        shared, sees_new = self._share_keys(bound, side), self._sees_new(side)
        lookup = self._tactics.lookup(self.members, bound, side, shared, sees_new=sees_new)
        for probe_idx, rows in self._matches(bound, side, lookup):
            grown = {x: idx[probe_idx] for x, idx in bound.items()}
            grown |= dict.fromkeys(side.spec.aliases, rows)
            grown = _keep_passing(grown, self._tests(grown, side, lookup))
            if _count(grown):
                yield from self._extend(grown, rest)

    def _sees_new(self, side: VisibleSide) -> bool:
        return self._ordered or self._rank is not None or side.spec.name in self._done

    def _matches(self, bound: Bound, side: VisibleSide, lookup: Lookup) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        """Chunks of (position in bound, row of the side) that a look-up finds in the period."""
        lo, hi = find_period(self._windows, self._times(bound), side.spec.reference)
        probes, matches, rows = len(lo), 0, 0
        held: list[tuple[np.ndarray, np.ndarray]] = []
        room = self.limit
        earliest, latest = int(lo.min()), int(hi.max())
        for offset, segment in side.visible(self._sees_new(side)):
            rows += segment.rows
            if segment.max_ts < earliest or segment.min_ts > latest:
                continue
            until = np.minimum(hi, self._latest(bound, side)) if self._ordered and segment is side.new else hi
            chunks = lookup.find(segment, lo, until, self.limit)
            for probe_idx, row_idx in chunks:
                if self._rank is not None and segment is side.new:
                    probe_idx, row_idx = self._in_turn(bound, side, probe_idx, row_idx, offset)
                matches += len(row_idx)
                if len(row_idx) > room and held:
                    yield _concat(held)
                    held, room = [], self.limit
                held.append((probe_idx, row_idx + offset))
                room -= len(row_idx)
        self.stats.record(frozenset(bound), side.spec.name, probes, matches, rows)
        if held:
            yield _concat(held)

    def _in_turn(
        self, bound: Bound, side: VisibleSide, probe_idx: np.ndarray, row_idx: np.ndarray, offset: int
    ) -> tuple[np.ndarray, np.ndarray]:
        """The pairs of new tuples whose second one comes before the driver's."""
        assert self._rank is not None
        driver, driver_idx = next(iter(bound.items()))
        mine = self._rank[self._side_of[driver].spec.name][driver_idx[probe_idx]]
        keep = self._rank[side.spec.name][row_idx + offset] < mine
        return probe_idx[keep], row_idx[keep]

    def _latest(self, bound: Bound, side: VisibleSide) -> np.ndarray:
        """Up to which time a new tuple of a side comes before the probing ones, in the order of (time, side)."""
        driver = self._side_of[next(iter(bound))]
        ts = driver.ts()[next(iter(bound.values()))]
        return ts if self.sides.index(side) < self.sides.index(driver) else shift(ts, -1)

    def _share_keys(self, bound: Iterable[str], side: VisibleSide) -> tuple[int, ...]:
        known = {c for x in bound for c in self.members[x].keys}
        return tuple(c for c in sorted(side.spec.keys) if c in known)

    def _times(self, bound: Bound) -> dict[str, np.ndarray]:
        return {x: self.members[x].ts()[idx] for x, idx in bound.items()}

    def _within(self, bound: Bound) -> np.ndarray:
        return check_windows(self.plan.join.windows, self._times(bound))

    def _tests(self, grown: Bound, added: VisibleSide, lookup: Lookup) -> Iterator[Test]:
        """Keys, windows, residuals and conditions that the added side completes; what the look-up settles holds."""
        new = added.spec.aliases
        before = [x for x in grown if x not in new]
        for c in self._share_keys(before, added):
            x = next(x for x in before if c in self.members[x].keys)
            y = next(y for y in new if c in self.members[y].keys)
            if c not in lookup.equal:
                yield partial(self._equal_codes, x=x, y=y, c=c)
            if not self.plan.classes[c].is_exact:
                yield partial(self._equal_values, x=x, y=y, c=c)
        if self._windows.alternatives:
            yield self._within
        elif len(new) > 1:
            yield from self._window_tests(before, [y for y in new if y != added.spec.reference])
        for residual in self.plan.residuals:
            pair = {residual.left[0], residual.right[0]}
            if self._completes(pair, before, new) and residual not in lookup.settled:
                yield partial(self._residual, residual=residual)
        for condition in self.plan.inside:
            if self._completes(condition.aliases, before, new):
                yield partial(self._condition, condition=condition)

    def _window_tests(self, before: Collection[str], others: Collection[str]) -> Iterator[Test]:
        """Pairs that the period has not decided."""
        for x, y in product(before, others):
            yield partial(self._check_pair, x=x, y=y)

    def _check_pair(self, bound: Bound, x: str, y: str) -> np.ndarray:
        return check_windows(self._windows, self._times({x: bound[x], y: bound[y]}))

    @staticmethod
    def _completes(aliases: Collection[str], before: Collection[str], new: Collection[str]) -> bool:
        """Whether a condition on these aliases needs what has just been added, and no more."""
        return {*aliases} <= {*before, *new} and any(a in before for a in aliases) and any(a in new for a in aliases)

    def _equal_codes(self, bound: Bound, x: str, y: str, c: int) -> np.ndarray:
        kind = self.plan.classes[c].kind
        left, right = (self.members[s].codes(self.members[s].keys[c], kind) for s in (x, y))
        return compare(left, bound[x], right, bound[y], EQUAL)

    def _equal_values(self, bound: Bound, x: str, y: str, c: int) -> np.ndarray:
        columns = [(s, self.members[s].keys[c]) for s in (x, y)]
        pairs = (
            [self.members[s].take(k, block[s]) for s, k in columns] for block in in_blocks(self.members, bound, columns)
        )
        return np.concatenate([np.asarray(pc.equal(*p).to_numpy(zero_copy_only=False), np.bool_) for p in pairs])

    def _residual(self, bound: Bound, residual: Compare | Difference) -> np.ndarray:
        (x, left_name), (y, right_name) = residual.left, residual.right
        left, right = self.members[x], self.members[y]
        if isinstance(residual, Compare):
            kind, op = residual.kind, LESS if residual.op == "<" else LESS_EQUAL
            return compare(left.codes(left_name, kind), bound[x], right.codes(right_name, kind), bound[y], op)
        operands = left.codes(left_name, residual.kind), bound[x], right.codes(right_name, residual.kind), bound[y]
        if residual.is_exact:
            lo = np.iinfo(np.int64).min if residual.lo is None else int(residual.lo)
            hi = np.iinfo(np.int64).max if residual.hi is None else int(residual.hi)
            return band_integers(*operands, lo, hi)
        lo_f = -np.inf if residual.lo is None else residual.lo
        hi_f = np.inf if residual.hi is None else residual.hi
        return band_floats(*operands, lo_f, hi_f)

    def _condition(self, bound: Bound, condition: Expr) -> np.ndarray:
        names = {ref: f'"{n}"' for n, ref in enumerate(condition.columns)}
        text, found = condition.duckdb(lambda ref: names[ref]), []
        for block in self.blocks(bound, condition.columns):
            columns = {f"{n}": self.column(block, ref) for n, ref in enumerate(condition.columns)}
            found.append(self.conditions.test(pa.table(columns), text, condition))
        return np.concatenate(found)

    def blocks(self, bound: Bound, refs: Iterable[ColumnRef]) -> Iterator[Bound]:
        """Combinations in blocks, by the bytes of plain columns."""
        return in_blocks(self.members, bound, [(r.alias, self.members[r.alias].source.wire_of[r]) for r in refs])

    def list_columns(self, alias: str) -> list[ColumnRef]:
        """The plain columns that tuples of an alias bring along."""
        return list(self.members[alias].source.wire_of)

    def column(self, bound: Bound, ref: ColumnRef) -> pa.Array:
        """The values of a plain column for combinations."""
        member = self.members[ref.alias]
        return member.take(member.source.wire_of[ref], bound[ref.alias])


def _keep_passing(bound: Bound, tests: Iterable[Test]) -> Bound:
    """The combinations that pass all tests."""
    for test in tests:
        if _count(bound) == 0:
            break
        keep = test(bound)
        if not keep.all():
            bound = {x: idx[keep] for x, idx in bound.items()}
    return bound


def _count(bound: Bound) -> int:
    return len(next(iter(bound.values())))


def _concat(held: list[tuple[np.ndarray, np.ndarray]]) -> tuple[np.ndarray, np.ndarray]:
    if len(held) == 1:
        return held[0]
    return np.concatenate([p for p, _ in held]), np.concatenate([r for _, r in held])
