"""What one site's part of a query refuses, before anything of Spark's is asked for."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.runtime.sites.start import check_query

ROWS = pa.table({"k": [1], "x": [1], "ts": pa.array([0], pa.timestamp("us"))})


def query(text: str, **sites: str) -> wm.Query:
    streams = {name: wm.Stream(ROWS, time="ts", site=site) for name, site in {"a": "paris", "b": "tokyo"}.items()}
    return wm.sql(text, {**streams, "t": wm.Table(ROWS)}, sites=wm.Sites(**sites))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("SELECT DISTINCT a.k FROM a, b WHERE a.k = b.k WINDOW = 1 SECOND", r"wm.Sites\(results_at='paris'\)"),
        ("SELECT a.k, t.x FROM a JOIN b ON a.k = b.k JOIN t ON t.k = a.k WINDOW (a, b) = 1 SECOND", "table t: .* before it becomes a wm.Stream"),
        ("SELECT count(*) AS n FROM a LEFT JOIN b ON a.k = b.k WINDOW (a, b) = 1 SECOND", "need all results at one place"),
        ("SELECT a.k FROM a ASOF JOIN b ON a.k = b.k AND a.ts >= b.ts", "ASOF JOIN of a and b"),
        ("SELECT a.k FROM a LEFT JOIN b ON a.k = b.k LEFT ANTI JOIN b c ON c.k = a.k WINDOW = 1 SECOND", "LEFT JOIN of a and b"),
    ],
)  # fmt: skip
def test_what_sites_cannot_do_is_named_with_the_remedy(text: str, says: str) -> None:
    with pytest.raises(wm.WatersmeetError, match=says):
        check_query(query(text).plan, "paris")


def test_what_sites_can_do_is_not_refused() -> None:
    check_query(
        query("SELECT DISTINCT a.k FROM a, b WHERE a.k = b.k WINDOW = 1 SECOND", results_at="tokyo").plan, "paris"
    )
    for kind in ("LEFT", "RIGHT", "FULL", "LEFT SEMI", "LEFT ANTI"):
        check_query(query(f"SELECT * FROM a {kind} JOIN b ON a.k = b.k WINDOW (a, b) = 1 SECOND").plan, "paris")
    check_query(query("SELECT a.k FROM a [ROWS 3], b WHERE a.k = b.k WINDOW = 1 SECOND").plan, "paris")
