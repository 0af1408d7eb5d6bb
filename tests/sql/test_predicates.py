"""Conjuncts are sorted by what a kernel can do with them."""

import pytest

from watersmeet.errors import QueryError, UnsupportedError
from watersmeet.query.predicate import Band, Comparison, Condition, Equality


@pytest.mark.parametrize(
    ("condition", "kinds"),
    [
        ("a.k = b.k", [Equality]),
        ("a.k + 1 = b.k * 2", [Equality]),
        ("lower(a.name) = upper(b.name)", [Equality]),
        ("(a.k = b.k)", [Equality]),
        ("a.k = b.k AND (a.j = b.j AND a.v < b.v)", [Equality, Equality, Comparison]),
        ("a.v >= b.v", [Comparison]),
        ("a.v BETWEEN b.v AND b.v + 5", [Comparison, Comparison]),
        ("a.k <=> b.k", [Condition]),
        ("a.k <> b.k", [Condition]),
        ("a.k + b.k = 5", [Condition]),
        ("a.k = b.k OR a.j = b.j", [Condition]),
        ("a.k IN (b.k, b.j)", [Condition]),
        ("abs(a.v - b.v) < 1", [Band]),
        ("abs(a.v - b.v) >= 1", [Condition]),
        ("abs(a.v - b.v) <= a.k", [Condition]),
        ("a.name - b.name <= 1", [Condition]),
        ("a.k - b.k <= 9007199254740993", [Condition]),
        ("a.k - a.j = b.k", [Equality]),
    ],
)
def test_kinds(joined, condition, kinds):
    assert [type(p) for p in joined(condition).predicates] == kinds


@pytest.mark.parametrize(
    ("condition", "lo", "hi", "strict"),
    [
        ("abs(a.v - b.v) <= 1", -1, 1, False),
        ("1.5 >= ABS(a.v - b.v)", -1.5, 1.5, False),
        ("a.v - b.v BETWEEN -2 AND 3", -2, 3, False),
        ("a.v - b.v <= 3", None, 3, False),
        ("a.v - b.v >= -(3)", -3, None, False),
        ("3 >= a.v - b.v", None, 3, False),
        ("(a.v - b.v) = 3", 3, 3, False),
        ("abs(a.k - b.k) < 3", -3, 3, True),
        ("a.k - b.k > 3", 3, None, True),
    ],
)
def test_bands(joined, condition, lo, hi, strict):
    (band,) = joined(condition).predicates
    assert isinstance(band, Band)
    assert (band.lo, band.hi, band.strict) == (lo, hi, strict)
    assert (band.left.alias, band.right.alias) == ("a", "b")
    assert band.condition.aliases == {"a", "b"}


def test_filters(joined):
    join = joined(
        "a.k = b.k AND a.v > 1 AND a.k = a.j AND b.name LIKE 'x%' AND 1 = 1 AND TRUE AND a.v BETWEEN 1 AND a.k"
    )
    assert [str(f) for f in join.filters] == [
        "a.v > 1",
        "a.k = a.j",
        "b.name LIKE 'x%'",
        "1 = 1",
        "a.v BETWEEN 1 AND a.k",
    ]
    assert [sorted(f.aliases) for f in join.filters] == [["a"], ["a"], ["b"], [], ["a"]]


@pytest.mark.parametrize(
    "call",
    [
        "rand()",
        "uuid()",
        "current_timestamp()",
        "current_timestamp",
        "now()",
        "current_date()",
        "randn()",
        "unix_timestamp()",
        "monotonically_increasing_id()",
    ],
)
def test_conditions_must_be_replayable(joined, bound, call):
    with pytest.raises(UnsupportedError, match="replayable"):
        joined(f"a.k = b.k AND {call} IS NOT NULL")
    assert bound(f"SELECT {call} AS x FROM s0 a, s1 b WHERE a.k = b.k").select[0].name == "x"


def test_slots_are_shared_and_braces_survive(joined):
    (condition,) = joined("concat(a.name, '{0}', a.name) <> concat(b.name, 'wm_slot0x')").predicates
    assert [str(c) for c in condition.condition.columns] == ["a.name", "b.name"]
    text = condition.condition.spark(lambda ref: f"<{ref}>")
    assert text == "CONCAT(<a.name>, '{0}', <a.name>) <> CONCAT(<b.name>, 'wm_slot0x')"


def test_more_than_ten_slots(bound):
    columns = ", ".join(f"a.c{i}" for i in range(12))
    from watersmeet.query.stream import StreamSpec
    from watersmeet.sql.parse import parse

    wide = StreamSpec("w", {**{f"c{i}": "int" for i in range(12)}, "ts": "timestamp"}, time="ts")
    (out,) = parse(f"SELECT greatest({columns}) AS g FROM w a, w b WHERE a.c0 = b.c0", {"w": wide}).select
    assert out.expr.spark_template == f"GREATEST({', '.join(f'{{{i}}}' for i in range(12))})"


@pytest.mark.parametrize("condition", ["a.v", "a.k + b.k", "'x'", "a.name || b.name"])
def test_a_condition_is_true_or_false(joined, condition):
    with pytest.raises(QueryError, match="not true or false"):
        joined(f"a.k = b.k AND {condition}")
