"""The kernel of a plan: which algorithm finds the combinations of a step.

    hw       needs an equality across streams         ripple, nlw, mw, lca   need nothing
    sorted   needs a comparison or band as codes      xjoin                  is a hash join, as hw
    gca(k)   k with the largest window for all pairs, then every pair's own

Nothing that is stored depends on it, so units may take another for a batch: if nobody has forced a kernel, every pair has
a window and conditions have codes, a unit sweeps where it estimates that to be cheaper (`operators.probing.tactics`).

Invariant: a kernel changes the cost and never the result.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.errors import OptionError
from watersmeet.plan.model import Kernel, Plan
from watersmeet.plan.options import ForcedKernel, Given
from watersmeet.query.window import UNBOUNDED

_NEEDS = {
    "hw": "is a hash join, and this query has no equality across streams",
    "xjoin": "is a hash join, and this query has no equality across streams",
    "sorted": "is a range probe, and this query has no comparison or band across streams whose sides become 64-bit codes",
}
_CHOSEN = {
    "hw": "chosen for the keys",
    "sorted": "chosen for the comparisons, since no key relates the streams",
    "nlw": "chosen since neither keys nor comparisons relate the streams",
}
_SWEPT = (
    "a unit sweeps a batch instead (lca) where its event times say that this is cheaper: few new tuples have a window partner "
    "in every other stream, as when rates differ much or a stream is often silent, and little is stored"
)


_FORCED = ("never swept: a sweep takes all drivers at once, and driver= says in which order they run", "")


def choose_kernel(plan: Plan, given: Given) -> Plan:
    """By key if there is one, else by range if there is one, else by time alone."""
    wanted = ForcedKernel.of(given.options.kernel)
    possible: list[Kernel] = ["nlw", "mw", "lca", "ripple"]
    if plan.residuals or plan.hints:
        possible.insert(0, "sorted")
    if plan.classes:
        possible = ["hw", *possible, "xjoin"]
    if wanted.name == "auto":
        never = _why_never_swept(plan) or _FORCED[given.options.driver == "auto"]
        why = f"{_CHOSEN[possible[0]]}; {never or _SWEPT}"
        return replace(plan, kernel=possible[0], may_sweep=not never, kernel_why=why)
    for kernel in possible:
        if wanted.name == kernel:
            return replace(plan, kernel=kernel, gca=wanted.gca, kernel_why="forced")
    use = ", ".join(f"'{kernel}'" for kernel in possible)
    raise OptionError(f"kernel={wanted.name!r} {_NEEDS[wanted.name]}; use kernel={use} or 'auto'")


def _why_never_swept(plan: Plan) -> str:
    """Why no unit sweeps: a sweep would leave few pairs of tuples alone, or test what relates streams too late."""
    if plan.sites is not None:
        return "never swept: rows at sites probe one stream at a time"
    graph = plan.join.windows
    if any(graph.hi(x, y) >= UNBOUNDED for x in plan.aliases for y in plan.aliases if x != y):
        return "never swept: the windows leave some pair of streams unbounded"
    if plan.inside and len(plan.aliases) > 2:
        return "never swept: a condition without 64-bit codes would be tested only when all streams are bound"
    return ""
