"""What a site's unit has at hand in one round: its segments, keys as codes, and its outgoing mail.

Invariant: nothing is sent to a site that has it: tuples by sent bits.
Implements: Tran and Lee (2010), algorithm 7 (the non-redundant semijoin) and section 3.2.1.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pyarrow as pa

from watersmeet.dataflow.clock import NEVER, Clock
from watersmeet.dataflow.contract import Turn
from watersmeet.kernels.hash_window import rows_with
from watersmeet.kernels.instants import add_span
from watersmeet.plan.model import TIME, Plan, Side
from watersmeet.query.window import UNBOUNDED
from watersmeet.sites import kept as names_of
from watersmeet.sites.filters import build_filter, find_passing
from watersmeet.sites.held import Held
from watersmeet.sites.kept import CODE, NUMBER
from watersmeet.sites.schedule import Leg, Schedule
from watersmeet.storage.segment import Segment, key_columns

BATCH_BITS = 32
"""A tuple's number: its batch, and so many bits for its row."""
_FOR_EVER_US = 10 * 365 * 86_400_000_000


class Keeping:
    """One unit's turn in one round."""

    def __init__(self, plan: Plan, schedule: Schedule, turn: Turn) -> None:
        self.plan, self.schedule, self.turn, self.unit = plan, schedule, turn, turn.unit
        self.held = Held(turn.state, turn.store)
        self.homes = [n for n in range(len(plan.inputs)) if plan.stages[0].routing.is_primary(n, turn.unit)]
        before = Clock(plan.join.streams, turn.state.maxima)
        self.marks = before.after
        self.cuts = cuts(plan, before)
        self.made: list[Iterator[pa.Table]] = []
        """Results of this round, which are made when they leave: they are many more than the tuples."""
        self._out: dict[tuple[int, str, int | None], list[pa.Table]] = {}

    def _alias(self, n: int) -> str:
        return self.plan.inputs[n].alias

    def _stream(self, n: int) -> Side:
        return self.plan.stages[0].sides[n]

    def _retention(self, n: int) -> int:
        return self.plan.retention_us(self.plan.stages[0], self._stream(n))

    def _spare(self, n: int) -> int:
        kept = self._retention(n)
        return _FOR_EVER_US if kept >= UNBOUNDED else max(kept, 0) // 4

    def _end_of_asking(self, n: int) -> int:
        """Up to when a value counts as asked for: both sites reckon with the same maxima, those before the batch."""
        kept = self._retention(n)
        highest = max(self.turn.state.maxima.values(), default=0)
        return add_span(highest, _FOR_EVER_US if kept >= UNBOUNDED else max(kept, 0))

    def _count_stored(self, name: str) -> int:
        return sum(info.rows for info in self.turn.state.segments.get(name, []))

    def _key(self, n: int, segment: Segment, classes: tuple[int, ...]) -> np.ndarray:
        """Codes of a stored stream's keys."""
        return (
            segment.key(key_columns(self.plan, self._stream(n).keys, classes))
            if classes
            else np.zeros(segment.rows, np.int64)
        )

    def _codes(self, leg: Leg, rows: pa.Table) -> np.ndarray:
        """Codes of rows' keys."""
        if not leg.classes:
            return np.zeros(rows.num_rows, np.int64)
        return Segment.of(rows).key(key_columns(self.plan, leg.flow.keys, leg.classes))

    def _keys(self, leg: Leg, codes: np.ndarray) -> pa.Table:
        """Keys as they travel: different codes, or a filter of them."""
        distinct = np.unique(codes)
        return build_filter(distinct) if leg.is_bloom else pa.table({CODE: pa.array(distinct, pa.int64())})

    def _find_matching(self, leg: Leg, segment: Segment, keys: pa.Table) -> np.ndarray:
        """The rows of a stored segment that have one of the keys."""
        if leg.is_bloom:
            return np.flatnonzero(find_passing(keys, self._key(leg.to, segment, leg.classes)))
        if not leg.classes:
            return np.arange(segment.rows)
        index = segment.index(key_columns(self.plan, leg.stream.keys, leg.classes))
        return rows_with(index, keys.column(CODE).to_numpy().astype(np.int64))

    def _visible(self, leg: Leg, name: str) -> list[Segment]:
        """What a head's tuples may meet."""
        out = []
        for segment in self.held.segments(name):
            if leg.sees_new or not self.held.is_fresh(segment):
                out.append(segment)
                continue
            old = self._is_old(segment)
            if old.any():
                out.append(segment.where(old))
        return out

    def _is_old(self, segment: Segment) -> np.ndarray:
        """Which tuples came before this batch."""
        return segment.codes(NUMBER, "integer") >> BATCH_BITS < self.turn.batch

    def _send(self, n: int, to: int, segment: Segment, rows: np.ndarray) -> None:
        """Whole tuples to a site that does not have them."""
        if len(rows) == 0:
            return
        numbers = segment.codes(NUMBER, "integer")[rows]
        unsent = ~self.held.knows(names_of.name_sent(n, to), NUMBER, numbers, NEVER)
        rows, numbers = rows[unsent], numbers[unsent]
        if len(rows):
            marks = {TIME: pa.array(segment.ts[rows], pa.int64()), NUMBER: pa.array(numbers, pa.int64())}
            self.held.add(names_of.name_sent(n, to), pa.table(marks))
            self._mail(
                to, names_of.copy(n), segment.table if len(rows) == segment.rows else segment.table.take(pa.array(rows))
            )

    def _on(self, to: int, verb: str, leg: Leg, table: pa.Table) -> None:
        if table.num_rows:
            self._mail(to, f"{verb} {leg.head} {leg.number}", table)

    def _wait(self, verb: str, leg: Leg, rows: pa.Table, until: int) -> None:
        """Rows stay here until a later round."""
        self._mail(self.unit, f"{verb} {leg.head} {leg.number}", rows, until)

    def _mail(self, to: int, kind: str, table: pa.Table, round: int | None = None) -> None:
        self._out.setdefault((to, kind, round), []).append(table)


def cuts(plan: Plan, clock: Clock) -> dict[str, int]:
    """By alias the time before which its tuples are dead."""
    (stage,) = plan.stages
    return {side.name: clock.cut(plan.bounds(stage, side)) for side in stage.sides}
