"""Aggregates as Spark SQL over rows: what Spark evaluates itself on static data, and what its analyser is asked about.

Where Spark leaves the answer to chance (first, last, ties of min_by, the order of lists), it is what `operators.finish.partials` says.
"""

from __future__ import annotations

from collections.abc import Callable

from watersmeet.query.select import Aggregate


def aggregate_sql(aggregate: Aggregate, name: Callable[[int], str]) -> str:
    """An aggregate over columns, which `name` gives by their position.

    >>> aggregate_sql(Aggregate("count_distinct", 2, ""), lambda n: f"p{n}")
    'count(DISTINCT p2)'
    >>> aggregate_sql(Aggregate("min_by", 0, "", by=1), lambda n: f"p{n}")
    "min(CASE WHEN p1 IS NOT NULL THEN named_struct('t', p1, 'n', p0 IS NULL, 'v', p0) END).v"
    """
    function = aggregate.function
    value = "*" if aggregate.argument is None else name(aggregate.argument)
    by = "" if aggregate.by is None else name(aggregate.by)
    if function == "count_distinct":
        return f"count(DISTINCT {value})"
    if function == "collect_set":
        return f"array_sort(collect_set({value}))"
    if function == "collect_list":
        pairs = f"collect_list(CASE WHEN {value} IS NOT NULL THEN named_struct('t', {by}, 'v', {value}) END)"
        return f"transform(array_sort({pairs}), pair -> pair.v)"
    if function in ("first", "min_by"):
        return f"min({_rank(aggregate, value, by, 'IS NULL')}).v"
    if function in ("last", "max_by"):
        return f"max({_rank(aggregate, value, by, 'IS NOT NULL')}).v"
    return f"{function}({value})"


def _rank(aggregate: Aggregate, value: str, by: str, is_last: str) -> str:
    """A value with what ranks it; NULL where the row is left out."""
    pair = f"named_struct('t', {by}, 'n', {value} {is_last}, 'v', {value})"
    needed = by if aggregate.function.endswith("_by") else value if aggregate.skips_nulls else ""
    return f"CASE WHEN {needed} IS NOT NULL THEN {pair} END" if needed else pair
