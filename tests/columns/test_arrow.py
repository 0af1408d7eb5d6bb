"""Blocks hold at most their bytes, whatever the widths of rows; types with 64-bit offsets and back."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.blocks import blocks_of
from watersmeet.columns.arrow import cuts, enlarge, fold, row_widths, shrink, slice_by_bytes, table_widths
from watersmeet.plan.model import TIME
from watersmeet.storage.compaction import Settler
from watersmeet.storage.segment import Segment
from watersmeet.storage.stores import MemoryStore

TEXTS = st.none() | st.text("xyé", max_size=3) | st.sampled_from(("w" * 900, "v" * 5_000))
NESTED = pa.list_(pa.struct([("t", pa.string()), ("n", pa.int32())]))
ROWS = st.lists(
    st.tuples(
        TEXTS,
        st.binary(max_size=4),
        st.none() | st.lists(st.fixed_dictionaries({"t": TEXTS, "n": st.just(1)}), max_size=3),
    ),
    max_size=20,
)


def table(rows: list[tuple]) -> pa.Table:
    columns = list(zip(*rows, strict=True)) or [(), (), ()]
    return pa.table(
        [pa.array(columns[0], pa.string()), pa.array(columns[1], pa.binary()), pa.array(columns[2], NESTED)],
        list("sbl"),
    )


@given(ROWS, st.sampled_from((1, 50, 1_000, 10_000, 10**6)))
def test_blocks_are_the_table_and_hold_at_most_the_limit(rows, limit):
    whole = enlarge(table(rows))
    blocks = list(slice_by_bytes(whole, limit))
    assert pa.concat_tables([whole.slice(0, 0), *blocks]).equals(whole)
    for block in blocks:
        assert block.num_rows == 1 or int(np.sum(np.zeros(block.num_rows) + table_widths(block))) <= limit


@given(ROWS)
def test_a_row_is_as_wide_as_its_bytes(rows):
    """Arrow counts validity and the offset after the last row as well, and shares texts of slices with their neighbours."""
    whole = table(rows)
    for column in whole.columns:
        total = int(np.sum(np.zeros(len(column)) + row_widths(column)))
        values = sum(len(v.encode() if isinstance(v, str) else v) for v in _texts(column.to_pylist()))
        assert values <= total <= values + 20 * sum(1 for _ in _texts(column.to_pylist())) + 8 * len(column)


def _texts(values):
    for value in values:
        if isinstance(value, list):
            yield from (v for item in value for v in (item["t"] or "", ""))
        else:
            yield value or ""


@given(ROWS)
def test_there_and_back_a_table_is_what_it_was(rows):
    small = table(rows)
    large = enlarge(small)
    assert large.schema.types == [pa.large_string(), pa.large_binary(), large.schema.field("l").type]
    assert pa.types.is_large_list(large.schema.field("l").type)
    assert shrink(large).equals(small)
    assert enlarge(large) is large


@given(st.lists(st.integers(0, 100), max_size=30), st.integers(1, 120))
def test_cuts_follow_the_widths_that_are_there(widths, limit):
    found = list(cuts(np.array(widths, np.int64), len(widths), limit))
    assert [n for begin, end in found for n in range(begin, end)] == list(range(len(widths)))
    assert all(end - begin == 1 or sum(widths[begin:end]) <= limit for begin, end in found)
    # Nothing is cut that would have fitted.
    assert all(sum(widths[begin : end + 1]) > limit for begin, end in found[:-1])


def test_a_fold_holds_a_few_times_its_answer():
    """A thousand tables that merge to one row: they never wait together."""
    most = []

    def merge(held: list[pa.Table]) -> pa.Table:
        most.append(sum(t.nbytes for t in held))
        return held[0]

    with blocks_of(10_000):
        (answer,) = fold((pa.table({"s": ["x" * 1_000]}) for _ in range(1_000)), merge)
    assert answer.num_rows == 1
    assert max(most) < 13_000
    assert list(fold([], merge)) == []


@pytest.mark.parametrize("order", [slice(None), slice(None, None, -1)])
def test_one_wide_value_among_small_ones_is_a_segment_by_itself(order):
    texts = ["s"] * 50 + ["w" * 100_000] + ["s"] * 50
    ts = np.arange(101, dtype=np.int64)[order]
    new = Segment.of(pa.table({"s": texts, TIME: pa.array(ts, pa.timestamp("us", tz="UTC"))}))
    store = MemoryStore()
    with blocks_of(2_000):
        infos = Settler(store, -1, 10**9).settle([], new)
    assert sum(i.rows for i in infos) == 101
    assert [i.rows for i in infos if i.bytes > 10_000] == [1]
    assert all(i.bytes <= 2_500 for i in infos if i.rows > 1)


@pytest.mark.parametrize("select", ["a.s, b.s AS t", "DISTINCT a.s", "b.s, count(*) AS n", "upper(a.s) AS u, b.k"])
def test_a_hot_key_with_wide_and_skewed_values(select):
    """All of a key against all: every block is cut, and the answer is what plain Python makes of it."""
    texts = ["n" * n for n in (1, 2, 3, 50, 1, 5_000, 7, 1)]
    rows = pa.table({"k": [1] * 8, "s": texts, "ts": pa.array(range(8), pa.timestamp("us", tz="UTC"))})
    group = " GROUP BY b.s" if "count" in select else ""
    text = f"SELECT {select} FROM s a, s b WHERE a.k = b.k AND length(a.s) + length(b.s) > 3 WITHIN 1 SECOND{group}"
    want = [(x, y) for x in texts for y in texts if len(x) + len(y) > 3]
    with blocks_of(300):
        found = wm.local.run(text, {"s": rows}, batch_rows=3)
    got = sorted(tuple(r.values()) for r in found.to_pylist())
    if "DISTINCT" in select:
        assert got == sorted({(x,) for x, _ in want})
    elif group:
        assert got == sorted({(y, sum(b == y for _, b in want)) for _, y in want})
    elif "upper" in select:
        assert got == sorted((x.upper(), 1) for x, _ in want)
    else:
        assert got == sorted(want)
