"""A folder of results without a JVM: its log, the files that workers write, and who may delete them."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from watersmeet.columns.arrow import enlarge
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.runtime.rounds.results import log as log_module
from watersmeet.runtime.rounds.results import parts as parts_module
from watersmeet.runtime.rounds.results.columns import ROW_METADATA, can_units_write, line_files, part_files
from watersmeet.runtime.rounds.results.folder import LOG, SinkFolder
from watersmeet.runtime.rounds.results.log import SinkLog
from watersmeet.runtime.rounds.results.parts import NOTHING, ByColumns, Part, escape
from watersmeet.runtime.rounds.sinks import FileSink, sink
from watersmeet.runtime.spark.versions import WRITER
from watersmeet.runtime.subscriptions.sinks import ByQuery, sub_folder


def entries(folder: Path) -> dict[str, list[dict[str, Any]]]:
    """The log, entry by entry."""
    out = {}
    for path in (folder / LOG).iterdir():
        version, *lines = path.read_text().split("\n")
        assert version == "v1"
        out[path.name] = [json.loads(line) for line in lines]
    return out


def put(folder: Path, batch: int, *names: str, **how: Any) -> None:
    for name in names:
        (folder / name).write_text(f"rows of {name}")
    SinkLog(SinkFolder(str(folder)), **how).put(batch, [Part(n, 1, len(f"rows of {n}")) for n in names])


def test_an_entry_is_what_spark_writes(tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    folder.mkdir()
    put(folder, 0, "part-0.parquet")
    (line,) = entries(folder)["0"]
    assert list(line) == ["path", "size", "isDir", "modificationTime", "blockReplication", "blockSize", "action"]
    assert line["path"] == f"file://{tmp_path}/a%20b/part-0.parquet"
    assert (line["size"], line["isDir"], line["action"]) == (len("rows of part-0.parquet"), False, "add")
    assert line["modificationTime"] == (folder / "part-0.parquet").stat().st_mtime_ns // 10**6
    put(folder, 1)
    assert (folder / LOG / "1").read_text() == "v1", "a batch without files"
    assert sorted(p.name for p in (folder / LOG).iterdir()) == ["0", "1"], "nothing is left beside"


@pytest.mark.parametrize("interval", [10, 20, 3, 1])
def test_every_tenth_entry_has_all_files_and_old_ones_go(tmp_path: Path, interval: int) -> None:
    for batch in range(25):
        put(tmp_path, batch, *([f"part-{batch}"] if batch % 4 else []), default=interval)
        folder, found = SinkFolder(str(tmp_path)), entries(tmp_path)
        assert folder.latest() == batch
        newest = (batch + 1) // interval * interval - 1
        assert {int(n.removesuffix(".compact")) for n in found} == set(range(max(newest - interval, 0), batch + 1))
        read = [f"{b}.compact" if (b + 1) % interval == 0 else f"{b}" for b in range(max(newest, 0), batch + 1)]
        name = read[-1]
        seen = [line["path"].rpartition("-")[2] for name in read for line in found[name]]
        assert seen == [f"{b}" for b in range(batch + 1) if b % 4]
        whole = interval == 1 or name.endswith(".compact")
        assert SinkLog(folder).list_files(batch) == {
            f"part-{b}" for b in range(0 if whole else batch, batch + 1) if b % 4
        }


def test_the_interval_is_the_folders_own(tmp_path: Path) -> None:
    for batch in range(8):
        put(tmp_path, batch, default=4)
    for batch in range(8, 12):
        put(tmp_path, batch, default=10)
    assert {n for n in entries(tmp_path) if n.endswith("compact")} == {"7.compact", "11.compact"}


def test_an_entry_is_never_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put(tmp_path, 0, "mine")
    before = (tmp_path / LOG / "0").read_bytes()

    def unable(*_: Any) -> None:
        raise OSError("no hard links here")

    for links in (True, False):
        if not links:
            monkeypatch.setattr(log_module.os, "link", unable)
        with pytest.raises(CheckpointError, match=r"_spark_metadata/0 is there already: another query writes to"):
            put(tmp_path, 0, "other")
        assert (tmp_path / LOG / "0").read_bytes() == before
    put(tmp_path, 1, "next")
    assert sorted(p.name for p in (tmp_path / LOG).iterdir()) == ["0", "1"]


def test_a_file_that_the_driver_does_not_see_is_not_named(tmp_path: Path) -> None:
    (tmp_path / "short").write_text("ro")
    for name in ("short", "absent"):
        with pytest.raises(CheckpointError, match=f"{name} is not there as a worker wrote it: .* share"):
            SinkLog(SinkFolder(str(tmp_path))).put(0, [Part(name, 1, 4)])
    assert SinkFolder(str(tmp_path)).latest() is None


def test_an_entry_that_is_missing_is_named(tmp_path: Path) -> None:
    for batch in range(9):
        put(tmp_path, batch)
    (tmp_path / LOG / "4").unlink()
    with pytest.raises(CheckpointError, match=r"_spark_metadata/4 is missing"):
        put(tmp_path, 9)
    (tmp_path / LOG / "4").write_text("v7\n{}")
    with pytest.raises(CheckpointError, match=r"_spark_metadata/4 is not an entry"):
        put(tmp_path, 9)


EVERY = [
    T.ByteType(), T.ShortType(), T.IntegerType(), T.LongType(), T.FloatType(), T.DoubleType(), T.DecimalType(10, 4), T.DecimalType(38, 6), T.BooleanType(),
    T.StringType(), T.BinaryType(), T.DateType(), T.TimestampType(), T.TimestampNTZType(), T.DayTimeIntervalType(), T.ArrayType(T.TimestampType()),
    T.StructType([T.StructField("x", T.IntegerType()), T.StructField("y", T.ArrayType(T.StringType()))]), T.MapType(T.StringType(), T.LongType()), T.YearMonthIntervalType(),
]  # fmt: skip


def columns(*fields: tuple[str, Any]) -> Any:
    return T.StructType([T.StructField(*field) for field in fields])


DAYS = columns(("x", T.LongType()), ("day", T.DateType()), ("name", T.StringType()))


def test_files_have_the_types_of_spark(tmp_path: Path) -> None:
    schema = columns(*((chr(97 + n), kind) for n, kind in enumerate(EVERY)))
    how = part_files(SinkFolder(str(tmp_path)), schema, ())
    assert not can_units_write(how, schema), "months are cast by Spark"
    values = [1, 2, 3, 4, 0.5, -0.0, Decimal("1.5000"), Decimal(7), True, "é", b"\0", 5, 10**6, 10**6, 7, [1, None], {"x": 1, "y": ["z"]}, [("k", None)], 14]  # fmt: skip
    rows = pa.table([pa.array([v, None], f.type) for v, f in zip(values, how.columns, strict=True)], schema=how.columns)
    with how.open("part-0") as writer:
        writer.write(rows)
        (part,) = writer.close()
    path = tmp_path / part.path
    assert (part.path, part.rows, part.bytes) == ("part-0-0.snappy.parquet", 2, path.stat().st_size)
    file = pq.ParquetFile(path)
    kinds = [str(file.schema.column(n).logical_type) for n in range(14)]
    assert (
        kinds[12]
        == "Timestamp(isAdjustedToUTC=true, timeUnit=microseconds, is_from_converted_type=false, force_set_converted_type=false)"
    )
    assert kinds[13].startswith("Timestamp(isAdjustedToUTC=false, timeUnit=microseconds")
    assert [file.schema.column(n).physical_type for n in (14, len(file.schema) - 1)] == ["INT64", "INT32"]
    assert file.metadata.row_group(0).column(3).compression == "SNAPPY"
    assert json.loads(file.metadata.metadata[ROW_METADATA]) == json.loads(schema.json())
    assert WRITER.items() <= file.metadata.metadata.items()
    found = file.read()
    assert found.to_pylist() == rows.to_pylist()
    assert repr(found["f"][0].as_py()) == "-0.0"
    assert found.schema.field("m").type == pa.timestamp("us", "UTC")


def test_columns_that_are_not_null_stay_so(tmp_path: Path) -> None:
    how = part_files(SinkFolder(str(tmp_path)), columns(("x", T.IntegerType(), False), ("y", T.IntegerType())), ())
    with how.open("part-0") as writer:
        writer.write(pa.table({"x": [1], "y": [2]}))
        (part,) = writer.close()
    assert [f.nullable for f in pq.read_schema(tmp_path / part.path)] == [False, True]


def write(how: Any, tables: list[pa.Table], stem: str = "part-3-abc-0-7") -> list[Part]:
    with how.open(stem) as writer:
        for table in tables:
            writer.write(table)
        return writer.close()


def plain(folder: Path, by: tuple[str, ...] = ()) -> Any:
    return part_files(SinkFolder(str(folder)), DAYS, by)


def days(count: int, names: list[Any] | None = None) -> pa.Table:
    named = pa.array([(names or ["n"])[n % len(names or ["n"])] for n in range(count)], pa.large_string())
    return pa.table({"x": range(count), "day": pa.array([n % 3 for n in range(count)], pa.date32()), "name": named})


def test_small_blocks_share_a_row_group_and_large_files_end(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (part,) = write(plain(tmp_path), [days(10)] * 20)
    assert pq.ParquetFile(tmp_path / part.path).metadata.num_row_groups == 1
    monkeypatch.setattr(parts_module, "GROUP_BYTES", 2_000)
    monkeypatch.setattr(parts_module, "FILE_BYTES", 5_000)
    parts = write(plain(tmp_path), [days(100)] * 30, "part-4-abc-0-7")
    assert len(parts) > 2
    assert [p.path for p in parts] == [f"part-4-abc-0-7-{n}.snappy.parquet" for n in range(len(parts))]
    assert sum(p.rows for p in parts) == 3_000 == sum(pq.read_metadata(tmp_path / p.path).num_rows for p in parts)


def test_no_rows_are_no_file_but_a_first_batch_tells_its_columns(tmp_path: Path) -> None:
    assert write(plain(tmp_path), [days(0)]) == []
    assert not list(tmp_path.iterdir())
    to = FileSink(str(tmp_path))
    to.files(columns(("x", T.LongType()), ("s", T.StringType())))
    to.commit(0, [])
    to.commit(1, [])
    (line,) = entries(tmp_path)["0"]
    assert entries(tmp_path)["1"] == []
    empty = pq.read_table(line["path"].removeprefix("file://"))
    assert (empty.num_rows, empty.column_names) == (0, ["x", "s"])


def test_folders_have_their_rows_and_files_lack_their_columns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = ["a/b", "ü 100%", None, "", "x=y"]
    rows = days(60, names)
    for most in (64, 2):
        monkeypatch.setattr(parts_module, "MOST_OPEN", most)
        monkeypatch.setattr(parts_module, "GROUP_BYTES", 600)
        how = plain(tmp_path / str(most), ("day", "name"))
        assert can_units_write(how, DAYS)
        parts = write(how, [rows.slice(n, 6) for n in range(0, 60, 6)])
        found = {}
        for part in parts:
            folder = part.path.rpartition("/")[0]
            table = pq.read_table(tmp_path / str(most) / part.path, partitioning=None)
            assert table.column_names == ["x"]
            found.setdefault(folder, []).extend(table["x"].to_pylist())
        expected: dict[str, list[int]] = {}
        for row in rows.to_pylist():
            name = escape(row["name"]) if row["name"] else NOTHING
            expected.setdefault(f"day={row['day']}/name={name}", []).append(row["x"])
        assert found == expected
        assert (len(parts) > len(expected)) == (most == 2), "files are closed where too many would be open"


def test_a_writer_that_fails_takes_its_files_along(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts_module, "GROUP_BYTES", 1)
    other = write(plain(tmp_path), [days(3)])
    with pytest.raises(pa.ArrowInvalid):
        write(
            plain(tmp_path),
            [days(10), days(1).rename_columns(["x", "day", "name"]).set_column(0, "x", [["no number"]])],
            "part-3-abc-0-8",
        )
    assert [p.name for p in tmp_path.iterdir()] == [other[0].path]


def test_what_failed_attempts_have_left_is_swept(tmp_path: Path) -> None:
    to = FileSink(str(tmp_path), by=["day"])
    how = to.files(DAYS)
    dead = write(how, [days(6)], "part-1-dead-0-1")
    before, mine = write(how, [days(6)], "part-0-abc-0-1"), write(how, [days(6)], "part-1-mine-0-1")
    to.commit(0, before)
    to.commit(1, mine)
    later = write(how, [days(6)], "part-11-dead-0-1")
    to.sweep(1)
    left = {str(p.relative_to(tmp_path)) for p in tmp_path.rglob("part-*")}
    assert left == {p.path for p in [*before, *mine, *later]}
    assert not {p.path for p in dead} & left


def test_lines_are_text(tmp_path: Path) -> None:
    (part,) = write(line_files(SinkFolder(str(tmp_path))), [enlarge(pa.table({"value": ['{"x":1}', '{"é":2}']}))] * 2)
    assert part.path.endswith(".json")
    assert (tmp_path / part.path).read_text() == '{"x":1}\n{"é":2}\n' * 2


def test_texts_that_only_spark_writes_come_as_columns_of_their_own(tmp_path: Path) -> None:
    schema = columns(("x", T.LongType()), ("at", T.TimestampType()))
    how = part_files(SinkFolder(str(tmp_path)), schema, ["at"])
    assert not can_units_write(how, schema)
    rows = pa.table(
        {"x": [1, 2], "at": pa.array([0, None], pa.timestamp("us", "UTC")), "t": ["1970-01-01 00:00:00", None]}
    )
    assert [p.path.rpartition("/")[0] for p in write(how, [rows])] == ["at=1970-01-01 00%3A00%3A00", f"at={NOTHING}"]
    assert isinstance(how.folders, ByColumns)


def test_a_folder_that_only_hadoop_knows_is_refused() -> None:
    with pytest.raises(OptionError, match=r"late='dbfs:/x': Arrow, which writes the files, cannot open"):
        SinkFolder("dbfs:/x", "late").require()
    with pytest.raises(OptionError, match=r"partition_by=.* is for a folder or a table, and sink is 'noop'"):
        sink("noop", partition_by=["day"])


def test_every_query_has_a_folder_of_its_own() -> None:
    ids = ["a", "A", "_41", "a_b", "a/b", "", "x" * 160, "x" * 161, "X" * 300, "X" * 301, "\u00e9", "e\u0301"]
    rows = pa.table({"query": pa.chunked_array([pa.array(ids * 2, pa.large_string())])})
    names = ByQuery().name_rows(rows).to_pylist()
    assert names == [f"query_folder={sub_folder(id)}" for id in ids * 2]
    assert len({name.casefold() for name in names}) == len(ids)
    assert max(map(len, names)) <= 200


def test_what_a_sink_remembers_of_its_batches_is_what_the_folder_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    to = FileSink(str(tmp_path))
    to.files(columns(("x", T.LongType()), ("s", T.StringType())))
    listed: list[str] = []
    names = SinkFolder._names
    monkeypatch.setattr(
        SinkFolder, "_names", lambda self, *parts: (listed.append("/".join(parts)), names(self, *parts))[1]
    )
    for batch in range(12):  # entry 9 is compacted
        listed.clear()
        assert not to.has(batch, None)
        to.take_batches([], batch)
        assert to.has(batch, None)
        mark = to.mark(batch)
        if batch not in (0, 9):
            assert listed == [LOG], "once, for the interval"
        assert mark == to.folder.mark(batch) is not None


def test_a_sink_whose_commit_failed_asks_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    to = FileSink(str(tmp_path))
    to.files(columns(("x", T.LongType()), ("s", T.StringType())))
    to.take_batches([], 0)

    def fail(*_: Any) -> None:
        raise OSError("after the entry was written")

    with monkeypatch.context() as broken:
        broken.setattr(SinkFolder, "list_marks", fail)
        with pytest.raises(OSError, match="after the entry"):
            to.take_batches([], 1)
    assert to.has(1, None)
    assert not to.has(2, None)
