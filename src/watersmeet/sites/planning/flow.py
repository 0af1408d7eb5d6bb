"""What a head's new tuples have become after joins: the expected rows, values and sizes of one interval.

    heads n --alive p--> rows R, of F bytes, with `draws` tuples' worth of values from D possible ones per join attribute

Invariant: a flow depends on the head and the set of streams joined, not on their order.
Implements: Tran and Lee (2010), section 4.1 (the rate of an output stream) and table 4's k_i and m_i.
Departs from the paper: `min(1/f, w/f * 100)` for the number of distinct values among w tuples cannot be meant; it is
d (1 - (1 - 1/d)^w), d = 1/f, the expectation over w draws. Likewise f_12 = min(1, f_1/f_2) is the share of tuples whose value
exists in the other stream; here it also counts whether the value is in the window now, and a window of few tuples over many
values has few of them. Tuples of an output stream come in bunches, one per head tuple, so the chance that an
interval has any is that of its heads.
"""

from __future__ import annotations

from math import expm1, log1p
from typing import NamedTuple

from watersmeet.sites.planning.model import SiteQuery
from watersmeet.sites.planning.statistics import Statistics


def distinct(values: float, draws: float) -> float:
    """The expected number of different values among so many draws, all equally likely: k_i and m_i.

    >>> distinct(100, 1), round(distinct(100, 100), 1), round(distinct(100, 1e4), 1)
    (1.0, 63.4, 100.0)
    """
    if values <= 1:
        return min(values, draws)
    return min(-values * expm1(draws * log1p(-1 / values)), draws)


def any_of(n: float, p: float) -> float:
    """The chance that one of n tuples of an interval, each with chance p, is there; n below 1: in that share of intervals.

    >>> any_of(3, 0.5), any_of(0.5, 1.0)
    (0.875, 0.5)
    """
    p = min(p, 1.0)
    return n * p if n < 1 else 1 - (1 - p) ** n


class FlowValues(NamedTuple):
    """One join attribute of a flow."""

    distinct: float
    """D: how many values it can have."""
    draws: float
    """How many independent values an interval brings."""
    of_head: bool
    """Whether the head has it: then all rows of a head tuple have the same."""


class Flow(NamedTuple):
    """One interval's expectation."""

    heads: float
    alive: float
    rows: float
    full_bytes: float
    values: dict[int, FlowValues]
    """By class of columns."""


class Meeting(NamedTuple):
    """What a flow's join attributes and a stream's have to do with one another."""

    values: float
    """D: the combinations that the flow can have."""
    draws: float
    stream_values: float
    """d: those that the stream can have."""
    common: float
    of_head: bool
    key_bytes: float

    @property
    def overlap(self) -> float:
        """The share of the flow's tuples whose values exist in the stream: the paper's f_12."""
        return self.common / self.values


