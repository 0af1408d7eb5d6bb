"""What a unit does for other sites with a stream that is at home here: it tells news of it, and answers questions.

    released tuples --> copies, values, filters, tuples of values that were asked for
    questions       --> wait for this site's stream --> tuples, or the keys that have some

Keys travel as 64-bit codes. Codes of texts may collide and filters pass too much: that costs bytes, since results come of exact joins.

Invariant: nothing is sent to a site that has it: tuples by sent bits, values by what it was told of.
Implements: Tran and Lee (2010), section 3.2: v_J, s_F, and the non-redundant semijoin (algorithm 7).
Departs from the paper: values that were told or asked for end at a time instead of a count of zero. The home of a stream keeps its window under SP-S, too: a later plan may need it.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import NEVER
from watersmeet.kernels.hash_window import pairs, probe
from watersmeet.kernels.instants import LAST, add_span, shift
from watersmeet.plan.model import TIME
from watersmeet.query.window import UNBOUNDED
from watersmeet.sites.one_way import kept
from watersmeet.sites.one_way.at_unit import PlanAtUnit
from watersmeet.sites.one_way.filters import build_filter, find_passing
from watersmeet.sites.one_way.kept import CODE, NUMBER, codes_table, find_latest, name_keys
from watersmeet.sites.one_way.rows_windows import ends_of, name_ends
from watersmeet.sites.paths import COPYING, KNOWING, Leg
from watersmeet.sites.planning.model import Algorithm
from watersmeet.storage.segment import Segment, key_columns

_FOR_EVER_US = 10 * 365 * 86_400_000_000
_CHUNK = 131_072
FIRST, LATEST = "_first", "_last"
"""Columns of a question: the times of a key's first and last heads."""
_WHOLE, _ASKED = frozenset({Algorithm.SP_S}), frozenset({Algorithm.SM_S2})


