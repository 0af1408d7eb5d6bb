"""GROUP BY window(): groups that end. Each leaves once, when no result can fall into it any more, and is forgotten.

    rows p0 = x.ts --assign_windows--> one row for every window that x.ts lies in, p0 = its start --make_view--> mergers

    segment    g0 .. v0 ..   _ts = the last instant of the group's window
    after the batch          x.ts of every later result is at or after the cut (`plan.finish.group_bounds`), so a group whose last instant
                             lies before it leaves: the merge of its rows in all segments

Invariant: a group leaves in the first batch after which its last instant lies before the cut, and never again: groups before the cut of the last turn have left. The
number of rows kept is that of the open groups, times a few until segments are merged.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import pyarrow as pa

from watersmeet.columns.arrow import slice_by_bytes
from watersmeet.dataflow.clock import NEVER, Clock
from watersmeet.dataflow.contract import Turn, Yielded
from watersmeet.kernels.instants import LAST
from watersmeet.operators.finish.distinct import KEPT, LEFT
from watersmeet.operators.finish.project import shift_times
from watersmeet.operators.finish.views import compute_values, merge_views
from watersmeet.plan.finish import group_bounds
from watersmeet.plan.model import TIME, Plan
from watersmeet.query.window import UNBOUNDED
from watersmeet.storage.compaction import Settler
from watersmeet.storage.manifest import OTHER
from watersmeet.storage.segment import Segment

SETTLED = f"{OTHER}settled"
"""In a unit's memory: the cut of its last turn."""


@dataclass(frozen=True)
class WindowedUnits:
    """The units that keep groups until they end."""

    plan: Plan
    bounds: list[tuple[str, int]] = field(init=False, compare=False)
    """What results wait for."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bounds", group_bounds(self.plan.join))

    def step(self, turn: Turn) -> Iterator[Yielded]:
        """The groups that end, with their values."""
        turn.listen()
        cut, settled = self._cut(turn.clock), turn.state.extra.get(SETTLED, NEVER)
        infos = turn.state.segments.get(KEPT, [])
        views = turn.inbox.pop(LEFT, [])
        new = self._segment(views) if views else None
        ending = [] if new is None else [new.where(new.ts < cut).table]
        for segment in (turn.store.read(info) for info in infos if info.min_ts < cut and info.max_ts >= settled):
            ending.append(segment.where((segment.ts < cut) & (segment.ts >= settled)).table)
        settler = Settler(turn.store, cut, UNBOUNDED, self._segment)
        turn.state.segments[KEPT] = settler.settle(infos, new)
        turn.state.extra[SETTLED] = cut
        turn.report.watermarks, turn.report.bytes = turn.clock.after, turn.state.bytes()
        if any(table.num_rows for table in ending):
            groups = compute_values(self.plan, merge_views(self.plan, ending))
            turn.report.results += groups.num_rows
            yield from slice_by_bytes(groups)

    def cuts(self, clock: Clock) -> dict[str, int]:
        """Only a turn may drop groups: it lets them leave first."""
        return {}

    def _cut(self, clock: Clock) -> int:
        return LAST if clock.has_ended else clock.cut(self.bounds)

    def _segment(self, views: list[pa.Table]) -> Segment:
        """Views as one, with the last instant of every group's window."""
        window = self.plan.join.group_window
        assert window is not None
        view = merge_views(self.plan, views)
        last = shift_times(view.column(f"g{window.key}"), window.size_us - 1)
        return Segment.of(view.append_column(TIME, last.cast(pa.int64())))
