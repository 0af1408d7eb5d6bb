"""Texts that repeat in results, from the join to Parquet files: the same rows, each text once for each row group."""

from __future__ import annotations

from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import types as T

from tests.rounds.stage import Stage, prepared
from watersmeet import Stream
from watersmeet.operators.finish.project import select_final
from watersmeet.runtime.rounds import files, posting
from watersmeet.runtime.rounds.checkpoint import StateFolder
from watersmeet.runtime.rounds.results import coded as coded_module
from watersmeet.runtime.rounds.results import parts as parts_module
from watersmeet.runtime.rounds.results.coded import choose_step, count_decoded, is_coded, join_rows
from watersmeet.runtime.rounds.results.columns import part_files
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.results.leaving import Writing
from watersmeet.storage.manifest import BatchManifest, Identity

COLUMNS = T.StructType([T.StructField("n", T.LongType()), T.StructField("text", T.StringType())])
TABLES = st.lists(
    st.tuples(st.lists(st.sampled_from(["a", "b", "", None, "a long one"]), max_size=9), st.booleans()), max_size=6
)


def make(values: list[str | None], is_coded: bool) -> pa.Table:
    texts = pa.array(values, pa.large_string())
    return pa.table({"n": range(len(values)), "text": texts.dictionary_encode() if is_coded else texts})


@given(TABLES, st.sampled_from([1, 10, 2**20]))
@settings(suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_coded_rows_and_plain_ones_are_read_back(tmp_path_factory, tables, group_rows):
    folder = tmp_path_factory.mktemp("rows")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parts_module, "GROUP_ROWS", group_rows)
        with part_files(SinkFolder(str(folder)), COLUMNS, ()).open("part-0") as writer:
            for values, is_coded in tables:
                writer.write(make(values, is_coded))
            parts = writer.close()
    found = [row for part in parts for row in pq.read_table(folder / part.path).to_pylist()]
    assert found == [row for values, is_coded in tables for row in make(values, is_coded).to_pylist()]
    for part in parts:
        metadata = pq.read_metadata(folder / part.path)
        assert part.rows == metadata.num_rows
        groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
        assert all(group.num_rows <= max(group_rows, 9) for group in groups)


def test_a_row_group_is_coded_if_most_of_its_rows_are() -> None:
    for sizes, expected in [((6, 4), True), ((4, 6), False)]:
        joined = join_rows([make(["x"] * sizes[0], True), make(["y"] * sizes[1], False)])
        assert is_coded(joined.schema.field("text").type) == expected
        assert joined["text"].to_pylist() == ["x"] * sizes[0] + ["y"] * sizes[1]


def test_a_file_ends_where_other_columns_are_coded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "GROUP_ROWS", 5)
    with part_files(SinkFolder(str(tmp_path)), COLUMNS, ()).open("part-0") as writer:
        for n, is_coded in enumerate([True, True, False, False, True]):
            writer.write(make([f"text {n}"] * 5, is_coded))
        parts = writer.close()
    assert [part.rows for part in parts] == [10, 10, 5]


def test_what_a_reader_may_have_to_decode_at_once_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = make(["x" * 1000] * 100, True)
    assert table.nbytes < 5_000
    assert count_decoded(table) > 100_000
    monkeypatch.setattr(parts_module, "GROUP_DECODED", 200_000)
    with part_files(SinkFolder(str(tmp_path)), COLUMNS, ()).open("part-0") as writer:
        for _ in range(4):
            writer.write(table)
        (part,) = writer.close()
    assert pq.read_metadata(tmp_path / part.path).num_row_groups == 2


def test_wide_columns_beside_coded_ones_go_in_small_steps() -> None:
    narrow = make(["x"] * 100, True)
    assert choose_step(make(["x"] * 100, False)) == coded_module.STEP_ROWS
    assert choose_step(narrow) == coded_module.MOST_STEP_ROWS
    assert choose_step(narrow.append_column("wide", [["y" * 10_000] * 100])) == coded_module.STEP_ROWS


SQL = {
    "inner": "SELECT r.n AS x, r.text AS t, s.n AS y, s.bytes AS b, s.text AS u FROM r JOIN s ON r.k = s.k",
    "left": "SELECT r.n AS x, r.text AS t, s.n AS y, s.bytes AS b, s.text AS u FROM r LEFT JOIN s ON r.k = s.k",
    "asked": "SELECT r.n AS x, upper(r.text) AS t, s.n AS y, s.bytes AS b, s.text AS u FROM r JOIN s ON r.k = s.k AND r.text || s.text <> 'ab'",
}
ROWS, BATCHES = 90, 3


def stream(seed: int) -> pa.Table:
    times = pa.array([(1_700_000_000 + i // 10) * 1_000_000 for i in range(ROWS)], pa.timestamp("us", "UTC"))
    texts = [None if i % 7 == seed else "ab"[i % 2] * (i % 4) for i in range(ROWS)]
    found = {"n": [*range(ROWS)], "k": [(i + seed) % 3 for i in range(ROWS)], "text": texts}
    return pa.table(found | {"bytes": [None if t is None else t.encode() for t in texts], "ts": times})


@pytest.mark.parametrize("name", SQL)
def test_a_join_writes_what_duckdb_finds(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = spy(monkeypatch)
    r, s = stream(0), stream(1)
    run = prepared(f"{SQL[name]} WINDOW = 2 SECONDS", {"r": Stream(r, time="ts"), "s": Stream(s, time="ts")}, units=2)
    stage: Any = Stage(run.plan, run, StateFolder.under(str(tmp_path / "state")))
    stage.folder.prepare()
    for module in (files, posting):
        monkeypatch.setattr(module, "TaskContext", stage)
    kinds = [T.LongType(), T.StringType(), T.LongType(), T.BinaryType(), T.StringType()]
    columns = T.StructType([T.StructField(name, kind) for name, kind in zip("xtybu", kinds, strict=True)])
    how = part_files(SinkFolder(str(tmp_path / "rows")), columns, ())
    stage.task.writing = Writing(how, partial(select_final, run.plan))
    state, parts = BatchManifest.fresh(Identity.of(run.plan), "id"), []
    for number in range(BATCHES):
        found, _ = stage.batch(state, number, ROWS // BATCHES, None, f"{number}-x")
        parts += [row["path"] for batch in found for row in batch.to_pylist()]
    tables = [pq.read_table(tmp_path / "rows" / path) for path in parts]
    condition = "r.ts BETWEEN s.ts - INTERVAL 2 SECONDS AND s.ts + INTERVAL 2 SECONDS"
    sql = SQL[name] + f" AND {condition}"
    expected = Counter(duckdb.connect().execute(sql).fetchall())
    if name == "left":  # those that still wait are not there
        expected = Counter({row: n for row, n in expected.items() if row[2] is not None})
        tables = [table.filter(table["y"].is_valid()) for table in tables]
    assert Counter(tuple(row.values()) for table in tables for row in table.to_pylist()) == expected
    assert sum(expected.values()) > 900
    assert {name for name, kinds in seen.items() if True in kinds} == {
        *{"inner": "tbu", "left": "tbu", "asked": "bu"}[name]
    }


def spy(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[bool]]:
    """By column: whether it was coded, whenever rows were written."""
    seen: dict[str, list[bool]] = {}
    write = parts_module.PartWriter.write

    def watch(self: parts_module.PartWriter, rows: pa.Table) -> None:
        for name, kind in zip(self.how.columns.names, rows.schema.types, strict=True):
            seen.setdefault(name, []).append(is_coded(kind))
        write(self, rows)

    monkeypatch.setattr(parts_module.PartWriter, "write", watch)
    return seen
