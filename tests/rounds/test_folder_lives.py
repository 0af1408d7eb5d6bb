"""A folder of results through crashes, without a JVM: units write its files, and each row is named once, wherever the process dies."""

from __future__ import annotations

import contextlib
import json
from collections import Counter
from collections.abc import Collection, Iterable
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.sql import types as T

from tests.rounds.lives import FILES, HERE, Life, patch
from tests.rounds.mini_spark import Crash
from tests.rounds.test_lives import kill_at_file
from watersmeet.operators.finish.project import select_final
from watersmeet.runtime.rounds import files, posting
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.results.folder import LOG
from watersmeet.runtime.rounds.results.leaving import Writing
from watersmeet.runtime.rounds.results.parts import Part
from watersmeet.runtime.rounds.sinks import FileSink

COLUMNS = T.StructType([T.StructField(name, T.LongType()) for name in "xy"])


class Folder(FileSink):
    """The sink itself, but that Spark does not run its frames; dies before or after the commit when told to."""

    dies = ""

    def write(self, rows: Any, batch_id: int) -> None:
        self._commit([Part(*row) for row in rows()], batch_id)

    def take_batches(self, batches: Iterable[pa.RecordBatch], batch_id: int) -> None:
        self._commit([Part(*row.values()) for batch in batches for row in batch.to_pylist()], batch_id)

    def _commit(self, parts: list[Part], batch_id: int) -> None:
        if self.dies == "before the sink":
            raise Crash
        self.commit(batch_id, parts, interval=2)
        if self.dies == "after the sink":
            raise Crash

    def named(self) -> list[Path]:
        """The files that Spark's readers see: those of the latest compacted entry, and of all later ones."""
        entries = sorted((Path(self.path) / LOG).iterdir(), key=lambda p: int(p.name.partition(".")[0]))
        compacted = [n for n, p in enumerate(entries) if p.name.endswith(".compact")]
        lines = [line for p in entries[max(compacted, default=0) :] for line in p.read_text().split("\n")[1:]]
        return [Path(unquote(json.loads(line)["path"]).removeprefix("file://")) for line in lines]

    def rows(self) -> Counter[Any]:
        return Counter(tuple(row.values()) for path in self.named() for row in pq.read_table(path).to_pylist())


class FolderLife(Life):
    """A life whose units write the files of its sink."""

    def __init__(self, checkpoint: Path, sink: Path, here: Collection[int] = ()) -> None:
        self.here = here
        super().__init__(checkpoint, sink)

    def made(self, seconds: int) -> Protocol:
        self.sink = Folder(self.sink.path)  # type: ignore[assignment]
        made: Any = super().made(seconds)
        made.steps.batches_here = self.here
        how = self.sink.files(COLUMNS)
        made.steps.task.writing = Writing(how, partial(select_final, made.plan))
        for module in (files, posting):
            module.TaskContext = made.steps
        return made  # type: ignore[no-any-return]


def expected(folder: Path) -> Counter[Any]:
    """The same batches in a life that nothing happens to, through a sink that takes rows."""
    life = Life(folder / "ck", folder / "out")
    life.run(FILES)
    return life.sink.rows()


@HERE
@pytest.mark.parametrize("dies", ["before the sink", "after the sink", "before Spark's commit"])
def test_each_row_is_named_once_and_no_file_stays_unnamed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str, here: Collection[int]
) -> None:
    patch(monkeypatch)
    for count in (2, 4, 6):
        with pytest.raises(Crash):
            FolderLife(tmp_path / "ck", tmp_path / "out", here).run(count, dies)
    last: Any = FolderLife(tmp_path / "ck", tmp_path / "out", here)
    last.run(FILES)
    assert last.sink.rows() == expected(tmp_path / "calm") != Counter()
    assert sorted(last.sink.named()) == sorted((tmp_path / "out").glob("part-*")), "failed attempts have left files"


@HERE
@pytest.mark.parametrize("is_there", [True, False])
def test_each_row_is_named_once_whichever_file_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, here: Collection[int]
) -> None:
    patch(monkeypatch)
    calm = expected(tmp_path / "calm")
    for number in range(10):
        folder = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as killing, contextlib.suppress(KeyboardInterrupt):
            kill_at_file(killing, number, is_there)
            FolderLife(folder / "ck", folder / "out", here).run(FILES)
        last: Any = FolderLife(folder / "ck", folder / "out", here)
        last.run(FILES)
        assert last.sink.rows() == calm, number


@HERE
def test_a_batch_that_the_folder_has_is_not_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, here: Collection[int]
) -> None:
    patch(monkeypatch)
    with pytest.raises(Crash):
        FolderLife(tmp_path / "ck", tmp_path / "out", here).run(2, "after the sink")
    before = {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")}
    last: Any = FolderLife(tmp_path / "ck", tmp_path / "out", here)
    with monkeypatch.context() as broken:
        broken.setattr(Folder, "commit", lambda *_, **__: pytest.fail("the batch is there"))
        last.run(2)
    assert before == {p: p.stat().st_mtime_ns for p in (tmp_path / "out").rglob("*")}
    assert last.protocol.latest.batch == 0
