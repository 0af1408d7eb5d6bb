"""Outer joins over batches: who has left leaves no trace, and tuples that differ inside a value are told apart."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.operators.outer.done import BITS
from watersmeet.operators.outer.unmatched import KEPT
from watersmeet.testing import QueryTest, table

SPREAD = [{}, {"units": 3, "routing": "random"}]
NESTED = pa.schema({"k": pa.int32(), "s": pa.struct({"x": pa.int32()}), "ts": pa.timestamp("us", "UTC")})


@pytest.mark.parametrize("options", SPREAD, ids=str)
def test_equal_keys_and_times_with_other_values_inside_a_struct_are_other_tuples(options: dict[str, Any]) -> None:
    streams = {name: wm.Stream(NESTED.empty_table(), time="ts") for name in ("s", "t")}
    query = "SELECT a.s.x AS x, b.k AS k FROM s a LEFT JOIN t b ON a.k = b.k AND a.s.x + b.s.x = 3 WITHIN 1 SECOND"
    test = QueryTest(wm.sql(query, streams, **options))
    test.batch(s=[(1, {"x": x}, 0) for x in (1, 2, 5)])
    test.batch(t=[(1, {"x": 2}, 1)]).check((1, 1))
    test.restart().end().check((2, None), (5, None))


@pytest.mark.parametrize("options", SPREAD, ids=str)
@pytest.mark.parametrize("kind", ["LEFT", "FULL", "ANTI", "SEMI"])
def test_what_comes_and_goes_in_one_batch_leaves_nothing_in_state(kind: str, options: dict[str, Any]) -> None:
    streams = {name: wm.Stream(table("k int, ts timestamp"), time="ts") for name in ("s", "t")}
    test = QueryTest(wm.sql(f"SELECT a.k FROM s a {kind} JOIN t b ON a.k = b.k WITHIN 1 SECOND", streams, **options))
    rows = [(k, second) for second in range(10) for k in (1, 2)]
    test.batch(s=[*rows, (3, 100)], t=[(1, second) for second in range(0, 10, 4)] + [(4, 100)])
    held = [kind for state in test._run.units.states.values() for kind, n in state.rows().items() if n]
    assert not any(kind.startswith(BITS) for kind in held)
    assert test.state == {"a": 1, "b": 1}
    assert (KEPT + "a" in held) == bool(options)
