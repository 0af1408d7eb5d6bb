"""Aggregate functions as SQL writes them: which one it is, of what, and by what.

    count(DISTINCT x)                          std, stddev, stddev_samp, stddev_pop, variance, var_samp, var_pop
    first(x), first_value, any_value           last(x), last_value           by event time, with IGNORE NULLS or without
    min_by(x, y), max_by(x, y)                 collect_list(x), array_agg, collect_set(x)

Invariant: what has no meaning here is None, and refused by whoever asks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from sqlglot import exp

from watersmeet.query.select import Function

_ONLINE: dict[Any, Function] = {exp.Count: "count", exp.Sum: "sum", exp.Min: "min", exp.Max: "max", exp.Avg: "avg"}
_ENDING: dict[Any, Function] = {
    exp.Stddev: "stddev_samp", exp.StddevSamp: "stddev_samp", exp.StddevPop: "stddev_pop", exp.Variance: "var_samp", exp.VariancePop: "var_pop",
    exp.First: "first", exp.FirstValue: "first", exp.AnyValue: "first", exp.Last: "last", exp.LastValue: "last",
    exp.ArrayAgg: "collect_list", exp.ArrayUniqueAgg: "collect_set", exp.ArgMin: "min_by", exp.ArgMax: "max_by",
}  # fmt: skip
_NAMED: dict[str, Function] = {"std": "stddev_samp", "mean": "avg"}
BY_TIME = ("first", "last", "collect_list")
"""Functions whose answer depends on an order, which is that of event time."""


@dataclass(frozen=True)
class Written:
    """An aggregate as it is written; `argument` is None for count(*)."""

    function: Function
    argument: Any | None
    by: Any | None = None
    skips_nulls: bool = False

    @property
    def is_online(self) -> bool:
        """Whether it can be kept up to date for ever, by one value or two."""
        return self.function in _ONLINE.values()

    def show(self, shown: list[str]) -> str:
        """Its text, by those of its arguments."""
        if self.function == "count_distinct":
            return f"count(DISTINCT {shown[0]})"
        return f"{self.function}({', '.join(shown) or '*'})" + (" IGNORE NULLS" if self.skips_nulls else "")


def read_aggregate(node: Any) -> Written | None:
    """The aggregate that a node is; None if it is none, or none that there is here."""
    skips = isinstance(node, exp.IgnoreNulls)
    inner = node.this if skips else node
    if isinstance(inner, exp.Anonymous):
        function: Function | None = _NAMED.get(str(inner.this).lower())
        given = list(inner.expressions)
        return None if function is None or len(given) != 1 or skips else Written(function, given[0].unnest())
    function = _ONLINE.get(type(inner)) or _ENDING.get(type(inner))
    if function is None or inner.this is None or inner.expressions or (skips and function not in ("first", "last")):
        return None
    by = inner.args.get("expression")
    if (by is not None) != (function in ("min_by", "max_by")) or inner.args.get("count") is not None:
        return None
    if isinstance(inner.this, exp.Distinct):
        values = inner.this.expressions
        single = function == "count" and len(values) == 1 and not inner.this.args.get("on")
        return Written("count_distinct", values[0].unnest()) if single else None
    if isinstance(inner.this, exp.Order | exp.Limit | exp.HavingMax):
        return None
    argument = None if is_every_row(inner) else inner.this.unnest()
    return Written(function, argument, None if by is None else by.unnest(), skips)


def is_every_row(node: Any) -> bool:
    """count(*), or of a literal that is not NULL."""
    return isinstance(node, exp.Count) and isinstance(node.this.unnest(), exp.Literal | exp.Boolean | exp.Star)
