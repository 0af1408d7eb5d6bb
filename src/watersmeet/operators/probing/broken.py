"""Combinations for which a condition has no value, where these are set aside.

    found by its keys and windows --> conditions that hold or break --> complete: breaks one? --> set aside
                                                                                         no --> a result

Invariant: a combination is set aside if and only if all that can be said of it is true, and a condition cannot be. So it does not depend on the order in
which conditions are asked, and a part of a combination that is never completed is nobody's error.
"""

from __future__ import annotations

from typing import Protocol

import numpy as np
import pyarrow as pa

from watersmeet.dataflow.contract import Aside
from watersmeet.expressions.broken import find_true
from watersmeet.expressions.evaluator import mask
from watersmeet.operators.late import set_combinations_aside
from watersmeet.operators.probing.side import Bound
from watersmeet.plan.model import Plan
from watersmeet.query.expr import ColumnRef, Expr


class Columns(Protocol):
    """Where the columns of combinations are."""

    def column(self, bound: Bound, ref: ColumnRef) -> pa.Array: ...

    def list_columns(self, alias: str) -> list[ColumnRef]: ...


class Conditions:
    """The conditions of one join in one turn, as the evaluator answers them."""

    def __init__(self, plan: Plan) -> None:
        self.plan = plan
        self.aside: list[Aside] = []
        self._broken: dict[Expr, str] = {}
        """Conditions that some combination has broken, with their texts."""

    def test(self, columns: pa.Table, text: str, condition: Expr) -> np.ndarray:
        """Where a condition is true; where combinations are set aside, those that break it go on until all else is known of them."""
        if not self.plan.sets_aside:
            names = {f"{n}": str(ref) for n, ref in enumerate(condition.columns)}
            return mask(columns, text, str(condition), self.plan.timezone, names)
        holds, broken = find_true(columns, text, str(condition), self.plan.timezone)
        if broken.any():
            self._broken[condition] = text
        return holds | broken

    def keep_whole(self, join: Columns, bound: Bound) -> Bound:
        """Complete combinations, less those that break a condition."""
        for condition, text in self._broken.items():
            if not len(next(iter(bound.values()))):
                break
            columns = {f"{n}": join.column(bound, ref) for n, ref in enumerate(condition.columns)}
            _, broken = find_true(pa.table(columns), text, str(condition), self.plan.timezone)
            if broken.any():
                self._set_aside(join, {a: idx[broken] for a, idx in bound.items()}, condition)
                bound = {a: idx[~broken] for a, idx in bound.items()}
        return bound

    def _set_aside(self, join: Columns, bound: Bound, condition: Expr) -> None:
        refs = [ref for alias in bound if alias in condition.aliases for ref in join.list_columns(alias)]
        known = {ref: join.column(bound, ref) for ref in refs}
        self.aside.append(set_combinations_aside(self.plan, known, str(condition)))