class Serving(PlanAtUnit):
    """The streams that are at home here, under one plan."""

    def tell(self, n: int, released: list[Segment], *, moved: bool) -> None:
        """News of a stream to the sites that keep copies, values or filters of it."""
        for site in sorted({leg.at for leg in self.paths.keepers(n, _WHOLE)}):
            for segment in released:
                self.send(site, kept.copy(n), self.as_shipped(n, segment.table))
                self._send_ends(n, site, segment.codes(NUMBER, "integer") if n in self.paths.counted else None)
        self._tell_ended(n)
        for leg in _once(self.paths.keepers(n, KNOWING)):
            if not leg.is_bloom:
                self._tell_values(n, leg, released)
            elif moved:
                self._tell_filter(n, leg)
        for leg in _once(self.paths.keepers(n, _ASKED)):
            if not leg.is_bloom:
                self._tell_asked(n, leg, released)

    def _tell_ended(self, n: int) -> None:
        """Tuples of a ROWS window that have ended in this batch, to the sites that have them."""
        ended = self.unit.ended.get(n)
        if ended is None:
            return
        numbers = integers(ended.column(NUMBER).combine_chunks())
        for leg in {leg.at: leg for leg in self.paths.keepers(n, COPYING)}.values():
            is_there = np.ones(len(numbers), bool)
            if leg.how is not Algorithm.SP_S:
                is_there = self.kept.knows(self.name(kept.name_sent(n, leg.at)), NUMBER, numbers, NEVER)
            self.send(leg.at, name_ends(n), ended.filter(pa.array(is_there)))

    def _send_ends(self, n: int, to: int, numbers: np.ndarray | None) -> None:
        """The ends that are known of tuples that are sent."""
        if numbers is not None:
            self.send(to, name_ends(n), ends_of(self.kept, name_ends(n), numbers))

    def _tell_values(self, n: int, leg: Leg, released: list[Segment]) -> None:
        """v_J: values that the site does not know to live so long."""
        if not released:
            return
        codes = np.concatenate([self.key_codes(n, s, leg.classes) for s in released])
        values, last = find_latest(codes, np.concatenate([s.ts for s in released]))
        name = self.name(name_keys("told", n, leg.classes, leg.at))
        untold = ~self.kept.knows(name, CODE, values, last)
        told = codes_table(values[untold], shift(last[untold], self._spare(n)))
        self.kept.add(name, told)
        self.send(leg.at, name_keys("values", n, leg.classes), told)

    def _tell_filter(self, n: int, leg: Leg) -> None:
        """V as a filter, whole: filters forget nothing, so it is made anew when tuples have come or gone."""
        stored = [s for s in self.kept.segments(self.window(n)) if s.min_ts < self.frontiers.of(n)]
        if stored:
            codes = np.unique(np.concatenate([self.key_codes(n, s, leg.classes) for s in stored]))
            table = build_filter(codes).append_column(TIME, pa.array([max(s.max_ts for s in stored)], pa.int64()))
            self.send(leg.at, name_keys("filter", n, leg.classes), table)

    def _tell_asked(self, n: int, leg: Leg, released: list[Segment]) -> None:
        """s_F: tuples of values that the site has asked for."""
        name = self.name(name_keys("asked", n, leg.classes, leg.at))
        asked = (self.kept.knows(name, CODE, self.key_codes(n, s, leg.classes), s.ts + 1) for s in released)
        self._send_tuples(n, leg.at, [(s, np.flatnonzero(a)) for s, a in zip(released, asked, strict=True)])

    def answer(self, leg: Leg) -> None:
        """Questions that this site's stream has come far enough for: the non-redundant semijoin (algorithm 7), or K'_1."""
        asked = leg.channel("ask")
        name = self.name(leg.channel("@ask"))
        answered = self.frontiers.answered[asked] if self.is_complete(leg.to) else NEVER
        for keys in (*self.kept.take(name), *self.inbox(asked)):
            if int(keys.column(TIME)[0].as_py()) > answered:
                self.kept.add(name, keys)
            else:
                self._answer_keys(leg, keys)

    def _answer_keys(self, leg: Leg, keys: pa.Table) -> None:
        if leg.how is Algorithm.SM_S2 and not leg.is_bloom:
            until = end_of_asking(leg, int(keys.column(TIME)[0].as_py()))
            marked = codes_table(keys.column(CODE).to_numpy(), until)
            self.kept.add(self.name(name_keys("asked", leg.to, leg.classes, leg.at)), marked)
        found, until = list[tuple[Segment, np.ndarray]](), self.frontiers.of(leg.to)
        asked = None if leg.is_bloom else _Asked.of(leg, keys)
        for segment in self.kept.segments(self.window(leg.to)):
            rows = self._find_matching(leg, segment, keys, asked)
            found.append((segment, rows[segment.ts[rows] < until]))
        if leg.how in COPYING:
            self._send_tuples(leg.to, leg.at, found)
            return
        wanted = [self.key_codes(leg.to, segment, leg.classes)[rows] for segment, rows in found if len(rows)]
        if wanted:
            self.send(leg.at, leg.channel("want"), self._keys(leg, np.unique(np.concatenate(wanted))))

    def _find_matching(self, leg: Leg, segment: Segment, keys: pa.Table, asked: _Asked | None) -> np.ndarray:
        """The rows of a stored segment that have one of the keys, and are in the window of one of its heads."""
        if asked is None:
            return np.flatnonzero(find_passing(keys, self.key_codes(leg.to, segment, leg.classes)))
        if segment.max_ts < asked.earliest or segment.min_ts > asked.latest:
            return np.empty(0, np.int64)
        if not leg.classes:
            return np.flatnonzero((segment.ts >= asked.earliest) & (segment.ts <= asked.latest))
        index = segment.index(key_columns(self.plan, leg.stream.keys, leg.classes))
        found = pairs(*probe(index, asked.codes, asked.low, asked.high), index.rows, _CHUNK)
        return np.unique(np.concatenate([np.empty(0, np.int64), *(rows for _, rows in found)]))

    def _send_tuples(self, n: int, to: int, found: list[tuple[Segment, np.ndarray]]) -> None:
        """Whole tuples, by segment and row, to a site that does not have all of them."""
        found = [(segment, rows) for segment, rows in found if len(rows)]
        if not found:
            return
        name = self.name(kept.name_sent(n, to))
        numbers = np.concatenate([segment.codes(NUMBER, "integer")[rows] for segment, rows in found])
        times = np.concatenate([segment.ts[rows] for segment, rows in found])
        unsent = ~self.kept.knows(name, NUMBER, numbers, NEVER)
        marks = {TIME: pa.array(times[unsent], pa.int64()), NUMBER: pa.array(numbers[unsent], pa.int64())}
        self.kept.add(name, pa.table(marks))
        begin = 0
        for segment, rows in found:
            left, begin = rows[unsent[begin : begin + len(rows)]], begin + len(rows)
            whole = self.as_shipped(n, segment.table)
            self.send(to, kept.copy(n), whole if len(left) == segment.rows else whole.take(pa.array(left)))
        self._send_ends(n, to, numbers[unsent] if n in self.paths.counted else None)

    @staticmethod
    def _keys(leg: Leg, codes: np.ndarray) -> pa.Table:
        """Different codes as they travel, or a filter of them."""
        return build_filter(codes) if leg.is_bloom else pa.table({CODE: pa.array(codes, pa.int64())})

    def _spare(self, n: int) -> int:
        """How much longer than its last tuple a value is told to live: one that keeps coming is not told in every batch."""
        lasts = max(leg.reach_us for leg in self.paths.all if leg.to == n)
        return _FOR_EVER_US if lasts >= UNBOUNDED else max(lasts, 0) // 4


class _Asked(NamedTuple):
    """A question: keys, and for each the times of the tuples that its heads can meet."""

    codes: np.ndarray
    low: np.ndarray
    high: np.ndarray
    earliest: int
    latest: int

    @classmethod
    def of(cls, leg: Leg, keys: pa.Table) -> _Asked:
        codes, first, latest = (integers(keys.column(name).combine_chunks()) for name in (CODE, FIRST, LATEST))
        low = shift(first, -leg.reach_us)
        # Of a value that was asked for once, later tuples come by themselves; what is here by now has to come, too.
        high = np.full(len(low), LAST) if leg.how is Algorithm.SM_S2 else latest
        return cls(codes, low, high, int(low.min()), int(high.max()))


def end_of_asking(leg: Leg, asked: int) -> int:
    """Up to when tuples of a value come by themselves that was asked for at a frontier: both sites reckon alike."""
    return add_span(asked, _FOR_EVER_US if leg.reach_us >= UNBOUNDED else max(leg.reach_us, 1))


def _once(legs: list[Leg]) -> list[Leg]:
    """Legs of which each differs from the others in its source, its keys or their form."""
    return list({(leg.at, leg.classes, leg.is_bloom): leg for leg in legs}.values())
