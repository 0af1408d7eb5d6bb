"""The plan that ships least between sites: what each one-way join ships is counted, and the cheapest combinations are executed, trees of three streams among them.

Invariant: the plan that is returned was executed.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Iterator, Mapping
from itertools import permutations, product
from typing import Any, NamedTuple

from watersmeet.sites.planning.model import AT_SOURCE, Algorithm, LinearPlan, OneWayStep
from watersmeet_lab.bench.skewed_sites.trees import find_trees
from watersmeet_lab.bench.skewed_sites.workload import BATCHES, COUNTED, WARM, Played, Workload, play

RANKED, EXECUTED = 20, 6
"""Sequences of a head that are combined, and combinations that are executed."""


def ways(workload: Workload, head: str) -> Iterator[tuple[OneWayStep, ...]]:
    """Every sequence of a head; a join inside a site has one algorithm."""
    others = [a for a in workload.where if a != head]
    for order in permutations(others):
        for choice in product(Algorithm, repeat=len(order)):
            at, steps = workload.where[head], []
            for to, how in zip(order, choice, strict=True):
                if at == workload.where[to]:
                    if how is not Algorithm.SP_S:
                        break
                elif how not in AT_SOURCE:
                    at = workload.where[to]
                steps.append(OneWayStep(to, how))
            if len(steps) == len(order):
                yield tuple(steps)


def find_best(workload: Workload, *, every: bool = False) -> tuple[Played, int, float]:
    """The plan that ships least, executed; how many were; and by how much what was reckoned of combinations was wrong at most."""
    placed = workload.run.plan.sites
    assert placed is not None
    begin, query = BATCHES - COUNTED - WARM, placed.query
    by_head = {head: list(ways(workload, head)) for head in workload.where}
    if every and workload.streams == 2:
        plans = [(dict(zip(by_head, steps, strict=True)), 0) for steps in product(*by_head.values())]
        counted = 0
    else:
        items, counted = _count_items(workload, by_head, query, begin)
        plans = list(_combine(workload, by_head, items))
    played = [(play(workload, LinearPlan(query, plan), begin), reckoned) for plan, reckoned in plans]
    error = max((abs(sum(p.shipped.kinds.values()) / r - 1) for p, r in played if r), default=0.0)
    trees, grown = find_trees(workload) if workload.streams == 3 else ([], 0)
    best = min((*(p for p, _ in played), *trees), key=lambda p: p.shipped.seconds)
    return best, len(played) + counted + grown, error


Items = dict[tuple[str, str, str], int]
"""Bytes by sender, receiver and kind."""


Leg = tuple[int, frozenset[str], OneWayStep, str]
"""Its number, the streams before it, the step, and the place that it leads from."""


def _legs(workload: Workload, head: str, steps: tuple[OneWayStep, ...]) -> list[Leg]:
    at, done, out = workload.where[head], frozenset({head}), list[Leg]()
    for number, step in enumerate(steps):
        there = workload.where[step.to]
        out.append((number, done, step, at))
        at = at if step.algorithm in AT_SOURCE or at == there else there
        done |= {step.to}
    return out


def _copies(workload: Workload, head: str, steps: tuple[OneWayStep, ...], *, whole: bool) -> set[tuple[str, str]]:
    """The streams of which a head has all tuples sent to a place, or those that match."""
    legs, hows = _legs(workload, head, steps), {Algorithm.SP_S} if whole else AT_SOURCE
    return {(s.to, at) for _, _, s, at in legs if s.algorithm in hows and at != workload.where[s.to]}


def _start(workload: Workload, head: str, steps: tuple[OneWayStep, ...]) -> tuple[str, str] | None:
    """The place where a head's rows are sent first: with a copy of the stream there, they set out from it."""
    first = steps[0]
    return None if first.algorithm in AT_SOURCE else (head, workload.where[first.to])


def _list_needs(workload: Workload, head: str, steps: tuple[OneWayStep, ...]) -> set[tuple[str, str]]:
    """What another head's copies must not be, if the items of a sequence are to be counted."""
    start = _start(workload, head, steps)
    return _copies(workload, head, steps, whole=False) | ({start} if start else set())


