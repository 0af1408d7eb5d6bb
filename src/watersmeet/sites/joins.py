"""The one-way joins of one plan at a unit: rows depart, wait, and are joined; questions are answered; news of streams are told.

    released tuples --> told to sites that keep copies or values;  heads set out
    rows:       depart (wait, test, ask, ship)  -->  hold (wait for partners)  -->  join  -->  the next leg, or results
    questions:  wait for this site's stream     -->  tuples, or the keys that have some

Tuples are *released* in the order of event time, when their stream's watermark has passed them. A plan holds for heads of a span of time; when it begins, the
sites that keep something of a stream are told of all that is stored. Plans share windows, and nothing else.

Keys travel as 64-bit codes. Codes of texts may collide and filters pass too much: that costs bytes, since results come of exact joins.

Invariant: nothing is sent to a site that has it: tuples by sent bits, values by what it was told of; rows leave a site once.
Implements: Tran and Lee (2010), algorithms 1-7 and 9, and the Bloom variants of section 7.
Departs from the paper: values that were told or asked for end at a time instead of a count of zero. The home of a stream keeps its window under SP-S, too: a later plan may need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import integers
from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Message
from watersmeet.kernels.hash_window import pairs, probe
from watersmeet.kernels.instants import LAST, add_span, shift
from watersmeet.operators.join import build_tables
from watersmeet.operators.probing.multiway import FanoutStats, Multiway
from watersmeet.operators.probing.side import VisibleSide
from watersmeet.plan.model import TIME, Plan
from watersmeet.query.window import UNBOUNDED
from watersmeet.sites import kept
from watersmeet.sites.deal import deal_rows
from watersmeet.sites.filters import build_filter, find_passing
from watersmeet.sites.frontiers import Frontiers
from watersmeet.sites.kept import CODE, NUMBER, codes_table, find_latest, name_keys
from watersmeet.sites.paths import ASKING, COPYING, KNOWING, Leg, Paths
from watersmeet.sites.planning.model import Algorithm
from watersmeet.storage.segment import Segment, key_columns

if TYPE_CHECKING:
    from watersmeet.sites.unit import SiteUnit

_FOR_EVER_US = 10 * 365 * 86_400_000_000
_CHUNK = 131_072
FIRST, LATEST = "_first", "_last"
"""Columns of a question: the times of a key's first and last heads."""
_WHOLE, _ASKED = frozenset({Algorithm.SP_S}), frozenset({Algorithm.SM_S2})


@dataclass(frozen=True)
class Span:
    """A plan, and the heads that it holds for: those from `since` on that are before `until`."""

    plan: Plan
    paths: Paths
    frontiers: Frontiers
    prefix: str
    """What the names of its channels, and of all that it keeps, begin with."""
    before: Mapping[str, int]
    """By alias how far the site's streams were after the batch before, as far as the plan was known then."""
    units: int
    since: int = NEVER
    until: int = LAST


