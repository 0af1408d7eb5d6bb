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
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import Message
from watersmeet.kernels.hashing import combine
from watersmeet.operators.join import build_tables, on_time
from watersmeet.operators.probing import side
from watersmeet.operators.probing.multiway import FanoutStats, Multiway
from watersmeet.plan.model import Plan, Side
from watersmeet.sites import kept as names_of
from watersmeet.sites.filters import find_passing
from watersmeet.sites.held import names as held_names
from watersmeet.sites.keeping import BATCH_BITS
from watersmeet.sites.kept import BITS, CODE, NUMBER, codes_table, name_keys
from watersmeet.sites.planning.model import Algorithm
from watersmeet.sites.schedule import Leg
from watersmeet.sites.telling import Telling
from watersmeet.storage.segment import Segment, key_columns

FOUND = "found"
"""The kind of mail that holds results until the last round."""


class Site(Telling):
    """One unit's turn in one round."""

    def step(self) -> Iterator[pa.Table | Message]:
        """Everything that leaves in this round."""
        if self.turn.round == 0:
            self._arrive()
        self._take_in()
        self._answer()
        yield from self._leave()

    # ------------------------------------------------------------ round 0

    def _arrive(self) -> None:
        names = held_names(self.schedule, self.unit, self.homes) | {self._alias(n): n for n in self.homes}
        self.held.begin(
            str(self.plan.sites.linear) if self.plan.sites else "",
            names,
            {name: self.cuts[self._alias(n)] for name, n in names.items()},
            {name: self._retention(n) for name, n in names.items()},
        )
        new = dict[int, Segment]()
        for n in self.homes:
            spec = self._stream(n)
            arrived = on_time(self.turn, self.plan, spec, spec.name, counts=True)
            if arrived is not None:
                new[n] = Segment.of(self._number(n, arrived.table))
                self.held.add(self._alias(n), new[n].table)
                self.turn.report.measured[self._alias(n)] = measure(self.plan, spec, new[n])
        for n in self.homes:
            self._tell(n, new.get(n))
        for n, segment in new.items():
            self._begin(self.schedule.legs[n][0], segment.table.drop_columns([NUMBER]))
        self.turn.report.retained = {self._alias(n): self._count_stored(self._alias(n)) for n in self.homes}
        self.turn.report.watermarks = self.marks

    def _number(self, n: int, table: pa.Table) -> pa.Table:
        table = table.select([c.name for c in self.plan.inputs[n].columns])
        first = self.turn.batch << BATCH_BITS
        return table.append_column(NUMBER, pa.array(np.arange(first, first + table.num_rows), pa.int64()))

    # ------------------------------------------------------------ later rounds

    def _take_in(self) -> None:
        """What other sites have sent for keeping."""
        for kind in sorted(k for k in self.turn.inbox if k.startswith("@")):
            tables = self.turn.inbox.pop(kind)
            if " filter " in kind:
                self.held.put(kind, tables[-1])
            else:
                self.held.add(kind, pa.concat_tables(tables))
        if self.turn.round == 1:
            self._set_out_from_copies()

    def _set_out_from_copies(self) -> None:
        """New tuples that have come for a copy are the rows of heads that set out for here."""
        for leg in (legs[0] for legs in self.schedule.legs if legs[0].there == self.unit):
            fresh = [s for s in self.held.segments(names_of.copy(leg.head)) if self.held.is_fresh(s)]
            if self.schedule.is_there(leg) and fresh:
                rows = pa.concat_tables([s.table.filter(pa.array(~self._is_old(s))) for s in fresh])
                self._join(leg, rows.drop_columns([NUMBER]).combine_chunks())

    def _answer(self) -> None:
        """Questions, and rows on their way."""
        acts: dict[str, Callable[[Leg, pa.Table], None]] = {
            "begin": self._begin, "join": self._join, "ask": self._answer_keys, "offer": self._test_keys, "wait": self._send_wanted,
        }  # fmt: skip
        for kind in sorted(self.turn.inbox):
            verb, *numbers = kind.split()
            if verb in acts:
                head, number = map(int, numbers)
                acts[verb](self.schedule.legs[head][number], pa.concat_tables(self.turn.inbox.pop(kind)))
        self.made.append(iter(self.turn.inbox.pop(FOUND, [])))

    def _begin(self, leg: Leg, rows: pa.Table) -> None:
        """Rows set out on a leg."""
        if self.turn.round < leg.begins:
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
            name = name_keys("asking", leg.to, leg.classes)
            codes = codes[~self.held.knows(name, CODE, codes, self.cuts[self._alias(leg.to)])]
            self.held.add(name, codes_table(codes, self._end_of_asking(leg.to)))
        self._ask(leg, codes)
        self._wait("join", leg, rows, leg.begins + 2)

    def _in_values(self, leg: Leg, codes: np.ndarray) -> np.ndarray:
        if not leg.is_bloom:
            return self.held.knows(name_keys("values", leg.to, leg.classes), CODE, codes, NEVER)
        kept = self.held.segments(name_keys("filter", leg.to, leg.classes))
        return find_passing(kept[-1].table, codes) if kept else np.zeros(len(codes), np.bool_)

    def _ask(self, leg: Leg, codes: np.ndarray) -> None:
        if len(codes):
            self._on(leg.there, "ask", leg, self._keys(leg, codes))

    def _answer_keys(self, leg: Leg, keys: pa.Table) -> None:
        """The non-redundant semijoin (algorithm 7) at the stream's home."""
        if leg.algorithm is Algorithm.SM_S2:
            marked = codes_table(keys.column(CODE).to_numpy(), self._end_of_asking(leg.to))
            self.held.add(name_keys("asked", leg.to, leg.classes, leg.at), marked)
        for segment in self.held.segments(self._alias(leg.to)):
            rows = self._find_matching(leg, segment, keys)
            if leg.algorithm is not Algorithm.SM_S2 and not leg.sees_new and self.held.is_fresh(segment):
                continue
            self._send(leg.to, leg.at, segment, rows)

    def _test_keys(self, leg: Leg, keys: pa.Table) -> None:
        """K'_1: which of the keys have tuples here."""
        segments = self._visible(leg, self._alias(leg.to))
        wanted = [np.unique(self._key(leg.to, s, leg.classes)[self._find_matching(leg, s, keys)]) for s in segments]
        codes = np.concatenate([np.empty(0, np.int64), *wanted])
        if len(codes):
            self._on(leg.at, "want", leg, self._keys(leg, codes))

    def _send_wanted(self, leg: Leg, rows: pa.Table) -> None:
        """B'_1: rows that have waited for the destination's word; those whose keys are wanted go there."""
        for keys in self.turn.inbox.pop(f"want {leg.head} {leg.number}", []):
            codes = self._codes(leg, rows)
            wanted = find_passing(keys, codes) if leg.is_bloom else np.isin(codes, keys.column(CODE).to_numpy())
            self._on(leg.there, "join", leg, rows.take(pa.array(np.flatnonzero(wanted))))

    def _join(self, leg: Leg, rows: pa.Table) -> None:
        """The exact join, here: with the stream's window, or with the copy of it."""
        name = self._alias(leg.to) if self.unit == leg.there else names_of.copy(leg.to)
        segments = self._visible(leg, name)
        if not segments or not rows.num_rows:
            return
        flow = side.VisibleSide(leg.flow, [], Segment.of(rows))
        join = Multiway(self.plan, [flow, side.VisibleSide(leg.stream, segments, None)], FanoutStats({}))
        tables = (t for bound in join.probes(flow) for t in build_tables(self.plan, join, bound, leg.bound))
        if leg.bound is None:
            self.made.append(self._count(tables))
        elif found := list(tables):
            self._begin(self.schedule.legs[leg.head][leg.number + 1], pa.concat_tables(found).combine_chunks())

    def _count(self, tables: Iterator[pa.Table]) -> Iterator[pa.Table]:
        for table in tables:
            self.turn.report.results += table.num_rows
            yield table

    def _leave(self) -> Iterator[pa.Table | Message]:
        """Mail, what goes to one place for one purpose in one shipment; results, in the last round."""
        for (to, kind, round), tables in sorted(self._out.items(), key=lambda item: (item[0][:2], item[0][2] or 0)):
            whole = tables[0] if len(tables) == 1 else pa.concat_tables(tables).combine_chunks()
            if to != self.unit:
                count = self.turn.report.sent.setdefault(f"{self.unit}>{to}", [0, 0, 0])
                rows = 0 if BITS in whole.column_names else whole.num_rows
                for at, amount in enumerate((1, rows, whole.nbytes)):
                    count[at] += amount
            yield Message(to, kind, whole, round)
        last = self.schedule.rounds - 1
        for table in chain.from_iterable(self.made):
            yield Message(self.unit, FOUND, table, last) if self.turn.round < last else table


SAMPLE = 256
HASH_BITS = 62


def measure(plan: Plan, stream: Side, new: Segment) -> dict[str, Any]:
    """The measure of a stream's new tuples, as JSON; keys by class."""
    keys = {str(c): sample(new.key(key_columns(plan, stream.keys, [c]))) for c in stream.keys}
    return {"rows": new.rows, "bytes": int(new.table.nbytes), "low": new.min_ts, "high": new.max_ts, "keys": keys}


def sample(codes: np.ndarray) -> dict[str, Any]:
    """The values with the smallest hashes: `below` is the hash that all of them are below, `counts` their tuples.

    >>> found = sample(np.array([7, 7, 9]))
    >>> sorted(n for _, n in found["counts"]), found["below"] == 2**62
    ([1, 2], True)
    """
    hashes = combine(np.zeros(len(codes), np.int64), codes) & (2**HASH_BITS - 1)
    values, counts = np.unique(hashes, return_counts=True)
    below = int(values[SAMPLE]) if len(values) > SAMPLE else 2**HASH_BITS
    return {"below": below, "counts": list(zip(values[:SAMPLE].tolist(), counts[:SAMPLE].tolist(), strict=True))}
