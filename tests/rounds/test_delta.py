"""A Delta table as sink, without a JVM: each row is there once wherever the process dies, and what cannot be is refused before the query runs."""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import pickle
import shutil
import sys
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from pyspark.sql import types as T

from tests.rounds.lives import FILES, Life, patch
from tests.rounds.mini_spark import Crash
from tests.rounds.test_folder_lives import COLUMNS, expected
from tests.rounds.test_lives import kill_at_file
from watersmeet.columns.arrow import enlarge
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.operators.finish.project import select_final
from watersmeet.runtime.rounds import files, posting
from watersmeet.runtime.rounds.checkpoint import SparkLogs
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.results.leaving import Writing
from watersmeet.runtime.rounds.results.parts import Part
from watersmeet.runtime.rounds.sinks import DeltaSink, sink
from watersmeet.runtime.rounds.systems import ArrowFiles


class Table(DeltaSink):
    """The sink itself, but that Spark does not run its frames; dies before or after the commit when told to."""

    dies = ""

    def write(self, rows: Any, batch_id: int) -> None:
        parts = [Part(*row) for row in rows()]
        if self.dies == "before the sink":
            raise Crash
        self.commit(batch_id, parts)
        if self.dies == "after the sink":
            raise Crash

    def rows(self) -> Counter[Any]:
        return Counter(tuple(row.values()) for row in DeltaTable(self.path).to_pyarrow_table().to_pylist())


class TableLife(Life):
    """A life whose units write the files of a table."""

    def made(self, seconds: int) -> Protocol:
        self.sink = Table(self.sink.path)  # type: ignore[assignment]
        made = super().made(seconds)
        self.sink.attach(made.logs)  # type: ignore[attr-defined]
        made.steps.task.writing = Writing(self.sink.files(COLUMNS), partial(select_final, made.plan))  # type: ignore[arg-type]
        for module in (files, posting):
            module.TaskContext = made.steps  # type: ignore[attr-defined]
        return made


@pytest.mark.parametrize("dies", ["before the sink", "after the sink", "before Spark's commit"])
def test_each_row_is_there_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str) -> None:
    patch(monkeypatch)
    for count in (2, 4, 6):
        with pytest.raises(Crash):
            TableLife(tmp_path / "ck", tmp_path / "out").run(count, dies)
    last: Any = TableLife(tmp_path / "ck", tmp_path / "out")
    last.run(FILES)
    assert last.sink.rows() == expected(tmp_path / "calm") != Counter()


@pytest.mark.parametrize("is_there", [True, False])
def test_each_row_is_there_once_whichever_file_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool
) -> None:
    patch(monkeypatch)
    calm = expected(tmp_path / "calm")
    for number in range(10):
        folder = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as killing, contextlib.suppress(KeyboardInterrupt):
            kill_at_file(killing, number, is_there)
            TableLife(folder / "ck", folder / "out").run(FILES)
        last: Any = TableLife(folder / "ck", folder / "out")
        last.run(FILES)
        assert last.sink.rows() == calm, number


def test_a_batch_that_comes_again_is_found_in_the_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last entry of Spark's commit log is gone, and that of the state with it."""
    patch(monkeypatch)
    TableLife(tmp_path / "ck", tmp_path / "out").run(FILES)
    (last,) = sorted((tmp_path / "ck" / "commits").iterdir(), key=lambda p: int(p.name))[-1:]
    last.unlink()
    (tmp_path / "ck" / "watersmeet" / "manifests" / f"{last.name}.json").unlink()
    version = DeltaTable(tmp_path / "out").version()
    again: Any = TableLife(tmp_path / "ck", tmp_path / "out")
    again.run(FILES)
    assert last.exists()
    assert DeltaTable(tmp_path / "out").version() == version
    assert again.sink.rows() == expected(tmp_path / "calm")


def test_table_and_checkpoint_belong_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    for files_ in (2, 4):
        TableLife(tmp_path / "ck", tmp_path / "out").run(files_)
        shutil.copytree(tmp_path / "out", tmp_path / f"after {files_}")
    TableLife(tmp_path / "ck", tmp_path / "out").run(FILES)
    with pytest.raises(CheckpointError, match="one of them was restored without the other"):
        TableLife(tmp_path / "ck", tmp_path / "after 2")
    with pytest.raises(CheckpointError, match=r"is not the table that .* has written its 3 batches to"):
        TableLife(tmp_path / "ck", tmp_path / "nowhere")
    TableLife(tmp_path / "other ck", tmp_path / "other").run(2)
    with pytest.raises(CheckpointError, match="is not the table that"):
        TableLife(tmp_path / "ck", tmp_path / "other")


def test_two_queries_append_to_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    TableLife(tmp_path / "ck", tmp_path / "out").run(FILES)
    second: Any = TableLife(tmp_path / "other ck", tmp_path / "out")
    second.run(FILES)
    calm = expected(tmp_path / "calm")
    assert second.sink.rows() == calm + calm


