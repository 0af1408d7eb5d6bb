"""Where tuples live: the grid of units, from the key classes and `units` alone.

One class (or several) that all aliases share: hash routing. Otherwise a hypercube over all classes. See
`routing.hypercube` for the invariant.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

from watersmeet.errors import OptionError
from watersmeet.plan.model import Plan
from watersmeet.routing.hypercube import grid

Routing = Literal["auto", "hash", "hypercube"]


def place_units(plan: Plan, wanted: Routing) -> Plan:
    """Choose the grid, or refuse a routing that cannot bring all combinations together."""
    classes_of = tuple(frozenset(i.keys) for i in plan.inputs)
    routing = grid(classes_of, plan.units_wanted)
    if wanted == "hash" and routing.kind != "hash":
        raise OptionError(
            "routing='hash' needs one key that all aliases share; this query has none: leave routing='auto', which takes a hypercube"
        )
    return replace(plan, routing=routing)
