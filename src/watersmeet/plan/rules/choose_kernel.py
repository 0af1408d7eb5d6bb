"""The kernel of a plan: which algorithm finds the combinations of a step.

    hw       needs an equality across streams         ripple, nlw, mw, lca   need nothing
    sorted   needs a comparison or band as codes      xjoin                  is a hash join, as hw
    gca(k)   k with the largest window for all pairs, then every pair's own

Nothing that is stored depends on it, so units may take another for a batch: if nobody has forced a kernel, every pair has
a window and conditions have codes, a unit sweeps where it estimates that to be cheaper (`units.partners`).

Invariant: a kernel changes the cost and never the result.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import NamedTuple, get_args

from watersmeet.errors import OptionError
from watersmeet.plan.model import Kernel, Plan
from watersmeet.query.window import UNBOUNDED

NAMES: tuple[str, ...] = ("auto", *get_args(Kernel))
_NEEDS = {
    "hw": "is a hash join, and this query has no equality across streams",
    "xjoin": "is a hash join, and this query has no equality across streams",
    "sorted": "is a range probe, and this query has no comparison or band across streams whose sides become 64-bit codes",
}


class Wanted(NamedTuple):
    """What `kernel=` says."""

    name: str
    gca: bool = False

    @classmethod
    def of(cls, text: object) -> Wanted:
        """
        >>> Wanted.of("mw"), Wanted.of("gca( lca )")
        (Wanted(name='mw', gca=False), Wanted(name='lca', gca=True))
        """
        if text in NAMES:
            return cls(str(text))
        around = re.fullmatch(r"gca\(\s*(\w+)\s*\)", text.strip()) if isinstance(text, str) else None
        if around and around[1] in NAMES[1:]:
            return cls(around[1], True)
        raise OptionError(
            f"kernel={text!r}: this release has {', '.join(repr(n) for n in NAMES)}, and 'gca(...)' around any of them but 'auto', such as 'gca(mw)'"
        )


def choose_kernel(plan: Plan, wanted: Wanted) -> Plan:
    """By key if there is one, else by range if there is one, else by time alone."""
    possible: list[Kernel] = ["nlw", "mw", "lca", "ripple"]
    if plan.residuals:
        possible.insert(0, "sorted")
    if plan.classes:
        possible = ["hw", *possible, "xjoin"]
    if wanted.name == "auto":
        return replace(plan, kernel=possible[0], may_sweep=_windowed(plan) and _coded(plan))
    for kernel in possible:
        if wanted.name == kernel:
            return replace(plan, kernel=kernel, gca=wanted.gca)
    use = ", ".join(f"'{kernel}'" for kernel in possible)
    raise OptionError(f"kernel={wanted.name!r} {_NEEDS[wanted.name]}; use kernel={use} or 'auto'")


def _windowed(plan: Plan) -> bool:
    """Whether the windows of every pair are bounded, so that a sweep leaves most pairs of tuples alone."""
    graph = plan.join.windows
    return all(graph.hi(x, y) < UNBOUNDED for x in plan.aliases for y in plan.aliases if x != y)


def _coded(plan: Plan) -> bool:
    """Whether a sweep tests all that joins aliases before it has chosen all of them: what has no code comes last."""
    return len(plan.aliases) == 2 or not plan.inside
