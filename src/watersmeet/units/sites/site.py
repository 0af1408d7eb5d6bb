"""A site in rounds: what its unit does with a batch's tuples, with what other sites send it, and with rows on their way.

    round 0      new tuples are numbered and stored; other sites get their news of them; every head's rows set out
    round r      copies and news are taken in first, then questions are answered and rows are joined or sent on

One-way joins are semi-naive over arrival: a head's new tuples meet the old tuples of all streams and the new ones of the aliases
before it, so every combination is made once, by the last of its new members. Which tuples are new is in their numbers, so copies
know it, too. Rows are joined by the closed window graph with all members bound so far, whichever is older.

Keys travel as 64-bit codes. Codes of texts may collide and filters pass too much: that costs bytes, since results come of exact joins.

Invariant: nothing is sent to a site that has it: tuples by sent bits, values by what it was told of; rows leave a site once.
Implements: Tran and Lee (2010), algorithms 1-7 and 9, and the Bloom variants of section 7, over arrivals in any order.
Departs from the paper: values asked for end at a time instead of with V's entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import chain

import numpy as np
import pyarrow as pa

from watersmeet.plan.sites.model import Algorithm
from watersmeet.plan.sites.schedule import Leg
from watersmeet.units import side
from watersmeet.units.join_unit import JoinUnit, combined
from watersmeet.units.multiway import FanoutStats, Multiway
from watersmeet.units.program import Mail
from watersmeet.units.segment import Segment
from watersmeet.units.sites import held
from watersmeet.units.sites.held import BITS, CODE, NUMBER, codes_table, keyed
from watersmeet.units.sites.keeping import BATCH_BITS, passing
from watersmeet.units.sites.measured import measured
from watersmeet.units.sites.telling import Telling
from watersmeet.units.watermark import NEVER

FOUND = "found"
"""The kind of mail that holds results until the last round."""


class Site(Telling):
    """One unit's turn in one round."""

    def step(self) -> Iterator[pa.Table | Mail]:
        """Everything that leaves in this round."""
        if self.call.round == 0:
            self._arrive()
        self._take_in()
        self._answer()
        yield from self._leave()

    # ------------------------------------------------------------ round 0

    def _arrive(self) -> None:
        names = held.names(self.schedule, self.unit, self.homes) | {self._alias(n): n for n in self.homes}
        self.held.begin(
            str(self.plan.sites.linear) if self.plan.sites else "",
            names,
            {name: self.cuts[self._alias(n)] for name, n in names.items()},
            {name: self._retention(n) for name, n in names.items()},
        )
        joiner, new = JoinUnit(self.plan, self.unit), dict[int, Segment]()
        for n in self.homes:
            spec = self._stream(n)
            arrived = joiner.on_time(n, spec, self.call.inbox, self.marks, self.call.manifest)
            if arrived is not None:
                new[n] = Segment.of(self._numbered(n, arrived.table))
                self.held.add(self._alias(n), new[n].table)
                self.call.report.measured[self._alias(n)] = measured(self.plan, spec, new[n])
        self.call.report.include(joiner.report)
        for n in self.homes:
            self._tell(n, new.get(n))
        for n, segment in new.items():
            self._begin(self.schedule.legs[n][0], segment.table.drop_columns([NUMBER]))
        self.call.report.retained = {self._alias(n): self._stored(self._alias(n)) for n in self.homes}
        self.call.report.watermarks = self.marks

    def _numbered(self, n: int, table: pa.Table) -> pa.Table:
        table = table.select([c.name for c in self.plan.inputs[n].columns])
        first = self.call.batch << BATCH_BITS
        return table.append_column(NUMBER, pa.array(np.arange(first, first + table.num_rows), pa.int64()))

    # ------------------------------------------------------------ later rounds

    def _take_in(self) -> None:
        """What other sites have sent for keeping."""
        for kind in sorted(k for k in self.call.inbox if k.startswith("@")):
            tables = self.call.inbox.pop(kind)
            if " filter " in kind:
                self.held.put(kind, tables[-1])
            else:
                self.held.add(kind, pa.concat_tables(tables))
        if self.call.round == 1:
            self._set_out_from_copies()

    def _set_out_from_copies(self) -> None:
        """New tuples that have come for a copy are the rows of heads that set out for here."""
        for leg in (legs[0] for legs in self.schedule.legs if legs[0].there == self.unit):
            fresh = [s for s in self.held.segments(held.copy(leg.head)) if self.held.is_fresh(s)]
            if self.schedule.is_there(leg) and fresh:
                rows = pa.concat_tables([s.table.filter(pa.array(~self._is_old(s))) for s in fresh])
                self._join(leg, rows.drop_columns([NUMBER]).combine_chunks())

    def _answer(self) -> None:
        """Questions, and rows on their way."""
        acts: dict[str, Callable[[Leg, pa.Table], None]] = {
            "begin": self._begin, "join": self._join, "ask": self._asked, "offer": self._offered, "wait": self._offering,
        }  # fmt: skip
        for kind in sorted(self.call.inbox):
            verb, *numbers = kind.split()
            if verb in acts:
                head, number = map(int, numbers)
                acts[verb](self.schedule.legs[head][number], pa.concat_tables(self.call.inbox.pop(kind)))
        self.made.append(iter(self.call.inbox.pop(FOUND, [])))

    def _begin(self, leg: Leg, rows: pa.Table) -> None:
        """Rows set out on a leg."""
        if self.call.round < leg.begins:
            self._wait("begin", leg, rows, leg.begins)
        elif leg.algorithm in (None, Algorithm.SP_S):
            self._join(leg, rows)
        elif leg.algorithm is Algorithm.SP_D:
            if not self.schedule.is_there(leg):
                self._on(leg.there, "join", leg, rows)
        elif leg.algorithm in (Algorithm.SM_S1, Algorithm.SMB_S1):
            self._ask(leg, self._codes(leg, rows))
            self._wait("join", leg, rows, leg.begins + 2)
        elif leg.algorithm in (Algorithm.SM_D2, Algorithm.SMB_D2):
            self._on(leg.there, "offer", leg, self._keys(leg, self._codes(leg, rows)))
            self._wait("wait", leg, rows, leg.begins + 2)
        else:
            self._begin_reduced(leg, rows)

    def _begin_reduced(self, leg: Leg, rows: pa.Table) -> None:
        """The algorithms that have V at the source: rows whose value is not in it go no further."""
        codes = self._codes(leg, rows)
        passing = np.flatnonzero(self._in_values(leg, codes))
        if len(passing) == 0:
            return
        rows, codes = rows.take(pa.array(passing)), codes[passing]
        if leg.algorithm in (Algorithm.SM_D1, Algorithm.SMB_D1):
            self._on(leg.there, "join", leg, rows)
            return
        if leg.algorithm is Algorithm.SM_S2:
            codes = np.unique(codes)
            name = keyed("asking", leg.to, leg.classes)
            codes = codes[~self.held.knows(name, CODE, codes, self.cuts[self._alias(leg.to)])]
            self.held.add(name, codes_table(codes, self._asked_until(leg.to)))
        self._ask(leg, codes)
        self._wait("join", leg, rows, leg.begins + 2)

    def _in_values(self, leg: Leg, codes: np.ndarray) -> np.ndarray:
        if not leg.is_bloom:
            return self.held.knows(keyed("values", leg.to, leg.classes), CODE, codes, NEVER)
        kept = self.held.segments(keyed("filter", leg.to, leg.classes))
        return passing(kept[-1].table, codes) if kept else np.zeros(len(codes), np.bool_)

    def _ask(self, leg: Leg, codes: np.ndarray) -> None:
        if len(codes):
            self._on(leg.there, "ask", leg, self._keys(leg, codes))

    def _asked(self, leg: Leg, keys: pa.Table) -> None:
        """The non-redundant semijoin (algorithm 7) at the stream's home."""
        if leg.algorithm is Algorithm.SM_S2:
            marked = codes_table(keys.column(CODE).to_numpy(), self._asked_until(leg.to))
            self.held.add(keyed("asked", leg.to, leg.classes, leg.at), marked)
        for segment in self.held.segments(self._alias(leg.to)):
            rows = self._matching(leg, segment, keys)
            if leg.algorithm is not Algorithm.SM_S2 and not leg.sees_new and self.held.is_fresh(segment):
                continue
            self._send(leg.to, leg.at, segment, rows)

    def _offered(self, leg: Leg, keys: pa.Table) -> None:
        """K'_1: which of the keys have tuples here."""
        segments = self._visible(leg, self._alias(leg.to))
        wanted = [np.unique(self._key(leg.to, s, leg.classes)[self._matching(leg, s, keys)]) for s in segments]
        codes = np.concatenate([np.empty(0, np.int64), *wanted])
        if len(codes):
            self._on(leg.at, "want", leg, self._keys(leg, codes))

    def _offering(self, leg: Leg, rows: pa.Table) -> None:
        """B'_1: rows that have waited for the destination's word; those whose keys are wanted go there."""
        for keys in self.call.inbox.pop(f"want {leg.head} {leg.number}", []):
            codes = self._codes(leg, rows)
            wanted = passing(keys, codes) if leg.is_bloom else np.isin(codes, keys.column(CODE).to_numpy())
            self._on(leg.there, "join", leg, rows.take(pa.array(np.flatnonzero(wanted))))

    def _join(self, leg: Leg, rows: pa.Table) -> None:
        """The exact join, here: with the stream's window, or with the copy of it."""
        name = self._alias(leg.to) if self.unit == leg.there else held.copy(leg.to)
        segments = self._visible(leg, name)
        if not segments or not rows.num_rows:
            return
        flow = side.Side(leg.flow, [], Segment.of(rows))
        join = Multiway(self.plan, [flow, side.Side(leg.stream, segments, None)], FanoutStats({}))
        tables = (t for bound in join.probes(flow) for t in combined(self.plan, join, bound, leg.bound))
        if leg.bound is None:
            self.made.append(self._counted(tables))
        elif found := list(tables):
            self._begin(self.schedule.legs[leg.head][leg.number + 1], pa.concat_tables(found).combine_chunks())

    def _counted(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            self.call.report.results += table.num_rows
            yield table

    def _leave(self) -> Iterator[pa.Table | Mail]:
        """Mail, what goes to one place for one purpose in one shipment; results, in the last round."""
        for (to, kind, round), tables in sorted(self._out.items(), key=lambda item: (item[0][:2], item[0][2] or 0)):
            whole = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
            if to != self.unit:
                count = self.call.report.sent.setdefault(f"{self.unit}>{to}", [0, 0, 0])
                rows = 0 if BITS in whole.column_names else whole.num_rows
                for at, amount in enumerate((1, rows, whole.nbytes)):
                    count[at] += amount
            yield Mail(to, kind, whole, round)
        last = self.schedule.rounds - 1
        for table in chain.from_iterable(self.made):
            yield Mail(self.unit, FOUND, table, last) if self.call.round < last else table
