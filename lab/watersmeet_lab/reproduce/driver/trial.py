"""One policy over one data set, batch by batch, on MJoin: verified, counted, timed.

All policies run the same compiled loop, a tuple at a time; they differ in the runs. Statistics are measured in the batches
before: a policy is given nothing. Timed, in CPU seconds, are the processing and, apart from it, the choice of an order, which
is Python here.
Not timed are the merging of timestamp's and round robin's runs, which favours these two, and the sample from which probe
sequences are chosen, the same for all.

Invariant: nothing is counted of a run whose results are not all combinations, each once: their number is known from the
keys, and so is a checksum, since the sum over combinations of a product of weights is the sum over keys of a product of sums.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import permutations
from time import thread_time

import numpy as np

from watersmeet.errors import WatersmeetError
from watersmeet.operators.probing.driving import DriverMeasures, DriverStats, WaitingInput, order
from watersmeet.operators.probing.multiway import FanoutStats
from watersmeet.plan.model import INTERLEAVED, Policy
from watersmeet.plan.order import greedy
from watersmeet_lab.bench.drivers.data import Dataset
from watersmeet_lab.kernels.mjoin import AHEAD, Inputs, MJoin
from watersmeet_lab.reproduce.driver.schedule import Batch, cut, pieces

SAMPLE = 128
"""Tuples of every input that look up all other tables after a batch."""
PIECES = 24
"""Points of a production curve."""


class WrongResultsError(WatersmeetError):
    """A trial did not make all combinations, each once."""


@dataclass
class Case:
    """A data set in batches."""

    dataset: Dataset
    batches: int
    seed: int = 1
    scale: int = 1

    def __post_init__(self) -> None:
        self.keys, self.times = self.dataset.generate(self.seed, self.scale)
        self.cuts = cut(self.times, self.batches)
        self.names = tuple(f"S{n + 1}" for n in range(len(self.keys)))
        self._runs: dict[str, list[np.ndarray]] = {}

    def interleave(self, policy: Policy) -> list[np.ndarray]:
        """The runs of all batches under a policy that goes tuple by tuple."""
        if policy not in self._runs:
            self._runs[policy] = [b.in_time() if policy == "timestamp" else b.in_turn() for b in self.cuts]
        return self._runs[policy]

    @cached_property
    def weights(self) -> list[np.ndarray]:
        draw = np.random.default_rng(self.seed)
        return [draw.integers(0, 2**64, len(k), np.uint64) for k in self.keys]

    @cached_property
    def expected(self) -> tuple[int, int]:
        """How many results there are, and their checksum."""
        keys, at = np.unique(np.concatenate(self.keys), return_inverse=True)
        counts, sums = np.ones(len(keys), np.int64), np.ones(len(keys), np.uint64)
        begin = 0
        for own, weights in zip(self.keys, self.weights, strict=True):
            mine = at[begin : begin + len(own)]
            begin += len(own)
            total = np.zeros(len(keys), np.uint64)
            np.add.at(total, mine, weights)
            counts *= np.bincount(mine, minlength=len(keys))
            sums *= total
        return int(counts.sum()), int(sums.sum())


@dataclass
class Outcome:
    """What one run of a policy did, batch by batch."""

    seconds: list[float] = field(default_factory=list)
    """Of processing."""
    choosing: list[float] = field(default_factory=list)
    """Seconds of choosing an order."""
    results: list[int] = field(default_factory=list)
    probes: list[int] = field(default_factory=list)
    changes: list[int] = field(default_factory=list)
    """How often another input became the driver."""
    orders: list[tuple[str, ...]] = field(default_factory=list)
    curves: list[np.ndarray] = field(default_factory=list)
    """Of every batch: seconds, results and tuples so far, where the run was cut in pieces."""


class Online:
    """Statistics of the batches so far: what policies and probe sequences are chosen by.

    The selectivity of a pair is sampled, in both directions together: where a few tuples of x match many of y each, a sample
    of y tells more. That of a partial result is what its probes have found, or else that of its most selective pair.
    """

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.pairs, self.partials, self.drivers = FanoutStats({}), FanoutStats({}), DriverStats({})
        self._sizes: dict[str, int] = {}
        self._sequences: dict[str, tuple[str, ...]] = {}

    def measure(self) -> DriverMeasures:
        return self.drivers.summarize(self.selectivity, self._sequences.__getitem__)

    def sequences(self) -> np.ndarray:
        """The probe sequence of every driver, fewest matches first."""
        at = {name: n for n, name in enumerate(self.names)}
        self._sequences = {
            driver: greedy(driver, [n for n in self.names if n != driver], self._fanout) for driver in self.names
        }
        return np.array([[at[y] for y in sequence] for sequence in self._sequences.values()])

    def _fanout(self, bound: frozenset[str], y: str) -> float | None:
        known = self.selectivity(bound, y)
        return None if known is None else known * self._sizes[y]

    def selectivity(self, bound: frozenset[str], y: str) -> float | None:
        known = self.partials.selectivity(bound, y)
        if known is not None:
            return known
        pairs = (self.pairs.selectivity(*self._pair(x, y)) for x in bound)
        return min((p for p in pairs if p is not None), default=None)

    @staticmethod
    def _pair(x: str, y: str) -> tuple[frozenset[str], str]:
        return frozenset((min(x, y),)), max(x, y)

    def update(self, join: MJoin, batch: Batch, done: np.ndarray, sequences: np.ndarray, results: int) -> None:
        """After a batch: `done` are probes and matches by driver and place in its sequence."""
        self._sizes = dict(zip(self.names, join.sizes.tolist(), strict=True))
        self._sample(join, batch)
        self.partials, stored = FanoutStats(self.partials.memory()), join.sizes - batch.sizes
        for d, driver in enumerate(self.names):
            bound = {driver, self.names[sequences[d, 0]]}
            for place, y in list(enumerate(sequences[d]))[1:]:
                probes, matches = (int(n) for n in done[:, d, place])
                if probes:
                    rows = int(stored[y] + batch.sizes[y] // 2)
                    self.partials.record(frozenset(bound), self.names[y], probes, matches, rows)
                bound.add(self.names[y])
        self.drivers = DriverStats(self.drivers.memory())
        whole, old = (float(np.prod(sizes.astype(float))) for sizes in (join.sizes, stored))
        self.drivers.record(results, whole - old, dict(zip(self.names, batch.sizes.tolist(), strict=True)))

    def _sample(self, join: MJoin, batch: Batch) -> None:
        self.pairs = FanoutStats(self.pairs.memory())
        for x, y in permutations(range(len(self.names)), 2):
            rows_idx = np.unique(np.linspace(batch.first[x], batch.end[x], SAMPLE, endpoint=False).astype(np.int64))
            if batch.sizes[x]:
                found, pair = join.count_matches(rows_idx, x, y), self._pair(self.names[x], self.names[y])
                self.pairs.record(*pair, len(rows_idx), found, int(join.sizes[y]))


@dataclass
class Trial:
    """A policy over a case; every call of `run` begins with empty tables."""

    case: Case
    policy: Policy
    ahead: int = AHEAD
    across: bool = False

    def run(self, in_pieces: bool = False) -> Outcome:
        out, case = Outcome(), self.case
        join, online = self._empty(), Online(case.names)
        for number, batch in enumerate(case.cuts):
            sequences, before = online.sequences(), join.counts
            begin = thread_time()
            runs = self._runs(number, batch, join, online)
            out.choosing.append(thread_time() - begin)
            begin = thread_time()
            if in_pieces:
                results, curve = _in_pieces(join, runs, sequences)
                out.curves.append(curve)
            else:
                results = sum(chunk.shape[1] for chunk in join.process(runs, sequences))
            out.seconds.append(thread_time() - begin)
            done = np.stack(join.counts) - np.stack(before)
            out.results.append(results)
            out.probes.append(int(done[0].sum()))
            out.changes.append(len(runs))
            out.orders.append(tuple(case.names[i] for i in runs[:, 0]) if self.policy not in INTERLEAVED else ())
            online.update(join, batch, done, sequences, results)
        if sum(out.results) != case.expected[0]:
            raise WrongResultsError(f"{self._describe()}: {sum(out.results):,} results, not {case.expected[0]:,}")
        return out

    def verify(self) -> int:
        """Run once and compare the results' checksum; how many there are."""
        case, total = self.case, 0
        join, online = self._empty(), Online(case.names)
        for number, batch in enumerate(case.cuts):
            sequences, before, results = online.sequences(), join.counts, 0
            for chunk in join.process(self._runs(number, batch, join, online), sequences):
                results += chunk.shape[1]
                product = case.weights[0][chunk[0]]
                for weights, rows in zip(case.weights[1:], chunk[1:], strict=True):
                    product *= weights[rows]
                total += int(product.sum())
            online.update(join, batch, np.stack(join.counts) - np.stack(before), sequences, results)
        if total % 2**64 != case.expected[1]:
            raise WrongResultsError(f"{self._describe()}: other combinations than the keys say")
        return case.expected[0]

    def _empty(self) -> MJoin:
        return MJoin(Inputs.of(self.case.keys, self.case.times), ahead=self.ahead, across=self.across)

    def _runs(self, number: int, batch: Batch, join: MJoin, online: Online) -> np.ndarray:
        if self.policy in INTERLEAVED:
            return self.case.interleave(self.policy)[number]
        sizes = zip(self.case.names, batch.sizes.tolist(), join.sizes.tolist(), strict=True)
        at = {name: n for n, name in enumerate(self.case.names)}
        return batch.by_buffer(
            [at[name] for name in order(self.policy, [WaitingInput(*s) for s in sizes], online.measure())]
        )

    def _describe(self) -> str:
        return f"{self.policy} on data set {self.case.dataset.name} in {self.case.batches} batches"


def _in_pieces(join: MJoin, runs: np.ndarray, sequences: np.ndarray) -> tuple[int, np.ndarray]:
    """Process, and look at the clock between pieces."""
    parts = pieces(runs, PIECES)
    seconds, results, tuples = np.zeros((3, len(parts) + 1))
    for n, part in enumerate(parts, start=1):
        begin = thread_time()
        found = sum(chunk.shape[1] for chunk in join.process(part, sequences))
        seconds[n] = seconds[n - 1] + thread_time() - begin
        results[n], tuples[n] = results[n - 1] + found, tuples[n - 1] + (part[:, 2] - part[:, 1]).sum()
    return int(results[-1]), np.stack([seconds, results, tuples])
