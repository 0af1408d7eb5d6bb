"""A Delta table as sink: its rows and types are those of the SELECT, whoever selects, and it is refused before the query runs if they do not fit."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable

import watersmeet as wm
from tests.spark.streams import stream
from tests.spark.test_folders import PARTS, QUERIES, kinds, pair, rising, run, shown, streams

pytestmark = pytest.mark.spark


@pytest.mark.thorough
@pytest.mark.parametrize("what", ["every type", "by Spark"])
def test_the_table_has_what_the_select_has(spark: Any, tmp_path: Path, what: str) -> None:
    text = QUERIES[what][0].replace("a.v AS v, ", "").replace("`a b`", "ab")
    text = text.replace("make_ym_interval(1, CAST(a.i AS int)) AS ym, ", "")
    expected: list[str] = []
    query = wm.sql(text, **streams(spark, tmp_path), units=2)
    run(query, tmp_path, "function", lambda rows, _: expected.extend(shown(rows)))
    handle = run(query, tmp_path, "table", f"delta:{tmp_path / 'out'}")
    assert (handle._protocol.steps.task.writing is not None) == QUERIES[what][1]
    table = DeltaTable(tmp_path / "out")
    found = spark.read.parquet(*table.file_uris())
    assert kinds(found.schema) == kinds(query.dataframe().schema)
    assert Counter(shown(found)) == Counter(expected) != Counter()
    assert table.to_pyarrow_table().num_rows == len(expected)
    assert len(handle.history()) == 4
    assert table.version() == 3, "made, then an entry for each of the three batches that had rows"


def test_partitions_and_what_does_not_fit(spark: Any, tmp_path: Path) -> None:
    query, out = pair(spark, tmp_path, rising(2)), tmp_path / "out"
    expected: list[Any] = []
    run(query, tmp_path, "function", lambda rows, _: expected.extend(rows.collect()))
    run(query, tmp_path, "table", f"delta:{out}", partition_by=["day", "PART"])
    found = DeltaTable(out)
    assert found.metadata().partition_columns == ["day", "part"]
    columns = found.to_pyarrow_table().select(["x", "y", "day", "part"]).to_pylist()
    assert Counter(tuple(row.values()) for row in columns) == Counter((x, y, d, p or None) for x, y, d, p in expected)
    assert {p or None for *_, p in expected} == {p or None for p in PARTS}
    again = pair(spark, tmp_path, rising(2))
    with pytest.raises(
        wm.OptionError, match=r"partition_by=\['day'\]: the table .* is partitioned by \['day', 'part'\]"
    ):
        again.start(sink=f"delta:{out}", checkpoint=tmp_path / "other", partition_by="day")
    given = {n: stream(spark, str(tmp_path / n)) for n in "st"}
    text = (
        "SELECT CAST(a.v AS string) AS x, a.day AS day, a.part AS part FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECONDS"
    )
    other = wm.sql(text, **given)
    with pytest.raises(wm.OptionError, match="column 'x' of the result is string, and the table's is long; cast it"):
        other.start(sink=f"delta:{out}", checkpoint=tmp_path / "other")
    assert not (tmp_path / "other" / "offsets").exists()
