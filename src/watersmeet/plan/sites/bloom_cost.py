"""What the Bloom variants cost: filters of 16 bits per value instead of values, and what passes them falsely.

A window's tuple meets a filter in every interval of its life, so false positives add up: hence 16 bits, where 8 would be usual. Filters
pay where values are larger than that, or where exact counts of many values are told in every interval.

Implements: the Bloomjoin that Tran and Lee (2010), section 7, name as future work; terms as in appendix B.
"""

from __future__ import annotations

from math import exp

from watersmeet.plan.sites.cost import NUMBER_BYTES, Cost, Join, sm_d1, sm_d2, sm_s1
from watersmeet.plan.sites.flow import any_of, survive

BYTES_PER_VALUE = 2
HASHES = 11
LEAST_BYTES = 8
"""A filter of one or two values would let too much pass in fewer."""
FALSE_POSITIVES = (1 - exp(-HASHES / (8 * BYTES_PER_VALUE))) ** HASHES
"""The share of values that are not there and pass: 0.05%."""


def filter_bytes(values: int) -> int:
    """The size of a filter.

    >>> filter_bytes(1), filter_bytes(100)
    (8, 200)
    """
    return max(values * BYTES_PER_VALUE, LEAST_BYTES)


def smb_s1(j: Join) -> Cost:
    """SM-S1 with K_1 as a filter."""
    exact, sent = sm_s1(j), _sent(j, j.asks)
    before = j.lives.arriving * j.lives.asked * j.lives.sent_once
    return exact._replace(
        out_bytes=_filters(j.keys, j.asks) / j.seconds,
        back_bytes=exact.back_bytes + (sent - before) * j.stream.full_bytes / j.seconds,
    )


def smb_s2(j: Join) -> Cost:
    """V_2 as a filter at the source, then SM-S1 with the keys that pass it."""
    t, v = j.seconds, j.lives
    asks, _ = _passing(j)
    sent = _sent(j, asks)
    updates = min(1.0, 2 * v.arriving)
    numbers = updates + (2 * sent if j.counted else 0)
    back_bytes = _filters(updates * v.entries, updates) + numbers * NUMBER_BYTES + sent * j.stream.full_bytes
    out_bytes = _filters(j.keys * j.passed, asks)
    return Cost(asks / t, out_bytes / t, (asks + updates) / t, back_bytes / t, sm_s1(j).processing_s)


def smb_d1(j: Join) -> Cost:
    """SM-D1 with V_2@N_1 as a filter."""
    ships, rows = _passing(j)
    updates = min(1.0, 2 * j.lives.arriving)
    update_bytes = _filters(updates * j.lives.entries, updates)
    t = j.seconds
    return Cost(ships / t, rows * j.flow.full_bytes / t, updates / t, update_bytes / t, sm_d1(j).processing_s)


def smb_d2(j: Join) -> Cost:
    """SM-D2 with K_1 and K'_1 as filters."""
    ships, rows = _passing(j)
    wanted = j.keys * j.passed + j.lives.entries * FALSE_POSITIVES
    out_bytes = _filters(j.keys, j.asks) + rows * j.flow.full_bytes
    t = j.seconds
    return Cost(
        (j.asks + ships) / t, out_bytes / t, ships / t, _filters(wanted, ships) / t, sm_d2(j).processing_s
    )  # fmt: skip


def _filters(values: float, chance: float) -> float:
    """Bytes of a filter that is sent with this chance, with so many values on average."""
    return max(values * BYTES_PER_VALUE, chance * LEAST_BYTES)


def _passing(j: Join) -> tuple[float, float]:
    """The chance that the source ships anything, and the rows that it ships."""
    share = j.passed + (1 - j.passed) * FALSE_POSITIVES
    return any_of(j.flow.heads, j.flow.alive * survive(j.flow, j.meeting, share)), j.flow.rows * share


def _sent(j: Join, asks: float) -> float:
    """Tuples that are asked for, rightly or falsely, while they live."""
    v = j.lives
    life = v.kept / v.arriving
    never = (1 - FALSE_POSITIVES) ** (asks * life)
    rightly = 1 - (1 - v.sent_once) * never
    return v.arriving * (v.asked * rightly + (1 - v.asked) * (1 - never))
