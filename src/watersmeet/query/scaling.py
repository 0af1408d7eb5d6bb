"""What a user says of scaling: how much a unit may hold or work, and when there should be more or fewer of them.

Invariant: a `Scaling` that exists makes sense: low < target < high, and all numbers are in range.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from watersmeet.errors import OptionError, WindowError
from watersmeet.query.duration import parse_us


@dataclass(frozen=True)
class Scaling:
    """When to grow and to shrink: by the memory of a unit, tuples with their indexes, by the CPU time that a unit may take in a batch, or by both.

    >>> Scaling("64 MB").unit_bytes, Scaling(unit_time="500 milliseconds").unit_time
    (64000000, 0.5)
    """

    unit_bytes: int | str | None = None
    high: float = 0.8
    low: float = 0.3
    target: float = 0.6
    confirm: int = 3
    """So many batches in a row must ask for the same."""
    most_units: int = 256
    """Of all sides and joins together."""
    hot_keys: bool = True
    """Whether keys that are found to be hot are spread over more units."""
    unit_time: float | str | None = None
    """Seconds, or text such as '2 seconds'."""
    executors: Callable[[int], object] | Literal["spark"] | None = None
    """Who is asked for executors when units come and go: 'spark', on a classic session, or a function that is called with how many there should be."""
    units_per_executor: int = 1

    def __post_init__(self) -> None:
        if self.unit_bytes is None and self.unit_time is None:
            raise OptionError("Scaling: give unit_bytes='256 MB', unit_time='2 seconds', or both")
        if self.unit_bytes is not None:
            object.__setattr__(self, "unit_bytes", parse_bytes(self.unit_bytes))
        if self.unit_time is not None:
            object.__setattr__(self, "unit_time", _parse_seconds(self.unit_time))
        if not 0 <= self.low < self.target < self.high:
            raise OptionError(f"Scaling: low < target < high must hold, not {self.low}, {self.target}, {self.high}")
        if self.confirm < 1 or self.most_units < 2 or self.units_per_executor < 1:
            raise OptionError("Scaling: confirm and units_per_executor must be 1 or more, most_units 2 or more")
        if self.executors is not None and self.executors != "spark" and not callable(self.executors):
            raise OptionError(
                f"Scaling: executors={self.executors!r}: give 'spark', or a function that takes the number of executors"
            )


def _parse_seconds(given: float | str) -> float:
    try:
        seconds = parse_us(given) / 1e6 if isinstance(given, str) else float(given)
    except (OptionError, WindowError, TypeError, ValueError):
        seconds = 0.0
    if isinstance(given, bool) or not 0 < seconds < float("inf"):
        raise OptionError(f"Scaling: unit_time={given!r}: give seconds, or text such as '2 seconds'")
    return seconds


def parse_bytes(given: int | str, shown: str = "Scaling: unit_bytes") -> int:
    """A number of bytes: a whole number, or text such as '64 MB'."""
    scale = {"B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
    if isinstance(given, str):
        number, _, unit = given.strip().partition(" ")
        if unit.strip().upper() in scale:
            try:
                given = round(float(number) * scale[unit.strip().upper()])
            except ValueError:
                given = -1
    if not isinstance(given, int) or isinstance(given, bool) or given <= 0:
        raise OptionError(f"{shown}={given!r}: give a number of bytes, or text such as '64 MB'")
    return given