def opened(folder: Path, by: list[str] | None = None, id: str = "q") -> DeltaSink:
    """A sink whose query has an id already."""
    made: Any = sink(f"delta:{folder}", partition_by=by or [])
    logs = SparkLogs(ArrowFiles(made.folder.system), str(folder.parent / f"ck-{id}"))
    Path(logs.root).mkdir(exist_ok=True)
    (Path(logs.root) / "metadata").write_text(json.dumps({"id": id}))
    made.attach(logs)
    return made


def struct(*fields: tuple[Any, ...]) -> T.StructType:
    return T.StructType([T.StructField(*field) for field in fields])


KEYED = struct(("x", T.LongType()), ("part", T.StringType()))
VALUES = ["a/b", "x=y", "ü 100%", None, "\\[]{}^#:?*'\"", "\x01\x7f", "__x"]


def append(to: DeltaSink, schema: T.StructType, rows: pa.Table, batch: int) -> None:
    with to.files(schema).open(f"part-{batch}") as writer:
        writer.write(enlarge(rows))
        to.commit(batch, writer.close())


def test_partitions_whatever_their_values(tmp_path: Path) -> None:
    rows = pa.table({"x": range(len(VALUES)), "part": VALUES})
    to = opened(tmp_path / "t", ["PART"])
    append(to, KEYED, rows, 0)
    found = DeltaTable(tmp_path / "t")
    assert found.metadata().partition_columns == ["part"]
    assert sorted(found.to_pyarrow_table().to_pylist(), key=lambda r: r["x"]) == rows.to_pylist()
    append(opened(tmp_path / "t"), KEYED, rows, 1)  # partitioned as the table is
    assert DeltaTable(tmp_path / "t").to_pyarrow_table(filters=[("part", "=", "a/b")]).num_rows == 2


def test_statistics_hold_for_every_row(tmp_path: Path) -> None:
    at = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    later = at + dt.timedelta(microseconds=1)
    schema = struct(
        ("i", T.IntegerType()), ("t", T.TimestampType()), ("d", T.DateType()), ("s", T.StringType()), ("f", T.DoubleType()),
        ("l", T.ArrayType(T.LongType())), ("n", T.LongType()), ("long", T.StringType()), ("ntz", T.TimestampNTZType()),
    )  # fmt: skip
    columns = {
        "i": pa.array([3, -1, None], pa.int32()),
        "t": pa.array([at, later, None], pa.timestamp("us", "UTC")),
        "d": pa.array([at.date(), None, None]),
        "s": ["b", "a", "c"],
        "f": [float("nan"), 1.0, 2.0],
        "l": [[1], [], None],
        "n": pa.array([None] * 3, pa.int64()),
        "long": ["x", "y", "z" * 33],
        "ntz": pa.array([at.replace(tzinfo=None), later.replace(tzinfo=None), None], pa.timestamp("us")),
    }
    append(opened(tmp_path / "t"), schema, pa.table(columns), 0)
    (entry,) = [line for line in (tmp_path / "t/_delta_log/00000000000000000001.json").open() if '"add"' in line]
    found = json.loads(json.loads(entry)["add"]["stats"])
    zero, one = "2026-01-01T00:00:00.000", "2026-01-01T00:00:00.001"
    assert found["minValues"] == {"i": -1, "t": f"{zero}Z", "d": "2026-01-01", "s": "a", "ntz": zero}
    assert found["maxValues"] == {"i": 3, "t": f"{one}Z", "d": "2026-01-01", "s": "c", "ntz": one}
    assert found["nullCount"] == {"i": 1, "t": 1, "d": 2, "s": 0, "f": 0, "n": 3, "long": 0, "ntz": 1}
    assert found["numRecords"] == 3
    read = DeltaTable(tmp_path / "t").to_pyarrow_table(filters=[("t", ">=", later)])
    assert read.num_rows == 1


def test_a_second_driver_of_the_same_query_cannot_commit(tmp_path: Path) -> None:
    rows = pa.table({"x": [1], "part": ["a"]})
    slow, fast = opened(tmp_path / "t"), opened(tmp_path / "t")
    append(fast, KEYED, rows, 0)
    with slow.files(KEYED).open("part-1-slow") as writer:
        writer.write(enlarge(rows))
        parts, table = writer.close(), slow.folder.table()
        append(fast, KEYED, rows, 1)
        with pytest.MonkeyPatch.context() as stale:
            stale.setattr(type(slow.folder), "table", lambda _: table)
            with pytest.raises(CheckpointError, match=r"batch 1 could not be committed: .*; the same call"):
                slow.commit(1, parts)
    assert DeltaTable(tmp_path / "t").to_pyarrow_table().num_rows == 2


def test_a_file_that_is_not_there_is_not_named(tmp_path: Path) -> None:
    to = opened(tmp_path / "t")
    to.files(KEYED)
    with pytest.raises(CheckpointError, match=r"gone.parquet is not there as a worker wrote it"):
        to.commit(0, [Part("gone.parquet", 1, 10, "{}")])
    assert DeltaTable(tmp_path / "t").file_uris() == []


