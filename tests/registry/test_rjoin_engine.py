"""RJoin as an engine of subscriptions, in process: what waits where, what is kept, and that codes never decide alone.

That its answers are the oracle's is tested in tests/properties/test_subscriptions.py, crashes in tests/rounds.
"""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import OptionError, QueryError, WatersmeetError
from watersmeet.kernels.registered.rewriting import ALIAS, BIND, BOUND, STREAMS, TEMPLATE, WAIT
from watersmeet.registry.rjoin.flow import id_of
from watersmeet.registry.rjoin.index import collect_rates, count_rates
from watersmeet.registry.rjoin.memory import RingMemory
from watersmeet.registry.versions import _HELD
from watersmeet.storage.manifest import REWRITTEN

LOW = -(2**63)
PAIR = "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS"
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])


def rows(*given: tuple[int, int, float]) -> pa.Table:
    """(id, k, seconds)."""
    columns = [[g[0] for g in given], [g[1] for g in given], [int(g[2] * 1_000_000) for g in given]]
    return pa.table({f.name: pa.array(c, f.type) for f, c in zip(SCHEMA, columns, strict=True)}, schema=SCHEMA)


def registry(streams: str = "rs", **options: Any) -> Any:
    return wm.local.subscriptions({s: SCHEMA.empty_table() for s in streams}, engine="rjoin", **options)


def pairs(answers: pa.Table) -> list[tuple[Any, ...]]:
    return sorted(tuple(json.loads(a).values()) for a in answers.column("answer").to_pylist())


def memories(subs: Any) -> list[RingMemory]:
    return [m for m in _HELD[subs._view.name].values() if isinstance(m, RingMemory)]


def waiting(subs: Any) -> list[tuple[int, str]]:
    """(bound aliases, stream that it waits for) of every row."""
    out = []
    for memory in memories(subs):
        cat, streams = memory.templates.catalogue.arrays, list(memory.templates.index.streams)
        for row in memory.state.rows:
            alias = cat[BIND][row[WAIT], ALIAS]
            out.append((int(row[BOUND]), streams[cat[STREAMS][row[TEMPLATE], alias]]))
    return sorted(out)


@pytest.mark.parametrize("units", [1, 3])
def test_windows_bound_the_rows_that_wait(units: int) -> None:
    subs = registry(units=units)
    subs.add(PAIR)
    counts = []
    for n in range(60):
        subs.push({s: rows(*((n, k, n) for k in range(5))) for s in "rs"})
        counts.append(sum(r.retained[REWRITTEN] for r in subs.reports))
    assert max(counts[20:]) <= 1.2 * max(counts[12:20])
    assert counts[-1] < 5 * 2 * 14, "five keys, some ten seconds"


def test_ten_thousand_constants_are_one_template_and_each_waits_at_its_own_value() -> None:
    subs = registry()
    subs.add_all(
        [f"SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k AND r.k = {k} WINDOW = 10 SECONDS" for k in range(500)]
    )
    found = subs.push({"r": rows((7, 7, 0), (8, 900, 0)), "s": rows((1, 7, 0), (2, 900, 0))})
    assert pairs(found) == [(7, 1)]
    (memory,) = memories(subs)
    assert len(memory.templates.shapes) == 1
    assert len([w for w in waiting(subs) if w[0] == 0]) == 500
    assert len([w for w in waiting(subs) if w[0] != 0]) == 1, "the tuples of key 900 met no query"


def test_a_pose_that_goes_and_comes_back_waits_once() -> None:
    subs = registry()
    first = subs.add(PAIR)
    subs.push({"r": rows((1, 1, 0))})
    subs.remove(first)
    subs.add(PAIR)
    assert pairs(subs.push({"s": rows((2, 1, 1))})) == [], "the tuple of r came before it"
    assert pairs(subs.push({"r": rows((3, 1, 1))})) == [(3, 2)]
    assert [bound for bound, _ in waiting(subs)].count(0) == 1


def test_an_older_query_that_goes_leaves_its_row_to_a_later_one() -> None:
    subs = registry()
    first = subs.add(PAIR)
    subs.push({"r": rows((1, 1, 0))})
    second = subs.add(PAIR)
    subs.push({"r": rows((2, 1, 0))})
    subs.remove(first)
    found = subs.push({"s": rows((3, 1, 1))})
    assert pairs(found) == [(2, 3)]
    assert found.column("query").to_pylist() == [second]


def test_a_query_waits_where_tuples_are_few() -> None:
    subs = registry("rs")
    busy, quiet = rows(*((n, n, 0) for n in range(100))), rows((1, 1, 0))
    subs.add("SELECT a.id FROM r a, s b WHERE a.id = b.id AND a.k > b.k WINDOW = 1 SECOND")
    subs.push({"r": busy, "s": quiet})
    assert (0, "s") in waiting(subs)
    turned = registry("rs")
    turned.add("SELECT a.id FROM r a, s b WHERE a.id = b.id AND a.k > b.k WINDOW = 1 SECOND")
    turned.push({"s": busy, "r": quiet})
    assert (0, "r") in waiting(turned)


def test_rates_fade_and_the_busiest_are_told() -> None:
    first = count_rates(None, np.array([7, 7, 7, 9]))
    assert first is not None
    second = count_rates(first, np.array([9, 9, 9, 9]))
    assert second is not None
    keys, rates = (second.codes(c, "integer").tolist() for c in ("key", "rate"))
    assert keys == [9, 7]
    assert rates[0] > rates[1] > 0
    found, told = collect_rates([second])
    assert found.tolist() == [7, 9]
    assert told.tolist() == rates[::-1]


def test_the_lowest_number_of_64_bits_is_a_value_and_not_null() -> None:
    subs = registry(units=2)
    subs.add(PAIR)
    subs.add("SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k AND r.k = -9223372036854775807 WINDOW = 10 SECONDS")
    found = subs.push({s: rows((1, LOW, 0), (2, LOW + 1, 0)) for s in "rs"})
    assert pairs(found) == [(1, 1), (2, 2), (2, 2)]


def test_late_rows_are_counted_where_all_tuples_of_a_stream_go() -> None:
    subs = registry(units=3)
    subs.add(PAIR)
    subs.push({"r": rows((1, 1, 100)), "s": rows((1, 1, 100))})
    subs.push({"r": rows((2, 1, 1), (3, 2, 2)), "s": rows((2, 1, 101))})
    assert subs.late == {"r": 2}


def test_what_is_wrong_is_said_before_anything_runs() -> None:
    with pytest.raises(OptionError, match="'shared', 'rjoin'"):
        wm.local.subscriptions({"r": SCHEMA.empty_table()}, engine="chord")
    wide = pa.schema([*((f"c{n}", pa.int64()) for n in range(70)), ("ts", pa.timestamp("us"))]).empty_table()
    subs = wm.local.subscriptions({"r": wide, "s": wide}, engine="rjoin")
    equal = " AND ".join(f"r.c{n} = s.c{n}" for n in range(70))
    with pytest.raises(QueryError, match="62 at most"):
        subs.add(f"SELECT r.c0 FROM r, s WHERE {equal} WINDOW = 1 SECOND")
    assert subs.list() == []
    with pytest.raises(WatersmeetError, match="maxOffsetsPerTrigger"):
        id_of(0, 0, 2**26)
