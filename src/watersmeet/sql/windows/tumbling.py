"""Tumbling windows: all members of a result lie in the same of the windows [0, w), [w, 2w), ... of event time.

    TUMBLING = 10 SECONDS       WINDOW = 10 SECONDS, and of every alias but the first: floor(x.ts / 10 s) = floor(first.ts / 10 s)

The window graph says how long tuples are kept, and that buckets of DISTINCT are these windows; the conditions decide. They are conditions and no equalities: as a key,
the number of a window would send all tuples of the moment to one unit.

Implements: Idreos, Liarou, Koubarakis (2008), section 5: tumbling windows by time.
Departs from the paper: windows begin at the epoch, as those of Spark's window(), and not where a rewritten query began; so an answer does not depend on which tuple came first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from watersmeet.errors import UnsupportedError
from watersmeet.query.expr import ColumnRef, Expr
from watersmeet.query.predicate import Condition
from watersmeet.sql.names import Scope
from watersmeet.sql.windows.items import WindowItem

_SPARK = {
    "timestamp": "unix_micros({0})",
    "timestamp_ntz": "timestampdiff(MICROSECOND, TIMESTAMP_NTZ '1970-01-01 00:00:00', {0})",
}
_DUCKDB = "epoch_us({0})"


def read_tumbling(items: Sequence[WindowItem], scope: Scope, *, is_outer: bool) -> Iterator[Condition]:
    """The conditions of tumbling windows."""
    for item in items:
        if item.kind != "tumbling":
            continue
        if is_outer:
            raise UnsupportedError(
                f"{item.text} in a query with outer, semi, anti or as-of joins is not supported: TUMBLING goes with inner joins; bound it by WINDOW"
            )
        first, *others = scope.streams
        yield from (Condition(_same_window(first, other, item.us, scope)) for other in others)


def _same_window(x: str, y: str, us: int, scope: Scope) -> Expr:
    """Whether tuples of two aliases lie in the same window."""
    refs = tuple(ColumnRef(alias, scope.specs[alias].time) for alias in (x, y))
    spark = " = ".join(
        _begin(_SPARK[scope.type_of(ref)].format(f"{{{n}}}"), "pmod({0}, {1}L)", us) for n, ref in enumerate(refs)
    )
    width = f"CAST({us} AS BIGINT)"
    rest = f"(({{0}} % {width}) + {width}) % {width}"
    duckdb = " = ".join(_begin(_DUCKDB.format(f"{{{n}}}"), rest, us) for n in range(2))
    return Expr(f"TUMBLING ({x}, {y}) = {us / 1_000_000:g} s", spark, duckdb, refs, portable=True)


def _begin(time: str, rest: str, us: int) -> str:
    """Where the window of a time begins, in microseconds."""
    return f"({time} - {rest.format(time, us)})"
