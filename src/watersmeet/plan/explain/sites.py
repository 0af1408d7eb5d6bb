"""A plan across sites as text: sequences, the algorithm of every one-way join, and what it is expected to ship."""

from __future__ import annotations

from collections.abc import Iterator

from watersmeet.plan.model import Plan
from watersmeet.plan.rules.place_sites import ASSUMED_INTERVAL_US, ASSUMED_RATE, ASSUMED_VALUES
from watersmeet.query.duration import show_bytes
from watersmeet.sites.planning.cost import LineCost, PerTuple, Setting
from watersmeet.sites.planning.model import SiteQuery
from watersmeet.sites.planning.optimize import Found, PricedStep
from watersmeet.sites.planning.statistics import Statistics
from watersmeet.sites.planning.trees import FoundTree

TITLE = 11


Measures = tuple[Statistics, int, PerTuple | None, str]
"""Statistics, the interval in microseconds, what a tuple costs, and where they come from, in words."""


def explain_sites(plan: Plan, measured: Measures | None = None) -> list[str]:
    """The present plan, priced under measured statistics, or under assumed ones as long as there are none."""
    sites = plan.sites
    assert sites is not None
    source = f"assumed: {ASSUMED_RATE:,.0f} tuples/s and {ASSUMED_VALUES:,.0f} values of every key, until batches are measured"
    statistics, interval_us, costs, source = measured or (sites.statistics, ASSUMED_INTERVAL_US, None, source)
    optimizer = sites.optimizer(statistics, interval_us, costs)
    lines = explain_found(sites.price(optimizer), sites.make_setting(interval_us, costs))
    streams = [
        f"{a}: {s.rate:,.0f} tuples/s of {s.full_bytes:,.0f} bytes, "
        + ", ".join(f"{n:,.0f} values of {c}" for c, n in s.distinct.items() if c != "*")
        for a, s in statistics.streams.items()
    ]
    at = sites.lines.results_at
    results = "each at the site that finds it" if at is None else f"all are shipped to {at}, which writes them"
    return [
        *lines,
        f"{'results':<{TITLE}}{results}",
        f"{'statistics':<{TITLE}}{source}",
        *(" " * TITLE + s.rstrip(", ") for s in streams if measured),
    ]


def explain_found(found: Found | FoundTree, setting: Setting) -> Iterator[str]:
    """A linear plan or a tree: sites and windows, the setting, then one line for each one-way join."""
    yield from _explain_setting(found.plan.query, setting)
    yield from _explain_linear(found) if isinstance(found, Found) else _explain_tree(found)
    if found.delivery.bytes:
        yield f"  results shipped to one site: {show_bytes(found.delivery.bytes)}/s, {found.delivery.shipments:.1f} shipments/s, {found.delivery.seconds:.3f} s/s"


def _explain_linear(found: Found) -> Iterator[str]:
    query = found.plan.query
    yield _explain_cost(found.search, found.bytes, found.shipments, found.seconds)
    for head, steps in found.estimates.items():
        yield f"  from {head}"
        for e in steps:
            yield _explain_step(e, e.step.to, query.stream(e.step.to).site)


def _explain_tree(found: FoundTree) -> Iterator[str]:
    query, below = found.plan.query, found.plan.first
    yield _explain_cost("tree", found.bytes, found.shipments, found.seconds)
    for level, (downward, upward) in zip(found.plan.levels, found.estimates, strict=True):
        yield f"  {below} with {level.stream}"
        yield _explain_step(downward, level.stream, query.stream(level.stream).site)
        yield _explain_step(upward, f"({below})", downward.source)
        below = f"{below}, {level.stream}"


def _explain_setting(query: SiteQuery, setting: Setting) -> Iterator[str]:
    """Where streams are, what is equal, and what lines cost."""
    yield "sites      " + ", ".join(f"{s.alias} at {s.site} [{s.window}]" for s in query.streams)
    yield "edges      " + ", ".join(map(str, query.edges))
    yield f"interval   {setting.interval_us / 1e3:g} ms; lines: {_line(setting)}"


def _explain_cost(kind: str, size: float, shipments: float, seconds: float) -> str:
    """What a kind of plan is expected to cost."""
    return f"plan       {kind}; expected per second of the streams: {show_bytes(size)} in {shipments:.1f} shipments, {seconds:.3f} s"


def _explain_step(e: PricedStep, to: str, there: str) -> str:
    """A one-way join to a stream, or to results, at a site."""
    place = e.source if e.step.algorithm.at_source else there
    return (
        f"    {e.step.algorithm.value:<7}{e.source} -> {to} at {there}, results at {place}: {_rows(e.rows_per_s)} rows/s in,"
        f" {show_bytes(e.cost.bytes)}/s, {e.cost.shipments:.1f} shipments/s, {e.seconds:.3f} s/s"
    )


def _line(setting: Setting) -> str:
    if not isinstance(setting.lines, LineCost):
        return "different for each pair"
    return f"{setting.lines.latency_s * 1e3:g} ms, {show_bytes(setting.lines.bytes_per_s)}/s"


def _rows(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.2g}"
