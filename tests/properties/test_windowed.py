"""Groups that end, in process: each leaves once, in the batch that the oracle says, over every kind of join, whatever the units; and is forgotten."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.properties.test_trees import compare
from tests.trees import KINDS, SECOND, generate
from watersmeet.errors import WindowError
from watersmeet.operators.finish.distinct import KEPT
from watersmeet.testing import QueryTest


@given(st.randoms(use_true_random=False))
def test_groups_over_inner_joins(chance: random.Random) -> None:
    compare(generate(chance, ("inner",), grouped=True))


@given(st.randoms(use_true_random=False))
def test_groups_over_trees(chance: random.Random) -> None:
    compare(generate(chance, ("asof", "asof left", *KINDS, *KINDS), grouped=True))


def stream(chance: random.Random) -> wm.Stream:
    """A few rows, some of them out of order, some late."""
    times = [n * 1_000_003 + chance.choice((0, 1, 3)) * SECOND for n in range(chance.randint(2, 12))]
    rows = pa.table({"k": [chance.choice((1, 1, 2)) for _ in times], "ts": pa.array(times, pa.timestamp("us"))})
    idle = chance.choice((None, None, "2 seconds"))
    return wm.Stream(rows, time="ts", lateness=chance.choice(("0 s", "3 s")), idle=idle)


@given(st.randoms(use_true_random=False))
@pytest.mark.filterwarnings("ignore:watersmeet dropped late rows")
def test_groups_are_those_of_the_results(chance: random.Random) -> None:
    """Over ROWS windows, too, and streams that fall silent: what the join lets out, grouped, and no group twice."""
    counted, alias = chance.choice(("", "x", "y")), chance.choice("xyz")
    rows = chance.choice((" [ROWS 2]", " [TUMBLING 3 ROWS]"))
    tables = ", ".join(f"{name}{rows if name == counted else ''}" for name in "xyz")
    tail = f"FROM {tables} WHERE x.k = y.k AND y.k = z.k WINDOW = {chance.choice((2, 4))} SECONDS"
    streams, size = {name: stream(chance) for name in "xyz"}, chance.choice((2, 5)) * SECOND
    how: Any = {"batch_rows": chance.choice((1, 2, 5)), "units": chance.choice((1, 3))}
    rows = wm.local.run(f"SELECT {alias}.ts, x.k {tail}", streams, **how)
    text = f"SELECT window.start, x.k, count(*) AS n {tail} GROUP BY window({alias}.ts, '{size} microseconds'), x.k"
    groups = wm.local.run(text, streams, **how)
    starts = [ts // size * size for ts in rows.column("ts").cast(pa.int64()).to_pylist()]
    found = zip(groups.column("start").cast(pa.int64()).to_pylist(), *groups.to_pydict().values(), strict=True)
    wanted = Counter(zip(starts, rows.column("k").to_pylist(), strict=True))
    assert Counter((start, k, n) for start, _, k, n in found) == Counter((*key, n) for key, n in wanted.items())


# ---------------------------------------------------------------- by hand


def batches(sql: str, x: Sequence[tuple[int, float]], y: Sequence[tuple[int, float]]) -> list[list[tuple[Any, ...]]]:
    """What leaves in every batch of one row, a key and a second, of each stream, and at the end; the query starts again before each batch."""
    streams = {name: wm.Stream(wm.testing.table("k int, ts timestamp_ntz"), time="ts") for name in "xy"}
    test, out = QueryTest(wm.sql(sql, streams, units=2)), []
    for left, right in zip(x, y, strict=True):
        test.restart().batch(x=[left], y=[right])
        out.append(sorted(test.answers))
        test.check(*out[-1])
    return [*out, sorted(test.end().answers)]


SECONDS = "unix_micros(CAST(window.start AS timestamp)) / 1000000"
COUNT = f"SELECT CAST({SECONDS} AS int) AS s, count(*) AS n FROM"


def test_a_group_leaves_when_the_other_stream_is_a_window_past_its_end() -> None:
    """[0, 10) is complete when x is at 10 and y at 13: a y of 12 could still meet an x of 9."""
    x, y = [(1, 0), (1, 10), (1, 11), (1, 11), (1, 12)], [(1, 0), (1, 12), (1, 12.9), (1, 13), (1, 13)]
    found = batches(
        f"{COUNT} x, y WHERE x.k = y.k DWINDOW (x, y) = 3 SECONDS GROUP BY window(x.ts, '10 seconds')", x=x, y=y
    )
    assert found == [[], [], [], [(0, 1)], [], [(10, 16)]]


def test_an_unmatched_row_is_waited_for() -> None:
    """x at 9 leaves without a partner once y is past 12, so [0, 10) ends at 13 at the latest; and not before x itself is at 10."""
    sql = f"{COUNT} x LEFT JOIN y ON x.k = y.k DWINDOW (x, y) = 3 SECONDS GROUP BY window(x.ts, '10 seconds')"
    assert batches(sql, x=[(1, 9), (1, 9), (1, 10)], y=[(2, 12), (2, 13), (2, 13)]) == [
        [],
        [],
        [(0, 2)],
        [(10, 1)],
    ]


def test_a_row_without_the_time_falls_into_no_group() -> None:
    sql = f"{COUNT} x LEFT JOIN y ON x.k = y.k WINDOW = 1 SECOND GROUP BY window(y.ts, '10 seconds')"
    assert batches(sql, x=[(1, 0), (2, 1), (3, 50)], y=[(1, 0), (4, 1), (4, 50)]) == [[], [], [(0, 1)], []]


def test_a_row_falls_into_all_windows_around_it() -> None:
    sql = f"{COUNT} x, y WHERE x.k = y.k AND x.ts = y.ts GROUP BY window(x.ts, '10 seconds', '4 seconds', '1 second')"
    assert batches(sql, x=[(1, 5), (1, 6)], y=[(1, 5), (1, 6)])[-1] == [(-3, 2), (1, 2), (5, 2)]


def test_a_backward_as_of_join_needs_no_window() -> None:
    """A quote may be any time before its trade, but it is there when the trade leaves."""
    sql = f"{COUNT} x ASOF JOIN y ON x.k = y.k AND x.ts >= y.ts GROUP BY window(x.ts, '10 seconds')"
    assert batches(sql, x=[(1, 9), (1, 10)], y=[(1, 0), (1, 11)]) == [[], [(0, 1)], [(10, 1)]]
    with pytest.raises(WindowError, match=r"WINDOW\(y.ts.*bounds how much later than 'y' a tuple of 'x'"):
        batches(sql.replace("window(x.ts", "window(y.ts"), x=[(1, 9)], y=[(1, 9)])


def test_rows_windows_hold_groups_back() -> None:
    """The sequencer releases x only when y's watermark has passed it."""
    sql = f"{COUNT} x, y [ROWS 1] WHERE x.k = y.k WINDOW = 5 SECONDS GROUP BY window(x.ts, '10 seconds')"
    found = batches(sql, x=[(1, 9), (1, 20), (1, 21)], y=[(1, 8), (1, 9.5), (1, 16)])
    assert found == [[], [], [(0, 2)], [(20, 2)]]


@pytest.mark.parametrize("units", [1, 3])
def test_groups_are_forgotten(units: int) -> None:
    """A thousand seconds of a key each second in windows of ten: never more than the open groups, a few times, and nothing at the end."""
    times = pa.array([n * SECOND for n in range(1000)], pa.timestamp("us"))
    rows = pa.table({"k": [n % 5 for n in range(1000)], "ts": times})
    sql = "SELECT x.k, count(*) AS n FROM x, y WHERE x.k = y.k WINDOW = 2 SECONDS GROUP BY window(x.ts, '10 seconds', '5 seconds'), x.k"
    prepared = wm.sql(sql, {name: wm.Stream(rows, time="ts") for name in "xy"}, units=units)._in_process("UTC")
    found = prepared.run(10)
    assert found.num_rows == 201 * 5
    assert wm.local.counts(found).kept <= 60
    assert not any(state.rows().get(KEPT, 0) for state in prepared.units.states.values())
