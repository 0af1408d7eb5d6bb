"""The fluent form of a query: `wm.join(a=..., b=...).on("a.k = b.k").window("a", "b", "10s")`.

Invariant: a builder is a value. Every method gives a new one and leaves the old one as it was; nothing runs before `explain`,
`dataframe` or `start`, which bind it to its streams.
"""

from __future__ import annotations

from collections.abc import Mapping
from copy import copy
from typing import TYPE_CHECKING, NoReturn, Unpack

from watersmeet.api.query import Query, Runnable
from watersmeet.plan.options import Choices, Options, change, suggest
from watersmeet.query.stream import Stream
from watersmeet.query.table import Table
from watersmeet.sql.fluent import Fluent, Form


class JoinBuilder(Fluent, Runnable):
    """A join in the making; `wm.join` gives the first one.

    >>> import pyarrow as pa
    >>> import watersmeet as wm
    >>> clicks = wm.Stream(pa.table({"user": [1], "ts": pa.array([0], pa.timestamp("us"))}), time="ts")
    >>> wm.join(a=clicks, b=clicks).on("a.user = b.user").window("a", "b", "10s")
    JoinBuilder: SELECT * FROM a AS a, b AS b WHERE (a.user = b.user) AND WINDOW (a, b) = 10s
    """

    def __init__(self, streams: Mapping[str, Stream | Table], options: Options) -> None:
        super().__init__(Form(tuple((alias, alias) for alias in streams)))
        self._streams, self._options = dict(streams), options

    def options(self, **choices: Unpack[Choices]) -> JoinBuilder:
        """Force choices, such as `.options(units=16, kernel="hw")`; those set before stay."""
        made = copy(self)
        made._options = change(self._options, choices)
        return made

    def query(self) -> Query:
        """The query, bound to its streams; what is wrong with it is raised here."""
        return Query(self._form.bind, self._streams, self._options)

    def _bind(self) -> Query:
        return self.query()

    def __repr__(self) -> str:
        return f"JoinBuilder: {self._form.text}"

    if not TYPE_CHECKING:

        def __getattr__(self, name: str) -> NoReturn:
            known = [method for method in dir(type(self)) if not method.startswith("_")]
            meant = suggest(name, known) or f"; it has {', '.join(known)}"
            raise AttributeError(f"a join has no method {name!r}{meant}", name=name, obj=self)
