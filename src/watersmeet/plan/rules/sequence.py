"""ROWS windows become comparisons of sequence numbers.

Let s(a) be the number of a's tuple in its stream, in (ts, content hash) order, and N_a(t) the number of a's tuples up to
time t. The member of `a [ROWS n]` is among the last n tuples up to the youngest member of the result if

    s(a) > N_a(y.ts) - n      for every other member y (and for a itself)

A sequencer knows s and N_a once a's watermark has passed, and sends both along with the tuples: `_seq` with a's, and
`_n_a` = N_a(ts) - n with the others'. So the join sees nothing but comparisons.
"""

from __future__ import annotations

from dataclasses import replace

from watersmeet.plan.model import SEQUENCE, Compare, Plan
from watersmeet.plan.options import Given


def sequence(plan: Plan, given: Given) -> Plan:
    """Add the comparisons of every ROWS window."""
    residuals = [
        Compare(
            (y, reach(a.alias)),
            "<",
            (a.alias, SEQUENCE),
            "integer",
            f"{a.alias} is among its last {a.rows} rows up to {y}",
        )
        for a in plan.sequenced
        for y in plan.aliases
        if y != a.alias
    ]
    return replace(plan, residuals=(*plan.residuals, *residuals))


def reach(alias: str) -> str:
    """The wire column that says up to which number the tuples of `alias` are out of reach."""
    return f"_n_{alias}"
