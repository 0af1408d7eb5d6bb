"""What a one-way join costs: shipments, bytes and processing, per second of the streams.

    cost = latency * shipments + bytes / bandwidth + processing          one number, in seconds per second

One function for each algorithm, with the terms of appendix B in its order. What two parts of the protocol ship in an interval is
counted as it is shipped: nothing is sent that is empty.

The Bloom variants send filters of 16 bits per value instead of values, and count what passes them falsely. A window's tuple meets a filter in every
interval of its life, so false positives add up: hence 16 bits, where 8 would be usual. Filters pay where values are larger than that, or where exact
counts of many values are sent in every interval.

Implements: Tran and Lee (2010), appendix B, equation 1 and section 3.2; the Bloomjoin that section 7 names as future work.
Departs from the paper:
- Probing is by hash, not by nested loops: a probe costs c_h, and c_p for each tuple that it meets, instead of c_p * w_2.
- C_update[W_1] is left out: it is the same in all six, and in a sequence the source has no window.
- A tuple of S_2 is shipped once, if a tuple with its value comes while it lives: 1 - exp(-mu L), where the paper has f_21; mu is
  the rate at which the source asks for a value, L the time that a tuple is kept. SM-S2 ships a tuple at once if its value has been
  asked for since it came into the window, and values come and go: see `Lives`.
- v_C has an entry for every value in the window, and is counted (the paper's formula leaves it out): a byte for a small count.
- K'_1 and B'_1 are tested against W_2 without a time limit, hence against all that is kept: window, interval and delay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import exp
from typing import NamedTuple

from watersmeet.sites.planning.flow import Flow, Meeting, any_of, distinct, share_covered, survive
from watersmeet.sites.planning.model import Algorithm
from watersmeet.sites.planning.statistics import StreamStatistics

NUMBER_BYTES = 8
"""A number or a time in a message."""


@dataclass(frozen=True)
class PerTuple:
    """Seconds of processing for one tuple; the laboratory measures them. The defaults were measured once, on a server of 2026."""

    probe: float = 2.4e-8
    """c_p: one tuple met by a probe."""
    update: float = 2e-6
    """c_u: a tuple enters a window that is probed, and leaves it."""
    hash: float = 1.3e-7
    """c_h: look a value up."""
    insert: float = 5e-8
    """c_i: a tuple is put where nobody probes: a message, a list."""


@dataclass(frozen=True)
class LineCost:
    """Between two sites."""

    latency_s: float = 0.025
    bytes_per_s: float = 128_000.0


@dataclass(frozen=True)
class Setting:
    """The system that a plan is for: execution interval, lines, delay of removal, processing."""

    interval_us: int = 100_000
    lines: LineCost | Callable[[str, str], LineCost] = LineCost()
    delay_us: int = 0
    """How much longer than window and interval a tuple is kept: delta."""
    per_tuple: PerTuple = PerTuple()

    def line(self, sender: str, receiver: str) -> LineCost:
        if sender == receiver:
            return LineCost(0.0, float("inf"))
        return self.lines if isinstance(self.lines, LineCost) else self.lines(sender, receiver)


class Cost(NamedTuple):
    """Per second; `out` from source to destination, `back` the other way."""

    out_shipments: float
    out_bytes: float
    back_shipments: float
    back_bytes: float
    processing_s: float

    @property
    def shipments(self) -> float:
        return self.out_shipments + self.back_shipments

    @property
    def bytes(self) -> float:
        return self.out_bytes + self.back_bytes

    def seconds(self, out: LineCost, back: LineCost) -> float:
        """One number."""
        return (
            self.out_shipments * out.latency_s + self.out_bytes / out.bytes_per_s
            + self.back_shipments * back.latency_s + self.back_bytes / back.bytes_per_s
            + self.processing_s
        )  # fmt: skip


class Lives(NamedTuple):
    """How values of S_2 live in its window, per interval.

    A value that lambda tuples per second have is in a window of length L from a tuple that finds it absent until a gap of L: a busy
    period. Going back from a tuple, gaps shorter than L follow one another, and each passes without a request with
    phi = lambda / (lambda + mu) (1 - exp(-(lambda + mu) L)). So a busy period begins at a tuple with chance exp(-lambda L), and the
    chance that no request has come since it began is exp(-lambda L) / (1 - phi).
    """

    arriving: float
    """wp_2: tuples that come."""
    kept: float
    """Tuples of the window, the interval and the delay."""
    entries: float
    """k_2: values in the window."""
    new_entries: float
    asked: float
    """The share of tuples with a value that the source can ask for."""
    sent_once: float
    """Of those, the share that is asked for while it lives (SM-S1)."""
    known: float
    """Of those, the share whose value has been asked for when it comes (SM-S2)."""
    sent_with: float
    """Of those, the share that is sent then or later (SM-S2)."""
    first_requests: float
    """Values that are asked for the first time in their busy period (SM-S2)."""


class PricedJoin(NamedTuple):
    """A one-way join to be priced: the source's flow, the destination's stream, and what all formulas need; per interval."""

    flow: Flow
    meeting: Meeting
    stream: StreamStatistics
    counted: bool
    """Whether the window is one of rows: then a tuple is sent with its number, and later with the instant of its expiry."""
    lives: Lives
    per_tuple: PerTuple
    seconds: float
    keys: float
    """m_1: different values of the source."""
    asks: float
    """The chance that the source has anything."""
    passed: float
    """The share of its rows whose value is among the tuples kept."""
    ships: float
    """The chance that one of its rows passes."""
    matches: float
    """Rows of the results."""
    near: float
    """Tuples that the source's values meet among all that are kept."""

    @classmethod
    def of(
        cls, flow: Flow, meeting: Meeting, stream: StreamStatistics, window_rows: float, counted: bool, setting: Setting
    ) -> PricedJoin:
        kept = window_rows + stream.rate * (setting.interval_us + setting.delay_us) / 1e6
        passed, keys = share_covered(meeting, kept), distinct(meeting.values, meeting.draws)
        share = meeting.overlap / meeting.stream_values
        return cls(
            flow, meeting, stream, counted, lives(meeting, stream, kept, setting.interval_us / 1e6), setting.per_tuple,
            setting.interval_us / 1e6, keys, any_of(flow.heads, flow.alive), passed,
            any_of(flow.heads, flow.alive * survive(flow, meeting, passed)),
            flow.rows * window_rows * share, keys * kept * share,
        )  # fmt: skip


