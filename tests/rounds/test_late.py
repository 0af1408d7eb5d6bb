"""Dropped rows of `start()` without a JVM: their sink has each of them once, wherever the process dies."""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.rounds.lives import FILES, HERE, PAIR, Life, Played, Rows, patch
from tests.rounds.mini_spark import Crash, FolderSink, MiniSpark
from tests.rounds.test_lives import kill_at_file
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.plan.options import Options
from watersmeet.runtime.in_process import LocalRun
from watersmeet.runtime.rounds import files, posting
from watersmeet.runtime.rounds.check import check_checkpoint
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.rounds.handle import check_apart
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.results.folder import SinkFolder
from watersmeet.runtime.rounds.sinks import FileSink, FunctionSink, sink
from watersmeet.runtime.sources import source_of
from watersmeet.sql.parse import parse

SECOND = 1_000_000
LATE_DEATHS = {"before late rows": "before the sink", "after late rows": "after the sink"}


def run() -> LocalRun:
    """Two streams of four rows a file: each file is 2 s on, and has a row that is 5 s behind, and one without a time."""
    tables = {}
    for name in "rs":
        times = [t for f in range(FILES) for t in (2 * f, 2 * f - 5, None, 2 * f + 1)]
        stamps = pa.array(
            [None if t is None else (1_700_000_000 + t) * SECOND for t in times], pa.timestamp("us", "UTC")
        )
        tables[name] = pa.table({"id": range(len(times)), "k": [n % 2 for n in range(len(times))], "ts": stamps})
    sources = {n: source_of(n, wm.Stream(t, time="ts", lateness="1 second")) for n, t in tables.items()}
    join = parse(PAIR.format(4), {n: spec for n, (_, spec) in sources.items()})
    return LocalRun(join, {n: t for n, (t, _) in sources.items()}, Options(units=2), late=True)


prepared = cache(run)


class Lossy(Played):
    def nothing_lost(self) -> Any:
        return Rows(lambda: [])


class LossyLife(Life):
    """A life with a second sink."""

    def __init__(self, folder: Path, here: Collection[int] = ()) -> None:
        self.here = here
        self.lost, self.dies = FolderSink(str(folder / "late"), "json"), ""
        super().__init__(folder / "ck", folder / "out")
        check_checkpoint(self.protocol.plan, self.folder, self.sink.folder, self.lost.folder)

    def made(self, seconds: int) -> Protocol:
        steps: Any = Lossy(prepared().plan, prepared(), self.folder)
        steps.batches_here = self.here
        for module in (files, posting):
            module.TaskContext = steps  # type: ignore[attr-defined]
        return Protocol(prepared().plan, steps, self.folder, self.sink, Decider(prepared().plan), late=self.lost)

    def live(self, count: int, dies: str = "") -> None:
        self.dies, self.count = LATE_DEATHS.get(dies, ""), count
        self.run(count, dies)

    def frame(self, taken: list[int]) -> Any:
        self.lost.dies = self.dies if max(taken) == self.count - 1 else ""
        return super().frame(taken)


def test_a_few_of_them_are_in_progress(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    life = LossyLife(tmp_path)
    life.live(FILES)
    told = [figures.progress() for figures in life.protocol.told]
    sampled = [tuple(str(row[n]) for n in ("stream", "lag_us", "row")) for p in told for row in p.late_sample]
    lost = expected(tmp_path / "ck")[0]
    assert 0 < len(sampled) <= sum(min(3, sum(p.late.values())) for p in told)
    known = Counter((str(stream), str(lag), str(row)) for stream, _, lag, _, _, row in lost.elements())
    assert not Counter(sampled) - known


def expected(checkpoint: Path) -> tuple[Counter[Any], Counter[Any]]:
    """Dropped rows and results of the batches that have been, in one process that nothing happens to."""
    spark, twin = MiniSpark(checkpoint, most=2), run()
    results: Counter[Any] = Counter()
    for batch in spark._numbers("offsets"):
        parts = {a: [w.slice(4 * f, 4) for f in spark._files(batch)] for a, w in twin.wires.items()}
        found = twin.push({a: pa.concat_tables(slices) for a, slices in parts.items()})
        results.update(tuple(row.values()) for table in found for row in table.to_pylist())
    at = pa.schema(twin.lost[0].schema).get_field_index("ts")
    lost = [t.set_column(at, "ts", t.column("ts").cast(pa.int64())) for t in twin.lost]
    rows = Counter(
        tuple(v if isinstance(v, (int, str)) else str(v) for v in row.values()) for t in lost for row in t.to_pylist()
    )
    assert sum(rows.values()) == sum(twin.units.late.values()) > 0
    return rows, results


@pytest.mark.parametrize(
    "dies", ["before the sink", "after the sink", "before late rows", "after late rows", "before Spark's commit"]
)
@HERE
def test_each_row_once_wherever_the_process_dies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str, here: Collection[int]
) -> None:
    patch(monkeypatch)
    for count in (1, 3, 4, 6):
        with pytest.raises(Crash):
            LossyLife(tmp_path, here).live(count, dies)
    last = LossyLife(tmp_path, here)
    last.live(FILES)
    assert (last.lost.rows(), last.sink.rows()) == expected(tmp_path / "ck")


@HERE
@pytest.mark.parametrize("is_there", [True, False])
def test_each_row_once_whichever_file_is_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_there: bool, here: Collection[int]
) -> None:
    patch(monkeypatch)
    for number in range(12):
        folder = tmp_path / str(number)
        with pytest.MonkeyPatch.context() as killing, contextlib.suppress(KeyboardInterrupt):
            kill_at_file(killing, number, is_there)
            LossyLife(folder, here).live(3)
        last = LossyLife(folder, here)
        last.live(FILES)
        assert (last.lost.rows(), last.sink.rows()) == expected(folder / "ck"), number


def test_a_folder_of_late_rows_has_all_batches_of_its_checkpoint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    patch(monkeypatch)
    life = LossyLife(tmp_path)
    life.live(2)
    plan, state, results = life.protocol.plan, life.folder, life.sink.folder
    other = SinkFolder(str(tmp_path / "other"), "late")
    with pytest.raises(CheckpointError, match="give that folder as late=, a function, or start with a new checkpoint"):
        check_checkpoint(plan, state, results, other)
    with pytest.raises(CheckpointError, match="written with another checkpoint"):
        check_checkpoint(plan, state, results, results)


def test_late_rows_have_a_sink_of_their_own(tmp_path: Path) -> None:
    one = FunctionSink(lambda rows, batch_id: None)
    for results, lost in ((FileSink("/a/b"), FileSink("/a/b/")), (one, one)):
        with pytest.raises(OptionError, match="give them a sink of their own"):
            check_apart(results, lost)
    check_apart(FileSink("/a/b"), FileSink("/a/c"))
    check_apart(one, None)
    with pytest.raises(OptionError, match="late=7: give a folder"):
        sink(7, "late")
    with pytest.raises(OptionError, match=r"late='delta:/x': give a folder, 'memory' or a function"):
        sink("delta:/x", "late")
