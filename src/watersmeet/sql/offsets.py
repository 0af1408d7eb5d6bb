"""How much a time zone's offset from UTC can change within a span of time: what fixed windows need to cover local ones.

    New York: 1 h, within any span       Apia: 24 h, around the day that it left out

The offsets are those of the evaluator's rules, sampled from 1840 to 2110: before, a zone has its mean solar time, and after, the rules
repeat.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

_STEP_S = 6 * 3600
"""No offset has ever been in force for less."""
_FIRST_S, _LAST_S = -4_102_444_800, 4_417_977_600
_HOUR_US = 3_600_000_000
FURTHEST_US = 36 * _HOUR_US
"""More than any two offsets are apart: what holds for a zone that the evaluator does not know."""

Runs = tuple[tuple[int, int, int], ...]
"""Offsets in force: from and until (seconds), and the offset in microseconds."""


def largest_change_us(timezone: str, span_us: int) -> int:
    """The largest difference between the offsets of two instants that are at most so far apart.

    >>> [largest_change_us(zone, 86_400_000_000) // 3_600_000_000 for zone in ("America/New_York", "Pacific/Apia")]
    [1, 24]
    """
    runs = _runs(timezone)
    if runs is None:
        return FURTHEST_US
    largest = 0
    for n, (_, until, offset) in enumerate(runs):
        for since, _, other in runs[n + 1 :]:
            if (since - until - 2 * _STEP_S) * 1_000_000 > span_us:  # the clock was set between two samples
                break
            largest = max(largest, abs(other - offset))
    return largest


@lru_cache(64)
def _runs(timezone: str) -> Runs | None:
    """The offsets of a zone in order; None if the evaluator has no rules for it."""
    import duckdb

    with duckdb.connect(":memory:", config={"threads": 1, "autoinstall_known_extensions": False}) as con:
        try:
            con.execute(f"SET TimeZone = '{timezone}'")
        except duckdb.Error:
            return None
        sampled = con.sql(
            f"SELECT epoch_us(CAST(to_timestamp(s) AS TIMESTAMP)) - s * 1000000 AS offset_us FROM range({_FIRST_S}, {_LAST_S}, {_STEP_S}) AS sampled(s)"
        ).fetchnumpy()["offset_us"]
    starts = np.concatenate([[0], np.flatnonzero(np.diff(sampled)) + 1])
    ends = np.append(starts[1:], len(sampled)) - 1
    at = [_FIRST_S + _STEP_S * int(n) for n in (*starts, *ends)]
    return tuple(zip(at[: len(starts)], at[len(starts) :], map(int, sampled[starts]), strict=True))
