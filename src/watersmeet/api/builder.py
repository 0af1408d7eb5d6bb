"""The fluent form of a query: `wm.join(a=..., b=...).on("a.k = b.k").window("a", "b", "10s")`.

Invariant: a builder is a value. Every method gives a new one and leaves the old one as it was; nothing runs before `explain`,
`dataframe` or `start`, which bind it to its streams.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NoReturn, Unpack

from watersmeet.api.options import Choices
from watersmeet.api.query import Query
from watersmeet.plan.build import Options
from watersmeet.plan.explain import Detail
from watersmeet.plan.options import changed, suggestion
from watersmeet.query.stream import Stream
from watersmeet.sql.fluent import Builder, Span

if TYPE_CHECKING:
    from watersmeet.runtime.rounds.handle import Handle


class JoinBuilder:
    """A join in the making; `wm.join` gives the first one.

    >>> import pyarrow as pa
    >>> import watersmeet as wm
    >>> clicks = wm.Stream(pa.table({"user": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    >>> wm.join(a=clicks, b=clicks).on("a.user = b.user").window("a", "b", "10s")
    JoinBuilder: SELECT * FROM a AS a, b AS b WHERE (a.user = b.user) AND WINDOW (a, b) = 10s
    """

    def __init__(self, builder: Builder, streams: Mapping[str, Stream], options: Options) -> None:
        self._builder, self._streams, self._options = builder, dict(streams), options

    def on(self, *conditions: str) -> JoinBuilder:
        """Add conditions, as they would stand in ON; all must hold: `.on("a.k = b.k", "a.v < b.v")`."""
        return self._with(self._builder.on(*conditions))

    def where(self, *conditions: str) -> JoinBuilder:
        """The same as `on`: `.where("a.v > 10")`. For inner joins there is no difference."""
        return self._with(self._builder.where(*conditions))

    def window(self, *args: Span) -> JoinBuilder:
        """How far apart tuples may be: `.window("10s")` for every pair, `.window("a", "b", "10s")` for one."""
        return self._with(self._builder.window(*args))

    def within(self, span: Span) -> JoinBuilder:
        """The same as `window(span)`: `.within("10 minutes")`."""
        return self._with(self._builder.within(span))

    def dwindow(self, first: str, then: str, span: Span) -> JoinBuilder:
        """One after the other: `.dwindow("order", "refund", "2 hours")` is 0 <= refund.ts - order.ts <= 2 hours."""
        return self._with(self._builder.dwindow(first, then, span))

    def path(self, *args: Span | Sequence[Span]) -> JoinBuilder:
        """Streams visited one after the other, there or back: `.path("a", "b", "c", "10s")`, or a span for each hop, `("10s", "20s")`."""
        return self._with(self._builder.path(*args))

    def range(self, alias: str, span: Span) -> JoinBuilder:
        """Tuples of the alias join tuples up to a span younger: `.range("a", "10s")` is `a [RANGE 10s]`."""
        return self._with(self._builder.range(alias, span))

    def rows(self, alias: str, n: int) -> JoinBuilder:
        """Only the alias's last n tuples count: `.rows("a", 5)` is `a [ROWS 5]`."""
        return self._with(self._builder.rows(alias, n))

    def select(self, *projections: str) -> JoinBuilder:
        """Columns and expressions of the result, all columns without it: `.select("a.k", "b.v + 1 AS n")`."""
        return self._with(self._builder.select(*projections))

    def distinct(self) -> JoinBuilder:
        """SELECT DISTINCT: equal rows leave once per horizon of event time."""
        return self._with(self._builder.distinct())

    def group_by(self, *keys: str) -> JoinBuilder:
        """GROUP BY: `.group_by("a.k").select("a.k", "count(*) AS n")`."""
        return self._with(self._builder.group_by(*keys))

    def cross(self, *aliases: str) -> JoinBuilder:
        """These aliases need no condition: `.cross("b")` is `CROSS JOIN b`."""
        return self._with(self._builder.cross(*aliases))

    def options(self, **choices: Unpack[Choices]) -> JoinBuilder:
        """Force choices, such as `.options(units=16, kernel="hw")`; those set before stay."""
        return JoinBuilder(self._builder, self._streams, changed(self._options, choices))

    def query(self) -> Query:
        """The query, bound to its streams; what is wrong with it is raised here."""
        return Query(self._builder.bind, self._streams, self._options)

    def explain(self, detail: Detail = "short") -> str:
        """See `Query.explain`."""
        return self.query().explain(detail)

    def dataframe(self) -> Any:
        """See `Query.dataframe`."""
        return self.query().dataframe()

    def start(self, **how: Any) -> Handle:
        """See `Query.start`."""
        return self.query().start(**how)

    def __repr__(self) -> str:
        return f"JoinBuilder: {self._builder.text}"

    def _with(self, builder: Builder) -> JoinBuilder:
        return JoinBuilder(builder, self._streams, self._options)

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            known = [method for method in dir(type(self)) if not method.startswith("_")]
            meant = suggestion(name, known) or f"; it has {', '.join(known)}"
            raise AttributeError(f"a join has no method {name!r}{meant}", name=name, obj=self)
