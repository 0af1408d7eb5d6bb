"""How large the experiments are, and what they share: calibrated costs, progress."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from watersmeet.sites.planning.cost import PerTuple, Setting
from watersmeet_lab.reproduce.semijoin.calibrate import calibrate


@dataclass(frozen=True)
class Size:
    """Of an invocation."""

    streams: int
    """Of the queries whose plans are compared."""
    windows_ms: tuple[int, ...]
    """That their windows are picked from."""
    queries: int
    """Random queries of each topology for the formulas (table 3)."""
    counted: int
    """Of these, so many are executed, and so many skewed ones."""
    cases: int
    """Values of each parameter of figure 9."""
    seconds: float
    """Of streams, after windows have filled."""
    sweep: int
    """Values of each parameter of figure 7."""
    world_cup: tuple[int, ...]
    """Windows of figure 10, in ms."""
    plans: int
    """Random plans whose answers are checked."""


FULL = Size(4, (400, 800, 1200, 1600, 2000), 100, 5, 5, 2.0, 5, (400, 800, 1200, 1600, 2000), 20)
QUICK = Size(3, (400, 800), 20, 1, 2, 0.8, 2, (400,), 4)
DELAY_US = 80_000
"""The paper's maximum delay."""


@dataclass
class Lab:
    """What claims share."""

    size: Size
    say: Callable[[str], None] = lambda line: None
    per_tuple: PerTuple = field(default_factory=calibrate)

    def make_setting(self, **changed: object) -> Setting:
        """The paper's defaults: 25 ms, 1,024 kbit/s, 100 ms, delta 80 ms; and this machine's processing."""
        return Setting(**{"delay_us": DELAY_US, "per_tuple": self.per_tuple, **changed})  # type: ignore[arg-type]
