"""The probe order of a driver: greedy on the estimated size of the intermediate result.

Statistics are the fan-outs measured in earlier batches: how many tuples of y one partial result met. They may change
the order at any time, since an order moves no tuple and changes no result.

Implements: Tran and Lee (2010), section 4, greedy ordering by intermediate size, for one site.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from watersmeet.plan.model import Plan

Fanout = Callable[[frozenset[str], str], float | None]
_UNKNOWN: Fanout = lambda bound, y: None  # noqa: E731


def probe_order(plan: Plan, driver: str, fanout: Fanout = _UNKNOWN) -> tuple[str, ...]:
    """The other aliases in the order in which the driver's tuples probe them.

    Measured fan-outs come first; where there is none, a keyed alias goes before one related by a condition only, and
    that before one related by nothing. Ties: the position in FROM.
    """
    if plan.order is not None:
        return tuple(a for a in plan.order if a != driver)
    return greedy(driver, [a for a in plan.aliases if a != driver], fanout, lambda bound, y: _rank(plan, bound, y))


def greedy(
    driver: str,
    others: Sequence[str],
    fanout: Fanout = _UNKNOWN,
    rank: Callable[[set[str], str], int] = lambda bound, y: 0,
) -> tuple[str, ...]:
    """The others, each next one of the lowest rank, and among these of the smallest fan-out.

    >>> greedy("a", ["b", "c"], lambda bound, y: {"b": 5.0, "c": 0.1}[y])
    ('c', 'b')
    """
    bound, left, out = {driver}, list(others), list[str]()
    while left:
        best = min(left, key=lambda y: (rank(bound, y), *_estimate(fanout, frozenset(bound), y), others.index(y)))
        out.append(best)
        bound.add(best)
        left.remove(best)
    return tuple(out)


def _rank(plan: Plan, bound: set[str], y: str) -> int:
    """0: shares a key with what is bound; 1: shares a condition; 2: nothing."""
    if any(y in c.members and bound & set(c.members) for c in plan.classes):
        return 0
    return 1 if any(y in p.aliases and p.aliases & bound for p in plan.join.predicates) else 2


def _estimate(fanout: Fanout, bound: frozenset[str], y: str) -> tuple[int, float]:
    known = fanout(bound, y)
    return (1, 0.0) if known is None else (0, known)