REFUSED = [
    (("x", T.IntegerType()), "column 'x' of the result is int, and the table's is long; cast it"),
    (("y", T.LongType()), "the table has no column 'y'; add it to the table"),
    (("x", T.DayTimeIntervalType()), "column 'x' is interval day to second, which the table cannot hold; cast it"),
    (("x", T.ArrayType(T.VariantType())), "column 'x' is array<variant>, which the table cannot hold"),
    (("x", T.StringType("UNICODE")), "which the table cannot hold"),
    (("a b", T.LongType()), "column 'a b' has a character"),
]


@pytest.mark.parametrize(("field", "said"), REFUSED)
def test_columns_that_do_not_fit_are_refused(tmp_path: Path, field: tuple[Any, ...], said: str) -> None:
    write_deltalake(tmp_path / "t", pa.table({"x": pa.array([1], pa.int64())}))
    with pytest.raises(OptionError, match=said):
        opened(tmp_path / "t").files(struct(field))


def test_tables_that_want_more_than_files_are_refused(tmp_path: Path) -> None:
    one = struct(("x", T.LongType()))

    def refused(said: str, by: list[str] | None = None, schema: T.StructType = one, **table: Any) -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))
        columns = table.pop("columns", pa.schema([pa.field("x", pa.int64())]))
        made = DeltaTable.create(folder, columns, **table)
        if said.startswith("constraint"):
            made.alter.add_constraint({"positive": "x > 0"})
        with pytest.raises(OptionError, match=said.removeprefix("constraint: ")):
            opened(folder, by).files(schema)

    refused("partitioned by \\['p'\\]; give these", ["x"], KEYED, columns=pa.schema([("x", pa.int64()), ("p", pa.string())]), partition_by=["p"])  # fmt: skip
    refused("partitioned by \\[\\]", ["part"], KEYED, columns=pa.schema([("x", pa.int64()), ("part", pa.string())]))
    refused("column 'x' of the result may be NULL", columns=pa.schema([pa.field("x", pa.int64(), False)]))
    refused(
        "'y' is NOT NULL, and the result has none",
        columns=pa.schema([pa.field("x", pa.int64()), pa.field("y", pa.int64(), False)]),
    )
    refused("constraint: the table has delta.constraints.positive, .* give a table without it")
    refused("delta.columnMapping.mode", configuration={"delta.columnMapping.mode": "name"})
    DeltaTable.create(tmp_path / "more", pa.schema([("x", pa.int64()), ("y", pa.string())]))
    append(opened(tmp_path / "more"), one, pa.table({"x": [1]}), 0)
    assert DeltaTable(tmp_path / "more").to_pyarrow_table().to_pylist() == [{"x": 1, "y": None}]


def test_what_is_given_is_checked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for given in ("delta:", "delta://host/x"):
        with pytest.raises(OptionError, match="write delta:PATH"):
            sink(given)
    with pytest.raises(OptionError, match="a table is for results"):
        sink("delta:/x", "late")
    with pytest.raises(OptionError, match="'at' is timestamp, which does not name a partition"):
        opened(tmp_path / "t", ["at"]).files(struct(("x", T.LongType()), ("at", T.TimestampType())))
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "notes.txt").write_text("mine")
    with pytest.raises(CheckpointError, match=r"holds 'notes.txt' and is no Delta table"):
        opened(tmp_path / "t").folder.check_new("ck")
    monkeypatch.setitem(sys.modules, "deltalake", None)
    monkeypatch.setattr("watersmeet.extensions.find_spec", lambda name: None)
    with pytest.raises(OptionError, match=r"needs the package deltalake.*pip install 'watersmeet\[delta\]'"):
        sink("delta:/x").files(KEYED)  # type: ignore[attr-defined]


def test_a_table_that_others_change_meanwhile_is_checked_again(tmp_path: Path) -> None:
    rows = pa.table({"x": [1], "part": ["a"]})
    to = opened(tmp_path / "t")
    append(to, KEYED, rows, 0)
    DeltaTable(tmp_path / "t").alter.add_constraint({"small": "x < 10"})
    how = to._files
    assert how is not None
    with how.open("part-1") as writer:
        writer.write(enlarge(rows))
        with pytest.raises(OptionError, match=r"delta\.constraints\.small"):
            to.commit(1, writer.close())


def test_a_sink_travels_to_the_process_that_gets_batches(tmp_path: Path) -> None:
    to = opened(tmp_path / "t")
    append(to, KEYED, pa.table({"x": [1], "part": ["a"]}), 0)
    there = pickle.loads(pickle.dumps(to))
    assert there.has(0, None)
    append(there, KEYED, pa.table({"x": [2], "part": ["b"]}), 1)
    assert to.has(1, None)


def test_numbers_of_other_applications_do_not_count(tmp_path: Path) -> None:
    once = CommitProperties(app_transactions=[Transaction("another", 7)])
    write_deltalake(tmp_path / "t", pa.table({"x": [1], "part": ["a"]}), commit_properties=once)
    to = opened(tmp_path / "t")
    assert not to.has(0, None)
    append(to, KEYED, pa.table({"x": [2], "part": ["b"]}), 0)
    assert to.has(0, None)
    assert not to.has(1, None)
