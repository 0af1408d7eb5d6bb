"""The laboratory: every policy over every case, verified once, then timed in turn, several times.

Policies alternate inside a repetition, so that a slow moment of the machine meets all of them. A batch's time is the median
over repetitions. As in the paper the first fifth of the batches is left out, and a batch's time is divided by timestamp's of
the same batch before batches are averaged; `over_all` divides the sums instead.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from watersmeet.plan.model import Policy
from watersmeet.plan.options import POLICIES
from watersmeet_lab.bench.drivers.data import DATASETS, Dataset, beyond
from watersmeet_lab.kernels.mjoin import AHEAD
from watersmeet_lab.reproduce.driver.paper import FIXED, SPANS
from watersmeet_lab.reproduce.driver.trial import Case, Outcome, Trial

LookAhead = Literal["in runs", "none", "across runs"]
"""How MJoin's loop looks ahead: in the run, not at all, or in the order of all runs."""
GRID = np.linspace(0, 1.2, 61)
"""Where production curves are read, in timestamp's time."""


@dataclass(frozen=True)
class Size:
    """How large the experiments are."""

    scale: int
    """One in so many tuples and shared keys."""
    batches: tuple[int, int]
    repeats: int
    inputs: tuple[int, ...]
    """Beyond the paper: numbers of inputs."""


FULL = Size(1, (100, 10), 3, (3, 4, 5, 6))
QUICK = Size(25, (10, 5), 1, (3, 6))


@dataclass
class Timed:
    """One case under all policies."""

    case: Case
    outcomes: dict[Policy, list[Outcome]]

    @property
    def kept(self) -> slice:
        """The batches that count: the last four fifths."""
        return slice(len(self.case.cuts) // 5, None)

    @property
    def halves(self) -> tuple[slice, slice]:
        """The batches that count, in two parts."""
        middle = (self.kept.start + len(self.case.cuts)) // 2
        return slice(self.kept.start, middle), slice(middle, None)

    def seconds(self, policy: Policy, choosing: bool = False, batches: slice | None = None) -> np.ndarray:
        """By batch: the median over repetitions."""
        runs = [np.array(o.seconds) + (np.array(o.choosing) if choosing else 0) for o in self.outcomes[policy]]
        return np.median(runs, axis=0)[batches or self.kept]

    def normalise(self, policy: Policy, choosing: bool = False, batches: slice | None = None) -> float:
        """Time over timestamp's, averaged over batches."""
        ratios = self.seconds(policy, choosing, batches) / self.seconds("timestamp", choosing, batches)
        return float(np.mean(ratios))

    def over_all(self, policy: Policy, choosing: bool = False) -> float:
        """All time over all of timestamp's."""
        return float(self.seconds(policy, choosing).sum() / self.seconds("timestamp", choosing).sum())

    def count(self, policy: Policy, what: str) -> int:
        return int(sum(getattr(self.outcomes[policy][0], what)[self.kept]))

    @cached_property
    def shares(self) -> dict[Policy, np.ndarray]:
        """By policy, batch and point of GRID: [results, tuples] as shares of the batch's; of runs in pieces."""
        reference = np.median([[c[0, -1] for c in o.curves] for o in self.outcomes["timestamp"]], axis=0)
        return {p: np.mean([_read(o, reference) for o in found], axis=0) for p, found in self.outcomes.items()}

    def average_share(self, policy: Policy, at: float = 0.5, what: int = 0, batches: slice | None = None) -> float:
        """The share of results (or tuples: 1) at a time, averaged over batches."""
        curve = np.nanmean(self.shares[policy][batches or self.kept, what], axis=0)
        return float(np.interp(at, GRID, curve))


def _read(outcome: Outcome, reference: np.ndarray) -> np.ndarray:
    """A run's curves on the grid, every batch against the reference's time of it."""
    out = np.zeros((len(outcome.curves), 2, len(GRID)))
    for n, (curve, whole) in enumerate(zip(outcome.curves, reference, strict=True)):
        for what in (0, 1):
            total = curve[what + 1, -1]
            out[n, what] = np.interp(GRID, curve[0] / whole, curve[what + 1] / total) if total else np.nan
    return out


@dataclass
class Lab:
    """All trials of one invocation; each is made once."""

    size: Size
    say: Callable[[str], None] = lambda line: None
    seed: int = 1
    results: int = 0
    """Of all verified runs together."""
    verified: int = 0
    _cases: dict[tuple[str, int], Case] = field(default_factory=dict)
    _timed: dict[tuple[str, int, LookAhead, bool], Timed] = field(default_factory=dict)

    @property
    def spans(self) -> tuple[tuple[str, int], ...]:
        """The two lengths of batches, and into how many the data sets fall."""
        return tuple(zip(SPANS, self.size.batches, strict=True))

    def case(self, dataset: Dataset, batches: int) -> Case:
        """A verified case: all policies make its results."""
        if (dataset.name, batches) not in self._cases:
            case = Case(dataset, batches, self.seed, self.size.scale)
            for policy in POLICIES:
                self.say(f"verifying {policy} on {dataset.name} in {batches} batches")
                self.results += Trial(case, policy).verify()
                self.verified += 1
            self._cases[dataset.name, batches] = case
        return self._cases[dataset.name, batches]

    def run_policies(
        self, dataset: Dataset, batches: int, look: LookAhead = "in runs", in_pieces: bool = False
    ) -> Timed:
        """All policies in turn, again and again; where the look-ahead is not the usual one, the two that are compared."""
        key = (dataset.name, batches, look, in_pieces)
        if key not in self._timed:
            case = self.case(dataset, batches)
            policies: tuple[Policy, ...] = (
                (*FIXED, "auto") if look == "in runs" else ("timestamp", "initial_output_size")
            )
            found: dict[Policy, list[Outcome]] = {p: [] for p in policies}
            for n in range(self.size.repeats):
                for policy in _rotate(policies, n):
                    self.say(f"{policy} on {dataset.name} in {batches} batches, {n + 1} of {self.size.repeats}")
                    trial = Trial(case, policy, 0 if look == "none" else AHEAD, look == "across runs")
                    found[policy].append(trial.run(in_pieces))
            self._timed[key] = Timed(case, found)
        return self._timed[key]

    def paper(self, span: int, look: LookAhead = "in runs", in_pieces: bool = False) -> dict[str, Timed]:
        """Data sets I to VI in batches of one length."""
        return {d.name: self.run_policies(d, self.size.batches[span], look, in_pieces) for d in DATASETS}

    def beyond(self) -> dict[str, Timed]:
        """Data sets of more inputs, in batches of both lengths."""
        return {
            f"{d.name}, {batches} batches": self.run_policies(d, batches)
            for inputs in self.size.inputs
            for d in beyond(inputs)
            for batches in self.size.batches
        }


def _rotate(policies: Sequence[Policy], by: int) -> list[Policy]:
    """Another policy first every time."""
    by %= len(policies)
    return [*policies[by:], *policies[:by]]
