"""What `wm.local` takes from the laboratory: a network with its protocol, and sites.

Invariant: results are those of `local.run` on the same tables without a network and without sites; counts are those of the traffic.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pyarrow as pa

from watersmeet.errors import OptionError
from watersmeet.plan.model import Plan
from watersmeet_lab.simulate.biclique.run import Protocol, SimulatedRun
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites.across import AcrossSites, Sites

__all__ = ["Link", "Network", "Protocol", "Sites", "explain", "simulate"]


def simulate(
    plan: Plan,
    wires: Mapping[str, pa.Table],
    network: Network | None,
    protocol: Protocol | None,
    sites: Mapping[str, str] | Sites | None,
    options: Mapping[str, Any],
) -> tuple[list[pa.Table], dict[str, Any]]:
    """Tables of the plan's output and counts: across sites, or tuple by tuple over a network."""
    if sites is not None:
        return AcrossSites(plan, wires, _sites(sites, protocol, options), network).run()
    simulated = SimulatedRun(plan, wires, network or Network(), protocol or Protocol())
    results = list(simulated.run())
    return results, simulated.counts.json()


def explain(
    plan: Plan,
    wires: Mapping[str, pa.Table],
    network: Network | None,
    sites: Mapping[str, str] | Sites,
    options: Mapping[str, Any],
) -> str:
    """The plan across sites as text, with what each one-way join is expected to ship.

    >>> import watersmeet as wm
    >>> t = pa.table({"k": [1, 2], "ts": pa.array([0, 5], pa.timestamp("us"))})
    >>> text = "SELECT a.k FROM s a, s b WHERE a.k = b.k WINDOW = 1 SECOND"
    >>> print(wm.local.explain(text, {"s": t}, sites={"a": "here", "b": "there"}).splitlines()[1])
    sites      a at here [1 s], b at there [1 s]
    """
    return AcrossSites(plan, wires, _sites(sites, None, options), network).explain()


def _sites(sites: Mapping[str, str] | Sites, protocol: Protocol | None, options: Mapping[str, Any]) -> Sites:
    if protocol is not None:
        raise OptionError("protocol= is BiStream's; across sites say Sites(bound=..., delta_us=...)")
    if options:
        raise OptionError(f"{', '.join(options)}: across sites the plan is Sites(plan=...); drop the option")
    return sites if isinstance(sites, Sites) else Sites(sites)
