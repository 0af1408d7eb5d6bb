"""Spark's part of a checkpoint, played in process: its logs, its recovery, its file source and its file sink.

It does what Spark does with logs that are damaged, too: what it can read it believes. A source that has lost an entry of its log takes
the files of it for new ones; a batch whose commit is missing runs again; an offset that is committed already is not run.
"""

from __future__ import annotations

import json
import uuid
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import pyarrow as pa

from watersmeet.runtime.rounds.sinks import FileSink


class SparkError(Exception):
    """Spark's own complaint about a file of its own."""


class Crash(BaseException):
    """The process dies."""


def plain(tables: Iterable[pa.Table]) -> list[list[Any]]:
    """Rows as JSON has them."""
    return [[v if isinstance(v, (int, str)) else str(v) for v in row.values()] for t in tables for row in t.to_pylist()]


class FolderSink(FileSink):
    """Rows as JSON, with the log that Spark's file sink writes; dies before or after writing when told to."""

    dies: str = ""

    def has(self, batch_id: int, spark: Any) -> bool:
        latest = self.folder.latest()
        return latest is not None and batch_id <= latest

    def write(self, rows: Any, batch_id: int) -> None:
        self._write(rows() if callable(rows) else plain(rows.tables), batch_id)

    def take_batches(self, batches: Iterable[pa.RecordBatch], batch_id: int) -> None:
        self._write(plain(pa.Table.from_batches([batch]) for batch in batches), batch_id)

    def _write(self, found: list[list[Any]], batch_id: int) -> None:
        if self.dies == "before the sink":
            raise Crash
        log = Path(self.path) / "_spark_metadata"
        log.mkdir(parents=True, exist_ok=True)
        part = Path(self.path) / f"part-{batch_id}-{uuid.uuid4().hex}.json"
        part.write_text(json.dumps(found))
        (log / f"{batch_id}").write_text(f"v1\n{json.dumps({'path': part.name})}")
        if self.dies == "after the sink":
            raise Crash

    def rows(self) -> Counter[Any]:
        """What Spark's readers see."""
        logs = (Path(self.path) / "_spark_metadata").iterdir()
        parts = [json.loads(log.read_text().splitlines()[1])["path"] for log in logs]
        return Counter(tuple(row) for part in parts for row in json.loads((Path(self.path) / part).read_text()))


class MiniSpark:
    """Micro-batches over a folder of numbered files; a batch takes at most so many that it has not seen."""

    def __init__(self, checkpoint: Path, most: int) -> None:
        self.root, self.most = checkpoint, most
        metadata = self._file("metadata")
        if not metadata.exists():
            metadata.parent.mkdir(parents=True, exist_ok=True)
            metadata.write_text(json.dumps({"id": str(uuid.uuid4())}))
        self.id = self._parsed("metadata", 0)["id"]

    def run(self, call: Callable[[list[int], int, str], None], files: int, dies: bool = False) -> None:
        """Run batches until no file is left; dies: the last one is not committed."""
        batch = self._latest("offsets")
        if batch is not None and batch != self._latest("commits"):
            self._batch(call, batch, dies=False)
        while self._plan(files):
            batch = self._latest("offsets")
            assert batch is not None
            self._batch(call, batch, dies and max(self._files(batch)) == files - 1)

    def _batch(self, call: Callable[[list[int], int, str], None], batch: int, dies: bool) -> None:
        call(self._files(batch), batch, self.id)
        if dies:
            raise Crash
        self._write(f"commits/{batch}", {"nextBatchWatermarkMs": 0})

    def _plan(self, files: int) -> bool:
        """Write the next batch's offset, if there is something new."""
        entry, batch = self._latest("sources/0"), self._latest("offsets")
        seen = {f for n in self._numbers("sources/0") for f in self._parsed(f"sources/0/{n}")["files"]}
        new = [f for f in range(files) if f not in seen][: self.most]
        after = -1 if batch is None else self._offset(batch)
        if new:
            entry = (-1 if entry is None else entry) + 1
            self._write(f"sources/0/{entry}", {"files": new})
        if entry is None or entry <= after:
            return False
        number = 0 if batch is None else batch + 1
        self._write(f"offsets/{number}", {"batchWatermarkMs": 0}, {"logOffset": entry})
        return True

    def _files(self, batch: int) -> list[int]:
        first = self._offset(batch - 1) + 1 if batch else 0
        return [f for n in range(first, self._offset(batch) + 1) for f in self._parsed(f"sources/0/{n}")["files"]]

    def _offset(self, batch: int) -> int:
        return int(self._parsed(f"offsets/{batch}", 2)["logOffset"])

    def _latest(self, kind: str) -> int | None:
        return max(self._numbers(kind), default=None)

    def _numbers(self, kind: str) -> list[int]:
        folder = self._file(kind)
        return sorted(int(p.name) for p in folder.iterdir() if p.name.isdigit()) if folder.exists() else []

    def _file(self, name: str) -> Path:
        return self.root / name

    def _parsed(self, name: str, line: int = 1) -> dict[str, Any]:
        try:
            return json.loads(self._file(name).read_text().split("\n")[line])
        except (OSError, ValueError, IndexError) as error:
            raise SparkError(f"{self._file(name)}: {error}") from error

    def _write(self, name: str, *lines: dict[str, Any]) -> None:
        self._file(name).parent.mkdir(parents=True, exist_ok=True)
        self._file(name).write_text("\n".join(["v1", *map(json.dumps, lines)]))