class StreamFlows:
    """Flows of one query, each computed once. Sets of streams are bit masks by position."""

    def __init__(self, query: SiteQuery, statistics: Statistics, interval_us: int) -> None:
        statistics.check(query)
        self.query, self.statistics, self.interval_s = query, statistics, interval_us / 1e6
        self.streams = [statistics.streams[a] for a in query.aliases]
        self.window_rows = [statistics.window_rows(s) for s in query.streams]
        self.near = [sum(1 << query.position[n] for n in query.neighbours(a)) for a in query.aliases]
        self._class_of = {column: n for n, members in enumerate(query.classes) for column in members}
        self._columns = [self._by_class(a) for a in query.aliases]
        self._shared = [self._by_neighbour(a) for a in query.aliases]
        self._reachable: dict[int, list[int]] = {}
        self._flows: dict[tuple[int, int], Flow] = {}
        self._meetings: dict[tuple[int, int, int], Meeting] = {}

    def flow(self, head: int, done: int) -> Flow:
        """Of a head joined with the streams of a mask (the head among them)."""
        key = head, done
        if key not in self._flows:
            if done == 1 << head:
                self._flows[key] = self._first(head)
            else:
                last = self._last_of(head, done)
                before = done & ~(1 << last)
                self._flows[key] = self._join(self.flow(head, before), self.meet(head, before, last), last)
        return self._flows[key]

    def meet(self, head: int, done: int, to: int) -> Meeting:
        """Of the flow of (head, done) with a stream."""
        key = head, done, to
        if key not in self._meetings:
            self._meetings[key] = self._meet(self.flow(head, done), done, to)
        return self._meetings[key]

    def reachable(self, done: int) -> list[int]:
        """The streams that are connected with those of a mask and not among them."""
        if done not in self._reachable:
            near = 0
            for n, mask in enumerate(self.near):
                if done >> n & 1:
                    near |= mask
            near &= ~done
            self._reachable[done] = [n for n in range(len(self.near)) if near >> n & 1]
        return self._reachable[done]

    def _by_class(self, alias: str) -> dict[int, str]:
        columns = sorted(c for members in self.query.classes for a, c in members if a == alias)
        return {self._class_of[alias, c]: c for c in columns}

    def _last_of(self, head: int, done: int) -> int:
        """The stream that comes last if those of the lowest positions come first, as far as they are connected."""
        reached, last = 1 << head, head
        while reached != done:
            last = next(n for n in self.reachable(reached) if done >> n & 1)
            reached |= 1 << last
        return last

    def _first(self, head: int) -> Flow:
        s = self.streams[head]
        n = s.rate * self.interval_s
        values = {c: FlowValues(s.distinct[name], n, True) for c, name in self._columns[head].items()}
        return Flow(n, 1.0, n, s.full_bytes, values)

    def _by_neighbour(self, alias: str) -> list[tuple[int, float, float, list[tuple[int, float]]]]:
        """For each class: the stream's number of values, their size, and by neighbour's bit what they have in common."""
        here, out = self.statistics.streams[alias], []
        for c, column in self._columns[self.query.position[alias]].items():
            there = [t for t, _ in self.query.between(self.query.aliases, alias) if self._class_of[t] == c]
            bits = [(1 << self.query.position[t[0]], self.statistics.count_shared(t, (alias, column))) for t in there]
            out.append((c, here.distinct[column], here.partial_bytes[column], bits))
        return out

    def _meet(self, flow: Flow, done: int, to: int) -> Meeting:
        values = stream_values = common = 1.0
        draws, of_head, key_bytes = 0.0, True, 0.0
        for c, mine, size, bits in self._shared[to]:
            shared = min((n for bit, n in bits if done & bit), default=None)
            if shared is not None:
                ours = flow.values[c]
                values *= ours.distinct
                stream_values *= mine
                common *= min(shared, ours.distinct)
                draws = max(draws, ours.draws)
                of_head &= ours.of_head
                key_bytes += size
        return Meeting(values, min(draws, flow.rows), stream_values, common, of_head, key_bytes)

    def _join(self, flow: Flow, meeting: Meeting, to: int) -> Flow:
        w = self.window_rows[to]
        rows = flow.rows * w * meeting.overlap / meeting.stream_values
        matched = meeting.overlap * distinct(meeting.stream_values, w) / meeting.stream_values
        alive = flow.alive * survive(flow, meeting, matched)
        values = {}
        for c, v in flow.values.items():
            shrunk = v.distinct * meeting.overlap if c in self._columns[to] else v.distinct
            values[c] = FlowValues(max(shrunk, 1e-9), v.draws * matched, v.of_head)
        for c, name in self._columns[to].items():
            if c not in values:
                met = w * -expm1(-rows / w) if w else 0.0
                values[c] = FlowValues(self.streams[to].distinct[name], met, False)
        return Flow(flow.heads, alive, rows, flow.full_bytes + self.streams[to].full_bytes, values)


def survive(flow: Flow, meeting: Meeting, matched: float) -> float:
    """The share of head tuples that keep a row, if each row is matched with this chance."""
    if meeting.of_head or not flow.alive or not flow.heads:
        return matched
    bunch = max(flow.rows / (flow.heads * flow.alive), 1.0)
    return 1 - (1 - min(matched, 1.0)) ** bunch


def share_covered(meeting: Meeting, rows: float) -> float:
    """The share of the flow's rows whose values are among so many rows of the stream."""
    return meeting.overlap * distinct(meeting.stream_values, rows) / meeting.stream_values
