"""Small files merged: each row is named once at any moment, the query goes on afterwards, and what cannot be merged stays."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyspark.sql import types as T

from tests.cli.test_app import command
from tests.rounds.lives import patch
from tests.rounds.test_delta import KEYED, append, opened, struct
from tests.rounds.test_folder_lives import Folder, FolderLife, expected
from watersmeet.columns.arrow import enlarge
from watersmeet.errors import OptionError
from watersmeet.runtime.rounds.results import compact
from watersmeet.runtime.rounds.results.columns import ROW_METADATA, line_files
from watersmeet.runtime.rounds.results.compact import Compacted, compact_folder, compact_table
from watersmeet.runtime.rounds.results.folder import LOG, SinkFolder

SCHEMA = struct(("x", T.LongType()), ("part", T.StringType()), ("v", T.DayTimeIntervalType()))


def filled(folder: Path, batches: int, by: tuple[str, ...] = ()) -> Folder:
    """A folder with so many batches of two rows, its log compacted every second one."""
    to = Folder(str(folder), by=by)
    for batch in range(batches):
        rows = pa.table({"x": [batch, -batch], "part": ["a/b", None], "v": pa.array([1, 2], pa.int64())})
        with to.files(SCHEMA).open(f"part-{batch}-attempt-0-0") as writer:
            writer.write(enlarge(rows))
            to.commit(batch, writer.close(), interval=2)
    return to


def test_a_folder_has_fewer_files_and_the_same_rows(tmp_path: Path) -> None:
    to = filled(tmp_path / "out", 9)
    before = to.rows()
    metadata = pq.read_schema(to.named()[0]).metadata
    assert compact_folder(to.folder) == Compacted(before=7, after=1)
    assert to.rows() == before
    assert sum(before.values()) == 18
    assert [p.name.partition("-")[0] for p in to.named()] == ["compacted", "part", "part"]
    assert {p.name for p in to.named()} == {p.name for p in Path(to.path).glob("*.parquet")}
    merged = to.named()[0]
    assert pq.read_schema(merged).metadata == metadata
    assert ROW_METADATA in metadata
    assert (
        json.loads((tmp_path / "out" / LOG / "7.compact").read_text().split("\n")[1])["size"] == merged.stat().st_size
    )
    assert compact_folder(to.folder) == Compacted(0, 0)


def test_sub_folders_are_merged_each_for_itself_and_up_to_a_size(tmp_path: Path) -> None:
    to = filled(tmp_path / "out", 8, by=("part",))
    before = to.rows()
    size = to.named()[0].stat().st_size
    assert compact_folder(to.folder, 3 * size + size // 2) == Compacted(before=12, after=4)
    assert to.rows() == before
    assert {p.parent.name for p in to.named()} == {"part=a%2Fb", "part=__HIVE_DEFAULT_PARTITION__"}


def test_files_of_other_columns_stay_apart(tmp_path: Path) -> None:
    to = filled(tmp_path / "out", 5)
    for batch in range(5, 10):
        with to.files(struct(("x", T.StringType()))).open(f"part-{batch}-attempt-0-0") as writer:
            writer.write(enlarge(pa.table({"x": ["a"]})))
            to.commit(batch, writer.close(), interval=2)
    before = to.rows()
    assert compact_folder(to.folder) == Compacted(before=9, after=2)
    assert to.rows() == before


def test_lines_of_text(tmp_path: Path) -> None:
    to = Folder(str(tmp_path / "out"), "json")
    for batch in range(4):
        with line_files(to.folder).open(f"part-{batch}-attempt-0-0") as writer:
            writer.write(enlarge(pa.table({"value": [f'{{"x":{batch}}}']})))
            to.commit(batch, writer.close(), interval=2)
    assert compact_folder(to.folder) == Compacted(before=3, after=1)
    assert [p.read_text() for p in to.named()] == ['{"x":0}\n{"x":1}\n{"x":2}\n', '{"x":3}\n']


@pytest.mark.parametrize("count", [2, 4])
def test_a_query_goes_on_after_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
    """Also if its last batch was a compacted one: the mark in its manifest is of its own files."""
    patch(monkeypatch)
    first: Any = FolderLife(tmp_path / "ck", tmp_path / "out")
    first.run(count)
    compact_folder(SinkFolder(str(tmp_path / "out")))
    last: Any = FolderLife(tmp_path / "ck", tmp_path / "out")
    last.run(6)
    compact_folder(SinkFolder(str(tmp_path / "out")))
    assert last.sink.rows() == expected(tmp_path / "calm")


def test_a_process_that_dies_leaves_the_old_files_or_the_new(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = filled(tmp_path / "out", 9)
    before = to.rows()

    def die(*_: Any) -> None:
        raise KeyboardInterrupt

    for step in ("_replace", "_delete"):
        with monkeypatch.context() as killing:
            killing.setattr(compact, step, die)
            with pytest.raises(KeyboardInterrupt):
                compact_folder(to.folder)
        assert to.rows() == before, step


def test_files_that_a_running_query_has_named_again_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = filled(tmp_path / "out", 9)
    before, replace = to.rows(), compact._replace

    def race(folder: SinkFolder, name: str, lines: Any) -> None:
        to.commit(9, [], interval=2)  # copies the old entry
        replace(folder, name, lines)

    monkeypatch.setattr(compact, "_replace", race)
    compact_folder(to.folder)
    assert to.rows() == before


def test_what_is_no_folder_of_results(tmp_path: Path) -> None:
    with pytest.raises(OptionError, match="is not a folder of results: it has no _spark_metadata"):
        compact_folder(SinkFolder(str(tmp_path)))
    assert compact_folder(filled(tmp_path / "young", 1).folder) == Compacted(0, 0)
    with pytest.raises(OptionError, match="there is no Delta table"):
        compact_table(opened(tmp_path / "none").folder)


def test_a_table_has_fewer_files_and_the_same_rows(tmp_path: Path) -> None:
    to = opened(tmp_path / "t", ["part"])
    for batch in range(5):
        append(to, KEYED, pa.table({"x": [batch, -batch], "part": ["a/b", None]}), batch)
    before = Counter(map(str, DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist()))
    assert compact_table(to.folder) == Compacted(before=10, after=2)
    assert Counter(map(str, DeltaTable(tmp_path / "t").to_pyarrow_table().to_pylist())) == before
    assert to.has(4, None), "the number of the latest batch survives"
    append(to, KEYED, pa.table({"x": [7], "part": ["c"]}), 5)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 11


def test_the_command(tmp_path: Path) -> None:
    to = filled(tmp_path / "out", 9)
    assert "7 files became 1, each of up to 128.0 MB" in command("compact", to.path).stdout
    assert "nothing to merge" in command("compact", to.path).stdout
    append(opened(tmp_path / "t"), KEYED, pa.table({"x": [1], "part": ["a"]}), 0)
    append(opened(tmp_path / "t"), KEYED, pa.table({"x": [1], "part": ["a"]}), 1)
    assert "2 files became 1" in command("compact", f"delta:{tmp_path / 't'}", "--target", "1 MB").stdout
    wrong = command("compact", to.path, "--target", "much")
    assert (wrong.exit_code, "--target='much': give a number of bytes" in wrong.stderr) == (2, True)
    assert "there is no folder" in command("compact", str(tmp_path / "none")).stderr
