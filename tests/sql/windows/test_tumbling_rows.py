"""Windows in blocks of tuples, `FROM s a [TUMBLING n ROWS]`: at the ends of blocks, with equal times, over restarts, at sites, in subscriptions."""

from __future__ import annotations

import random
import warnings
from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.sql.windows.test_tumbling import found_in
from watersmeet.testing import QueryTest

PAIRS = "SELECT r.id AS x, s.id AS y FROM r [TUMBLING {} ROWS], s WHERE r.k = s.k"


def make(times: Sequence[int], first: int = 0) -> pa.Table:
    """One key, and ids that go on from `first`; times in seconds."""
    ts = pa.array([t * 1_000_000 for t in times], pa.timestamp("us"))
    ids = pa.array(range(first, first + len(times)), pa.int64())
    return pa.table({"id": ids, "k": pa.array([1] * len(times), pa.int64()), "ts": ts})


def join(text: str, **tables: Any) -> list[tuple[int, int]]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return sorted(found_in(wm.local.run(text, tables, batch_rows=3)).elements())


def expect(n: int, r: Sequence[int], s: Sequence[int]) -> list[tuple[int, int]]:
    """By the definition, for times that differ and ascend: r is number i + 1, and the block is that of the last tuple up to the younger member."""
    out = []
    for x, at in enumerate(r):
        for y, other in enumerate(s):
            reached = sum(t <= max(at, other) for t in r)
            if x // n == (reached - 1) // n:
                out.append((x, y))
    return out


def test_a_block_ends_with_the_first_tuple_of_the_next() -> None:
    """Blocks of r are 1 2 3, 4 5 6 and 7. At 3 the first one counts, and at 4 it does not."""
    found = join(PAIRS.format(3), r=make([1, 2, 3, 4, 5, 6, 7]), s=make([3, 4, 6, 7]))
    met = {y: [x for x, of in found if of == y and x < 3] for y in range(4)}
    assert met == {0: [0, 1, 2], 1: [], 2: [], 3: []}
    assert found == expect(3, range(1, 8), (3, 4, 6, 7))
    last = [(x, y) for x, y in join(PAIRS.format(3), r=make([1, 2, 3, 4]), s=make([9]))]
    assert last == [(3, 0)], "the present block has one tuple"


@pytest.mark.parametrize("n", [1, 2, 3, 5, 40, 1000])
@pytest.mark.parametrize("units", [1, 3])
def test_any_size_of_blocks_and_batches(n: int, units: int) -> None:
    chance = random.Random(n)
    r, s = (sorted(chance.sample(range(100), 40)) for _ in range(2))
    wanted = expect(n, r, s)
    for batch_rows in (1, 7, 100):
        given = {"r": make(r), "s": make(s)}
        assert (
            sorted(found_in(wm.local.run(PAIRS.format(n), given, batch_rows=batch_rows, units=units)).elements())
            == wanted
        )


def test_blocks_of_one_are_the_last_row() -> None:
    r, s = make([1, 4, 9, 9, 12]), make([0, 4, 5, 9, 13])
    assert join(PAIRS.format(1), r=r, s=s) == join(PAIRS.format(1).replace("TUMBLING 1 ROWS", "ROWS 1"), r=r, s=s)


def test_equal_times_are_numbered_one_after_the_other() -> None:
    """Three tuples at 1 and two at 2 in blocks of two: at 1 the block has one of the three; at 2 it is the fifth tuple's."""
    at_one, at_two = join(PAIRS.format(2), r=make([1, 1, 1]), s=make([1])), make([1, 1, 1, 2, 2])
    assert len(at_one) == 1
    found = join(PAIRS.format(2), r=at_two, s=make([0, 1, 2, 3]))
    by_partner = {y: [x for x, of in found if of == y] for y in range(4)}
    ((fifth,), both) = by_partner[3], by_partner[0]
    assert fifth in (3, 4), "one of the two at 2, and none at 1"
    assert by_partner[2] == [fifth]
    assert by_partner[1] == both, "s at 0 and at 1 meet the same"
    assert sorted(x for x in both if x < 3) == [x for x, _ in at_one]
    assert {x for x in both if x >= 3} == {fifth}, "the fourth is at 2, when the block is that of the fifth"