def _count_items(
    workload: Workload, by_head: Mapping[str, list[Any]], query: Any, begin: int
) -> tuple[dict[tuple[str, Leg], Items], int]:
    """By head and leg what it ships; and how many plans that took. No two heads of such a plan share anything but values."""
    counted: dict[tuple[str, Leg], Items] = {}
    missing = {h: {leg for steps in of for leg in _legs(workload, h, steps)} for h, of in by_head.items()}
    runs = 0
    while any(missing.values()):
        plan, used, whole = dict[str, Any](), set[tuple[str, str]](), set[tuple[str, str]]()
        for head in sorted(by_head, key=lambda h: -len(missing[h])):
            free = [
                steps
                for steps in by_head[head]
                if not _copies(workload, head, steps, whole=False) & used
                and not _list_needs(workload, head, steps) & whole
                and not _copies(workload, head, steps, whole=True) & used
            ]
            plan[head] = max(free, key=lambda steps, h=head: len(missing[h] & set(_legs(workload, h, steps))))  # type: ignore[misc]
            used |= _list_needs(workload, head, plan[head])
            whole |= _copies(workload, head, plan[head], whole=True)
        kinds = play(workload, LinearPlan(query, {h: plan[h] for h in by_head}), begin).shipped.kinds
        runs += 1
        for head, steps in plan.items():
            for leg in _legs(workload, head, steps):
                counted.setdefault((head, leg), _items_of(workload, head, leg, kinds))
                missing[head].discard(leg)
    return counted, runs


def _combine(
    workload: Workload, by_head: Mapping[str, list[Any]], counted: Mapping[tuple[str, Leg], Items]
) -> Iterator[tuple[dict[str, Any], int]]:
    """The cheapest combinations of sequences, by the items that their legs were counted to ship, and the bytes of these."""
    ranked: dict[str, list[Sized]] = {}
    for head, of_head in by_head.items():
        sized = []
        for steps in of_head:
            legs = _legs(workload, head, steps)
            rest = _merge(counted[head, leg] for leg in legs[1:])
            whole = frozenset(_copies(workload, head, steps, whole=True))
            sized.append(Sized(steps, counted[head, legs[0]], rest, whole, _start(workload, head, steps)))
        sized.sort(key=lambda one: sum(one.first.values()) + sum(one.rest.values()))
        ranked[head] = sized[:RANKED] + [one for one in sized[RANKED:] if _is_simple(one.steps)]
    best = []
    for combination in product(*ranked.values()):
        whole = frozenset[tuple[str, str]]().union(*(one.whole for one in combination))
        parts = [part for one in combination for part in ((one.rest,) if one.start in whole else (one.first, one.rest))]
        best.append((sum(_merge(parts).values()), [one.steps for one in combination]))
    for size, sequences in heapq.nsmallest(EXECUTED, best, key=lambda one: one[0]):
        yield dict(zip(by_head, sequences, strict=True)), size


class Sized(NamedTuple):
    """A sequence, with what its first leg and the others were counted to ship."""

    steps: tuple[OneWayStep, ...]
    first: Items
    rest: Items
    whole: frozenset[tuple[str, str]]
    start: tuple[str, str] | None


def _merge(parts: Iterable[Items]) -> Items:
    """Items that several need, once."""
    out: Items = {}
    for items in parts:
        for key, size in items.items():
            out[key] = max(out.get(key, 0), size)
    return out


def _is_simple(steps: tuple[OneWayStep, ...]) -> bool:
    return all(s.algorithm in (Algorithm.SP_S, Algorithm.SP_D) for s in steps)


def _items_of(workload: Workload, head: str, leg: Leg, kinds: Items) -> Items:
    """The counted items that a leg needs."""
    number, _, step, at = leg
    names, there, out = list(workload.where), workload.where[step.to], Items()
    own = {f"{verb} {names.index(head)} {number}" for verb in ("rows", "ask", "want")}
    for (sender, receiver, kind), size in kinds.items():
        is_of_stream = kind.startswith(f"@{names.index(step.to)} ") and (sender, receiver) == (there, at)
        if at != there and (kind in own or (is_of_stream and _needs(step.algorithm, kind.split()[1]))):
            out[sender, receiver, kind] = size
    return out


def _needs(how: Algorithm, what: str) -> bool:
    """Whether an algorithm keeps copies, values or filters of a stream."""
    needs = {
        "copy": AT_SOURCE,
        "values": (Algorithm.SM_S2, Algorithm.SM_D1),
        "filter": (Algorithm.SMB_S2, Algorithm.SMB_D1),
    }
    return how in needs.get(what, ())
