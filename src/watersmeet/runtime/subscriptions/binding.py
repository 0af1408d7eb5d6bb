"""Texts of queries to subscriptions: parsed, held to the list of functions, and shared if they can be.

Invariant: what is wrong with a query is raised here, in the driver. What is returned can be answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import pyarrow as pa

from watersmeet.columns.spark_types import arrow_type
from watersmeet.query.join import Join
from watersmeet.query.session import Session
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import UNBOUNDED
from watersmeet.registry.bind import (
    name_apart,
    refuse_nested,
    refuse_same_names,
    refuse_unlisted_in,
    subscription,
    why_not_shared,
)
from watersmeet.registry.subscription import AnswerColumn, Computed, Subscription
from watersmeet.registry.template import Template
from watersmeet.runtime.arrow_types import DuckDBTypes
from watersmeet.runtime.subscriptions.own_plan import check_query, empty_rows
from watersmeet.sql.forms import FormReader, cut_form

_MOST_FORMS = 2_000


def types_of(join: Join) -> DuckDBTypes:
    """The types of a query's expressions, as they are known without data; a nested type counts as NULL."""
    return DuckDBTypes({alias: _schema_of(join.spec(alias)) for alias in join.aliases})


def _schema_of(spec: StreamSpec) -> pa.Schema:
    return pa.schema([(c, arrow_type(t) or pa.null()) for c, t in spec.schema.items()])


class Binder:
    """Binds queries over the same streams; what differs in constants alone is parsed, and planned, once."""

    def __init__(
        self, specs: Mapping[str, StreamSpec], session: Session, why_apart: Callable[[Join], str] = why_not_shared
    ) -> None:
        """why_apart: why a query is a dataflow of its own, '' if it is not."""
        self._why_apart = why_apart
        self._reader = FormReader(specs, session, lone=True)
        self._schemas = {name: _schema_of(spec) for name, spec in specs.items()}
        self._plain = {name: empty_rows(spec).schema for name, spec in specs.items()}
        """The same without columns of nested types."""
        self._columns: dict[str, tuple[AnswerColumn, ...]] = {}

    def bind(self, sql: str) -> Subscription:
        """A query, or an error with the reason why it cannot be one."""
        cut = cut_form(sql)
        join = name_apart(self._reader.read_cut(sql, cut))
        refuse_same_names(join)
        types = DuckDBTypes({i.alias: self._schemas[i.stream] for i in join.inputs})
        if not self._why_apart(join):
            return subscription(join, types)
        refuse_unlisted_in(join, types)
        refuse_nested(join)
        order = sorted(join.aliases, key=lambda a: (join.spec(a).name, join.aliases.index(a)))
        conditions = (*join.filters, *(p.condition for p in join.predicates), *join.after)
        return Subscription(
            Template(tuple(join.spec(a).name for a in order), (), _find_bounds(join, order)),
            (),
            tuple(Computed(str(c), ()) for c in conditions),
            self._find_columns(None if cut is None else cut[0], join),
            join.distinct,
            own=sql,
        )

    def _find_columns(self, form: str | None, join: Join) -> tuple[AnswerColumn, ...]:
        """The columns of answers; a query of another form has been checked, and can be planned."""
        known = None if form is None else self._columns.get(form)
        if known is None:
            known = tuple(
                AnswerColumn(name, kind, Computed("{0}", ())) for name, kind in check_query(join, self._plain)
            )
            if form is not None and len(self._columns) < _MOST_FORMS:
                self._columns[form] = known
        return known


def _find_bounds(join: Join, order: Sequence[str]) -> tuple[tuple[int, ...], ...]:
    """How far apart in time the tuples of two aliases may be; where numbers of tuples say how long these are kept, no time does."""
    counted = {i.alias for i in join.inputs if i.rows is not None}

    def find(x: str, y: str) -> int:
        hi = join.windows.hi(x, y)
        return 0 if hi >= UNBOUNDED and counted else hi

    return tuple(tuple(find(x, y) for y in order) for x in order)
