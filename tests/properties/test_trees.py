"""Join trees in process: every generated tree lets out in every batch what the oracle says, and never more, whatever the units and the routing."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.trees import KINDS, TreeCase, counted, generate
from watersmeet.errors import UnsupportedError, WindowError

MANY = settings(max_examples=5_000 if settings.get_current_profile_name() == "thorough" else settings().max_examples)
"""The thorough profile draws 10,000 cases, 5,000 for each of the two tests."""


@MANY
@given(st.randoms(use_true_random=False))
def test_as_of_joins_in_trees_equal_the_oracle_batch_by_batch(chance: random.Random) -> None:
    compare(generate(chance, ("asof", "asof left", "asof", "asof left", *KINDS)))


@MANY
@given(st.randoms(use_true_random=False))
def test_trees_equal_the_oracle_batch_by_batch(chance: random.Random) -> None:
    compare(generate(chance))


@given(st.randoms(use_true_random=False))
def test_tables_in_trees_equal_the_oracle_batch_by_batch(chance: random.Random) -> None:
    compare(generate(chance, ("inner", "inner", *KINDS), 3, tables=3))


@given(st.randoms(use_true_random=False))
def test_late_rows_are_counted_before_tables_multiply_them(chance: random.Random) -> None:
    """Once for every row that finds one in the table, however many it finds."""
    case = generate(chance, ("inner",), 1, rows=12, tables=1)
    case.sql = "SELECT a.id, t0.id AS t FROM s0 a JOIN t0 ON t0.k = a.k"
    case.tables["t0"] *= 2
    keys = [row["k"] for row in case.tables["t0"] if row["k"] is not None]
    late = [row for row in case.expected().late_rows["s0"] if row["ts"] is None or row["k"] in keys]
    test = case.start()
    for n in range(len(case.arrivals["s0"].batches)):
        test.batch(case.rows(n))
    test.check_late(s0=len(late))


def compare(case: TreeCase) -> None:
    """A case against the oracle; a tree that no window bounds is refused, and is no case."""
    try:
        found = case.batches()
    except WindowError:
        reject()
    except UnsupportedError as error:
        if "is joined to results" not in str(error):
            raise
        reject()
    wanted = case.expected()
    for number, rows in enumerate(found):
        assert counted(rows) == counted(wanted.in_batch(number)), (number, case.sql, case.options)


def test_the_partner_of_an_as_of_join_is_within_the_windows_of_all_left_aliases() -> None:
    """The last tuple before may be too far from another member of the left side, and one before it not."""
    compare(generate(random.Random(5185), ("asof", "asof left", "inner", "left", "full", "semi", "anti", "right")))


@pytest.mark.parametrize("seed", [501185, 502121])
def test_nobody_waits_for_a_partner_that_a_strict_order_rules_out(seed: int) -> None:
    """After `a.ts < b.ts` a tuple at a's watermark meets no b of that very instant, so who could only meet that b has no partner."""
    compare(generate(random.Random(seed), ("asof", "asof left", "asof", "asof left", *KINDS)))


def test_a_tuple_that_has_left_says_nothing_of_an_equal_one_that_comes_later() -> None:
    """Both have no partner, and both leave, though they have the same times and keys."""
    compare(generate(random.Random(7112), KINDS, rows=6, grouped=True))
