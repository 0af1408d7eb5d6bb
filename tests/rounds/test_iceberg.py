"""An Iceberg table as sink, without a JVM: each row is there once wherever the process dies, and what cannot be is refused before the query runs."""

from __future__ import annotations

import json
import pickle
from collections import Counter
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg import catalog
from pyiceberg.transforms import BucketTransform
from pyiceberg.utils.config import Config
from pyspark.sql import types as T

from tests.rounds.lives import FILES, Life, patch
from tests.rounds.mini_spark import Crash
from tests.rounds.test_delta import VALUES, append, struct
from tests.rounds.test_folder_lives import COLUMNS, expected
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.operators.finish.project import select_final
from watersmeet.runtime.rounds import files, posting
from watersmeet.runtime.rounds.checkpoint import SparkLogs
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.results.iceberg import name_of
from watersmeet.runtime.rounds.results.leaving import Writing
from watersmeet.runtime.rounds.results.parts import Part
from watersmeet.runtime.rounds.sinks import IcebergSink, sink
from watersmeet.runtime.rounds.systems import ArrowFiles

KEYED = struct(("x", T.LongType()), ("part", T.StringType()))


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A catalog by the name of `lake` with a namespace `ns`."""
    (tmp_path / "lake").mkdir()
    for key, value in {
        "TYPE": "sql",
        "URI": f"sqlite:///{tmp_path}/lake/catalog.db",
        "WAREHOUSE": f"file://{tmp_path}/lake",
    }.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__LAKE__{key}", value)
    monkeypatch.setattr(catalog, "_ENV_CONFIG", Config())
    found = catalog.load_catalog("lake")
    found.create_namespace("ns")
    yield found
    found.close()


class Table(IcebergSink):
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
        return Counter(tuple(row.values()) for row in self.name.load().scan().to_arrow().to_pylist())


class TableLife(Life):
    """A life whose units write the files of a table."""

    def made(self, seconds: int) -> Protocol:
        self.sink = Table(name_of("iceberg:lake.ns.out", "sink"))  # type: ignore[assignment]
        made = super().made(seconds)
        self.sink.attach(made.logs)  # type: ignore[attr-defined]
        made.steps.task.writing = Writing(self.sink.files(COLUMNS), partial(select_final, made.plan))  # type: ignore[arg-type]
        for module in (files, posting):
            module.TaskContext = made.steps  # type: ignore[attr-defined]
        return made


@pytest.mark.parametrize("dies", ["before the sink", "after the sink", "before Spark's commit"])
def test_each_row_is_there_once(lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str) -> None:
    patch(monkeypatch)
    for count in (2, 4, 6):
        with pytest.raises(Crash):
            TableLife(tmp_path / "ck", tmp_path / "unused").run(count, dies)
    last: Any = TableLife(tmp_path / "ck", tmp_path / "unused")
    last.run(FILES)
    assert last.sink.rows() == expected(tmp_path / "calm") != Counter()


def test_a_batch_that_comes_again_is_found_in_the_table(
    lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last entry of Spark's commit log is gone, and that of the state with it; snapshots have expired."""
    patch(monkeypatch)
    TableLife(tmp_path / "ck", tmp_path / "unused").run(FILES)
    (last,) = sorted((tmp_path / "ck" / "commits").iterdir(), key=lambda p: int(p.name))[-1:]
    last.unlink()
    (tmp_path / "ck" / "watersmeet" / "manifests" / f"{last.name}.json").unlink()
    lake.load_table("ns.out").append(pa.table({"x": [-1], "y": [-1]}))
    snapshots = len(lake.load_table("ns.out").snapshots())
    again: Any = TableLife(tmp_path / "ck", tmp_path / "unused")
    again.run(FILES)
    assert last.exists()
    assert len(lake.load_table("ns.out").snapshots()) == snapshots
    assert again.sink.rows() == expected(tmp_path / "calm") + Counter([(-1, -1)])


