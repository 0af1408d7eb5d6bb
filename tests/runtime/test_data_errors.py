"""What the data makes impossible is an error that names the piece of the query."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import DataError, QueryError

TABLE = pa.table(
    {
        "k": [1],
        "x": pa.array([2**62], pa.int64()),
        "s": ["q"],
        "ts": pa.array([1], pa.timestamp("us", tz="UTC")),
    }
)


@pytest.mark.parametrize(
    ("select", "condition", "rest", "piece"),
    [
        ("a.x * b.x AS y", "", "", "SELECT"),
        ("CAST(a.s AS INT) + b.k AS y", "", "", "SELECT"),
        ("a.k AS y", "AND a.x * b.x > 5", "", r"a\.x \* b\.x > 5"),
        ("a.k AS y", "AND a.x * 4 > 5", "", "a condition or key of a"),
        ("a.k AS k, sum(a.x * 4) AS y", "", "GROUP BY a.k", "SELECT"),
    ],
)
def test_overflows_and_casts_that_fail(select: str, condition: str, rest: str, piece: str) -> None:
    text = f"SELECT {select} FROM s a, t b WHERE a.k = b.k {condition} WINDOW = 1 SECOND {rest}"
    with pytest.raises(
        DataError, match=rf"^{piece} cannot be evaluated for the row \{{.*\}}: .*; cast to a wider type"
    ):
        wm.local.run(text, {"s": TABLE, "t": TABLE})


def test_the_row_and_the_unit_are_named() -> None:
    rows = {"k": [1] * 100, "x": [1] * 60 + [2**62] + [1] * 39, "ts": pa.array([1] * 100, pa.timestamp("us", tz="UTC"))}
    text = "SELECT a.k FROM s a, t b WHERE a.k = b.k AND a.x * b.x > 5 WINDOW = 1 SECOND"
    with pytest.raises(DataError, match=rf"for the row \{{.*{2**62}.*\}}: .*; found by unit 0 in batch 0$"):
        wm.local.run(text, {"s": pa.table(rows), "t": pa.table(rows)})


@pytest.mark.parametrize(
    ("text", "row"),
    [
        ("SELECT b.x * a.x AS y FROM s a, t b WHERE a.k = b.k", r"\{b\.x: N, a\.x: N\}"),
        ("SELECT a.k FROM s a, t b WHERE a.k = b.k AND a.x * b.x > 5", r"\{a\.x: N, b\.x: N\}"),
        ("SELECT a.k FROM s a, t b WHERE a.k = b.k AND a.x * 4 > 5", r"\{k: 1, x: N, s: q, ts: .*\}"),
    ],
)
def test_the_row_has_the_names_that_the_query_has(text: str, row: str) -> None:
    with pytest.raises(DataError, match=f"for the row {row.replace('N', str(2**62))}: "):
        wm.local.run(f"{text} WINDOW = 1 SECOND", {"s": TABLE, "t": TABLE})


@pytest.mark.parametrize(
    ("text", "piece"),
    [
        ("SELECT soundex(a.s) AS y FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", r"soundex\(a\.s\)"),
        ("SELECT a.k FROM s a, t b WHERE soundex(a.s) = b.s WINDOW = 1 SECOND", r"soundex\(a\.s\)"),
        ("SELECT a.k FROM s a, t b WHERE a.k = b.k AND a.s + b.k > 1 WINDOW = 1 SECOND", r"a\.s \+ b\.k > 1"),
        ("SELECT a.k FROM s a, t b WHERE a.k = b.k AND a.s LIKE a.k WINDOW = 1 SECOND", r"a\.s LIKE a\.k"),
        (
            "SELECT a.k FROM s a LEFT JOIN t b ON a.k = b.k WHERE upper(b.k) || a.s IS NULL WINDOW = 1 SECOND",
            r".*b\.k.*",
        ),
    ],
)
def test_what_only_spark_can_evaluate_is_refused_before_any_row_is_read(text: str, piece: str) -> None:
    with pytest.raises(QueryError, match=f"(?i)^{piece}: cannot be evaluated in process: .*; make it a column"):
        wm.local.explain(text, {"s": TABLE.slice(0, 0), "t": TABLE})
