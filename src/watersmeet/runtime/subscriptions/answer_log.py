"""The answers of committed batches, for those who listen: batch by batch, from the sink's folder, or as a registry in process gave them.

    folder/_spark_metadata/17   names the files of batch 17   -->   rows (query, version, ts, answer)

Invariant: a batch is read after it was committed, so what is read is never taken back, and reading it again gives the same rows.
"""

from __future__ import annotations

import json
from typing import Protocol
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.results.log import SinkLog


class AnswerLog(Protocol):
    """Answers by batch."""

    def latest(self) -> int:
        """The latest batch; -1 before the first."""

    def read(self, batch: int) -> list[pa.Table]:
        """The answers of a batch, in parts; none of one whose files have been merged with others."""


class FolderAnswers:
    """The answers in a sink's folder of Parquet files."""

    def __init__(self, folder: SinkFolder) -> None:
        self.folder = folder

    def latest(self) -> int:
        found = self.folder.latest()
        return -1 if found is None else found

    def read(self, batch: int) -> list[pa.Table]:
        log = SinkLog(self.folder)
        own = self.folder.entry_of(batch)
        lines = [line for name in ([own] if own else log.needed_names()) for line in log.lines(name)]
        names = {unquote(json.loads(line)["path"]).rpartition("/")[2] for line in lines}
        mine = sorted(name for name in names if name.startswith(f"part-{batch}-"))
        return [pq.read_table(self.folder.path(name), filesystem=self.folder.system) for name in mine]


class KeptAnswers:
    """Answers that a registry in process gave; a test's, or a notebook's."""

    def __init__(self) -> None:
        self._batches: list[pa.Table] = []

    def put(self, answers: pa.Table) -> None:
        self._batches.append(answers)

    def latest(self) -> int:
        return len(self._batches) - 1

    def read(self, batch: int) -> list[pa.Table]:
        return [self._batches[batch]]
