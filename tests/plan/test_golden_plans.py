"""Golden plans: titled pairs of a query and its explain text; each query is also executed against DuckDB.

A fixture holds the query, below a line `-- options` if it has any, an equivalent query for DuckDB, and the plan. To accept changed plans:
`python -m tests.plan.test_golden_plans` rewrites the plans; read the diff.
"""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import duckdb
import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.plan.explain.explanation import explain

FOLDER = Path(__file__).parents[1] / "fixtures" / "plans"
FIXTURES = sorted(FOLDER.glob("*.txt"))
SEPARATOR = "\n----\n"


def table(seed: int, rows: int = 200) -> pa.Table:
    """Small domains, NULL keys, ties in time."""
    draw = np.random.default_rng(seed)
    keys = [None if n < 0.05 else int(v) for n, v in zip(draw.random(rows), draw.integers(0, 8, rows), strict=True)]
    return pa.table(
        {
            "k": pa.array(keys, pa.int64()),
            "j": pa.array(draw.integers(0, 6, rows), pa.int32()),
            "v": pa.array(draw.integers(-9, 9, rows).astype(float)),
            "name": pa.array([f"n{x}" for x in draw.integers(0, 5, rows)]),
            "ts": pa.array(
                1_767_225_600_000_000 + np.cumsum(draw.integers(0, 3, rows)) * 500_000, pa.timestamp("us", tz="UTC")
            ),
        }
    )


TABLES = {name: table(seed) for seed, name in enumerate(("s", "t", "u"))}


def forced(query: str) -> dict[str, str]:
    """The options of a fixture: its first line may be `-- kernel=lca`."""
    first = query.split("\n")[0]
    return dict(item.split("=") for item in first.removeprefix("-- ").split()) if first.startswith("-- ") else {}


def explained(query: str) -> str:
    streams = {
        name: wm.Stream(t, time="ts", lateness="2 seconds" if name == "t" else "0 seconds")
        for name, t in TABLES.items()
    }
    return wm.sql(query, **streams, **forced(query)).explain("full")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
def test_plan(path: Path) -> None:
    query, _, plan = path.read_text().split(SEPARATOR)
    assert explained(query) == plan.rstrip("\n")


@pytest.mark.parametrize("path", FIXTURES, ids=lambda p: p.stem)
@pytest.mark.parametrize(("batch_rows", "units"), [(7, 1), (50, 3), (1000, 8)])
def test_answer(path: Path, batch_rows: int, units: int) -> None:
    query, truth, _ = path.read_text().split(SEPARATOR)
    connection = duckdb.connect()
    connection.execute("SET TimeZone = 'UTC'")
    for name, rows in TABLES.items():
        connection.register(name, rows)
    expected = Counter(map(tuple, connection.execute(truth).fetchall()))
    found = wm.local.run(query, TABLES, batch_rows=batch_rows, units=units, **forced(query))
    assert Counter(zip(*(c.to_pylist() for c in found.columns), strict=True)) == expected
    assert expected, "an empty answer proves nothing"


def test_there_are_plans() -> None:
    assert len(FIXTURES) >= 10


if __name__ == "__main__":
    for fixture in FIXTURES:
        parts = fixture.read_text().split(SEPARATOR)
        fixture.write_text(SEPARATOR.join([*parts[:2], explained(parts[0]) + "\n"]))


def test_the_routing_of_now_is_shown_in_short_and_in_full() -> None:
    streams = {name: wm.Stream(t, time="ts") for name, t in TABLES.items()}
    query = wm.sql("SELECT a.v AS x, b.v AS y FROM s a, t b WHERE abs(a.v - b.v) <= 1 WINDOW = 1 SECOND", **streams)
    now = ["now random, 3 and 5 units store; 1 earlier routings are probed"]
    for detail in ("short", "full"):
        found = explain(query.plan, "rounds", detail, routing_now=now)  # type: ignore[arg-type]
        assert now[0] in found
        assert found.to_dict()["routing_now"] == now
        assert "now random" not in explain(query.plan, "rounds", detail)  # type: ignore[arg-type]
