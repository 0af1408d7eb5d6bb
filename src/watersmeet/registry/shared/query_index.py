"""Queries of a block by what they ask for: constants, lists and ranges, as arrays that kernels search.

    class     template, columns of constants and of a list, column of a range and its direction
    entry     a query under one value of its list; in the order of (class, values, lower end of the range)

    o.user = 7 AND o.total > 500        class (t, o.user, o.total up)      entry (7; 500 and more)
    o.kind IN ('a', 'b') AND o.qty < 3  class (t, o.kind, o.qty down)      entries ('a'; below 3) ('b'; below 3)

A range of which only the upper end is given is searched downwards: codes are negated (~), so that it has a lower end. Of several ranges one that
has both ends is searched, else the first; all of them are tested.

Invariant: every query has one class. An entry that a combination finds is a candidate; `kernels.registered.fan_out.admit` compares values and all ranges
themselves, so a hash that collides finds nothing wrong.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from watersmeet.kernels import hash_window
from watersmeet.kernels.hashing import combine
from watersmeet.kernels.registered.ranges import build_tree
from watersmeet.plan.types import Kind
from watersmeet.registry.ranges import LEAST, MOST
from watersmeet.registry.shared.gates import code_of
from watersmeet.registry.shared.probe_trie import TrieBuilder
from watersmeet.registry.subscription import Range, Subscription
from watersmeet.registry.template import Template

Wanted = tuple[tuple[int, str, Kind], ...]
"""Alias, column and kind of what is asked for by value."""
_NO_RANGE, _UP, _DOWN = 0, 1, 2


class QueryClass(NamedTuple):
    """What the entries of a class have in common; sorted, those of one template and its constants lie together."""

    template: int
    constants: Wanted
    listed: Wanted
    range_of: Wanted
    direction: int


class QueryIndex:
    """The classes and entries of some queries."""

    def __init__(self, queries: Sequence[Subscription], template_of: Sequence[int], builder: TrieBuilder) -> None:
        found = [_class_of(query, template) for query, template in zip(queries, template_of, strict=True)]
        self.classes = sorted(set(found))
        self._number = {c: n for n, c in enumerate(self.classes)}
        self._builder = builder
        count = len(builder.templates)
        self.start = np.searchsorted([c.template for c in self.classes], np.arange(count + 1))
        """By template where its classes begin."""
        self._lay_columns()
        self._lay_entries(queries, found)
        self._lay_ranges(queries)

    def classes_of(self) -> dict[tuple[Template, Wanted], tuple[int, int]]:
        """By template and the columns of constants: the first of their classes, and how many there are."""
        out: dict[tuple[Template, Wanted], tuple[int, int]] = {}
        for number, one in enumerate(self.classes):
            key = self._builder.templates[one.template], one.constants
            first, count = out.get(key, (number, 0))
            out[key] = first, count + 1
        return out

    @property
    def columns(self) -> set[int]:
        """The coded columns that are compared."""
        return {int(n) for n in (*self.column.flat, *self.range_column, *self.test_column) if n >= 0}

    def _column(self, template: int, place: tuple[int, str, Kind]) -> int:
        x, column, kind = place
        return self._builder.column(self._builder.templates[template].streams[x], column, kind)

    def _lay_columns(self) -> None:
        """By class: alias and column of every value, and of the range."""
        depth = max((len(c.constants) + len(c.listed) for c in self.classes), default=0)
        self.alias, self.column = (np.full((max(len(self.classes), 1), depth), -1, np.int64) for _ in range(2))
        self.range_alias, self.range_column = (np.full(max(len(self.classes), 1), -1, np.int64) for _ in range(2))
        self.is_down = np.array([c.direction == _DOWN for c in self.classes] or [False], np.bool_)
        for number, one in enumerate(self.classes):
            for n, place in enumerate((*one.constants, *one.listed)):
                self.alias[number, n], self.column[number, n] = place[0], self._column(one.template, place)
            for place in one.range_of:
                self.range_alias[number], self.range_column[number] = place[0], self._column(one.template, place)

    def _lay_entries(self, queries: Sequence[Subscription], found: Sequence[QueryClass]) -> None:
        """By entry: its query, its values, its range; and the index of all."""
        rows: list[list[int]] = []
        self.query, class_of = list[int](), list[int]()
        ends: list[tuple[int, int]] = []
        depth, known = self.alias.shape[1], dict[str, int]()

        def code(value: int | str) -> int:
            if isinstance(value, str) and value not in known:
                known[value] = code_of(value)
            return known[value] if isinstance(value, str) else value

        for number, (query, of) in enumerate(zip(queries, found, strict=True)):
            fixed = [code(value) for *_, value in query.constants]
            span = _span(query, of)
            for values in [[v] for v in query.lists[0][3]] if of.listed else [[]]:
                row = [*fixed, *map(code, values)]
                rows.append(row + [0] * (depth - len(row)))
                self.query.append(number)
                class_of.append(self._number[of])
                ends.append(span)
        self.query_of = np.array(self.query, np.int64)
        self.values = np.array(rows, np.int64).reshape(len(rows), depth)
        lower, upper = np.array(ends, np.int64).reshape(-1, 2).T.copy()
        keys = np.array(class_of, np.int64)
        for n in range(depth):
            used = self.alias[class_of, n] >= 0
            keys[used] = combine(keys[used], np.ascontiguousarray(self.values[used, n]))
        self.hashed = hash_window.build(keys, lower)
        self.tree = build_tree(np.ascontiguousarray(upper[self.hashed.rows]))

    def _lay_ranges(self, queries: Sequence[Subscription]) -> None:
        """By query: all its ranges."""
        counts = [len(q.ranges) for q in queries]
        self.test_start = np.concatenate([[0], np.cumsum(counts, dtype=np.int64)]).astype(np.int64)
        flat = [(query.template, one) for query in queries for one in query.ranges]
        streams = [(template.streams[one[0]], one) for template, one in flat]
        self.test_alias = np.array([one[0] for _, one in streams], np.int64)
        self.test_column = np.array([self._builder.column(s, one[1], one[2]) for s, one in streams], np.int64)
        self.test_low = np.array([one[3] for _, one in streams], np.int64)
        self.test_high = np.array([one[4] for _, one in streams], np.int64)


def _class_of(query: Subscription, template: int) -> QueryClass:
    constants = tuple((x, column, kind) for x, column, kind, _ in query.constants)
    listed = tuple((x, column, kind) for x, column, kind, _ in query.lists[:1])
    chosen = _choose(query.ranges)
    if chosen is None:
        return QueryClass(template, constants, listed, (), _NO_RANGE)
    return QueryClass(template, constants, listed, (chosen[:3],), _DOWN if chosen[3] == LEAST else _UP)


def _choose(ranges: Sequence[Range]) -> Range | None:
    """The range to search by: one that has both ends, if there is one."""
    both = [r for r in ranges if r[3] != LEAST and r[4] != MOST]
    return next(iter((*both, *ranges)), None)


def _span(query: Subscription, of: QueryClass) -> tuple[int, int]:
    """Lower and upper end of a query's entries, in the direction of its class."""
    if of.direction == _NO_RANGE:
        return 0, 0
    low, high = next(r[3:] for r in query.ranges if r[:3] == of.range_of[0])
    return (~high, MOST) if of.direction == _DOWN else (low, high)
