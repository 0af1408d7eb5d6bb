"""What a micro-batch costs, as a formula: a sum of terms, each a figure of the batch times a coefficient.

    seconds = fixed + rows * per row + units * per unit + rows * payload * per byte + state rows * per state row

Coefficients are fitted so that the sum of squared relative errors is smallest, and none is negative: a term that would be is left out, since no part of a
batch takes less than no time. The part of the driver, which no further host takes off it, is fitted alike from its CPU time.

Invariant: a pure function of the measured costs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from watersmeet_lab.bench.scale.points import Cost

FIXED = "a batch"
TERMS: Mapping[str, Callable[[Cost], float]] = {
    FIXED: lambda c: 1.0,
    "a row": lambda c: c.input_rows,
    "a unit": lambda c: c.point.units,
    "a byte of payload that enters": lambda c: c.input_rows * c.point.payload,
    "a row of state": lambda c: c.state_rows,
    "a host after the first": lambda c: c.hosts - 1,
}


@dataclass(frozen=True)
class Formula:
    """Coefficients by term, in seconds."""

    of: Mapping[str, float]

    def seconds(self, cost: Cost) -> float:
        """What a batch of these figures takes."""
        return sum(k * TERMS[name](cost) for name, k in self.of.items())


def fit(costs: Sequence[Cost], measured: Callable[[Cost], float]) -> Formula:
    """The formula that comes nearest to what was measured.

    >>> from watersmeet_lab.bench.scale.points import Point
    >>> made = [Cost(Point(r, u, 0, 1), 1, 0.1 + 2e-6 * r + 1e-3 * u, 0.0, r, 0, 0, 0) for r in (1000, 50_000) for u in (1, 4, 16)]
    >>> {name: round(k, 7) for name, k in fit(made, lambda c: c.seconds).of.items()}
    {'a batch': 0.1, 'a row': 2e-06, 'a unit': 0.001}
    """
    names = [name for name, figure in TERMS.items() if len({figure(c) for c in costs}) > 1 or name == FIXED]
    want = np.array([measured(c) for c in costs])
    while True:
        figures = np.array([[TERMS[name](c) for name in names] for c in costs]) / want[:, None]
        scale = np.abs(figures).max(axis=0)
        found = np.linalg.lstsq(figures / scale, np.ones(len(costs)), rcond=None)[0] / scale
        if (found >= 0).all() or len(names) == 1:
            return Formula(dict(zip(names, found.tolist(), strict=True)))
        names.pop(int(np.argmin(found * scale)))


def extrapolate(total: Formula, driver: Formula, like: Cost, units: int, cores: int, measured_cores: int) -> float:
    """Seconds of a batch like one, with other units on other cores: what grows with rows and units is shared among cores, less what the driver has to do for each unit."""
    asked = replace(like, point=replace(like.point, units=units))
    alone = total.of.get(FIXED, 0.0) + driver.seconds(asked) - driver.of.get(FIXED, 0.0)
    return alone + max(total.seconds(asked) - alone, 0.0) * measured_cores / cores
