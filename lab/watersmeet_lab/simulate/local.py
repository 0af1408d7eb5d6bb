"""What `wm.local` takes from the laboratory: a network with its protocol, over which tuples travel, or letters of sites.

Invariant: results are those of `local.run` on the same tables without a network; counts are those of the traffic.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from watersmeet.errors import OptionError
from watersmeet.runtime.in_process import LocalRun
from watersmeet_lab.simulate.biclique.run import Protocol, SimulatedRun
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites.lines import SimulatedSites

__all__ = ["Link", "Network", "Protocol", "simulate"]


def simulate(run: LocalRun, network: Network, protocol: Protocol | None) -> tuple[list[pa.Table], dict[str, Any]]:
    """Tables of the plan's output and counts: letter by letter between sites, or tuple by tuple to units."""
    if run.plan.sites is not None:
        if protocol is not None:
            raise OptionError("protocol= is BiStream's; sites send each other letters, and need none: leave it out")
        sites = SimulatedSites(run.plan, run.wires, network)
        run.across = sites.across
        return sites.run()
    simulated = SimulatedRun(run.plan, run.wires, network, protocol or Protocol())
    results = list(simulated.run())
    return results, simulated.counts.json()
