"""Results at one site: all others ship theirs there, and what keeps rows or groups goes by how far the results of all sites are.

    tokyo --results--> paris: results of both --> written, or DISTINCT and GROUP BY

The *frontier of results* of a site is the time before which no head of a result is that it still finds. The least of all sites' is to those who keep rows and groups what
watermarks are elsewhere: a result to come has a tuple at or after it.

Invariant: a site's frontier of results only grows. A plan that begins has heads at or after every frontier that was told, so a site that finds no results now is as far as its own streams.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from watersmeet.kernels.instants import LAST
from watersmeet.sites.one_way.at_unit import Span
from watersmeet.sites.planning.items import RESULTS as RESULTS  # the item of letters, and the channel


def find_mark(spans: Iterable[Span], own: Mapping[str, int]) -> int:
    """The frontier of the results that a site finds."""
    marks = [max(own.values(), default=LAST)]
    for span in spans:
        site = span.frontiers.site
        legs = [leg for leg in span.paths.all if leg.bound is None and leg.ends == site]
        mark = max(span.since, min((span.frontiers.passed[leg] for leg in legs), default=LAST))
        if mark < span.until:
            marks.append(mark)
    return min(marks)
