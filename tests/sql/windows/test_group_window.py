"""window() among the keys of GROUP BY, and HAVING: what they mean, and what is refused, with the remedy."""

import pytest

from watersmeet.errors import QueryError, UnknownNameError, UnsupportedError, WatersmeetError, WindowError
from watersmeet.query.select import END, GroupWindow

W = "FROM s0 a, s1 b WHERE a.k = b.k WINDOW = 5 MINUTES"
MINUTE = 60_000_000


def made(join):
    return [(o.name, o.expr.spark(lambda ref: ref.column)) for o in join.grouping.select]


@pytest.mark.parametrize(
    ("arguments", "spans"),
    [
        ("'10 minutes'", (10, 10, 0)),
        ("'10 minutes', '5 minutes'", (10, 5, 0)),
        ("'1 hour', '30 minutes', '-1 minute'", (60, 30, -1)),
        ("INTERVAL 10 MINUTES", (10, 10, 0)),
        ("'interval 1 hour 30 minutes'", (90, 90, 0)),
        ("600000000, 60000000", (10, 1, 0)),
    ],
)
def test_spans_are_texts_intervals_or_microseconds(bound, arguments, spans):
    join = bound(f"SELECT count(*) AS n {W} GROUP BY window(a.ts, {arguments}), b.v")
    size, slide, start = (n * MINUTE for n in spans)
    window = join.group_window
    assert (window.key, window.alias, window.size_us, window.slide_us, window.start_us) == (0, "a", size, slide, start)
    assert [str(o.expr) for o in join.select] == ["a.ts", "b.v"]


def test_the_window_in_select(bound):
    join = bound(
        f"SELECT window.start, window.END AS e, window, window(a.ts, '5 s') AS w, window(a.ts, '5 s').start AS s, b.v {W} GROUP BY b.v, window(a.ts, '5 s')"
    )
    struct = "STRUCT(g1 AS `start`, e AS `end`)"
    assert made(join) == [("start", "g1"), ("e", END), ("window", struct), ("w", struct), ("s", "g1"), ("v", "g0")]


@pytest.mark.parametrize("by", ["w", "1", "window(a.ts, '5 s')", "WINDOW(A.ts, '5 s')"])
def test_a_window_by_name_and_by_number(bound, by):
    join = bound(f"SELECT window(a.ts, '5 s') AS w, count(*) AS n {W} GROUP BY {by}")
    assert isinstance(join.group_window, GroupWindow)


def test_having_sees_keys_aggregates_and_names(bound):
    join = bound(
        f"SELECT b.v, count(*) AS n {W} GROUP BY window(a.ts, '5 s'), b.v HAVING n > 2 AND sum(b.v) > b.v AND window.end IS NOT NULL"
    )
    assert join.grouping.having.spark(lambda ref: ref.column) == "(a0) > 2 AND a1 > g1 AND NOT e IS NULL"
    assert [str(a) for a in join.grouping.aggregates] == ["count(*)", "sum(b.v)"]


def test_window_items_stand_after_having(bound):
    text = "FROM s0 a, s1 b WHERE a.k = b.k GROUP BY window(a.ts, '5 s') HAVING count(*) > 1 WINDOW = 5 s"
    assert bound(f"SELECT count(*) AS n {text}").windows.show("a", "b") == "|b - a| <= 5 s"


@pytest.mark.parametrize(
    ("query", "error", "message"),
    [
        (f"SELECT 1 {W} GROUP BY window(b.v, '5 s')", QueryError, r"b.v is no event time.*take b.ts.*time='v'"),
        (f"SELECT 1 {W} GROUP BY window(a.ts + INTERVAL 1 HOUR, '5 s')", QueryError, "is no event time.*take a.ts"),
        (f"SELECT 1 {W} GROUP BY window('2026-01-01', '5 s')", QueryError, "is no event time.*take a.ts"),
        (f"SELECT 1 {W} GROUP BY window(a.ts)", QueryError, "1 arguments: write window"),
        (f"SELECT 1 {W} GROUP BY window(a.ts, '1 month')", WindowError, "cannot read '1 month' as its size"),
        (f"SELECT 1 {W} GROUP BY window(a.ts, b.v)", WindowError, "its size b.v is no literal"),
        (f"SELECT 1 {W} GROUP BY window(a.ts, '5 s', '6 s')", WindowError, "slide at most the size"),
        (f"SELECT 1 {W} GROUP BY window(a.ts, '5 s', '5 s', '5 s')", WindowError, "start time less than the slide"),
        (f"SELECT 1 {W} GROUP BY window(a.ts, '0 s')", WindowError, "more than nothing"),
        (f"SELECT 1 {W} GROUP BY window(a.ts, '5 s'), window(b.ts, '5 s')", UnsupportedError, "one window"),
        (f"SELECT 1 {W} GROUP BY window(a.ts, '5 s').start", UnsupportedError, "a key by itself"),
        (f"SELECT window.middle {W} GROUP BY window(a.ts, '5 s')", UnknownNameError, "start and end, and no 'middle'"),
        (f"SELECT window.start, count(*) {W} GROUP BY a.k", UnknownNameError, "GROUP BY has no window"),
        (f"SELECT window(a.ts, '6 s') {W} GROUP BY window(a.ts, '5 s')", QueryError, "neither in GROUP BY"),
        (f"SELECT a.k {W} GROUP BY a.k HAVING count(*) > 3", UnsupportedError, r"HAVING COUNT\(\*\) > 3.*taken back.*a.ts"),
        (f"SELECT a.k {W} HAVING a.k > 3", UnsupportedError, "HAVING a.k > 3"),
        (
            "SELECT 1 FROM s0 a, s1 b WHERE a.k = b.k GROUP BY window(a.ts, '5 s')",
            WindowError,
            r"never leave.*than 'a' a tuple of 'b'.*WINDOW \(a, b\) = 10 MINUTES.*b.ts <= a.ts \+ INTERVAL",
        ),
        (
            "SELECT 1 FROM s0 a, s1 b WHERE a.k = b.k AND b.ts >= a.ts GROUP BY window(a.ts, '5 s')",
            WindowError,
            "never leave",
        ),
    ],
)  # fmt: skip
def test_what_is_refused(bound, query, error, message):
    assert issubclass(error, WatersmeetError)
    with pytest.raises(error, match=message):
        bound(query)


def test_one_direction_is_enough(bound):
    """An x meets earlier tuples only: its groups end with its own watermark and theirs."""
    join = bound("SELECT 1 FROM s0 a, s1 b WHERE a.k = b.k AND b.ts <= a.ts GROUP BY window(a.ts, '5 s')")
    assert join.delays_of("a") == {"a": 0, "b": 0}