def sp_s(j: PricedJoin) -> Cost:
    """C_probe[W_2] + C_ship[W_2] + C_update[W_2@N_1]."""
    t, c, wp = j.seconds, j.per_tuple, j.lives.arriving
    processing = j.flow.rows * c.hash + j.matches * c.probe + wp * c.update
    each = j.stream.full_bytes + (NUMBER_BYTES if j.counted else 0)
    return Cost(0, 0, any_of(wp, 1) / t, wp * each / t, processing / t)


def sp_d(j: PricedJoin) -> Cost:
    """C_ship[B_1] + C_probe[W_2] + C_update[W_2]."""
    t, c, f = j.seconds, j.per_tuple, j.flow
    processing = f.rows * c.hash + j.matches * c.probe + j.lives.arriving * c.update
    return Cost(j.asks / t, f.rows * f.full_bytes / t, 0, 0, processing / t)


def sm_s1(j: PricedJoin) -> Cost:
    """C_ship[K_1] + C_probe[W_2] + C_ship[delta W'_2] + C_probe[B_1] + C_update[W_2] + C_update[W'_2] + the count k."""
    t, c, v = j.seconds, j.per_tuple, j.lives
    sent = v.arriving * v.asked * v.sent_once
    counts = any_of(v.arriving * (2 if j.counted else 1), v.asked * v.sent_once)
    processing = (
        j.keys * c.hash + j.near * c.probe + sent * c.insert + j.flow.rows * c.hash + j.matches * c.probe
        + (v.arriving + sent) * c.update
    )  # fmt: skip
    told = counts * NUMBER_BYTES + (2 * sent * NUMBER_BYTES if j.counted else 0)
    back_bytes = sent * j.stream.full_bytes + told
    return Cost(j.asks / t, j.keys * j.meeting.key_bytes / t, (j.asks + counts) / t, back_bytes / t, processing / t)


