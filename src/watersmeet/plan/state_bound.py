"""How long each side of a plan is kept, and what a user should be warned of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from watersmeet.plan.finish import bucket_us
from watersmeet.plan.model import Plan
from watersmeet.query.duration import show_us
from watersmeet.query.window import UNBOUNDED

ENDLESS = "state grows without end; add WINDOW or a condition on event time"


@dataclass(frozen=True)
class Bound:
    """What is kept of one side of a stage."""

    name: str
    kept_us: int | None
    """Event time; None: full history."""
    late_us: int
    """Of the others' lateness, on top."""
    rows: int | None = None
    """Its last so many rows only."""

    @property
    def is_endless(self) -> bool:
        return self.kept_us is None and self.rows is None

    def __str__(self) -> str:
        """In one or two words.

        >>> str(Bound("a", 1_000_000, 2_000_000)), str(Bound("b", None, 0)), str(Bound("c", 5_000_000, 0, rows=3))
        ('a 1 s + 2 s', 'b full history', 'c 3 rows, at most 5 s')
        """
        late = f" + {show_us(self.late_us)}" if self.late_us else ""
        span = "" if self.kept_us is None else show_us(self.kept_us) + late
        if self.rows is not None:
            return f"{self.name} {self.rows} rows" + (f", at most {span}" if span else "")
        return f"{self.name} {span or 'full history'}"


def bounds(plan: Plan) -> Iterator[Bound]:
    """Every side of every stage."""
    for stage in plan.stages:
        for side in stage.sides:
            kept = plan.retention_us(stage, side)
            late = max(plan.join.spec(y).lateness_us for y in stage.partners(side))
            rows = plan.input(side.name).rows if len(side.aliases) == 1 else None
            yield Bound(side.name, None if kept >= UNBOUNDED else max(kept, 0), late, rows)


def warnings(plan: Plan) -> Iterator[str]:
    """What will cost the user dearly if it was not meant."""
    endless = ", ".join(bound.name for bound in bounds(plan) if bound.is_endless)
    if endless:
        yield f"no window bounds {endless}: {ENDLESS}"
    if plan.join.distinct and bucket_us(plan.join) is None:
        yield f"DISTINCT remembers every row that has left: {ENDLESS}"
    if plan.units > 1 and plan.sites is None and all(stage.routing.units == 1 for stage in plan.stages):
        yield "no key tells tuples apart: one unit does all the work"
