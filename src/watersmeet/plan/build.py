"""From a logical query to a plan: the rules in their order.

Invariant: the plan depends on the query, the types and the options only.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import reduce

from watersmeet.plan.model import Plan
from watersmeet.plan.options import DEFAULT_UNITS, Given, Inside, Options
from watersmeet.plan.rules.choose_kernel import choose_kernel
from watersmeet.plan.rules.finish import finish
from watersmeet.plan.rules.key_classes import key_classes
from watersmeet.plan.rules.lay_out import lay_out, sequence
from watersmeet.plan.rules.place_conditions import place_conditions
from watersmeet.plan.rules.place_sites import place_sites
from watersmeet.plan.rules.place_units import place_units
from watersmeet.plan.rules.set_aside import set_aside
from watersmeet.plan.rules.ship import ship
from watersmeet.plan.rules.tree import cut_tree, place_tree
from watersmeet.plan.types import Types
from watersmeet.query.join import Join


def take_choices(plan: Plan, given: Given) -> Plan:
    """What units need to know of the options, and no rule decides."""
    options = given.options
    bandwidth = None if options.bandwidth == "auto" else float(options.bandwidth)
    return replace(plan, bandwidth=bandwidth, order=given.order(plan), driver=options.driver)


Rule = Callable[[Plan, Given], Plan]
RULES: tuple[Rule, ...] = (
    cut_tree, key_classes, place_conditions, lay_out, sequence, place_sites, place_units, place_tree, ship, finish, choose_kernel, take_choices, set_aside,
)  # fmt: skip
"""Every rule adds to the plan of the rules before it."""


def build(join: Join, types: Types, options: Options, inside: Inside) -> Plan:
    """Plan a query; `inside` says which conditions the units may evaluate."""
    given = Given(types, options, inside)
    units = DEFAULT_UNITS if options.units == "auto" else options.units
    return reduce(lambda plan, rule: rule(plan, given), RULES, Plan(join, units))
