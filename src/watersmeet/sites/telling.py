"""News of a site's streams for the sites that keep copies, values or filters of them, sent in round 0.

    copy      all new tuples: of SP-S          asked     new tuples of values that were asked for: s_F of SM-S2
    values    new values: v_J                  filter    all values of the window, as a filter

After a change of plan the news are all that is stored, less what the site has.

Invariant: after round 0 a home believes a site to know of every tuple that is stored; what it has told before it does not repeat.
Implements: Tran and Lee (2010), section 3.2.2, algorithm 9.
Departs from the paper: V's entries end at a time instead of a count of zero. A value is told with a quarter of a window to spare, so that one that
keeps coming is not told in every batch; what it lets pass in vain is bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow as pa

from watersmeet.dataflow.clock import NEVER
from watersmeet.kernels.instants import shift
from watersmeet.plan.model import TIME
from watersmeet.sites.filters import build_filter
from watersmeet.sites.held import WHOLE
from watersmeet.sites.keeping import Keeping
from watersmeet.sites.kept import CODE, codes_table, find_latest, name_keys
from watersmeet.sites.schedule import News
from watersmeet.storage.segment import Segment


class Telling(Keeping):
    """A unit that tells others of its streams."""

    def _tell(self, n: int, new: Segment | None) -> None:
        """News of a stream to the sites that keep copies, values or filters of it; all that is stored, after a change of plan."""
        fresh = [] if new is None else [new]
        known = self.turn.state.extra[WHOLE]
        for kind, news, tell in self._tellings(n):
            label = f"{kind} {news.stream} {news.to} {news.classes}"
            caught_up = label in known
            tell(news, fresh if caught_up else self.held.segments(self._alias(n)))
            if not caught_up:
                known.append(label)

    def _tellings(self, n: int) -> Iterator[tuple[str, News, Callable[[News, list[Segment]], None]]]:
        kinds: tuple[tuple[str, frozenset[News], Callable[[News, list[Segment]], None]], ...] = (
            ("copy", self.schedule.whole, self._tell_tuples),
            ("values", self.schedule.values, self._tell_values),
            ("asked", self.schedule.asked, self._tell_asked),
            ("filter", self.schedule.filters, self._tell_filter),
        )
        for kind, wanted, tell in kinds:
            for news in sorted((w for w in wanted if w.stream == n), key=lambda w: (w.to, w.classes)):
                yield kind, news, tell

    def _tell_tuples(self, news: News, segments: list[Segment]) -> None:
        for segment in segments:
            self._send(news.stream, news.to, segment, np.arange(segment.rows))

    def _tell_asked(self, news: News, segments: list[Segment]) -> None:
        """s_F: tuples of values that the site has asked for."""
        name = name_keys("asked", news.stream, news.classes, news.to)
        for segment in segments:
            asked = self.held.knows(name, CODE, self._key(news.stream, segment, news.classes), NEVER)
            self._send(news.stream, news.to, segment, np.flatnonzero(asked))

    def _tell_values(self, news: News, segments: list[Segment]) -> None:
        """v_J: values that the site does not know to live so long."""
        if not segments:
            return
        codes = np.concatenate([self._key(news.stream, s, news.classes) for s in segments])
        values, last = find_latest(codes, np.concatenate([s.ts for s in segments]))
        name = name_keys("told", news.stream, news.classes, news.to)
        untold = ~self.held.knows(name, CODE, values, last)
        told = codes_table(values[untold], shift(last[untold], self._spare(news.stream)))
        if told.num_rows:
            self.held.add(name, told)
            self._mail(news.to, name_keys("values", news.stream, news.classes), told)

    def _tell_filter(self, news: News, segments: list[Segment]) -> None:
        """V as a filter, whole: filters forget nothing, so it is made anew when tuples have come or gone."""
        stored = self.held.segments(self._alias(news.stream))
        if not stored or not segments:
            return
        codes = np.unique(np.concatenate([self._key(news.stream, s, news.classes) for s in stored]))
        table = build_filter(codes).append_column(TIME, pa.array([max(s.max_ts for s in stored)], pa.int64()))
        self._mail(news.to, name_keys("filter", news.stream, news.classes), table)