def sm_s2(j: PricedJoin) -> Cost:
    """C_probe[M_2] + C_ship[delta V'_2] + C_probe[W_2] + C_ship[delta W'_2] + C_update[M_2] + C_probe[M_2] + C_update[W_2]
    + C_update[V_2] + C_ship[{v_C, v_J} and s_F] + C_update[M_2]."""
    t, c, v = j.seconds, j.per_tuple, j.lives
    asks = min(j.asks, 1 - exp(-v.first_requests))
    sent = v.arriving * v.asked * v.sent_with
    updates, update_bytes = _updates(j)
    if j.counted:
        update_bytes += 2 * sent * NUMBER_BYTES
    processing = (
        (2 * j.flow.rows + v.first_requests) * c.hash + j.matches * c.probe
        + v.arriving * (c.update + c.hash) + sent * c.update + 2 * v.entries * c.insert
    )  # fmt: skip
    out_bytes = v.first_requests * j.meeting.key_bytes
    back_bytes = sent * j.stream.full_bytes + update_bytes
    return Cost(asks / t, out_bytes / t, (asks + updates) / t, back_bytes / t, processing / t)


def sm_d1(j: PricedJoin) -> Cost:
    """C_probe[V_2@N_1] + C_ship[B'_1] + C_probe[W_2] + C_update[W_2] + C_update[V_2] + C_update[V_2@N_1] and its shipment."""
    t, c, v, rows = j.seconds, j.per_tuple, j.lives, j.flow.rows
    updates, update_bytes = _updates(j)
    processing = (
        rows * (1 + j.passed) * c.hash
        + j.matches * c.probe
        + v.arriving * (c.update + c.hash)
        + 2 * v.entries * c.insert
    )
    return Cost(j.ships / t, rows * j.passed * j.flow.full_bytes / t, updates / t, update_bytes / t, processing / t)


def sm_d2(j: PricedJoin) -> Cost:
    """C_ship[K_1] + C_probe[W_2] + C_ship[K'_1] + C_probe[B_1] + C_ship[B'_1] + C_probe[W_2] + C_update[W_2]."""
    t, c, rows, key = j.seconds, j.per_tuple, j.flow.rows, j.meeting.key_bytes
    processing = (
        j.keys * c.hash + j.near * c.probe + j.keys * j.passed * c.insert
        + rows * (1 + j.passed) * c.hash + j.matches * c.probe + j.lives.arriving * c.update
    )  # fmt: skip
    out_bytes = j.keys * key + rows * j.passed * j.flow.full_bytes
    return Cost((j.asks + j.ships) / t, out_bytes / t, j.ships / t, j.keys * j.passed * key / t, processing / t)


FORMULAS: dict[Algorithm, Callable[[PricedJoin], Cost]] = {
    Algorithm.SP_S: sp_s, Algorithm.SP_D: sp_d, Algorithm.SM_S1: sm_s1,
    Algorithm.SM_S2: sm_s2, Algorithm.SM_D1: sm_d1, Algorithm.SM_D2: sm_d2,
}  # fmt: skip


def lives(m: Meeting, stream: StreamStatistics, kept: float, t: float) -> Lives:
    """See `Lives`; `kept` tuples are at S_2's site, an interval has t seconds."""
    life = kept / stream.rate
    lam = stream.rate / m.stream_values
    mu = m.draws / m.values / t
    absent, unasked_later = exp(-lam * life), exp(-mu * life)
    quiet = absent * unasked_later
    unasked = min(1.0, absent / max(1 - lam / (lam + mu) * (1 - quiet), 1e-300))
    return Lives(
        arriving=stream.rate * t,
        kept=kept,
        entries=distinct(m.stream_values, kept),
        new_entries=stream.rate * t * absent,
        asked=m.common / m.stream_values,
        sent_once=1 - unasked_later,
        known=1 - unasked,
        sent_with=1 - unasked_later * unasked,
        first_requests=m.common * lam * absent * t * (1 - unasked_later * unasked),
    )


