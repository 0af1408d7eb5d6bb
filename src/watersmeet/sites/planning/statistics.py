"""What the optimizer knows of the streams: rates, windows, sizes, and how many values a join attribute has.

A column's selectivity f is the chance that two of its tuples are equal; 1/f is its number of values, if all are equally
frequent, and the number of equally frequent values that would join alike, if they are not. What two columns have in
common follows likewise from the chance that a tuple of each are equal.

Implements: Tran and Lee (2010), table 4: r_i, w_i, f_i, f_ij, F, P.
Departs from the paper: the values of two streams need not be nested; f_ij may be measured, see `sites.plan_change.survey`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watersmeet.errors import OptionError
from watersmeet.sites.planning.model import Column, SiteQuery, SiteStream


@dataclass(frozen=True)
class StreamStatistics:
    """One stream."""

    rate: float
    """Tuples per second."""
    full_bytes: float
    """F: the size of a tuple."""
    distinct: Mapping[str, float] = field(hash=False)
    """By join attribute, 1/f."""
    partial_bytes: Mapping[str, float] = field(hash=False)
    """P: by join attribute, its size."""


@dataclass(frozen=True)
class Statistics:
    """All streams of a query, by alias; `common` has the number of values that two columns share, where it is known."""

    streams: Mapping[str, StreamStatistics] = field(hash=False)
    common: Mapping[frozenset[Column], float] = field(default_factory=dict, hash=False)

    def check(self, query: SiteQuery) -> None:
        """Everything that the query needs is there."""
        for alias, column in sorted(set().union(*query.classes)):
            known = self.streams.get(alias)
            if known is None:
                raise OptionError(f"statistics: there are none of stream {alias}")
            if column not in known.distinct or column not in known.partial_bytes:
                raise OptionError(
                    f"statistics of stream {alias}: {column} is joined; give its distinct and partial_bytes"
                )
            if known.rate <= 0 or known.distinct[column] < 1:
                raise OptionError(f"statistics of stream {alias}: the rate must be above 0, and distinct 1 or more")

    def count_shared(self, x: Column, y: Column) -> float:
        """How many values two columns have in common; nested, if nothing is known."""
        least = min(self.streams[a].distinct[c] for a, c in (x, y))
        return min(self.common.get(frozenset({x, y}), least), least)

    def window_rows(self, stream: SiteStream) -> float:
        """w: tuples in the window."""
        if stream.window_us is None:
            assert stream.window_rows is not None
            return float(stream.window_rows)
        return self.streams[stream.alias].rate * stream.window_us / 1e6
