"""What is the rounds runtime's own: supersteps, the handle, sinks, the state folder."""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyspark.errors import StreamingQueryException
from pyspark.sql.streaming import StreamingQueryListener

import watersmeet as wm
from tests.spark.streams import run, stream, table, write
from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import Dataflow, FlowStage, Message, Turn, Yielded
from watersmeet.errors import CheckpointError
from watersmeet.operators.enter import JoinEntry
from watersmeet.plan.model import Plan
from watersmeet.runtime.rounds import handle as handle_module
from watersmeet.runtime.rounds import running
from watersmeet.runtime.rounds.checkpoint import INTENTS, MAIL, MANIFESTS, SEGMENTS, StateFolder
from watersmeet.runtime.rounds.sinks import NoopSink
from watersmeet.runtime.rounds.supersteps import Supersteps
from watersmeet.runtime.spark import session
from watersmeet.storage.document import seal

pytestmark = pytest.mark.spark

PAIR = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 10 SECONDS"


def pair(spark: Any, tmp_path: Path, batches: list[pa.Table], first: int = 0, **options: Any) -> Any:
    streams = {n: stream(spark, write(tmp_path, n, batches, first), lateness="5 seconds") for n in "st"}
    return wm.sql(PAIR, **streams, **options)


def rising(count: int, rows: int = 5) -> list[pa.Table]:
    return [table([(k, 100 * b + k, 3 * b + k / 10) for k in range(rows)]) for b in range(count)]


@dataclass(frozen=True)
class Countdown:
    """Every unit passes its tuples on to the next one, so many times; each pass is a result."""

    plan: Plan
    passes: int

    def under(self, decisions: Mapping[str, Any]) -> Dataflow:
        entries = {i.alias: JoinEntry(self.plan, i.alias, 0) for i in self.plan.inputs}
        return Dataflow(self.plan.join.streams, (FlowStage(self, self.plan.units),), entries, None)

    def step(self, turn: Turn) -> Iterator[Yielded]:
        rows = pa.concat_tables([t.select(["c0"]) for tables in turn.inbox.values() for t in tables])
        yield pa.table({"o0": rows.column(0), "o1": pa.array([turn.round] * rows.num_rows, pa.int64())})
        if turn.round < self.passes:
            yield Message((turn.unit + 1) % self.plan.units, "token", rows)

    def cuts(self, clock: Clock) -> dict[str, int]:
        return {}


@pytest.mark.parametrize("posts", [True, False])
def test_rounds_go_on_while_there_is_mail_and_results_of_all_rounds_arrive(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, posts: bool
) -> None:
    monkeypatch.setattr(handle_module, "PlanFlows", lambda plan: Countdown(plan, 3))
    monkeypatch.setattr(handle_module, "Supersteps", partial(Supersteps, posts=posts))
    handle = pair(spark, tmp_path, rising(2)).start(sink="memory", checkpoint=tmp_path / "ck", trigger="availableNow")
    handle.await_termination()
    found = handle.table().to_pydict()
    assert Counter(zip(found["x"], found["y"], strict=True)) == Counter(
        {(k, n): 4 for k in range(5) for n in range(4)}
    ), "two streams, two batches, four rounds"
    assert [p.rounds for p in handle.history()] == [4, 4]
    assert StateFolder.under(str(tmp_path / "ck")).names(MAIL) == []