def test_a_table_that_was_dropped_is_not_the_same(lake: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    TableLife(tmp_path / "ck", tmp_path / "unused").run(FILES)
    lake.drop_table("ns.out")
    with pytest.raises(CheckpointError, match=r"is not the table that .* has written its 3 batches to"):
        TableLife(tmp_path / "ck", tmp_path / "unused")


def opened(tmp_path: Path, name: str, by: list[str] | None = None) -> IcebergSink:
    made: Any = sink(f"iceberg:lake.ns.{name}", partition_by=by or [])
    logs = SparkLogs(ArrowFiles(pa.fs.LocalFileSystem()), str(tmp_path / "ck-q"))
    Path(logs.root).mkdir(exist_ok=True)
    (Path(logs.root) / "metadata").write_text(json.dumps({"id": "q"}))
    made.attach(logs)
    return made


def test_partitions_whatever_their_values(lake: Any, tmp_path: Path) -> None:
    values = [*VALUES, ""]
    rows = pa.table({"x": range(len(values)), "part": values})
    append(opened(tmp_path, "t", ["PART"]), KEYED, rows, 0)
    append(pickle.loads(pickle.dumps(opened(tmp_path, "t"))), KEYED, rows, 1)  # partitioned as the table is
    table = lake.load_table("ns.t")
    found = sorted(table.scan().to_arrow().to_pylist(), key=lambda r: r["x"])
    assert found == [row for row in rows.to_pylist() for _ in range(2)]
    for value in ("a/b", "", "x=y"):
        assert table.scan(f"part = '{value}'").to_arrow().num_rows == 2
    assert table.scan("part IS NULL").to_arrow().num_rows == 2
    assert table.properties["watersmeet.q"] == "1"
    assert table.current_snapshot().summary["watersmeet.batch"] == "1"


def test_every_type_that_it_knows(lake: Any, tmp_path: Path) -> None:
    kinds = [T.LongType(), T.IntegerType(), T.ShortType(), T.ByteType(), T.DoubleType(), T.FloatType(), T.BooleanType(), T.BinaryType(), T.DateType(),
             T.TimestampType(), T.TimestampNTZType(), T.DecimalType(10, 2), T.ArrayType(T.LongType()), T.MapType(T.StringType(), T.LongType()),
             struct(("y", T.StringType()))]  # fmt: skip
    schema = struct(*[(f"c{n}", kind) for n, kind in enumerate(kinds)])
    to = opened(tmp_path, "types")
    row = to.files(schema).columns.empty_table()
    filled = pa.table({name: pa.array([None, None], row.schema.field(name).type) for name in row.schema.names})
    append(to, schema, filled.set_column(0, "c0", pa.array([1, 2])), 0)
    append(to, schema, filled.set_column(0, "c0", pa.array([3, 4])), 1)
    assert lake.load_table("ns.types").scan().to_arrow().column("c0").to_pylist() in ([3, 4, 1, 2], [1, 2, 3, 4])


REFUSED = [
    (("x", T.StringType()), r"does not fit the table .*x.*long.*string.*; cast it, or give another table"),
    (("y", T.LongType()), r"does not fit the table"),
    (("x", T.DayTimeIntervalType()), "column 'x' is interval day to second, which the table cannot hold; cast it"),
]


@pytest.mark.parametrize(("field", "said"), REFUSED)
def test_columns_that_do_not_fit_are_refused(lake: Any, tmp_path: Path, field: tuple[Any, ...], said: str) -> None:
    lake.create_table("ns.t", pa.schema([("x", pa.int64())]))
    with pytest.raises(OptionError, match=said) as error:
        opened(tmp_path, "t").files(struct(field))
    assert "\n" not in str(error.value)


def test_what_is_given_is_checked(lake: Any, tmp_path: Path) -> None:
    for given in ("iceberg:", "iceberg:lake.t", "iceberg:ns"):
        with pytest.raises(OptionError, match=r"write iceberg:CATALOG.NAMESPACE.TABLE"):
            sink(given)
    with pytest.raises(OptionError, match="a table is for results"):
        sink("iceberg:lake.ns.t", "late")
    with pytest.raises(
        OptionError, match=r"the catalog 'nowhere' cannot be opened: .*describe it in ~/.pyiceberg.yaml"
    ):
        sink("iceberg:nowhere.ns.t").files(KEYED)  # type: ignore[attr-defined]
    with pytest.raises(OptionError, match="the catalog has no namespace 'other'; create it"):
        sink("iceberg:lake.other.t").files(KEYED)  # type: ignore[attr-defined]
    bucketed = lake.create_table("ns.b", pa.schema([("x", pa.int64()), ("part", pa.string())]))
    with bucketed.update_spec() as spec:
        spec.add_field("x", BucketTransform(4), "x_bucket")
    with pytest.raises(OptionError, match=r"partitioned by bucket\[4\] of a column"):
        opened(tmp_path, "b").files(KEYED)
    lake.create_table("ns.plain", pa.schema([("x", pa.int64()), ("part", pa.string())]))
    with pytest.raises(OptionError, match=r"is partitioned by \[\]; give these"):
        opened(tmp_path, "plain", ["part"]).files(KEYED)
