"""Scaling on the rounds runtime: units come and go while a query runs, and no result is lost or doubled."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from tests.spark.streams import stream, table, write
from watersmeet.errors import OptionError

pytestmark = pytest.mark.spark

BAND = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE abs(a.k - b.k) <= 1 WINDOW = 3 SECONDS"


def batch(number: int, rows: int, seed: int, keys: Any = None) -> pa.Table:
    """A batch of five seconds of event time."""
    draw = np.random.default_rng(100 * seed + number)
    drawn = draw.integers(0, 60, rows) if keys is None else keys(draw, rows)
    ts = 5 * number + np.sort(draw.random(rows) * 5)
    return table([(int(k), 10_000 * number + n, float(t)) for n, (k, t) in enumerate(zip(drawn, ts, strict=True))])


def run(spark: Any, tmp_path: Path, text: str, batches: list[list[pa.Table]], **how: Any) -> Any:
    """A handle of a query that has ended, its results equal to those of one unit in process."""
    scaling, options = how.pop("scaling"), how
    names = "stu"[: len(batches)]
    streams = {
        n: stream(spark, write(tmp_path, n, b), lateness="1 second") for n, b in zip(names, batches, strict=True)
    }
    query = wm.sql(text, **streams, **options)
    handle = query.start(sink="memory", checkpoint=tmp_path / "ck", trigger="availableNow", scaling=scaling)
    handle.await_termination()
    local = wm.local.run(text, dict(zip(names, map(pa.concat_tables, batches), strict=True)))
    found = handle.table()
    assert Counter(zip(*(c.to_pylist() for c in found.columns), strict=True)) == Counter(
        zip(*(c.to_pylist() for c in local.columns), strict=True)
    )
    assert found.num_rows > 100
    return handle


def test_units_follow_the_load_and_window_joins_migrate_nothing(spark: Any, tmp_path: Path) -> None:
    rates = [20, 200, 200, 200, 20, 20, 20, 20, 20]
    batches = [[batch(n, rows, seed) for n, rows in enumerate(rates)] for seed in (1, 2)]
    scaling = wm.Scaling(unit_bytes="4 KB", confirm=2)
    handle = run(spark, tmp_path, BAND, batches, units=4, routing="random", scaling=scaling)
    said = [(p.batch_id, word) for p in handle.history() for word in p.scaled]
    assert any("2 -> " in word and n <= 3 for n, word in said), "it grew under load"
    assert any(n >= 5 for n, _ in said), "it shrank when the load was gone"
    assert not any("handed over" in word for _, word in said)
    assert max(unit for p in handle.history() for unit in p.unit_rows) > 3, "units that were added have work"
    assert len(handle.state()) < 4, "units that were removed are gone when their rows are"


def test_full_history_hands_segments_over(spark: Any, tmp_path: Path) -> None:
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE abs(a.k - b.k) <= 1"
    batches = [[batch(n, 60, seed) for n in range(5)] for seed in (3, 4)]
    handle = run(spark, tmp_path, text, batches, units=2, routing="random", scaling=wm.Scaling("5 KB", confirm=1))
    assert any("handed over" in word for p in handle.history() for word in p.scaled)
    rows = [state.rows for state in handle.state().values()]
    assert len(rows) > 4
    assert max(rows) < 2.5 * sum(rows) / len(rows)


def zipf(draw: Any, rows: int) -> Any:
    weights = 1 / np.arange(1, 2001) ** 1.2
    return draw.choice(2000, rows, p=weights / weights.sum())


def test_a_hot_key_is_spread_over_its_side(spark: Any, tmp_path: Path) -> None:
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND"
    batches = [[batch(n, 3000, seed, zipf) for n in range(4)] for seed in (5, 6)]
    scaling = wm.Scaling(unit_bytes="1 GB", low=0.0)
    handle = run(spark, tmp_path, text, batches, units=8, routing="contrand(4, 4)", scaling=scaling)
    assert any("hot" in word for p in handle.history() for word in p.scaled)
    stored = {unit: state.rows for unit, state in handle.state().items()}
    for side in (range(4), range(4, 8)):
        rows = [stored.get(unit, 0) for unit in side]
        assert max(rows) <= 1.3 * sum(rows) / 4, rows


def test_every_join_of_a_pipeline_scales_by_itself(spark: Any, tmp_path: Path) -> None:
    """Two streams meet by key in a grid, their results the third at random; both grow and shrink, and executors are asked for."""
    text = "SELECT a.v AS x, b.v AS y, c.v AS z FROM s a, t b, u c WHERE a.k = b.k AND abs(b.v - c.v) <= 2 WINDOW = 2 SECONDS"
    rates = [10, 120, 120, 120, 10, 10, 10, 10]
    batches = [[batch(n, rows, seed) for n, rows in enumerate(rates)] for seed in (1, 2, 3)]
    asked: list[int] = []
    scaling = wm.Scaling(unit_bytes="3 KB", confirm=2, executors=asked.append, units_per_executor=2)
    how = {"units": 2, "routing": "pipeline", "order": ["a", "b", "c"], "scaling": scaling}
    handle = run(spark, tmp_path, text, batches, **how)
    said = [(p.batch_id, word) for p in handle.history() for word in p.scaled]
    assert any(word.startswith("all sides: 2 -> ") and n <= 3 for n, word in said), "the grid grew under load"
    assert any(word.startswith("all sides: ") and n >= 4 for n, word in said), "and shrank"
    assert any(word.startswith("join 2, side ") for n, word in said), "so did the biclique"
    assert asked[0] == 2
    assert max(asked) > 2
    assert asked[-1] < max(asked)


def test_what_cannot_be_scaled_is_refused(spark: Any, tmp_path: Path) -> None:
    s = stream(spark, write(tmp_path, "s", [table([(1, 1, 1)])]))
    outer = "SELECT a.v AS x FROM s a LEFT JOIN t b ON a.k = b.k WINDOW (a, b) = 3 SECONDS"
    rows = "SELECT a.v AS x FROM s a [ROWS 3], t b WHERE a.k = b.k"
    for text, why in ((outer, "scaling= is for inner joins"), (rows, "ROWS windows do not go together")):
        with pytest.raises(OptionError, match=why):
            wm.sql(text, s=s, t=s).start(sink="memory", checkpoint=tmp_path / "ck", scaling=wm.Scaling("1 MB"))
    with pytest.raises(OptionError, match="Scaling"):
        wm.sql(BAND, s=s, t=s).start(sink="memory", checkpoint=tmp_path / "ck", scaling=3)