class OneWayJoins:
    """One unit's turn in one round, as far as one plan goes."""

    def __init__(self, unit: SiteUnit, span: Span) -> None:
        self.unit, self.span, self.turn, self.kept = unit, span, unit.turn, unit.kept
        self.plan, self.paths, self.frontiers = span.plan, span.paths, span.frontiers
        self.site = span.frontiers.site
        self._fed: dict[Leg, list[pa.Table]] = {}

    def run(self) -> None:
        """Everything that can be done now."""
        self._take_in()
        if self.turn.round == 0:
            for n, home in enumerate(self.paths.homes):
                if home == self.site:
                    self._release(n)
        for leg in self.paths.all:
            if leg.at == self.site:
                self._depart(leg)
            elif leg.there == self.site and leg.how in ASKING:
                self._answer(leg)
            if leg.ends == self.site:
                self._join(leg)

    def _name(self, name: str) -> str:
        return f"{self.span.prefix}{name}"

    def _inbox(self, kind: str) -> list[pa.Table]:
        return self.turn.inbox.pop(self._name(kind), [])

    def _take_in(self) -> None:
        """What other sites have sent for keeping."""
        prefix = f"{self.span.prefix}@"
        for kind in sorted(k for k in self.turn.inbox if k.startswith(prefix)):
            tables = self.turn.inbox.pop(kind)
            if " filter " in kind:
                self.kept.put(kind, pa.concat_tables(tables))
            else:
                self.kept.add(kind, pa.concat_tables(tables))

    # ------------------------------------------------------------ a stream goes on

    def _release(self, n: int) -> None:
        """Tuples that the watermark has passed are told of, and set out."""
        before = self.span.before.get(self.plan.aliases[n], NEVER)
        released = list(self._between(n, before, self.frontiers.of(n)))
        self._tell(n, released, moved=self.frontiers.of(n) > before)
        if self.paths.legs[n]:
            begin, end = max(before, self.span.since), min(self.frontiers.of(n), self.span.until)
            heads = [s.table.drop_columns([NUMBER]) for s in self._between(n, begin, end)]
            self._fed.setdefault(self.paths.legs[n][0], []).extend(heads)

    def _between(self, n: int, begin: int, end: int) -> Iterator[Segment]:
        """The stored tuples of a span of time."""
        for segment in self.kept.segments(self.plan.aliases[n]):
            if segment.max_ts < begin or segment.min_ts >= end:
                continue
            inside = (segment.ts >= begin) & (segment.ts < end)
            if inside.any():
                yield segment if inside.all() else segment.where(inside)

    def _tell(self, n: int, released: list[Segment], *, moved: bool) -> None:
        """News of a stream to the sites that keep copies, values or filters of it."""
        for site in sorted({leg.at for leg in self.paths.keepers(n, _WHOLE)}):
            for segment in released:
                self._send(site, kept.copy(n), segment.table.drop_columns([NUMBER]))
        for leg in _once(self.paths.keepers(n, KNOWING)):
            if not leg.is_bloom:
                self._tell_values(n, leg, released)
            elif moved:
                self._tell_filter(n, leg)
        for leg in _once(self.paths.keepers(n, _ASKED)):
            if not leg.is_bloom:
                self._tell_asked(n, leg, released)

    def _tell_values(self, n: int, leg: Leg, released: list[Segment]) -> None:
        """v_J: values that the site does not know to live so long."""
        if not released:
            return
        codes = np.concatenate([self._key(n, s, leg.classes) for s in released])
        values, last = find_latest(codes, np.concatenate([s.ts for s in released]))
        name = self._name(name_keys("told", n, leg.classes, leg.at))
        untold = ~self.kept.knows(name, CODE, values, last)
        told = codes_table(values[untold], shift(last[untold], self._spare(n)))
        self.kept.add(name, told)
        self._send(leg.at, name_keys("values", n, leg.classes), told)

    def _tell_filter(self, n: int, leg: Leg) -> None:
        """V as a filter, whole: filters forget nothing, so it is made anew when tuples have come or gone."""
        stored = [s for s in self.kept.segments(self.plan.aliases[n]) if s.min_ts < self.frontiers.of(n)]
        if stored:
            codes = np.unique(np.concatenate([self._key(n, s, leg.classes) for s in stored]))
            table = build_filter(codes).append_column(TIME, pa.array([max(s.max_ts for s in stored)], pa.int64()))
            self._send(leg.at, name_keys("filter", n, leg.classes), table)

    def _tell_asked(self, n: int, leg: Leg, released: list[Segment]) -> None:
        """s_F: tuples of values that the site has asked for."""
        name = self._name(name_keys("asked", n, leg.classes, leg.at))
        for segment in released:
            asked = self.kept.knows(name, CODE, self._key(n, segment, leg.classes), segment.ts + 1)
            self._send_tuples(n, leg.at, segment, np.flatnonzero(asked))

    # ------------------------------------------------------------ rows set out

    def _depart(self, leg: Leg) -> None:
        """Rows at the source of a leg."""
        fed = self._fed.pop(leg, [])
        if leg.how in (None, Algorithm.SP_S):
            self._hold(leg, fed)
        elif leg.how is Algorithm.SP_D:
            self._ship(leg, fed)
        elif leg.how in KNOWING:
            self._depart_tested(leg, fed)
        else:
            self._ask(leg, [(self._codes(leg, rows), _times(rows)) for rows in fed])
            if leg.how is Algorithm.SM_S1:
                self._hold(leg, fed)
            else:
                self._depart_wanted(leg, fed)

    def _depart_tested(self, leg: Leg, fed: list[pa.Table]) -> None:
        """The algorithms that have V at the source: rows whose value is not in it go no further."""
        passing = []
        for rows in self._wait(leg, "@wait", fed, self.frontiers.ready[leg]):
            codes = self._codes(leg, rows)
            found = np.flatnonzero(self._in_values(leg, codes))
            if len(found):
                passing.append((rows.take(pa.array(found)), codes[found]))
        if leg.how is Algorithm.SM_D1:
            self._ship(leg, [rows for rows, _ in passing])
            return
        asked = [(codes, _times(rows)) for rows, codes in passing]
        self._ask(leg, asked if leg.is_bloom else self._not_yet_asked(leg, asked))
        self._hold(leg, [rows for rows, _ in passing])

    def _depart_wanted(self, leg: Leg, fed: list[pa.Table]) -> None:
        """B'_1: rows that have waited for the destination's word; those whose keys are wanted go there."""
        wanted = self._inbox(leg.channel("want"))
        for rows in self._wait(leg, "@wait", fed, self.frontiers.ready[leg]):
            codes = self._codes(leg, rows)
            keep = np.zeros(len(codes), np.bool_)
            for keys in wanted:
                keep |= find_passing(keys, codes) if leg.is_bloom else np.isin(codes, keys.column(CODE).to_numpy())
            self._ship(leg, [rows.take(pa.array(np.flatnonzero(keep)))])

    def _wait(self, leg: Leg, verb: str, coming: list[pa.Table], mark: int) -> list[pa.Table]:
        """Of the rows that wait on a leg, and of those that come, the ones whose heads are before a mark; the others stay."""
        name, going, staying = self._name(leg.channel(verb)), list[pa.Table](), list[pa.Table]()
        for rows in (*self.kept.take(name), *coming):
            ready = _times(rows) < mark
            for mask, to in ((ready, going), (~ready, staying)):
                if mask.any():
                    to.append(rows if mask.all() else rows.filter(pa.array(mask)))
        if staying:
            self.kept.add(name, pa.concat_tables(staying))
        return going

    def _ship(self, leg: Leg, tables: list[pa.Table]) -> None:
        for rows in tables:
            self._send(leg.there, leg.channel("rows"), rows)

    def _in_values(self, leg: Leg, codes: np.ndarray) -> np.ndarray:
        if not leg.is_bloom:
            return self.kept.knows(self._name(name_keys("values", leg.to, leg.classes)), CODE, codes, NEVER)
        filters = self.kept.segments(self._name(name_keys("filter", leg.to, leg.classes)))
        return find_passing(filters[-1].table, codes) if filters else np.zeros(len(codes), np.bool_)

    def _ask(self, leg: Leg, asked: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Ask for codes of heads at these times. Exact keys bring along when their first and last heads are: other tuples of theirs are not sent."""
        codes = np.concatenate([np.empty(0, np.int64), *(c for c, _ in asked)])
        if len(codes) == 0:
            return
        if leg.is_bloom:
            self._send(leg.there, leg.channel("ask"), build_filter(np.unique(codes)))
            return
        times = np.concatenate([t for _, t in asked])
        order = np.lexsort((times, codes))
        codes, times = codes[order], times[order]
        begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        ends = np.append(begins[1:], len(codes)) - 1
        columns = {CODE: codes[begins], FIRST: times[begins], LATEST: times[ends]}
        self._send(leg.there, leg.channel("ask"), pa.table({n: pa.array(v, pa.int64()) for n, v in columns.items()}))

    def _not_yet_asked(
        self, leg: Leg, asked: list[tuple[np.ndarray, np.ndarray]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Values whose tuples do not come by themselves up to the heads' times; they do from now on."""
        name = self._name(name_keys("asking", leg.to, leg.classes))
        unknown = [~self.kept.knows(name, CODE, codes, times + 1) for codes, times in asked]
        new = [(codes[u], times[u]) for (codes, times), u in zip(asked, unknown, strict=True)]
        distinct = np.unique(np.concatenate([np.empty(0, np.int64), *(codes for codes, _ in new)]))
        self.kept.add(name, codes_table(distinct, end_of_asking(leg, self.frontiers.ready[leg])))
        return new

    # ------------------------------------------------------------ questions

    def _answer(self, leg: Leg) -> None:
        """Questions that this site's stream has come far enough for: the non-redundant semijoin (algorithm 7), or K'_1."""
        asked = leg.channel("ask")
        name, answered = self._name(leg.channel("@ask")), self.frontiers.answered[asked]
        for keys in (*self.kept.take(name), *self._inbox(asked)):
            if int(keys.column(TIME)[0].as_py()) > answered:
                self.kept.add(name, keys)
            else:
                self._answer_keys(leg, keys)

    def _answer_keys(self, leg: Leg, keys: pa.Table) -> None:
        if leg.how is Algorithm.SM_S2 and not leg.is_bloom:
            until = end_of_asking(leg, int(keys.column(TIME)[0].as_py()))
            marked = codes_table(keys.column(CODE).to_numpy(), until)
            self.kept.add(self._name(name_keys("asked", leg.to, leg.classes, leg.at)), marked)
        wanted = []
        for segment in self.kept.segments(self.plan.aliases[leg.to]):
            rows = self._find_matching(leg, segment, keys)
            rows = rows[segment.ts[rows] < self.frontiers.of(leg.to)]
            if leg.how in COPYING:
                self._send_tuples(leg.to, leg.at, segment, rows)
            elif len(rows):
                wanted.append(self._key(leg.to, segment, leg.classes)[rows])
        if wanted:
            self._send(leg.at, leg.channel("want"), self._keys(leg, np.unique(np.concatenate(wanted))))

    def _find_matching(self, leg: Leg, segment: Segment, keys: pa.Table) -> np.ndarray:
        """The rows of a stored segment that have one of the keys, and are in the window of one of its heads."""
        if leg.is_bloom:
            return np.flatnonzero(find_passing(keys, self._key(leg.to, segment, leg.classes)))
        codes, first, latest = (integers(keys.column(name).combine_chunks()) for name in (CODE, FIRST, LATEST))
        low = shift(first, -leg.reach_us)
        # Of a value that was asked for once, later tuples come by themselves; what is here by now has to come, too.
        high = np.full(len(low), LAST) if leg.how is Algorithm.SM_S2 else latest
        if not leg.classes:
            return np.flatnonzero((segment.ts >= low.min()) & (segment.ts <= high.max()))
        index = segment.index(key_columns(self.plan, leg.stream.keys, leg.classes))
        found = pairs(*probe(index, codes, low, high), index.rows, _CHUNK)
        return np.unique(np.concatenate([np.empty(0, np.int64), *(rows for _, rows in found)]))

    # ------------------------------------------------------------ joins

    def _hold(self, leg: Leg, tables: list[pa.Table]) -> None:
        """Rows to the units of this site that have their partners."""
        kind = self._name(leg.channel("rows"))
        for rows in (t for t in tables if t.num_rows):
            for unit, part in deal_rows(self.plan, self.paths, leg, rows, self.span.units):
                if unit == self.turn.unit:
                    self.turn.inbox.setdefault(kind, []).append(part)
                else:
                    self.unit.mail.append(Message(unit, kind, part))

    def _join(self, leg: Leg) -> None:
        """The exact join of rows whose partners are all here: with the stream's window, or with the copy of it."""
        rows = self._wait(leg, "@hold", self._inbox(leg.channel("rows")), self.frontiers.passed[leg])
        of = self.plan.aliases[leg.to] if leg.there == self.site else self._name(kept.copy(leg.to))
        stored = self.kept.segments(of)
        if not rows or not stored:
            return
        flow = VisibleSide(leg.flow, [], Segment.of(pa.concat_tables(rows)))
        join = Multiway(leg.plan, [flow, VisibleSide(leg.stream, stored, None)], FanoutStats({}))
        tables = (t for bound in join.probes(flow) for t in build_tables(leg.plan, join, bound, leg.bound))
        if leg.bound is None:
            self.unit.results.append(self._count(tables))
        elif found := [t for t in tables if t.num_rows]:
            following = self.paths.legs[leg.head][leg.number + 1]
            self._fed.setdefault(following, []).append(pa.concat_tables(found).combine_chunks())

    def _count(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            self.turn.report.results += table.num_rows
            yield table

    # ------------------------------------------------------------ what is sent

    def _send(self, site: int, kind: str, table: pa.Table) -> None:
        self.unit.send(site, self._name(kind), table)

    def _send_tuples(self, n: int, to: int, segment: Segment, rows: np.ndarray) -> None:
        """Whole tuples to a site that does not have them."""
        if len(rows) == 0:
            return
        name, numbers = self._name(kept.name_sent(n, to)), segment.codes(NUMBER, "integer")[rows]
        unsent = ~self.kept.knows(name, NUMBER, numbers, NEVER)
        rows, numbers = rows[unsent], numbers[unsent]
        if len(rows):
            marks = {TIME: pa.array(segment.ts[rows], pa.int64()), NUMBER: pa.array(numbers, pa.int64())}
            self.kept.add(name, pa.table(marks))
            whole = segment.table.drop_columns([NUMBER])
            self._send(to, kept.copy(n), whole if len(rows) == segment.rows else whole.take(pa.array(rows)))

    # ------------------------------------------------------------ keys

    def _key(self, n: int, segment: Segment, classes: tuple[int, ...]) -> np.ndarray:
        """Codes of a stored stream's keys."""
        if not classes:
            return np.zeros(segment.rows, np.int64)
        return segment.key(key_columns(self.plan, self.plan.inputs[n].keys, classes))

    def _codes(self, leg: Leg, rows: pa.Table) -> np.ndarray:
        """Codes of rows' keys."""
        if not leg.classes:
            return np.zeros(rows.num_rows, np.int64)
        return Segment.of(rows).key(key_columns(self.plan, leg.flow.keys, leg.classes))

    @staticmethod
    def _keys(leg: Leg, codes: np.ndarray) -> pa.Table:
        """Different codes as they travel, or a filter of them."""
        return build_filter(codes) if leg.is_bloom else pa.table({CODE: pa.array(codes, pa.int64())})

    def _spare(self, n: int) -> int:
        """How much longer than its last tuple a value is told to live: one that keeps coming is not told in every batch."""
        (stage,) = self.plan.stages
        lasts = self.plan.retention_us(stage, stage.sides[n])
        return _FOR_EVER_US if lasts >= UNBOUNDED else max(lasts, 0) // 4


def end_of_asking(leg: Leg, asked: int) -> int:
    """Up to when tuples of a value come by themselves that was asked for at a frontier: both sites reckon alike."""
    return add_span(asked, _FOR_EVER_US if leg.reach_us >= UNBOUNDED else max(leg.reach_us, 1))


def _once(legs: list[Leg]) -> list[Leg]:
    """Legs of which each differs from the others in its source, its keys or their form."""
    return list({(leg.at, leg.classes, leg.is_bloom): leg for leg in legs}.values())


def _times(rows: pa.Table) -> np.ndarray:
    """The heads' times."""
    return Segment.of(rows).ts
