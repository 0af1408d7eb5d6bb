"""How large the experiments are, and what they share: calibrated costs, verified answers, progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from watersmeet.sites.planning.cost import PerTuple, Setting
from watersmeet_lab.reproduce.semijoin.answer import Answer
from watersmeet_lab.reproduce.semijoin.calibrate import calibrate


@dataclass(frozen=True)
class Size:
    """Of an invocation."""

    queries: int
    """Random queries of each topology for the formulas (table 3)."""
    counted: int
    """Of these, so many are executed."""
    seconds: float
    """Of one-way joins of figure 7, after windows have filled."""
    repeats: int
    """Of a timing."""
    world_cup_s: float
    """Of figure 10, after windows have filled."""
    plans: int
    """Random plans whose answers are checked."""


FULL = Size(100, 100, 10.0, 5, 2.0, 60)
QUICK = Size(20, 2, 3.0, 1, 0.3, 10)
DELAY_US = 80_000
"""The paper's maximum delay."""


@dataclass
class Lab:
    """What claims share."""

    size: Size
    say: Callable[[str], None] = lambda line: None
    per_tuple: PerTuple = field(default_factory=calibrate)
    verified: dict[str, Answer] = field(default_factory=dict)

    def make_setting(self, **changed: object) -> Setting:
        """The paper's defaults: 25 ms, 1,024 kbit/s, 100 ms, delta 80 ms; and this machine's processing."""
        return Setting(**{"delay_us": DELAY_US, "per_tuple": self.per_tuple, **changed})  # type: ignore[arg-type]
