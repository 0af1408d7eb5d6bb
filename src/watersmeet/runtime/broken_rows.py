"""Rows in process of which some break an expression of their stream: they are marked where they enter, and the others become wire rows as always.

    all rows at once --fails--> each filter, then each computed column of the rows that pass --> whole rows: wire rows; broken rows: why

A row breaks a filter if that has no value, and no other filter rules the row out. It breaks a key, an operand or a condition on its own tuple if it passes the
filters, and that has no value. A row is broken for all aliases of its stream if it is for one: it is as if it had never come.

Invariant: the same rows are broken as on Spark (`runtime.stream.guarded`), whatever they come together with.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import enlarge
from watersmeet.expressions.broken import ERROR, evaluate_some, find_broken, find_true
from watersmeet.operators.enter import BROKEN, find_wanted
from watersmeet.plan.model import InputPlan, Plan
from watersmeet.plan.source_sql import PASS, list_computed, list_filters
from watersmeet.query.stream import COUNTED
from watersmeet.runtime.arrow_types import DUCKDB, normal


@dataclass
class Sorted:
    """The rows of a stream as one alias finds them."""

    passing: np.ndarray
    reasons: dict[int, str]
    """By row, why it is broken."""


def sort_rows(plan: Plan, source: InputPlan, rows: pa.Table) -> Sorted:
    """Which rows pass an alias' filters, and which break an expression of it."""
    zone, reasons = plan.timezone, dict[int, str]()
    answers = [(shown, *find_true(rows, text, shown, zone)) for shown, text in list_filters(source, DUCKDB)]
    passing = np.ones(rows.num_rows, bool)
    for _, holds, _ in answers:
        passing &= holds
    hopeful = np.all([holds | broken for _, holds, broken in answers], axis=0) if answers else passing
    for shown, _, broken in answers:
        _tell(reasons, hopeful & broken, shown)
    for _, shown, text in list_computed(source, DUCKDB):
        at = np.flatnonzero(passing)
        broken = np.zeros(rows.num_rows, bool)
        broken[at] = find_broken(rows.filter(pa.array(passing)), text, zone)
        _tell(reasons, broken, shown)
    return Sorted(passing, reasons)


def _tell(reasons: dict[int, str], broken: np.ndarray, shown: str) -> None:
    for row in np.flatnonzero(broken).tolist():
        reasons.setdefault(row, ERROR + shown)


def mark_broken(plan: Plan, stream: str, rows: pa.Table) -> dict[str, pa.Table]:
    """The wire rows of all aliases of a stream, broken ones marked."""
    aliases = [i for i in plan.inputs if i.stream == stream]
    found = {i.alias: sort_rows(plan, i, rows) for i in aliases}
    reasons: dict[int, str] = {}
    for source in aliases:
        reasons = {**found[source.alias].reasons, **reasons}
    texts = pa.array([reasons.get(n) for n in range(rows.num_rows)], pa.string())
    out: dict[str, pa.Table] = {}
    for source in aliases:
        whole = found[source.alias].passing & np.asarray(texts.is_null())
        wire = _compute(plan, source, rows, whole)
        if source.earlier:
            wire = wire.append_column(COUNTED, _count_elsewhere(source, out, texts, plan))
        out[source.alias] = wire.append_column(BROKEN, texts)
    return {alias: enlarge(wire) for alias, wire in out.items()}


def _compute(plan: Plan, source: InputPlan, rows: pa.Table, whole: np.ndarray) -> pa.Table:
    """Wire rows; what is computed is NULL but for whole rows that pass."""
    what = f"a condition or key of {source.alias}"
    texts = {name: text for name, _, text in list_computed(source, DUCKDB)}
    made = {name: evaluate_some(rows, whole, text, what, plan.timezone) for name, text in texts.items()}
    made = dict(zip(made, normal(pa.table(made)).columns, strict=True)) if made else made
    plain = {c.name: rows.column(c.expr.columns[0].column) for c in source.columns if c.name not in texts}
    out = pa.table({c.name: plain.get(c.name, made.get(c.name)) for c in source.columns} | made)
    return out.append_column(PASS, pa.array(whole)) if source.filters else out


def _count_elsewhere(source: InputPlan, before: Mapping[str, pa.Table], texts: pa.Array, plan: Plan) -> pa.Array:
    """Where an earlier alias of the stream counts the row: it gets it, or the row is broken."""
    counted = ~np.asarray(texts.is_null())
    for alias in source.earlier:
        counted = counted | find_wanted(plan.by_alias[alias], before[alias])
    return pa.array(counted)
