"""DISTINCT inside RJoin's join: rows that lead to nothing new are dropped, and no answer is lost, whatever the windows, batches, units and restarts."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import SCHEMA, SECOND, Case, Col
from tests.properties.test_subscriptions import Plan, expected, table
from tests.strategies import data, distinct_cases
from watersmeet.kernels.instants import LAST
from watersmeet.kernels.registered.covering import find_covered
from watersmeet.registry.rjoin.covering import Covering
from watersmeet.registry.rjoin.memory import RingMemory
from watersmeet.registry.versions import _HELD
from watersmeet.storage.manifest import REWRITTEN

STREAMS = ("s0", "s1", "s2", "s3")
EMPTY = pa.schema(
    [("id", pa.int64()), ("k", pa.int64()), ("name", pa.string()), ("ts", pa.timestamp("us", tz="UTC"))]
).empty_table()


def rows(*given: tuple[int, int, str | None, float]) -> pa.Table:
    """(id, k, name, seconds)."""
    columns = [*zip(*given, strict=True)]
    columns[3] = [int(s * SECOND) for s in columns[3]]
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, EMPTY.schema, strict=True)], schema=EMPTY.schema)


def registry(streams: str = "rst", engine: str = "rjoin", **options: Any) -> Any:
    empty = wm.Stream(EMPTY, time="ts", lateness="1 hour")
    return wm.local.subscriptions(dict.fromkeys(streams, empty), engine=engine, **options)


def begin(subs: Any) -> Any:
    """Queries that take effect with these tuples wait for r, of which there are none yet."""
    subs.push({"s": rows(*((n, 99, "n", 0) for n in range(50)))})
    return subs


def waiting(subs: Any) -> int:
    """Rewritten queries that wait."""
    return sum(int(np.count_nonzero(m.state.rows[:, 1])) for m in memories(subs))


def memories(subs: Any) -> list[RingMemory]:
    return [m for m in _HELD[subs._view.name].values() if isinstance(m, RingMemory)]


def restart(subs: Any) -> None:
    """What processes hold in memory is gone; what is stored is not."""
    _HELD[subs._view.name].clear()


# -------------------------------------------------------------------- against the oracle


@st.composite
def distinct_plans(draw: Any) -> tuple[Plan, frozenset[int]]:
    """Queries with DISTINCT over few values, and the batches after which all processes start anew."""
    found = draw(st.lists(distinct_cases(equality=True), min_size=1, max_size=3))
    if draw(st.booleans()):  # the same template, with another SELECT
        found += [replace(found[0], select=(Col(found[0].names[0], "id"),))]
    spans = st.sampled_from((8 * SECOND, SECOND))
    streams = tuple((s, replace(draw(data(10)), lateness_us=draw(spans))) for s in STREAMS)
    queries = tuple((case, draw(st.sampled_from((0, 0, 0, 1))), 9) for case in found)
    plan = Plan(queries, streams, draw(st.sampled_from((3, 5, 25, 2))), draw(st.sampled_from((1, 1, 3))), "rjoin")
    return plan, draw(st.frozensets(st.integers(0, 5)))


def answer(plan: Plan, restarts: frozenset[int]) -> dict[int, list[tuple[int, tuple[Any, ...]]]]:
    """(batch, values) by query."""
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts", lateness=f"{d.lateness_us} us") for n, d in plan.data}
    subs = wm.local.subscriptions(streams, units=plan.units, engine=plan.engine)
    found: dict[int, list[tuple[int, tuple[Any, ...]]]] = {n: [] for n in range(len(plan.queries))}
    for batch in range(plan.batches):
        for n, (case, added, _) in enumerate(plan.queries):
            if batch == added:
                subs.add(case.sql(), id=f"q{n}")
        out = subs.push({s: table(plan.batch(s, batch)) for s in STREAMS})
        for id, values in zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True):
            found[int(id[1:])].append((batch, tuple(json.loads(values).values())))
        if batch in restarts:
            restart(subs)
    return found


def is_rewritten(case: Case) -> bool:
    try:
        registry_of = {s: SCHEMA.empty_table() for s in STREAMS}
        wm.local.subscriptions(registry_of, engine="rjoin").add(case.sql())
    except wm.WatersmeetError:
        return False
    return True


@given(drawn=distinct_plans())
def test_dropping_changes_no_answer(drawn: tuple[Plan, frozenset[int]]) -> None:
    plan, restarts = drawn
    plan = replace(plan, queries=tuple(q for q in plan.queries if is_rewritten(q[0])))
    found = answer(plan, restarts)
    for n, (case, added, removed) in enumerate(plan.queries):
        if added < plan.batches:
            assert Counter(found[n]) == Counter(expected(plan, case, added, removed)), case.sql()


TEXTS = [
    "SELECT DISTINCT r.name AS a, t.k AS b FROM r, s, t WHERE r.k = s.k AND s.id = t.id",
    "SELECT DISTINCT s.k AS b FROM r, s, t WHERE r.k = s.k AND s.k = t.k AND r.name <> 'z'",
    "SELECT DISTINCT r.name AS a, s.name AS b FROM r, s WHERE r.k = s.k AND (r.name IS NULL OR s.id > 0)",
]
WINDOWS = ["", "WINDOW = 6 SECONDS", "WINDOW = 1 SECOND", "AND r.ts = s.ts", "PATHS"]


@given(
    texts=st.sets(st.sampled_from(TEXTS), min_size=1),
    window=st.sampled_from(WINDOWS),
    given_rows=st.lists(
        st.tuples(
            st.sampled_from("rst"), st.integers(0, 1), st.integers(0, 1), st.sampled_from(["x", "y", "z", None]),
            st.integers(0, 40).map(lambda n: n / 2), st.integers(0, 3),
        ),
        max_size=60,
    ),
    units=st.sampled_from((1, 3)),
    restarts=st.frozensets(st.integers(0, 3)),
    late=st.booleans(),
)  # fmt: skip
def test_rows_and_buckets_are_those_of_the_shared_plan(
    texts: set[str], window: str, given_rows: list[Any], units: int, restarts: frozenset[int], late: bool
) -> None:
    """Many rows alike: few values, few instants."""
    subs = [registry(engine=e, units=u) for e, u in (("shared", 1), ("rjoin", units))]
    for batch in range(4):
        outcomes = []
        for one in subs:
            for n, text in enumerate(sorted(texts)):
                if batch == (n if late else 0):
                    path = "DWINDOW (r, s) = 3 SECONDS" if " t " not in text else "DWINDOW (r, s) = 3 SECONDS DWINDOW (s, t) = 4 SECONDS"  # fmt: skip
                    one.add(f"{text} {window.replace('PATHS', path)}", id=f"q{n}")
            mine = {s: [g[1:5] for g in given_rows if g[0] == s and g[5] == batch] for s in "rst"}
            out = one.push({s: rows(*m) for s, m in mine.items() if m})
            outcomes.append(sorted(zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True)))
            if batch in restarts:
                restart(one)
        assert outcomes[0] == outcomes[1]


# -------------------------------------------------------------------- what is dropped


def test_without_a_window_a_projection_waits_once() -> None:
    subs = registry("rs")
    subs.add("SELECT DISTINCT r.name AS a, s.name AS b FROM r, s WHERE r.k = s.k", id="q")
    begin(subs)
    for n in range(4):
        subs.push({"r": rows(*((7 * n + i, 1, "xy"[i % 2], n + i / 10) for i in range(7)))})
    assert waiting(subs) == 2, "x and y, for ever"
    out = subs.push({"s": rows((1, 1, "b", 9), (2, 1, "b", 9.5))})
    assert sorted(out["answer"].to_pylist()) == ['{"a":"x","b":"b"}', '{"a":"y","b":"b"}']
    assert [r.retained[REWRITTEN] for r in subs.reports] == [3], "and the query itself"
    assert subs.push({"r": rows((1, 1, "x", 99))}).num_rows == 0


def test_columns_that_are_tested_tell_rows_apart() -> None:
    subs = registry("rs")
    subs.add("SELECT DISTINCT r.name AS a FROM r, s WHERE r.k = s.k AND r.id < s.id", id="q")
    begin(subs)
    subs.push({"r": rows((5, 1, "x", 0), (3, 1, "x", 0), (3, 1, "x", 1))})
    assert waiting(subs) == 2, "5 and 3; the last is 3 again"
    assert subs.push({"s": rows((4, 1, "b", 1))}).num_rows == 1


def test_of_interval_after_interval_the_ends_are_kept() -> None:
    subs = registry("rs")
    subs.add("SELECT DISTINCT r.name AS a FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS", id="q")
    begin(subs)
    subs.push({"r": rows(*((n, 1, "x", 10 + n / 10) for n in range(100)))})
    assert waiting(subs) == 2, "the first and the last of the bucket"
    subs.push({"r": rows(*((n, 1, "x", 20 + n / 10) for n in range(100)))})
    assert waiting(subs) == 4, "of the next bucket two"
    assert subs.push({"s": rows((1, 1, "b", 0.5))}).num_rows == 1, "10.0 is the only one that reaches so far back"
    assert subs.push({"s": rows((1, 1, "b", 39))}).num_rows == 1


def test_a_query_without_distinct_or_one_that_comes_later_needs_the_rows() -> None:
    text = "SELECT DISTINCT r.name AS a FROM r, s WHERE r.k = s.k"
    subs = registry("rs")
    subs.add(text, id="q")
    subs.add(text.replace("DISTINCT ", ""), id="all")
    begin(subs)
    subs.push({"r": rows((1, 1, "x", 0), (2, 1, "x", 1))})
    assert waiting(subs) == 2
    subs.remove("all")
    subs.push({"r": rows((3, 1, "x", 2))})
    assert waiting(subs) == 2, "what waits stays, what comes is dropped"
    subs.add(text, id="late")
    subs.push({"r": rows((4, 1, "x", 3))})
    assert waiting(subs) == 3, "the late one sees no row from before"
    out = subs.push({"s": rows((1, 1, "b", 4))})
    assert sorted(out["query"].to_pylist()) == ["late", "q"]


def test_less_is_made_and_sent() -> None:
    """The same tuples with and without it: fewer rewritten queries, the same answers."""
    text = "SELECT DISTINCT r.name AS a, t.name AS b FROM r, s, t WHERE r.k = s.k AND s.id = t.id WINDOW = 10 SECONDS"
    found = []
    for is_on in (True, False):
        with pytest.MonkeyPatch.context() as patch:
            if not is_on:
                patch.setattr(Covering, "drop_covered", lambda self, rows, waiting: rows)
            subs = registry(units=3)
            subs.add(text, id="q")
            out = [
                subs.push({s: rows(*((i % 3, i % 2, "xy"[i % 2], 5 * n + i / 10) for i in range(40))) for s in "rst"})
                for n in range(4)
            ]
        found.append((waiting(subs), [sorted(o["answer"].to_pylist()) for o in out]))
    assert found[0][1] == found[1][1]
    assert found[0][0] < found[1][0] / 5


# -------------------------------------------------------------------- the kernel


@given(
    boxes=st.lists(st.tuples(st.booleans(), st.integers(0, 12), st.integers(0, 6)), min_size=1, max_size=12),
)
def test_the_intervals_that_stay_cover_the_others(boxes: list[tuple[bool, int, int]]) -> None:
    boxes = sorted(boxes, key=lambda b: (b[1], -b[2], not b[0]))
    held = np.array([b[0] for b in boxes])
    low, high = np.full((len(boxes), 2), -LAST), np.full((len(boxes), 2), LAST)
    low[:, 1], high[:, 1] = [b[1] for b in boxes], [b[1] + b[2] for b in boxes]
    dropped = np.zeros(len(boxes), np.bool_)
    find_covered(np.array([0, len(boxes)]), np.array([1]), held, low, high, dropped)
    assert not np.any(dropped & held)

    def cover(which: np.ndarray) -> set[int]:
        return {t for lo, hi in zip(low[which, 1], high[which, 1], strict=True) for t in range(2 * lo, 2 * hi + 1)}

    assert cover(~dropped) == cover(np.ones(len(boxes), np.bool_))
    if not held.any():
        left = np.flatnonzero(~dropped)
        assert all(cover(left[left != n]) != cover(left) for n in left), "none of those that stay is superfluous"


@given(st.lists(st.tuples(st.booleans(), *[st.integers(0, 4)] * 4), min_size=1, max_size=10))
def test_a_box_that_goes_lies_within_one_that_stays(boxes: list[tuple[Any, ...]]) -> None:
    boxes = sorted(boxes, key=lambda b: not b[0])
    held = np.array([b[0] for b in boxes])
    low = np.array([b[1:3] for b in boxes])
    high = low + np.array([b[3:5] for b in boxes])
    dropped = np.zeros(len(boxes), np.bool_)
    find_covered(np.array([0, len(boxes)]), np.array([-1]), held, low, high, dropped)
    assert not np.any(dropped & held)
    for n in np.flatnonzero(dropped):
        assert any(np.all(low[m] <= low[n]) and np.all(high[m] >= high[n]) for m in np.flatnonzero(~dropped))
