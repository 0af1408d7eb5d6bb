"""The part of explain that is about sites: sequences, algorithms, and what they are expected to ship."""

from __future__ import annotations

from watersmeet.plan.model import Plan
from watersmeet.plan.rules.place_sites import ASSUMED_INTERVAL_US, ASSUMED_RATE, ASSUMED_VALUES
from watersmeet.plan.sites.explain import explain
from watersmeet.plan.sites.online import Memory

TITLE = 11


def shown(plan: Plan, memory: Memory | None = None) -> list[str]:
    """The present plan, priced under measured statistics, or under assumed ones as long as there are none."""
    sites = plan.sites
    assert sites is not None
    known = memory is not None and memory.is_known(plan)
    if known:
        assert memory is not None
        statistics, interval_us, costs = memory.statistics(plan), memory.interval_us, memory.costs
        said = f"measured: {memory.batches} batches under this plan, {memory.changes} changes of plan before"
    else:
        statistics, interval_us, costs = sites.statistics, ASSUMED_INTERVAL_US, None
        said = f"assumed: {ASSUMED_RATE:,.0f} tuples/s and {ASSUMED_VALUES:,.0f} values of every key, until batches are measured"
    optimizer = sites.optimizer(statistics, interval_us, costs)
    lines = explain(sites.priced(optimizer), sites.setting(interval_us, costs)).splitlines()
    streams = [
        f"{a}: {s.rate:,.0f} tuples/s of {s.full_bytes:,.0f} bytes, "
        + ", ".join(f"{n:,.0f} values of {c}" for c, n in s.distinct.items() if c != "*")
        for a, s in statistics.streams.items()
    ]
    return [*lines, f"{'statistics':<{TITLE}}{said}", *(" " * TITLE + s.rstrip(", ") for s in streams if known)]