def _updates(j: PricedJoin) -> tuple[float, float]:
    """Update messages and their bytes, v_C and v_J: one in every interval in which a tuple comes or goes."""
    messages = min(1.0, 2 * j.lives.arriving)
    return messages, messages * j.lives.entries + j.lives.new_entries * (j.meeting.key_bytes + 1)


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


def smb_s1(j: PricedJoin) -> Cost:
    """SM-S1 with K_1 as a filter."""
    exact, sent = sm_s1(j), _count_asked(j, j.asks)
    before = j.lives.arriving * j.lives.asked * j.lives.sent_once
    return exact._replace(
        out_bytes=_filters(j.keys, j.asks) / j.seconds,
        back_bytes=exact.back_bytes + (sent - before) * j.stream.full_bytes / j.seconds,
    )


def smb_s2(j: PricedJoin) -> Cost:
    """V_2 as a filter at the source, then SM-S1 with the keys that pass it."""
    t, v = j.seconds, j.lives
    asks, _ = _chance_to_ship(j)
    sent = _count_asked(j, asks)
    updates = min(1.0, 2 * v.arriving)
    numbers = updates + (2 * sent if j.counted else 0)
    back_bytes = _filters(updates * v.entries, updates) + numbers * NUMBER_BYTES + sent * j.stream.full_bytes
    out_bytes = _filters(j.keys * j.passed, asks)
    return Cost(asks / t, out_bytes / t, (asks + updates) / t, back_bytes / t, sm_s1(j).processing_s)


def smb_d1(j: PricedJoin) -> Cost:
    """SM-D1 with V_2@N_1 as a filter."""
    ships, rows = _chance_to_ship(j)
    updates = min(1.0, 2 * j.lives.arriving)
    update_bytes = _filters(updates * j.lives.entries, updates)
    t = j.seconds
    return Cost(ships / t, rows * j.flow.full_bytes / t, updates / t, update_bytes / t, sm_d1(j).processing_s)


def smb_d2(j: PricedJoin) -> Cost:
    """SM-D2 with K_1 and K'_1 as filters."""
    ships, rows = _chance_to_ship(j)
    wanted = j.keys * j.passed + j.lives.entries * FALSE_POSITIVES
    out_bytes = _filters(j.keys, j.asks) + rows * j.flow.full_bytes
    t = j.seconds
    return Cost(
        (j.asks + ships) / t, out_bytes / t, ships / t, _filters(wanted, ships) / t, sm_d2(j).processing_s
    )  # fmt: skip


def _filters(values: float, chance: float) -> float:
    """Bytes of a filter that is sent with this chance, with so many values on average."""
    return max(values * BYTES_PER_VALUE, chance * LEAST_BYTES)


def _chance_to_ship(j: PricedJoin) -> tuple[float, float]:
    """The chance that the source ships anything, and the rows that it ships."""
    share = j.passed + (1 - j.passed) * FALSE_POSITIVES
    return any_of(j.flow.heads, j.flow.alive * survive(j.flow, j.meeting, share)), j.flow.rows * share


def _count_asked(j: PricedJoin, asks: float) -> float:
    """Tuples that are asked for, rightly or falsely, while they live."""
    v = j.lives
    life = v.kept / v.arriving
    never = (1 - FALSE_POSITIVES) ** (asks * life)
    rightly = 1 - (1 - v.sent_once) * never
    return v.arriving * (v.asked * rightly + (1 - v.asked) * (1 - never))


PRICES = FORMULAS | {
    Algorithm.SMB_S1: smb_s1, Algorithm.SMB_S2: smb_s2, Algorithm.SMB_D1: smb_d1, Algorithm.SMB_D2: smb_d2,
}  # fmt: skip
"""The formulas of all algorithms, the Bloom variants among them."""
