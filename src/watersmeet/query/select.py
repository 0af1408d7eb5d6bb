"""The SELECT list, and what is done with its rows before they are results: DISTINCT or GROUP BY.

A grouped query is a join whose SELECT is what the aggregation reads, keys first and then arguments, and a `Grouping`
that says what becomes of these rows:

    SELECT a.k, sum(b.v) / count(*) AS m ... GROUP BY a.k
    join        select   g0 = a.k, x0 = b.v
    grouping    keys 1, aggregates a0 = sum(x0), a1 = count(*), select   k = g0, m = a0 / a1

With `window(x.ts, size, slide, start)` among the keys the join's SELECT has x.ts in the place of that key, and a row falls into every window
[s, s + size) that x.ts lies in, where s - start is a multiple of slide:

    GROUP BY window(a.ts, '10 minutes'), a.k          g0 = start of the window, e = its end, g1 = a.k

Invariant: a query has one finish at most, so DISTINCT over groups cannot be constructed; a grouping's SELECT and HAVING refer to
its own keys and aggregates only; only groups that end have a HAVING.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from watersmeet.query.expr import Expr
from watersmeet.query.stream import DECIMAL, INTEGERS

Function = Literal[
    "count", "sum", "min", "max", "avg",
    "count_distinct", "stddev_samp", "stddev_pop", "var_samp", "var_pop", "first", "last", "min_by", "max_by", "collect_list", "collect_set",
]  # fmt: skip
"""The first five can be kept up to date for ever; the others are for groups that end."""
GROUP = ""
"""The alias of a group's columns: keys g0, g1, ..., aggregates a0, a1, ..., END; no stream has an empty alias."""
END = "e"
"""The column of a group's end, where its keys have a window; the key itself is the start."""
_UNORDERED = ("map", "variant", "void")
MOST_DIGITS = 38


@dataclass(frozen=True)
class Output:
    """One column of the SELECT."""

    name: str
    expr: Expr


@dataclass(frozen=True)
class Distinct:
    """A row leaves once per bucket of its youngest member's event time; a bucket is one horizon wide."""


@dataclass(frozen=True)
class Aggregate:
    """An aggregate function; `argument` is a position in the join's SELECT, None for count(*), and so is `by`, which says what is first and last."""

    function: Function
    argument: int | None
    text: str
    by: int | None = None
    skips_nulls: bool = False

    def __post_init__(self) -> None:
        assert self.argument is not None or self.function == "count"

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class GroupWindow:
    """`window(alias.ts, size, slide, start)` as key number `key`, in microseconds."""

    key: int
    alias: str
    size_us: int
    slide_us: int
    start_us: int
    text: str

    def __post_init__(self) -> None:
        assert 0 < self.slide_us <= self.size_us
        assert abs(self.start_us) < self.slide_us

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Grouping:
    """Online aggregation: the first `keys` columns of the join's SELECT are the group, `select` is the result. With a `window` groups end, and
    leave if they satisfy `having`."""

    keys: int
    aggregates: tuple[Aggregate, ...]
    select: tuple[Output, ...]
    window: GroupWindow | None = None
    having: Expr | None = None

    def __post_init__(self) -> None:
        own = {f"g{n}" for n in range(self.keys)} | {f"a{n}" for n in range(len(self.aggregates))}
        own |= set() if self.window is None else {END}
        assert self.aggregates, "a group without an aggregate is counted"
        assert all(ref.alias == GROUP and ref.column in own for expr in self.expressions for ref in expr.columns)
        assert self.having is None or self.window is not None

    @property
    def expressions(self) -> tuple[Expr, ...]:
        """What is computed of groups."""
        return (*(o.expr for o in self.select), *(() if self.having is None else (self.having,)))


Finish = Distinct | Grouping


def result_type(function: Function, argument: str | None) -> str | None:
    """The type that Spark's analyser gives an aggregate, by Spark's names; None if it has none for the argument.

    >>> result_type("sum", "int"), result_type("avg", "decimal(10,2)"), result_type("sum", "boolean")
    ('bigint', 'decimal(14,6)', None)
    """
    if function in ("count", "count_distinct"):
        return "bigint"
    if argument is None:
        return None
    if function in ("min", "max", "first", "last", "min_by", "max_by", "collect_list", "collect_set"):
        kind = f"array<{argument}>" if function.startswith("collect") else argument
        return None if argument.startswith(_UNORDERED) else kind
    decimal = DECIMAL.fullmatch(argument)
    if function.startswith(("stddev", "var")):
        return "double" if decimal or argument in (*INTEGERS, "float", "double") else None
    if decimal:
        digits, scale, more = int(decimal[1]), int(decimal[2]), (10, 0) if function == "sum" else (4, 4)
        return f"decimal({min(digits + more[0], MOST_DIGITS)},{min(scale + more[1], MOST_DIGITS)})"
    if argument in INTEGERS:
        return "bigint" if function == "sum" else "double"
    return "double" if argument in ("float", "double") else None
