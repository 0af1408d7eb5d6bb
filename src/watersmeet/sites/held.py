"""What a site keeps: its streams' windows, copies of others', and what it has told and been asked.

    a               the window of a stream that arrives here, every tuple numbered
    @1 copy         tuples of stream 1 that were sent here
    @1 values 0     V: codes of stream 1's keys of class 0, each until its last tuple dies
    @1 filter 0     the same as a Bloom filter
    @1 asking 0     codes whose tuples come here without being asked for
    @0 sent 2       numbers of the tuples of stream 0 that were sent to site 2: the sent bits
    @0 told 2 0     codes of which site 2 has been told
    @0 asked 2 0    codes that site 2 has asked for

All of it are segments with times, so all of it expires by the one bound that the watermarks set for its stream; an expiry message
would carry just that bound, and it travels to every unit with the batch's orders.

Invariant: what a home believes to be at another site is there: both forget by the same bound, and a home never before the site.
Implements: Tran and Lee (2010), section 3.2 (sent bits, V, M), with bounds of time for counts: tuples come in any order.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pyarrow as pa

from watersmeet.sites.kept import Kept, copy, name_keys, name_sent
from watersmeet.sites.schedule import News, Schedule
from watersmeet.storage.segment import Segment, Settler

FRESH, WHOLE, PLAN = "fresh", "whole", "plan"
"""What a manifest remembers besides segments: segments of this batch, copies known to be up to date, the plan."""


def names(schedule: Schedule, unit: int, homes: Collection[int]) -> dict[str, int]:
    """Everything but windows that a unit keeps under a schedule, with the stream that it is of."""
    out: dict[str, int] = {}

    def both(found: Collection[News], at_home: str, at_site: str) -> None:
        for news in found:
            if news.stream in homes:
                out[name_keys(at_home, news.stream, news.classes, news.to)] = news.stream
            if news.to == unit:
                out[name_keys(at_site, news.stream, news.classes)] = news.stream

    for news in schedule.whole | schedule.reduced:
        if news.stream in homes:
            out[name_sent(news.stream, news.to)] = news.stream
        if news.to == unit:
            out[copy(news.stream)] = news.stream
    both(schedule.values, "told", "values")
    both(schedule.asked, "asked", "asking")
    for news in schedule.filters:
        if news.to == unit:
            out[name_keys("filter", news.stream, news.classes)] = news.stream
    return out


class Held(Kept):
    """A unit's segments by name, in one step, of which it knows those of this batch."""

    def begin(self, plan: str, kept: Collection[str], cuts: Mapping[str, int], retention: Mapping[str, int]) -> None:
        """A batch begins: forget what its plan does not need and what is dead."""
        said = self.manifest.extra
        if said.get(PLAN) != plan:
            said[WHOLE] = []
        said[PLAN], said[FRESH] = plan, []
        for name in list(self.manifest.segments):
            infos = self.manifest.segments[name]
            if name not in kept:
                for info in infos:
                    self.store.remove(info)
                del self.manifest.segments[name]
            else:
                settler = Settler(self.store, cuts[name], retention[name])
                self.manifest.segments[name] = settler.settle(infos, None)

    def add(self, name: str, table: pa.Table) -> None:
        """More of something."""
        if table.num_rows:
            info = self.store.write(Segment.of(table))
            self.manifest.segments.setdefault(name, []).append(info)
            self.manifest.extra[FRESH].append(info.id)

    def is_fresh(self, segment: Segment) -> bool:
        """Whether a segment was added in this batch."""
        return segment.id in self.manifest.extra[FRESH]