def test_the_same_over_restarts_and_with_what_a_next_tuple_may_need() -> None:
    """After every batch the query starts again; a complete block stays as long as the next one has not begun."""
    streams = {name: wm.Stream(make([]), time="ts") for name in "rs"}
    test = QueryTest(wm.sql(f"{PAIRS.format(2)} AND r.id >= 0", streams, units=2))
    script: list[tuple[Sequence[int], Sequence[int]]] = [
        ([1], [1]), ([2], [2]), ([], [3]), ([4], []), ([], [5]), ([6, 7], [7]), ([9], [9]), ([30], [30]), ([31], [31]),
    ]  # fmt: skip
    r, s, found = list[int](), list[int](), list[tuple[int, int]]()
    for more_r, more_s in script:
        test.restart().batch(r=make(more_r, len(r)), s=make(more_s, len(s)))
        r, s = [*r, *more_r], [*s, *more_s]
        found += test.answers
        test.check(*test.answers)
    test.end()
    assert sorted([*found, *test.answers]) == expect(2, r, s)


def test_blocks_that_are_over_are_forgotten() -> None:
    streams = {name: wm.Stream(make([]), time="ts") for name in "rs"}
    test = QueryTest(
        wm.sql("SELECT r.id AS x FROM r [TUMBLING 10 ROWS], s [TUMBLING 10 ROWS] WHERE r.k = s.k", streams)
    )
    for begin in range(0, 600, 30):
        times = range(begin, begin + 30)
        test.batch(r=make(times, begin), s=make(times, begin))
        found = len(test.answers)
        test.check(*test.answers)
    assert found > 100
    assert all(kept < 80 for kept in test.state.values()), test.state


def test_sites_find_the_same() -> None:
    """With equal times, too: those of one stream are in the order of their contents everywhere."""
    for seed in range(30):
        chance = random.Random(seed)
        r, s = (make(sorted(chance.choices(range(9), k=chance.randint(3, 12)))) for _ in range(2))
        text = f"{PAIRS.format(chance.randint(1, 4))} ".replace(
            " s WHERE", f" s {chance.choice(('', '[ROWS 2]', '[TUMBLING 3 ROWS]'))} WHERE"
        )
        alone = join(text, r=r, s=s)
        apart = {name: wm.Stream(t, time="ts", site=site) for name, t, site in (("r", r, "paris"), ("s", s, "tokyo"))}
        assert "sites" in str(wm.sql(text, apart).explain())
        assert join(text, **apart) == alone, (seed, text)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_a_subscription_of_its_own(engine: str) -> None:
    chance = random.Random(3)
    r, s = (sorted(chance.sample(range(60), 24)) for _ in range(2))
    tables = {"r": make(r), "s": make(s)}
    streams = {name: wm.Stream(t.slice(0, 0), time="ts") for name, t in tables.items()}
    subs = wm.local.subscriptions(streams, engine=engine, units=2)
    subs.add(f"{PAIRS.format(4)} WINDOW = 1 HOUR", id="q")
    subs.add("SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 1 SECOND", id="plain")
    answers = [subs.push({name: t.slice(n, 6) for name, t in tables.items()}) for n in range(0, 24, 6)]
    mark = {name: make([200], 99) for name in tables}
    answers.append(subs.push(mark))
    out = pa.concat_tables(answers)
    texts = out.filter(pa.compute.equal(out.column("query"), "q")).column("answer").to_pylist()
    found = sorted((int(t.split(":")[1].split(",")[0]), int(t.split(":")[2].rstrip("}"))) for t in texts)
    assert [pair for pair in found if 99 not in pair] == expect(4, r, s)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_ask_counts_blocks_of_what_is_kept(engine: str) -> None:
    subs = wm.local.subscriptions({name: wm.Stream(make([]), time="ts") for name in "rs"}, engine=engine, units=2)
    subs.add("SELECT r.id FROM r, s WHERE r.k = s.k WINDOW = 1 HOUR", id="keeps")
    r, s = [1, 3, 5, 7, 9, 12], [2, 4, 6, 8, 10, 12]
    for n in range(0, 6, 2):
        subs.push({"r": make(r[n : n + 2], n), "s": make(s[n : n + 2], n)})
    assert sorted(found_in(subs.ask(PAIRS.format(4))).elements()) == expect(4, r, s)


