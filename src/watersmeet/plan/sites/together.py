"""What a plan costs when sites share what they have been sent, and the cheapest plan then.

    a: b SP-D    b: a SP-S      a's tuples go to b's site once: as a copy for b, from which a's own rows set out

Appendix B prices every one-way join by itself. In rounds a copy belongs to a site (`plan.sites.schedule`): every further join with it
is free of transmission, and so is a head's first step to a site that has a copy of its stream. So the plans that look cheapest one
by one are priced again, and with them those that bring all streams to one site.

Invariant: what is shared is counted once, in the first join that needs it; joins inside a site ship nothing.
Implements: Tran and Lee (2010), appendix B, equation 1, over what is shipped instead of over joins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from watersmeet.plan.sites.cost import Cost
from watersmeet.plan.sites.model import Algorithm, LinearPlan, SiteQuery, Step
from watersmeet.plan.sites.optimize import Estimate, Found, Optimizer, Search

CANDIDATES, FEW_STREAMS = 10, 4
"""Plans that are priced again, of an exhaustive search over so few streams; of more, the cheapest: ten would take most of a second."""


def cheapest(optimizer: Optimizer, search: Search) -> Found:
    """The plan of choice; ties go to the one that is found first."""
    kind = optimizer.kind(search)
    count = CANDIDATES if len(optimizer.query.aliases) <= FEW_STREAMS else 1
    plans = [optimizer.greedy().plan] if kind == "greedy" else [f.plan for f in optimizer.exhaustive(count)]
    plans += gathering(optimizer.query)
    priced = [together(replace(optimizer.priced(plan), search=kind), optimizer) for plan in plans]
    return min(priced, key=lambda found: found.seconds)


def together(found: Found, optimizer: Optimizer) -> Found:
    """A plan's estimates with what is shared counted once."""
    query = found.plan.query
    whole = {
        (e.step.to, e.source)
        for steps in found.estimates.values()
        for e in steps
        if e.step.algorithm is Algorithm.SP_S and e.source != query.stream(e.step.to).site
    }
    seen: set[tuple[str, str]] = set()
    estimates = {}
    for head, steps in found.estimates.items():
        out, done = [], frozenset({head})
        for n, e in enumerate(steps):
            there, copy = query.stream(e.step.to).site, (e.step.to, e.source)
            at_source = e.step.algorithm.at_source
            if e.source == there or (n == 0 and not at_source and (head, there) in whole):
                e = _free(e)
            elif at_source and copy in whole:
                simple = optimizer.one_way(head, done, e.step.to, Algorithm.SP_S)
                e = _free(e) if copy in seen else _priced(e, simple, optimizer)
                seen.add(copy)
            out.append(e)
            done |= {e.step.to}
        estimates[head] = tuple(out)
    return replace(found, estimates=estimates, seconds=sum(e.seconds for steps in estimates.values() for e in steps))


def gathering(query: SiteQuery) -> Iterator[LinearPlan]:
    """For every site the plan that brings all streams there, if a join leads every head to it at once."""
    for site in dict.fromkeys(s.site for s in query.streams):
        sequences = {head: _to(query, head, site) for head in query.aliases}
        if all(sequences.values()):
            yield LinearPlan(query, {head: steps for head, steps in sequences.items() if steps})


def _to(query: SiteQuery, head: str, site: str) -> tuple[Step, ...] | None:
    """A head's way to a site and on from there."""
    done, steps = [head], list[Step]()
    here = query.stream(head).site == site
    while len(done) < len(query.aliases):
        near = [a for a in query.aliases if a not in done and query.between(done, a)]
        if not here:
            near = [a for a in near if query.stream(a).site == site]
        if not near:
            return None
        steps.append(Step(near[0], Algorithm.SP_S if here else Algorithm.SP_D))
        done.append(near[0])
        here = True
    return tuple(steps)


def _free(estimate: Estimate) -> Estimate:
    cost = Cost(0, 0, 0, 0, estimate.cost.processing_s)
    return replace(estimate, cost=cost, seconds=cost.processing_s)


def _priced(estimate: Estimate, cost: Cost, optimizer: Optimizer) -> Estimate:
    there = optimizer.query.stream(estimate.step.to).site
    line = optimizer.setting.line
    return replace(
        estimate, cost=cost, seconds=cost.seconds(line(estimate.source, there), line(there, estimate.source))
    )
