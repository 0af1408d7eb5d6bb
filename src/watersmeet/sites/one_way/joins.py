"""The one-way joins of one plan at a unit: rows depart, wait, and are joined.

    released tuples --> told to other sites (`sites.one_way.serve`);  heads set out
    rows:       depart (wait, test, ask, ship)  -->  hold (wait for partners)  -->  join  -->  the next leg, the window of a level, or results

Tuples are *released* in the order of event time, when their stream's watermark has passed them. A plan holds for heads of a span of time; when it begins, the
sites that keep something of a stream are told of all that is stored, and the levels of a tree are made of it.

Invariant: rows leave a site once; they are joined when all their partners are there.
Implements: Tran and Lee (2010), algorithms 1-7 and 9, and the Bloom variants of section 7.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Message
from watersmeet.operators.join import build_tables
from watersmeet.operators.probing.multiway import FanoutStats, Multiway
from watersmeet.operators.probing.side import Bound, VisibleSide
from watersmeet.plan.model import TIME
from watersmeet.sites.one_way import kept
from watersmeet.sites.one_way.at_unit import PlanAtUnit, Span, without_number
from watersmeet.sites.one_way.deal import deal_rows, deal_tuples
from watersmeet.sites.one_way.filters import build_filter, find_passing
from watersmeet.sites.one_way.kept import CODE, NUMBER, codes_table, find_between, name_keys
from watersmeet.sites.one_way.preserved import MET
from watersmeet.sites.one_way.rows_windows import find_ends, put_ends
from watersmeet.sites.one_way.serve import FIRST, LATEST, Serving, end_of_asking
from watersmeet.sites.paths import ASKING, KNOWING, Leg
from watersmeet.sites.planning.model import Algorithm
from watersmeet.storage.compaction import concat
from watersmeet.storage.segment import Segment

if TYPE_CHECKING:
    from watersmeet.sites.one_way.unit import SiteUnit


class OneWayJoins(PlanAtUnit):
    """One unit's turn in one round, as far as one plan goes."""

    def __init__(self, unit: SiteUnit, span: Span) -> None:
        super().__init__(unit, span)
        self.serving = Serving(unit, span)
        self._fed: dict[Leg, list[Segment]] = {}
        """Rows that have come to the source of a leg in this turn."""
        self._held: dict[Leg, list[Segment]] = {}
        """Rows of this unit that are to be joined here."""

    def run(self) -> None:
        """Everything that can be done now."""
        self._take_in()
        if self.turn.round == 0:
            self._wake()
        released = set[int]()
        for leg in self.paths.all:
            for n in {leg.head, leg.to} - released:
                released.add(n)  # the legs that it is made of come before
                if self.turn.round == self.paths.complete(n, self.span.units):
                    self._release(n)
            if leg.at == self.site:
                self._depart(leg)
            elif leg.there == self.site and leg.how in ASKING:
                self.serving.answer(leg)
            if leg.ends == self.site:
                self._join(leg)

    def _wake(self) -> None:
        """Have a turn in the rounds in which rows of levels are complete, whoever sends something then."""
        later = {self.paths.complete(n, self.span.units) for n in range(self.paths.arriving, len(self.paths.homes))}
        for number in sorted(later - {0}):
            self.unit.mail.append(Message(self.turn.unit, self.name("wake"), pa.table({TIME: [number]}), number))

    def _take_in(self) -> None:
        """What other sites have sent for keeping."""
        prefix = f"{self.span.prefix}@"
        for kind in sorted(k for k in self.turn.inbox if k.startswith(prefix)):
            tables = self.turn.inbox.pop(kind)
            if " filter " in kind:
                self.kept.put(kind, pa.concat_tables(tables))
            elif kind.endswith(" window"):
                self.store(kind, tables)
            else:
                self.kept.add(kind, pa.concat_tables(tables))

    def _release(self, n: int) -> None:
        """Tuples that the watermark has passed are told of, and set out."""
        before, until = self.span.before.get(self.paths.name(n), NEVER), self.frontiers.of(n)
        is_home = self.paths.homes[n] == self.site
        if is_home:
            self.serving.tell(n, list(self.between(self.window(n), before, until)), moved=until > before)
        if self.paths.starts(n) == self.site:
            first = self.paths.legs[n][0]
            begin = before if first.into is not None else max(before, self.span.since)
            name = self.window(n) if is_home else self.name(kept.copy(n))
            found = self.between(name, begin, min(until, self.span.until))
            heads = [without_number(self._keep_heads(n, s)) for s in found]
            self._fed.setdefault(first, []).extend(heads)

    def _keep_heads(self, n: int, segment: Segment) -> Segment:
        """Tuples that are among the last of their stream at their own time."""
        if n not in self.paths.counted:
            return segment
        return segment.where(find_ends(self.kept, self.ends_at(n), segment.codes(NUMBER, "integer")) > segment.ts)

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
            self._ask(leg, [(self.row_codes(leg, rows), rows.ts) for rows in fed])
            if leg.how is Algorithm.SM_S1:
                self._hold(leg, fed)
            else:
                self._depart_wanted(leg, fed)

    def _depart_tested(self, leg: Leg, fed: list[Segment]) -> None:
        """The algorithms that have V at the source: rows whose value is not in it go no further."""
        passing = []
        for rows in self._wait(leg, "@wait", fed, self.frontiers.ready[leg]):
            codes = self.row_codes(leg, rows)
            found = np.flatnonzero(self._in_values(leg, codes))
            if len(found):
                passing.append((_take(rows, found), codes[found]))
        if leg.how is Algorithm.SM_D1:
            self._ship(leg, [rows for rows, _ in passing])
            return
        asked = [(codes, rows.ts) for rows, codes in passing]
        self._ask(leg, asked if leg.is_bloom else self._not_yet_asked(leg, asked))
        self._hold(leg, [rows for rows, _ in passing])

    def _depart_wanted(self, leg: Leg, fed: list[Segment]) -> None:
        """B'_1: rows that have waited for the destination's word; those whose keys are wanted go there."""
        wanted = self.inbox(leg.channel("want"))
        for rows in self._wait(leg, "@wait", fed, self.frontiers.ready[leg]):
            codes = self.row_codes(leg, rows)
            keep = np.zeros(len(codes), np.bool_)
            for keys in wanted:
                keep |= find_passing(keys, codes) if leg.is_bloom else np.isin(codes, keys.column(CODE).to_numpy())
            self._ship(leg, [_take(rows, np.flatnonzero(keep))])

    def _wait(self, leg: Leg, verb: str, coming: list[Segment], mark: int) -> list[Segment]:
        """Of the rows that wait on a leg, and of those that come, the ones whose heads are before a mark; the others stay."""
        name, staying = self.name(leg.channel(verb)), list[pa.Table]()
        going = self.kept.take_before(name, mark)
        for rows in (rows for rows in coming if rows.rows):
            going += find_between(rows, NEVER, mark)
            staying += [found.table for found in find_between(rows, mark, rows.max_ts + 1)]
        if staying:
            self.kept.add(name, pa.concat_tables(staying))
        return going

    def _ship(self, leg: Leg, parts: list[Segment]) -> None:
        for rows in parts:
            self.send(leg.there, leg.channel("rows"), rows.table)

    def _in_values(self, leg: Leg, codes: np.ndarray) -> np.ndarray:
        if not leg.is_bloom:
            return self.kept.knows(self.name(name_keys("values", leg.to, leg.classes)), CODE, codes, NEVER)
        filters = self.kept.segments(self.name(name_keys("filter", leg.to, leg.classes)))
        return find_passing(filters[-1].table, codes) if filters else np.zeros(len(codes), np.bool_)

    def _ask(self, leg: Leg, asked: list[tuple[np.ndarray, np.ndarray]]) -> None:
        """Ask for codes of heads at these times. Exact keys bring along when their first and last heads are: other tuples of theirs are not sent."""
        codes = np.concatenate([np.empty(0, np.int64), *(c for c, _ in asked)])
        if len(codes) == 0:
            return
        if leg.is_bloom:
            self.send(leg.there, leg.channel("ask"), build_filter(np.unique(codes)))
            return
        times = np.concatenate([t for _, t in asked])
        order = np.lexsort((times, codes))
        codes, times = codes[order], times[order]
        begins = np.flatnonzero(np.append(True, codes[1:] != codes[:-1]))
        ends = np.append(begins[1:], len(codes)) - 1
        columns = {CODE: codes[begins], FIRST: times[begins], LATEST: times[ends]}
        self.send(leg.there, leg.channel("ask"), pa.table({n: pa.array(v, pa.int64()) for n, v in columns.items()}))

    def _not_yet_asked(
        self, leg: Leg, asked: list[tuple[np.ndarray, np.ndarray]]
    ) -> list[tuple[np.ndarray, np.ndarray]]:
        """Values whose tuples do not come by themselves up to the heads' times; they do from now on."""
        name = self.name(name_keys("asking", leg.to, leg.classes))
        unknown = [~self.kept.knows(name, CODE, codes, times + 1) for codes, times in asked]
        new = [(codes[u], times[u]) for (codes, times), u in zip(asked, unknown, strict=True)]
        distinct = np.unique(np.concatenate([np.empty(0, np.int64), *(codes for codes, _ in new)]))
        self.kept.add(name, codes_table(distinct, end_of_asking(leg, self.frontiers.ready[leg])))
        return new

    def _hold(self, leg: Leg, parts: list[Segment]) -> None:
        """Rows to the units of this site that have their partners."""
        kind, held = self.name(leg.channel("rows")), self._held.setdefault(leg, [])
        for rows in (rows for rows in parts if rows.rows):
            for unit, part in deal_rows(self.plan, self.paths, leg, rows.table, self.span.units):
                if unit != self.turn.unit:
                    self.unit.mail.append(Message(unit, kind, part))
                else:
                    held.append(rows if part is rows.table else Segment.of(part))

    def _join(self, leg: Leg) -> None:
        """The exact join of rows whose partners are all here: with the stream's window, or with the copy of it."""
        mark = self.frontiers.passed[leg] if self.is_complete(leg.to) else NEVER
        coming = [*map(Segment.of, self.inbox(leg.channel("rows"))), *self._held.pop(leg, [])]
        rows = self._wait(leg, "@hold", coming, mark)
        stored = self.kept.segments(self.window(leg.to) if leg.there == self.site else self.name(kept.copy(leg.to)))
        if not rows or not stored:
            return
        if leg.to in self.paths.counted:
            stored = put_ends(self.kept, self.ends_at(leg.to), stored)
        flow = VisibleSide(leg.flow, [], rows[0] if len(rows) == 1 else concat([part.table for part in rows]))
        join = Multiway(leg.plan, [flow, VisibleSide(leg.stream, stored, None)], FanoutStats({}))
        tables = (
            t
            for bound in self._note(leg, join, join.probes(flow))
            for t in build_tables(leg.plan, join, bound, leg.bound)
        )
        if leg.bound is None:
            self.unit.results.append(iter(list(tables)) if self.paths.preserved else tables)
        elif found := [t for t in tables if t.num_rows]:
            self._pass_on(leg, pa.concat_tables(found).combine_chunks())

    def _note(self, leg: Leg, join: Multiway, found: Iterator[Bound]) -> Iterator[Bound]:
        """Note whose tuples have partners, where that matters; semi and anti joins let nothing else out."""
        preserved = [self.unit.preserved[n] for n in self.paths.preserved]
        if not preserved:
            yield from found
            return
        for bound in list(found):  # notes are sent and kept in this turn, whoever asks for the results
            for one in preserved:
                notes, home = one.note(join, bound), self.paths.homes[one.number]
                if home == self.site:
                    self.unit.results.append(iter(list(one.take_notes(self.kept, [notes]))))
                else:
                    self.unit.send(home, f"{MET} {one.number}", notes)
            if one.kind in ("left", "full"):
                yield bound

    def _pass_on(self, leg: Leg, rows: pa.Table) -> None:
        """What a leg has joined: to the next one, or into the window of the stream that it makes."""
        if leg.into is None:
            self._fed.setdefault(self.paths.legs[leg.head][leg.number + 1], []).append(Segment.of(rows))
            return
        name = self.name(kept.window(leg.into))
        for unit, part in deal_tuples(self.plan, self.paths, leg.into, date_rows(leg, rows), self.span.units):
            if unit == self.turn.unit:
                self.store(name, [part])
            elif part.num_rows:
                self.unit.mail.append(Message(unit, name, part))


def date_rows(leg: Leg, rows: pa.Table) -> pa.Table:
    """Rows of a level with their time: that of the youngest tuple."""
    assert leg.bound is not None
    times = [rows.column(leg.bound.column(alias, TIME)).cast(pa.int64()) for alias in leg.bound.aliases]
    return rows.append_column(TIME, pc.max_element_wise(*times))


def _take(rows: Segment, row_idx: np.ndarray) -> Segment:
    """Some rows; the same segment if it is all of them."""
    return rows if len(row_idx) == rows.rows else Segment.of(rows.table.take(pa.array(row_idx)))