REFUSED = [
    (
        "r LEFT JOIN s [TUMBLING 3 ROWS] ON r.k = s.k WINDOW = 1 SECOND",
        r"TUMBLING 3 ROWS\].*ROWS goes with inner joins",
    ),
    ("r [TUMBLING 0 ROWS], s WHERE r.k = s.k", "positive whole number, not '0'"),
    ("r [TUMBLING 1.5 ROWS], s WHERE r.k = s.k", "positive whole number, not '1.5'"),
    (
        "r [TUMBLING 10 SECONDS], s WHERE r.k = s.k",
        r"\[TUMBLING 5 ROWS\]; for windows of time write TUMBLING = 10 SECONDS",
    ),
    ("r [TUMBLING], s WHERE r.k = s.k", "counts the tuples of a stream"),
    ("r [TUMBLING 2 ROWS] a [ROWS 3], s WHERE a.k = s.k", r"a has both \[TUMBLING 2 ROWS\] and \[ROWS 3\]"),
    ("r [TUMBLING 2 ROWS] a [TUMBLING 3 ROWS], s WHERE a.k = s.k", "give one of them"),
]


@pytest.mark.parametrize(("tail", "why"), REFUSED)
def test_refusals(tail: str, why: str) -> None:
    with pytest.raises(wm.WatersmeetError, match=why):
        join(f"SELECT s.k FROM {tail}", r=make([1]), s=make([1]))


def test_an_index_by_a_column_of_that_name_is_no_window() -> None:
    table = make([1, 2]).append_column("tumbling", pa.array([0, 1])).append_column("m", pa.array([[1, 0], [1, 0]]))
    streams = {"r": wm.Stream(table, time="ts"), "s": wm.Stream(make([1]), time="ts")}
    plan = wm.sql("SELECT r.id FROM r, s WHERE r.k = s.k AND r.m[tumbling] = 1 WINDOW = 1 SECOND", streams).plan
    assert plan.sequenced == ()
    assert len(plan.by_alias["r"].filters) == 1


def test_plans_tell_blocks_from_last_rows() -> None:
    streams = {name: wm.Stream(make([]), time="ts") for name in "rs"}
    last, blocks = (
        wm.sql(PAIRS.format(3).replace("TUMBLING 3 ROWS", w), streams) for w in ("ROWS 3", "TUMBLING 3 ROWS")
    )
    assert [i[4] for i in last.plan.description()["inputs"]] == [3, None]
    assert [i[4] for i in blocks.plan.description()["inputs"]] == ["TUMBLING 3", None]
    assert last.plan.fingerprint() != blocks.plan.fingerprint()
    assert "its block of 3 rows" in str(blocks.explain("full"))
    assert "its last 3 rows" in str(last.explain("full"))


@pytest.mark.parametrize(
    "source", ["r a [RANGE 5 s] {}", "r {} [RANGE 5 s] a", "r {} a [RANGE 5 s]", "r AS a {} [RANGE 5 s]"]
)
@pytest.mark.parametrize("window", ["[ROWS 3]", "[TUMBLING 3 ROWS]", "[tumbling 3\n rows]"])
def test_brackets_that_follow_one_another_have_one_alias(source: str, window: str) -> None:
    streams = {name: wm.Stream(make([]), time="ts") for name in "rs"}
    text = f"SELECT s.k FROM {source.format(window)} JOIN s ON a.k = s.k"
    a, _ = wm.sql(text, streams).plan.inputs
    assert (a.alias, a.rows, a.rows_tumble) == ("a", 3, "ROWS" not in window[:5])
    assert wm.sql(text, streams).plan.join.windows.hi("a", "s") == 5_000_000
