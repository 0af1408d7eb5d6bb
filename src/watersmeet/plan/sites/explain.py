"""A plan across sites as text: sequences, the algorithm of every one-way join, and what it is expected to ship."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.plan.sites.cost import Line, Setting
from watersmeet.plan.sites.model import SiteQuery
from watersmeet.plan.sites.optimize import Estimate, Found
from watersmeet.plan.sites.tree import FoundTree


def explain(found: Found | FoundTree, setting: Setting) -> str:
    """Sites and windows, the setting, then one line for each one-way join."""
    return "\n".join(_lines(found, setting))


def _lines(found: Found | FoundTree, setting: Setting) -> Iterator[str]:
    query = found.plan.query
    yield "sites      " + ", ".join(f"{s.alias} at {s.site} [{s.window}]" for s in query.streams)
    yield "edges      " + ", ".join(map(str, query.edges))
    yield f"interval   {setting.interval_us / 1e3:g} ms; lines: {_line(setting)}"
    kind = "tree" if isinstance(found, FoundTree) else found.search
    yield (
        f"plan       {kind}; expected per second of the streams: {_size(found.bytes)} in {found.shipments:.1f}"
        f" shipments, {found.seconds:.3f} s"
    )
    if isinstance(found, FoundTree):
        below = found.plan.first
        for level, estimates in zip(found.plan.levels, found.estimates, strict=True):
            yield f"  {below} with {level.stream}"
            yield _one_way(query, estimates[0], level.stream, query.stream(level.stream).site)
            yield _one_way(query, estimates[1], f"({below})", estimates[0].source)
            below = f"{below}, {level.stream}"
        return
    for head, steps in found.estimates.items():
        yield f"  from {head}"
        for e in steps:
            yield _one_way(query, e, e.step.to, query.stream(e.step.to).site)


def _one_way(query: SiteQuery, e: Estimate, to: str, there: str) -> str:
    place = e.source if e.step.algorithm.at_source else there
    return (
        f"    {e.step.algorithm.value:<7}{e.source} -> {to} at {there}, results at {place}: {_rows(e.rows_per_s)} rows/s in,"
        f" {_size(e.cost.bytes)}/s, {e.cost.shipments:.1f} shipments/s, {e.seconds:.3f} s/s"
    )


def _line(setting: Setting) -> str:
    if not isinstance(setting.lines, Line):
        return "different for each pair"
    return f"{setting.lines.latency_s * 1e3:g} ms, {_size(setting.lines.bytes_per_s)}/s"


def _rows(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"


def _size(value: float) -> str:
    """Bytes for people.

    >>> _size(950), _size(128_000), _size(3.2e6)
    ('950 B', '128.0 kB', '3.2 MB')
    """
    for limit, unit in ((1e9, "GB"), (1e6, "MB"), (1e3, "kB")):
        if value >= limit:
            return f"{value / limit:.1f} {unit}"
    return f"{value:.0f} B"
