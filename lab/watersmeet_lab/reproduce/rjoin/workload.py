"""The workload of section 8: a schema of 10 relations of 10 attributes, Zipf-distributed tuples, chains of equi-joins.

    R.A = S.B and S.C = J.F and J.C = K.D        relations differ, attributes are drawn at random

The paper draws values "using a Zipf distribution" and leaves open whether the most frequent value is the same in all attributes.
`shared` ranks: it is, and two random attributes agree with probability sum(p^2) = 0.047. `own` ranks: every attribute has its
own most frequent value, and they agree with probability 0.01. With shared ranks 20,000 8-way queries over 1,000 tuples would
have about 10^10 answers, which nobody has run; so `own` is the default, and both are shown where skew is the question.

One tuple is published every TICKS ticks, which is longer than all of its messages take.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np

from watersmeet_lab.simulate.ring.coded_join import CodedJoin, within
from watersmeet_lab.simulate.ring.simulation import Tuples

RELATIONS = ATTRIBUTES = 10
VALUES = 100
TICKS = 10
WARM_UP = 200
"""Tuples before the queries, from which nodes know rates; the paper does not say from where its nodes know any."""
COLUMNS = tuple(f"a{n}" for n in range(ATTRIBUTES))
STREAMS = {f"r{n}": COLUMNS for n in range(RELATIONS)}


@dataclass(frozen=True)
class Workload:
    """Queries and tuples; those with the same seed share what they can: the first queries, the first tuples."""

    queries: int = 20_000
    tuples: int = 1_000
    joins: int = 4
    """k of k-way."""
    theta: float = 0.9
    ranks: Literal["own", "shared"] = "own"
    window: int | None = None
    """In tuples of all relations together, which arrive one per unit of time."""
    seed: int = 0

    @cached_property
    def templates(self) -> list[CodedJoin]:
        random = np.random.default_rng([self.seed, 1])
        bounds = () if self.window is None else within(self.joins, TICKS * (self.window - 1))
        return [self._template(random, bounds) for _ in range(self.queries)]

    def _template(self, random: np.random.Generator, bounds: tuple[tuple[int, ...], ...]) -> CodedJoin:
        streams = tuple(f"r{n}" for n in random.permutation(RELATIONS)[: self.joins])
        columns = random.integers(0, ATTRIBUTES, (self.joins - 1, 2))
        equal = tuple(((i, COLUMNS[x]), (i + 1, COLUMNS[y])) for i, (x, y) in enumerate(columns))
        return CodedJoin(streams, equal, (equal[0][0], equal[-1][1]), bounds=bounds)

    @cached_property
    def data(self) -> Tuples:
        """Warm-up tuples, then those that the queries see."""
        count = WARM_UP + self.tuples
        stream = _zipf(np.random.default_rng([self.seed, 2]), RELATIONS, self.theta, (count, 1))[:, 0]
        values = _zipf(np.random.default_rng([self.seed, 3]), VALUES, self.theta, (count, ATTRIBUTES))
        if self.ranks == "own":
            order = np.random.default_rng([self.seed, 4])
            by = np.array([[order.permutation(VALUES) for _ in COLUMNS] for _ in STREAMS])
            values = by[stream[:, None], np.arange(ATTRIBUTES), values]
        ts = np.arange(count) * TICKS
        return Tuples(stream, ts, ts, values)

    @property
    def begin(self) -> int:
        """When the queries are posed: before the first tuple after the warm-up, early enough to be there."""
        return WARM_UP * TICKS - TICKS // 2

    def after(self, tuples: int) -> int:
        """A tick at which so many tuples after the warm-up have been dealt with."""
        return (WARM_UP + tuples) * TICKS - 1


def _zipf(random: np.random.Generator, n: int, theta: float, size: tuple[int, int]) -> np.ndarray:
    """Ranks from 0, the i-th with probability proportional to 1 / (i + 1)^theta; a longer draw begins like a shorter one."""
    weights = np.cumsum(1.0 / np.arange(1, n + 1) ** theta)
    return np.searchsorted(weights / weights[-1], random.random(size), side="right")
