"""Binding keeps the meaning: the bound query has the oracle's closed windows, its rows windows and its aliases."""

from __future__ import annotations

import math
from itertools import permutations

import pytest
from hypothesis import given

from tests import oracle
from tests.cases import Case
from tests.strategies import cases
from watersmeet.errors import WindowError
from watersmeet.query.join import Join
from watersmeet.query.stream import StreamSpec
from watersmeet.query.window import UNBOUNDED
from watersmeet.sql.parse import parse

SCHEMA = {
    "id": "bigint",
    "k": "bigint",
    "n": "bigint",
    "f": "double",
    "v": "double",
    "name": "string",
    "ts": "timestamp",
}


def bound(case: Case) -> Join:
    return parse(case.sql(), {stream: StreamSpec(stream, SCHEMA, "ts") for stream, _ in case.data})


@given(cases(satisfiable=False))
def test_windows_are_closed_as_the_oracle_closes_them(case):
    try:
        want = oracle.widest(case.query())
    except oracle.Unsatisfiable:
        with pytest.raises(WindowError):
            bound(case)
        return
    graph = bound(case).windows
    for x, y in permutations(case.names, 2):
        assert graph.hi(x, y) == (UNBOUNDED if want[x, y] == math.inf else want[x, y]), case.sql()


@given(cases(rows=True))
def test_nothing_is_lost(case):
    query = bound(case)
    assert [(i.alias, i.stream) for i in query.inputs] == list(case.aliases)
    assert {i.alias: i.rows for i in query.inputs if i.rows is not None} == dict(case.rows)
    assert [output.name for output in query.select] == [f"c{i}" for i in range(len(case.select))]
    assert [output.expr.aliases for output in query.select] == [expression.aliases for expression in case.select]
    for part in (*query.filters, *query.predicates):
        assert any(part.aliases <= p.aliases for p in case.predicates), part
    assert len(query.filters) + len(query.predicates) >= len(set(map(str, case.predicates)))
