"""Join trees in process: every generated tree lets out in every batch what the oracle says, and never more, whatever the units and the routing."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st

from tests.oracle import Arrival
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


LOOKUPS = {
    "JOIN {t} ON {t}.k = {x}.k": lambda row, found: bool(found),
    "JOIN {t} ON {t}.k = {x}.k AND {t}.n > 1": lambda row, found: any((t["n"] or 0) > 1 for t in found),
    "LEFT JOIN {t} ON {t}.k = {x}.k": lambda row, found: True,
}
"""How an alias x is joined with a table t, and whether it takes a row whose key is found in these rows of the table."""
FILTERS = {
    "true": lambda row, found: True,
    "{x}.n > 0": lambda row, found: (row["n"] or 0) > 0,
    "coalesce({t}.n, 2) > 1": lambda row, found: any(t["n"] is None or t["n"] > 1 for t in found) or not found,
}


@given(
    st.randoms(use_true_random=False),
    st.tuples(*[st.tuples(st.sampled_from(list(LOOKUPS)), st.sampled_from(list(FILTERS)))] * 2),
)
def test_late_rows_of_a_self_join_count_once_if_some_alias_takes_them(
    chance: random.Random, asked: tuple[tuple[str, str], ...]
) -> None:
    """Whatever the tables of either alias say."""
    case = generate(chance, ("inner",), 1, rows=12, tables=1)
    batches = sorted(case.arrivals["s0"].batches, key=lambda rows: -max((r["ts"] or 0 for r in rows), default=0))
    case.arrivals["s0"] = Arrival(batches, 0)  # the youngest first: many are late
    case.tables = {
        name: [{"id": n, "k": n % 3, "n": chance.choice((None, 1, 2))} for n in range(chance.randint(0, 4))]
        for name in ("t0", "t1")
    }
    joined, wheres, takes = [], [], []
    for x, t, (lookup, where) in zip("ab", case.tables, asked, strict=True):
        if lookup.startswith("JOIN") and "{t}" in where:
            reject()  # a condition on a table that must be found is part of its ON
        joined.append(lookup.format(x=x, t=t))
        wheres.append(where.format(x=x, t=t))
        takes.append((t, LOOKUPS[lookup], FILTERS[where]))
    case.sql = f"""SELECT a.id, b.id AS o FROM s0 a {joined[0]} JOIN s0 b ON b.id = a.id {joined[1]}
                   WHERE {wheres[0]} AND {wheres[1]} WINDOW = 1 SECOND"""

    def is_taken(row: dict[str, Any]) -> bool:
        for name, lookup, where in takes:
            found = [t for t in case.tables[name] if t["k"] is not None and t["k"] == row["k"]]
            nothing = row["ts"] is None  # such rows are looked up nowhere
            if where(row, [] if nothing else found) and (nothing or lookup(row, found)):
                return True
        return False

    test = case.start()
    for n in range(len(case.arrivals["s0"].batches)):
        test.batch(case.rows(n))
    test.check_late(s0=sum(map(is_taken, case.expected().late_rows["s0"])))


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
