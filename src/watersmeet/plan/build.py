"""From a logical query to a plan: the rules in their order.

Invariant: the plan depends on the query, the types and the options only.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from watersmeet.errors import OptionError
from watersmeet.plan.drivers import POLICIES, Policy
from watersmeet.plan.model import Plan, Types
from watersmeet.plan.rules.choose_kernel import Wanted, choose_kernel
from watersmeet.plan.rules.finish import finish
from watersmeet.plan.rules.key_classes import key_classes
from watersmeet.plan.rules.lay_out import lay_out
from watersmeet.plan.rules.place_conditions import Inside, place_conditions
from watersmeet.plan.rules.place_sites import at_sites, place_sites
from watersmeet.plan.rules.place_units import Routing, place_units
from watersmeet.plan.rules.sequence import sequence
from watersmeet.plan.rules.ship import SHIPPINGS, Shipping, ship
from watersmeet.query.join import Join
from watersmeet.query.sites import Sites

DEFAULT_UNITS = 8


@dataclass(frozen=True)
class Options:
    """What a user may force; forcing changes the cost, never the result."""

    kernel: str = "auto"
    routing: str = "auto"
    order: Literal["auto"] | Sequence[str] = "auto"
    driver: Policy = "auto"
    units: Literal["auto"] | int = "auto"
    shipping: Shipping = "auto"
    bandwidth: Literal["auto"] | float = "auto"
    """Bytes per second between units, which `shipping="auto"` reckons with."""
    runtime: Literal["auto", "stream", "rounds"] = "auto"
    sites: Sites | Mapping[str, str] | None = None
    """Where streams arrive, how sites join, and the lines between them."""

    def __post_init__(self) -> None:
        Wanted.of(self.kernel)
        Routing.of(self.routing)
        _one_of("driver", self.driver, POLICIES)
        _one_of("shipping", self.shipping, SHIPPINGS)
        _one_of("runtime", self.runtime, ("auto", "stream", "rounds"))
        if self.shipping == "semijoin" and self.runtime == "stream":
            raise OptionError("shipping='semijoin' needs a second round: use runtime='rounds' and start()")
        if self.bandwidth != "auto" and not (
            isinstance(self.bandwidth, (int, float)) and not isinstance(self.bandwidth, bool) and self.bandwidth > 0
        ):
            raise OptionError(f"bandwidth={self.bandwidth!r}: give bytes per second, such as 125e6, or 'auto'")
        if isinstance(self.sites, Mapping):
            object.__setattr__(self, "sites", Sites(self.sites))
        if self.sites is not None and not isinstance(self.sites, Sites):
            raise OptionError(
                f"sites={self.sites!r}: give a site for every alias, {{'a': 'paris', ...}}, or wm.Sites(..., latency='20 ms', bandwidth=12.5e6)"
            )
        if self.units != "auto" and (
            not isinstance(self.units, int) or isinstance(self.units, bool) or not 1 <= self.units <= 4096
        ):
            raise OptionError(f"units={self.units!r}: give a whole number from 1 to 4096, or 'auto' ({DEFAULT_UNITS})")


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise OptionError(f"{name}={value!r}: this release has {', '.join(repr(a) for a in allowed)}")


def build(join: Join, types: Types, options: Options, inside: Inside) -> Plan:
    """Plan a query; `inside` says which conditions the units may evaluate."""
    units = DEFAULT_UNITS if options.units == "auto" else options.units
    plan = Plan(join, units)
    plan = key_classes(plan, types)
    plan = place_conditions(plan, types, inside)
    plan = lay_out(plan, types)
    plan = sequence(plan)
    assert not isinstance(options.sites, Mapping)
    if at_sites(plan, options.sites):
        _check_sites(options)
        plan = place_sites(plan, options.sites or Sites())
    else:
        order = None if options.order == "auto" else _order(plan, options)
        plan = place_units(plan, Routing.of(options.routing), order)
        plan = ship(plan, options.shipping)
    plan = replace(plan, bandwidth=None if options.bandwidth == "auto" else float(options.bandwidth))
    plan = finish(plan, types, inside)
    return _forced(plan, options)


def _check_sites(options: Options) -> None:
    """What says where tuples go has no say where streams arrive at sites."""
    for name, remedy in (
        ("routing", "tuples stay at their sites"),
        ("order", "Sites(plan=...) says the order of joins"),
        ("driver", "heads go in the order of FROM"),
    ):
        if getattr(options, name) != "auto":
            raise OptionError(f"{name}= does not go with streams at sites: {remedy}; leave {name}='auto'")
    if options.kernel not in ("auto", "hw", "sorted", "nlw"):
        raise OptionError(
            f"kernel={options.kernel!r} sweeps over all streams of a unit, and rows at sites probe one stream at a time; use 'auto', 'hw', 'sorted' or 'nlw'"
        )
    if options.shipping == "semijoin":
        raise OptionError(
            "shipping='semijoin' does not go with streams at sites: Sites(plan=...) says what is shipped; leave it out"
        )
    if options.runtime == "stream":
        raise OptionError("streams at sites need rounds of messages: use runtime='rounds' and start()")


def _forced(plan: Plan, options: Options) -> Plan:
    plan = choose_kernel(plan, Wanted.of(options.kernel))
    order = None if options.order == "auto" else _order(plan, options)
    return replace(plan, order=order, driver=options.driver)


def _order(plan: Plan, options: Options) -> tuple[str, ...]:
    order = tuple(options.order)
    if sorted(order) != sorted(plan.aliases):
        raise OptionError(f"order={list(order)!r}: name every alias once: {', '.join(plan.aliases)}")
    return order
