"""The logical query: one n-ary join node.

Invariant: a `Join` that exists is well formed: every alias is joined to another or spelled CROSS JOIN, every reference
names an alias, the window graph covers exactly the aliases. A bad query cannot be constructed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from watersmeet.errors import QueryError, UnknownNameError
from watersmeet.query.expr import Expr
from watersmeet.query.predicate import Band, Comparison, Condition, Equality, Predicate
from watersmeet.query.select import Distinct, Finish, Grouping, Output
from watersmeet.query.session import IN_UTC, Session
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import WindowGraph


@dataclass(frozen=True)
class Input:
    """One alias in FROM; `rows` is n of [ROWS n]."""

    alias: str
    stream: str
    rows: int | None = None


@dataclass(frozen=True)
class Join:
    """A select-project-join over n streams, and what is done with its rows in the end.

    `filters` holds the conditions on one alias; a condition on none stands with the first alias. `crossed` names the
    aliases that the user spelled CROSS JOIN; `timed` the pairs that an explicit condition on event time relates.
    `finish` is DISTINCT or GROUP BY, see `query.select`; None lets every row out. `session` is where the query was bound;
    `widened` the conditions that count time on its clock, with how many microseconds their windows are wider than they say.
    """

    text: str
    inputs: tuple[Input, ...]
    streams: Mapping[str, StreamSpec] = field(hash=False)
    filters: tuple[Expr, ...]
    predicates: tuple[Predicate, ...]
    windows: WindowGraph
    select: tuple[Output, ...]
    crossed: frozenset[str] = frozenset()
    timed: frozenset[frozenset[str]] = frozenset()
    finish: Finish | None = None
    session: Session = IN_UTC
    widened: tuple[tuple[str, int], ...] = ()

    def __post_init__(self) -> None:
        assert self.windows.aliases == self.aliases
        if len(self.inputs) < 2:
            raise QueryError(f"the query reads only {self.aliases[0]!r}: a join needs two or more streams in FROM")
        if isinstance(self.finish, Grouping):
            used = [a.argument for a in self.finish.aggregates if a.argument is not None]
            assert self.finish.keys <= len(self.select) > max(used, default=-1)
        known = set(self.aliases)
        for expr in (*self.filters, *(o.expr for o in self.select)):
            unknown = expr.aliases - known
            if unknown:
                raise UnknownNameError(f"{expr}: no alias {', '.join(sorted(unknown))} in FROM")
        lonely = self._unconnected()
        if lonely:
            raise QueryError(
                f"alias {lonely[0]!r} is joined to nothing: add a condition that relates it to {self.aliases[0]!r}, or spell the cross product CROSS JOIN {lonely[0]}"
            )

    def _unconnected(self) -> list[str]:
        """Aliases that neither a condition nor a CROSS JOIN links to the first."""
        groups = [p.aliases for p in self.predicates] + list(self.timed)
        reached, grew = {self.aliases[0]} | self.crossed, True
        if self.crossed:
            reached |= {self.aliases[0]}
        while grew:
            grew = False
            for group in groups:
                if group & reached and not group <= reached:
                    reached |= group
                    grew = True
        return [alias for alias in self.aliases if alias not in reached]

    @property
    def aliases(self) -> tuple[str, ...]:
        return tuple(i.alias for i in self.inputs)

    @property
    def results(self) -> tuple[Output, ...]:
        """The columns of the query's results."""
        return self.finish.select if isinstance(self.finish, Grouping) else self.select

    @property
    def distinct(self) -> bool:
        return isinstance(self.finish, Distinct)

    @property
    def grouping(self) -> Grouping | None:
        return self.finish if isinstance(self.finish, Grouping) else None

    def spec(self, alias: str) -> StreamSpec:
        """The stream behind an alias."""
        return self.streams[next(i.stream for i in self.inputs if i.alias == alias)]

    def filters_of(self, alias: str) -> tuple[Expr, ...]:
        first = self.aliases[0]
        return tuple(f for f in self.filters if f.aliases == {alias} or (not f.aliases and alias == first))

    @property
    def equalities(self) -> tuple[Equality, ...]:
        return tuple(p for p in self.predicates if isinstance(p, Equality))

    @property
    def comparisons(self) -> tuple[Comparison, ...]:
        return tuple(p for p in self.predicates if isinstance(p, Comparison))

    @property
    def bands(self) -> tuple[Band, ...]:
        return tuple(p for p in self.predicates if isinstance(p, Band))

    @property
    def conditions(self) -> tuple[Condition, ...]:
        return tuple(p for p in self.predicates if isinstance(p, Condition))
