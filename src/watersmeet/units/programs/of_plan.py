"""Which program runs a plan.

Invariant: plans that ship differently run programs over the same units, so state can be handed from one to the other.
"""

from __future__ import annotations

from watersmeet.errors import UnsupportedError
from watersmeet.plan.model import Plan
from watersmeet.units.program import Program
from watersmeet.units.programs.finished import FinishedProgram
from watersmeet.units.programs.join import JoinProgram
from watersmeet.units.programs.semijoin import SemijoinProgram
from watersmeet.units.programs.sequenced import SequencedProgram
from watersmeet.units.programs.sites import SiteProgram


def program_of(plan: Plan) -> Program:
    """How the units of a plan work together."""
    joins = _joining(plan)
    if plan.finish is None:
        return joins
    if not plan.finish.inside:
        what = "DISTINCT" if plan.join.distinct else "GROUP BY"
        raise UnsupportedError(
            f"start() with {what}: {plan.finish.why_outside}, and no unit can do it between two rounds; use dataframe()"
        )
    return FinishedProgram(plan, joins)


def _joining(plan: Plan) -> Program:
    if plan.sites is not None:
        return SiteProgram(plan)
    if plan.shipping == "semijoin":
        return SemijoinProgram(plan)
    return SequencedProgram(plan) if plan.sequenced else JoinProgram(plan)
