"""What a user says of scaling: how much a unit may hold, and when there should be more or fewer of them.

Invariant: a `Scaling` that exists makes sense: low < target < high, and all numbers are in range.
"""

from __future__ import annotations

from dataclasses import dataclass

from watersmeet.errors import OptionError


@dataclass(frozen=True)
class Scaling:
    """When to grow and to shrink; `unit_bytes` is the capacity of a unit's state.

    >>> Scaling("64 MB").unit_bytes
    64000000
    """

    unit_bytes: int | str
    high: float = 0.8
    low: float = 0.3
    target: float = 0.6
    confirm: int = 3
    """So many batches in a row must ask for the same."""
    most_units: int = 256
    """Of both sides together."""
    hot_keys: bool = True
    """Whether keys that are found to be hot are spread over their whole side."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "unit_bytes", parse_bytes(self.unit_bytes))
        if not 0 <= self.low < self.target < self.high:
            raise OptionError(f"Scaling: low < target < high must hold, not {self.low}, {self.target}, {self.high}")
        if self.confirm < 1 or self.most_units < 2:
            raise OptionError("Scaling: confirm must be 1 or more, most_units 2 or more")


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
