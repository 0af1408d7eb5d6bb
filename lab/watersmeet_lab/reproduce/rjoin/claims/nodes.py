"""What the claims say of nodes: messages per node, and loads from the busiest node down."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import short
from watersmeet_lab.reproduce.rjoin.lab import Sample

BEYOND = 1.25
"""So many times less than the lower end, or more than the upper one, still counts as what the paper says."""


def is_within(times: float, ends: tuple[float, float]) -> bool:
    """Whether a ratio is what the paper says, on both sides.

    >>> is_within(31.6, (4.0, 5.0)), is_within(5.5, (4.0, 5.0)), is_within(3.0, (4.0, 5.0))
    (False, True, False)
    """
    return ends[0] / BEYOND <= times <= ends[1] * BEYOND


def per_node(messages: float, nodes: int) -> str:
    """Messages per node, shortened.

    >>> per_node(250_000, 1000)
    '250'
    """
    return short(messages / nodes)


def busy(load: np.ndarray) -> int:
    """Nodes that have anything to do."""
    return int(np.count_nonzero(load))


def half(load: np.ndarray) -> int:
    """How many nodes, the busiest first, share half of the load.

    >>> half(np.array([5, 1, 1, 1, 1, 1])), half(np.array([2, 2, 2, 2]))
    (1, 2)
    """
    down = np.cumsum(np.sort(load)[::-1])
    return int(np.searchsorted(down, down[-1] / 2)) + 1 if len(down) and down[-1] else 0


def loads(figure: str, title: str, samples: Mapping[str, Sample], suffix: str = "") -> tuple[Plot, Plot]:
    """Query processing and storage load by node, sorted."""
    plots = []
    for letter, name, of in (("b", "query processing load", Sample.processing), ("c", "storage load", Sample.storage)):
        series = {}
        for label, sample in samples.items():
            down = np.sort(of.__get__(sample))[::-1]
            series[label] = (list(range(1, len(down) + 1)), [max(v, 0.5) for v in down.tolist()])
        said = f"Figure {figure}({letter}): {title}"
        file = f"figure-{figure}{letter}-{name.split()[-2]}{suffix}"
        plots.append(Plot(file, said, "nodes, the busiest first", name, series, log=True, marks=False))
    return plots[0], plots[1]
