"""Wire rows by Spark of rows some of which break an expression: those are marked, and nothing is computed of them.

    rows --> *, which break an expression of their stream, and why, and which pass the alias' filters --> wire columns of whole rows that pass

Spark has no TRY for any expression. But the sum of a date and a number is NULL under `try_add` if anything inside it fails, whatever that is:

    try_add(DATE'1970-01-01', pmod(hash(e), 2)) IS NULL              e has no value
    try_add(DATE'1970-01-01', CAST(coalesce(c, false) AS INT))       a day if c is true, another if not, NULL if c has no value

`hash` keeps Spark from leaving out what it need not know. What two expressions have in common Spark computes once, before them, where nothing catches a failure:
so all stands behind a condition that is always true, and which Spark does not know to be. Expressions are evaluated twice where rows are set aside, and once otherwise.
(No CASE with constants: Spark would move the sum into its branches, and its condition out of the sum.)

Invariant: the same rows are broken as in process (`runtime.broken_rows`): a row breaks a filter if no other filter rules it out.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from watersmeet.expressions.broken import ERROR
from watersmeet.operators.enter import BROKEN
from watersmeet.plan.model import TIME, InputPlan
from watersmeet.plan.source_sql import PASS, enters, list_computed, list_filters
from watersmeet.query.stream import COUNTED
from watersmeet.runtime.spark.types import SPARK

_TRUE = "pmod(hash({0}), 2) < 2"
"""Always true."""
_CAUGHT = "try_add(DATE'1970-01-01', CASE WHEN {0} THEN {1} END)"


def knows_try(frame: DataFrame) -> bool:
    """Whether this Spark's `try_add` is NULL if anything inside it fails: a job of one row."""
    broken = _CAUGHT.format(_TRUE.format("id"), "pmod(hash(1 / id), 2)")
    try:
        return bool(frame.sparkSession.range(1).selectExpr(f"{broken} IS NULL").head()[0])
    except Exception:  # it fails, so the failure was not caught
        return False


def _catch(source: InputPlan, number: str) -> str:
    """A day; NULL if a number has no value."""
    time = next(c for c in source.columns if c.name == TIME)
    return _CAUGHT.format(_TRUE.format(time.expr.spark(lambda ref: SPARK.quote(ref.column))), number)


def _breaks(source: InputPlan, text: str) -> str:
    return f"{_catch(source, f'pmod(hash({text}), 2)')} IS NULL"


def _attempt(source: InputPlan, condition: str) -> str:
    """Whether a condition is true; NULL if it has no value."""
    return f"(unix_date({_catch(source, f'CAST(coalesce({condition}, false) AS INT)')}) = 1)"


def _passes(source: InputPlan) -> str:
    return (
        " AND ".join(f"coalesce({_attempt(source, text)}, false)" for _, text in list_filters(source, SPARK)) or "true"
    )


def _find_reason(source: InputPlan) -> str:
    """Why a row breaks an expression of an alias; NULL if it does not."""
    filters = list_filters(source, SPARK)
    cases = [f"WHEN {_breaks(source, text)} THEN {_quote(shown)}" for _, shown, text in list_computed(source, SPARK)]
    inside = f"CASE {' '.join(cases)} END" if cases else "CAST(NULL AS STRING)"
    if not filters:
        return inside
    out = [f"WHEN {_passes(source)} THEN {inside}"]
    for n, (shown, text) in enumerate(filters):
        others = [f"coalesce({_attempt(source, other)}, true)" for m, (_, other) in enumerate(filters) if m != n]
        out.append(f"WHEN {' AND '.join([f'{_attempt(source, text)} IS NULL', *others])} THEN {_quote(shown)}")
    return f"CASE {' '.join(out)} END"


def _quote(shown: str) -> str:
    escaped = f"{ERROR}{shown}".replace("\\", "\\\\").replace("'", "\\'")
    return f"'{escaped}'"


def mark_rows(frame: DataFrame, source: InputPlan, inputs: Sequence[InputPlan]) -> DataFrame:
    """A stream's rows, with why they are broken for any of its aliases, and whether they pass the filters of one of them."""
    reasons = [_find_reason(i) for i in inputs if i.stream == source.stream]
    return frame.select(
        "*", F.expr(f"coalesce({', '.join(reasons)})").alias(BROKEN), F.expr(_passes(source)).alias(PASS)
    )


def select_guarded(source: InputPlan, inputs: Sequence[InputPlan]) -> list[Column]:
    """The wire columns over rows that `mark_rows` has marked."""
    whole = f"{BROKEN} IS NULL AND {PASS}"
    texts = {name: text for name, _, text in list_computed(source, SPARK)}
    plain = {c.name: SPARK.quote(c.expr.columns[0].column) for c in source.columns if c.name not in texts}
    guarded = {name: f"CASE WHEN {whole} THEN {text} END" for name, text in texts.items()}
    names = [c.name for c in source.columns] + [name for name in texts if name not in {c.name for c in source.columns}]
    out = {name: plain.get(name) or guarded[name] for name in names}
    if source.earlier:
        before = [_attempt(i, enters(i, SPARK)) for i in inputs if i.alias in source.earlier]
        out[COUNTED] = f"{BROKEN} IS NOT NULL OR {' OR '.join(f'coalesce({text}, false)' for text in before)}"
    if source.filters:
        out[PASS] = whole
    return [F.expr(text).alias(name) for name, text in out.items()] + [F.col(BROKEN)]