def test_a_plan_that_never_rests_is_an_error(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(handle_module, "PlanFlows", lambda plan: Countdown(plan, 10**9))
    monkeypatch.setattr(handle_module, "Supersteps", partial(Supersteps, most_rounds=5))
    handle = pair(spark, tmp_path, rising(1)).start(sink="memory", checkpoint=tmp_path / "ck", trigger="availableNow")
    with pytest.raises(wm.WatersmeetError, match="still send messages after 5 rounds"):
        handle.await_termination()


class Heard(StreamingQueryListener):
    """Counts what Spark tells about a query."""

    def __init__(self) -> None:
        self.names: list[str | None] = []
        self.batches: list[int] = []

    def onQueryStarted(self, event: Any) -> None:
        self.names.append(event.name)

    def onQueryProgress(self, event: Any) -> None:
        self.batches.append(event.progress.batchId)

    def onQueryTerminated(self, event: Any) -> None:
        pass


def test_a_handle_tells_progress_and_state_and_spark_listens(spark: Any, tmp_path: Path) -> None:
    heard = Heard()
    spark.streams.addListener(heard)
    try:
        query = pair(spark, tmp_path, rising(4), units=3)
        handle = query.start(sink="memory", checkpoint=tmp_path / "ck", trigger="availableNow", name="joined")
        assert handle.await_termination() is True
        deadline = time.monotonic() + 300
        while len(set(heard.batches)) < 4 and time.monotonic() < deadline:
            time.sleep(0.05)
    finally:
        spark.streams.removeListener(heard)
    assert heard.names == ["joined"]
    assert set(heard.batches) == {0, 1, 2, 3}
    assert not handle.is_active
    last = handle.progress()
    assert last.batch_id == 3
    assert last.input_rows == 10
    assert last.results == sum(1 for x in handle.table().column("x").to_pylist() if x >= 300) + sum(
        1 for x, y in zip(*handle.table().to_pydict().values(), strict=True) if y >= 300 > x
    )
    assert last.rows_per_second > 0
    state = handle.state()
    assert set(state) <= {0, 1, 2}
    assert sum(u.rows for u in state.values()) == sum(last.state_rows.values()) == 40
    assert all(u.segments and u.bytes > 0 and u.oldest <= u.newest for u in state.values())


def test_sinks(spark: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    batches = rising(3)
    local = wm.local.run(PAIR, {n: wm.Stream(pa.concat_tables(batches), time="ts", lateness="5 seconds") for n in "st"})
    expected = Counter(zip(*(c.to_pylist() for c in local.columns), strict=True))
    calls: list[tuple[int, int, int]] = []
    rows: list[Any] = []

    def own(frame: Any, batch_id: int) -> None:
        calls.append((batch_id, frame.count(), frame.where("x = y").count()))
        rows.extend(map(tuple, frame.collect()))

    query = pair(spark, tmp_path, batches)
    query.start(sink=own, checkpoint=tmp_path / "ck1", trigger={"availableNow": True}).await_termination()
    assert Counter(rows) == expected
    assert [c[0] for c in calls] == [0, 1, 2]
    query.start(sink="console", checkpoint=tmp_path / "ck2", trigger="availableNow").await_termination()
    printed = capsys.readouterr().out
    assert "batch 2: " in printed
    assert "|x" in printed
    monkeypatch.chdir(tmp_path)
    query.start(sink="out", checkpoint="ck3", trigger="availableNow").await_termination()
    assert Counter(map(tuple, spark.read.parquet(str(tmp_path / "out")).collect())) == expected
    with pytest.raises(wm.WatersmeetError, match="memory sink"):
        query.start(sink="noop", checkpoint=tmp_path / "ck4", trigger="availableNow").table()
    for bad, said in ({"sink": 7}, "sink=7"), ({"checkpoint": None}, "checkpoint=None"), ({"trigger": 5}, "trigger=5"):
        with pytest.raises(wm.WatersmeetError, match=said):
            query.start(**{"sink": "noop", "checkpoint": tmp_path / "ck5", **bad})
    still = wm.Stream(spark.read.parquet(str(tmp_path / "s")), time="ts")
    with pytest.raises(wm.WatersmeetError, match=r"static DataFrames are joined by dataframe"):
        wm.sql(PAIR, s=still, t=still).start(sink="noop", checkpoint=tmp_path / "ck6")


@pytest.mark.parametrize("in_driver", [True, False])
def test_a_sink_that_keeps_nothing_computes_every_column_where_the_rows_are(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, in_driver: bool
) -> None:
    if not in_driver:
        monkeypatch.setattr(running, "MOST_STATE", -1)
    came: list[int] = []

    class Counting(NoopSink):
        def write(self, rows: Any, batch_id: int) -> None:
            came.append(rows.count())

    good, bad = rising(3), [table([(1, 7, 5.0)])]
    handle = pair(spark, tmp_path, good).start(sink=Counting(), checkpoint=tmp_path / "ck1", trigger="availableNow")
    handle.await_termination()
    assert sum(p.results for p in handle.history()) > 15
    assert came == ([] if in_driver else [0, 0, 0]), "no result comes to Spark"
    streams = {n: stream(spark, write(tmp_path, f"bad-{n}", bad), lateness="5 seconds") for n in "st"}
    failing = wm.sql(PAIR.replace("b.v AS y", "10 / (b.v - 7) AS y"), **streams)
    handle = failing.start(sink="noop", checkpoint=tmp_path / "ck2", trigger="availableNow")
    with pytest.raises((StreamingQueryException, wm.WatersmeetError), match=r"(?i)division by zero|divide by zero"):
        handle.await_termination()


def test_a_sink_that_takes_batches_gets_rows_of_the_select_in_the_driver(spark: Any, tmp_path: Path) -> None:
    found: list[dict[str, Any]] = []

    class Taking:
        def has(self, batch_id: int, spark: Any) -> bool:
            return False

        def write(self, rows: Any, batch_id: int) -> None:
            raise AssertionError("small batches are joined in this process")

        def take_batches(self, batches: Any, batch_id: int) -> None:
            found.extend(row for batch in batches for row in batch.to_pylist())

    handle = pair(spark, tmp_path, rising(3)).start(sink=Taking(), checkpoint=tmp_path / "ck", trigger="availableNow")
    handle.await_termination()
    assert len(found) == sum(p.results for p in handle.history()) > 15


def test_a_failing_function_ends_the_query_and_its_batch_is_repeated(spark: Any, tmp_path: Path) -> None:
    seen: list[tuple[int, int]] = []

    def picky(frame: Any, batch_id: int) -> None:
        seen.append((batch_id, frame.count()))
        if len(seen) == 2:
            raise ValueError("not today")

    query = pair(spark, tmp_path, rising(3))
    failed = query.start(sink=picky, checkpoint=tmp_path / "ck", trigger="availableNow")
    with pytest.raises(ValueError, match=r"^not today\nin batch 1 of ") as raised:
        failed.await_termination()
    assert raised.value is failed.exception
    assert isinstance(raised.value.__cause__, StreamingQueryException)
    query.start(sink=picky, checkpoint=tmp_path / "ck", trigger="availableNow").await_termination()
    assert [n for n, _ in seen] == [0, 1, 1, 2]
    assert seen[1] == seen[2], "the same rows and batch id again"


def test_damaged_missing_and_foreign_state_is_refused(spark: Any, tmp_path: Path) -> None:
    batches, checkpoint = rising(4), tmp_path / "ck"
    folder = StateFolder.under(str(checkpoint))

    def more(n: int, said: str) -> None:
        with pytest.raises(CheckpointError, match=said):
            run(pair(spark, tmp_path, [batches[n]], first=n), checkpoint, runtime="rounds")

    run(pair(spark, tmp_path, batches[:2]), checkpoint, runtime="rounds")
    manifest = Path(folder.path(MANIFESTS, "1.json"))
    whole = manifest.read_text()
    manifest.write_text(json.dumps({**json.loads(whole), "query_id": "another"}))
    more(2, r"1\.json is not what was written under this name")
    content = {name: value for name, value in json.loads(whole).items() if name != "checksum"}
    manifest.write_bytes(seal(json.dumps({**content, "query_id": "another"}), "manifests/1.json"))
    more(2, r"1\.json belongs to Spark query another")
    manifest.write_text(whole[:-20])
    more(2, r"1\.json has no checksum")
    manifest.unlink()
    more(2, r"1\.json is missing")
    for left in (0, 7):
        anew = tmp_path / f"anew{left}"
        (anew / "watersmeet" / MANIFESTS).mkdir(parents=True)
        (anew / "watersmeet" / MANIFESTS / f"{left}.json").write_text(whole)
        query = pair(spark, tmp_path, [batches[0]])
        with pytest.raises(CheckpointError, match="belong"):
            run(query, anew, runtime="rounds")


@pytest.mark.thorough  # in process in tests/rounds/test_damage.py
def test_a_long_run_keeps_few_files(spark: Any, tmp_path: Path) -> None:
    """Windows of 10 s, 3 s per batch: files, manifests and bytes stay where they were after the first windows."""
    sizes: list[tuple[int, int, int]] = []
    folder = StateFolder.under(str(tmp_path / "ck"))

    def measure(frame: Any, batch_id: int) -> None:
        names = folder.names(SEGMENTS)
        disk = sum(Path(folder.path(SEGMENTS, n)).stat().st_size for n in names)
        sizes.append((len(names), disk, len(folder.names(MANIFESTS)) + len(folder.names(INTENTS))))

    query = pair(spark, tmp_path, rising(26, rows=40), units=2)
    handle = query.start(sink=measure, checkpoint=tmp_path / "ck", trigger="availableNow")
    handle.await_termination()
    live = sum(u.bytes for u in handle.state().values())
    assert max(n for n, _, _ in sizes[16:]) <= max(n for n, _, _ in sizes[6:16]) + 4
    assert max(d for _, d, _ in sizes[16:]) <= 1.2 * max(d for _, d, _ in sizes[6:16])
    assert max(m for _, _, m in sizes) <= 6
    on_disk = sum(Path(folder.path(SEGMENTS, n)).stat().st_size for n in folder.names(SEGMENTS))
    headers = 1_500 * len(folder.names(SEGMENTS))
    assert on_disk - headers <= 2 * live


def test_spark_writes_local_checkpoints_without_processes_and_the_session_stays_as_it_was(
    spark: Any, tmp_path: Path
) -> None:
    assert spark.conf.get(session.SETTING, None) is None
    handle = pair(spark, tmp_path, rising(2)).start(sink="memory", checkpoint=tmp_path / "ck", trigger="availableNow")
    assert spark.conf.get(session.SETTING, None) is None
    handle.await_termination()
    execution = handle.query._jsq.streamingQuery()
    logs = [execution.offsetLog(), execution.commitLog()]
    assert {log.fileManager().getClass().getName() for log in logs} == {session.LOCAL_MANAGER}


def test_a_file_manager_of_the_users_is_kept(spark: Any, tmp_path: Path) -> None:
    chosen = session.LOCAL_MANAGER.replace("FileSystemBased", "FileContextBased")
    spark.conf.set(session.SETTING, chosen)
    try:
        handle = pair(spark, tmp_path, rising(1)).start(
            sink="memory", checkpoint=tmp_path / "ck", trigger="availableNow"
        )
        handle.await_termination()
        assert spark.conf.get(session.SETTING, None) == chosen
        assert handle.query._jsq.streamingQuery().offsetLog().fileManager().getClass().getName() == chosen
    finally:
        spark.conf.unset(session.SETTING)
