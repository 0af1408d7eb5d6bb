"""Plans of one-way joins for a query across sites: any order, any algorithm."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, LinearPlan, OneWayStep, SiteQuery
from watersmeet.sites.planning.trees import Level, TreePlan


@st.composite
def linear_plans(draw: Any, query: SiteQuery) -> LinearPlan:
    sequences = {}
    for head in query.aliases:
        order = _order(draw, query, head)
        sequences[head] = tuple(OneWayStep(to, draw(st.sampled_from(tuple(Algorithm)))) for to in order[1:])
    return LinearPlan(query, sequences)


@st.composite
def tree_plans(draw: Any, query: SiteQuery) -> TreePlan:
    here = tuple(a for a in Algorithm if a in AT_SOURCE)
    there = tuple(a for a in Algorithm if a not in AT_SOURCE)
    order = _order(draw, query, draw(st.sampled_from(query.aliases)))
    levels = []
    for alias in order[1:]:
        both = draw(st.sampled_from(here)), draw(st.sampled_from(there))
        levels.append(Level(alias, *(both if draw(st.booleans()) else both[::-1])))
    return TreePlan(query, order[0], tuple(levels))


def _order(draw: Any, query: SiteQuery, first: str) -> list[str]:
    order = [first]
    while len(order) < len(query.aliases):
        order.append(draw(st.sampled_from([a for a in query.aliases if a not in order and query.between(order, a)])))
    return order
