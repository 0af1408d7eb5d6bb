"""The registry under a checkpoint: versions, snapshots, and batches that are repeated after a crash, without a JVM.

Supersteps are played in process; protocol, registry, program and segment files are the real ones.
"""

from __future__ import annotations

import itertools
import json
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.dataflow.clock import advance
from watersmeet.dataflow.contract import Flows, Inbox, Message, Origin, Rounds, Turn, put
from watersmeet.dataflow.report import Report
from watersmeet.errors import QueryError
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.plan import RegistryPlan, wire_name
from watersmeet.registry.shared.block import FOR_EVER, UNTIL
from watersmeet.registry.versions import Queries, RegistryView
from watersmeet.runtime.progress import Progress
from watersmeet.runtime.rounds.batch import Account, Batch
from watersmeet.runtime.rounds.checkpoint import INTENTS, SEGMENTS, StateFolder
from watersmeet.runtime.rounds.files import FileStore
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.subscriptions import log as log_module
from watersmeet.runtime.subscriptions.ask import answer, bind
from watersmeet.runtime.subscriptions.engines import engine_of
from watersmeet.runtime.subscriptions.figures import FigureBook
from watersmeet.runtime.subscriptions.latest import Latest
from watersmeet.runtime.subscriptions.log import REGISTRY, SNAPSHOTS, FolderLog
from watersmeet.runtime.subscriptions.registry import Registry
from watersmeet.storage.manifest import Identity, Intent, Manifest

SPECS = {n: StreamSpec(n, {"id": "bigint", "k": "bigint", "ts": "timestamp"}, time="ts") for n in ("r", "s")}
SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
SECOND = 1_000_000


def sql(seconds: int) -> str:
    return f"SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = {seconds} SECONDS"


def once(seconds: int) -> str:
    """DISTINCT, in full history if the number is odd."""
    window = f"WINDOW = {seconds} SECONDS" if seconds % 2 == 0 else ""
    return f"SELECT DISTINCT r.k AS x, s.k + 1 AS y FROM r, s WHERE r.k = s.k AND r.k < 2 {window}"


def batch_of(number: int) -> dict[str, pa.Table]:
    rows = [(10 * number + k, k % 3, (1_700_000_000 + 2 * number) * SECOND) for k in range(4)]
    return {n: pa.table(dict(zip(SCHEMA.names, zip(*rows, strict=True), strict=True)), schema=SCHEMA) for n in SPECS}


class Sink:
    """Keeps batches by id; a batch that comes again is the same, less queries that have left since. Fails when told to."""

    def __init__(self, *, remembers: bool = False) -> None:
        """remembers: knows which batches it has, as a sink of files does."""
        self.batches: dict[int, Counter[tuple[str, str]]] = {}
        self.times: dict[int, Counter[Any]] = {}
        self.fails, self.remembers = False, remembers

    def has(self, batch_id: int, spark: Any) -> bool:
        return self.remembers and batch_id in self.batches

    def write(self, rows: Any, batch_id: int) -> None:
        if self.fails:
            raise OSError("the sink is down")
        found = Counter(
            pair for t in rows.tables for pair in zip(t["query"].to_pylist(), t["answer"].to_pylist(), strict=True)
        )
        times = Counter(ts for t in rows.tables for ts in t["ts"].to_pylist())
        there = {id for id, _ in found}
        assert Counter({p: n for p, n in self.batches.get(batch_id, found).items() if p[0] in there}) == found
        assert times <= self.times.get(batch_id, times)
        self.batches[batch_id], self.times[batch_id] = found, times


class InProcess:
    """Supersteps without Spark."""

    def __init__(self, plan: RegistryPlan, flows: Flows, folder: StateFolder) -> None:
        self.plan, self.flows, self.folder, self.spark = plan, flows, folder, None

    def run(self, batch: Batch, deliver: Callable[[Any], None]) -> Account:
        given, state, flow = batch.entered.tables, batch.state, self.flows.under(batch.decisions)
        wires = {s: t.rename_columns([wire_name(SPECS[s], c) for c in t.column_names]) for s, t in given.items()}
        seen = {s: max(t.column("ts").cast(pa.int64()).to_pylist()) for s, t in given.items()}
        whose, tables, reports = Identity.of(self.plan), list[pa.Table](), dict[int, Report]()
        written = set[str]()

        def carry(number: int, messages: list[Message], awake: range) -> Iterator[Message]:
            inboxes: dict[int, Inbox] = {unit: {} for unit in awake}
            for message in messages:
                put(inboxes, message)
            known = {u: Manifest.from_json(text, whose) for u in state.units if (text := state.state_of(u))}
            peers = {u: m.snapshot() for u, m in known.items()}
            for unit, inbox in sorted(inboxes.items()):
                manifest, store = known.get(unit) or Manifest.fresh(whose), FileStore(self.folder, batch.attempt)
                manifest.maxima = dict(state.maxima)  # also of a unit that is new
                clock = flow.clock(manifest.maxima, seen)
                turn = Turn(unit, inbox, manifest, store, clock, number, state.batch, peers)
                for item in flow.operator(unit).step(turn):
                    if isinstance(item, Message):
                        yield item
                    else:
                        tables.append(item)
                store.keep(manifest)
                state.put(unit, manifest.to_json())
                written.update(name for name in state.files_of(unit) if name.startswith(batch.attempt))
                reports.setdefault(unit, Report()).include(turn.report)

        rounds: Rounds[Message] = Rounds(flow)
        rounds.post(
            m
            for n, (s, wire) in enumerate(wires.items())
            if s in flow.entries
            for m in flow.entries[s].read(wire, Origin(state.batch, n, 0))[1]
        )
        rounds.play(carry)
        computed = SimpleNamespace(queryExecution=lambda: SimpleNamespace(toRdd=lambda: SimpleNamespace(count=int)))
        deliver(SimpleNamespace(tables=tables, sparkSession=None, _jdf=computed))
        state.maxima = advance(state.maxima, seen)
        state.expire(flow.cuts(flow.clock(state.maxima, {})))
        return Account(rows=sum(t.num_rows for t in given.values()), reports=reports, written=written)


class Life:
    """One process' life over a checkpoint."""

    def __init__(
        self,
        checkpoint: Path,
        sink: Sink,
        units: int = 2,
        engine: str = "shared",
        quotas: wm.Quotas | None = None,
    ) -> None:
        folder = StateFolder.under(str(checkpoint))
        log = FolderLog(folder)
        folder.prepare()
        log.prepare()
        Path(folder.beside("metadata")).write_text('{"id": "the query"}')
        plan = RegistryPlan(SPECS, units, engine, quotas=quotas or wm.Quotas())
        self.registry, self.sink, self.folder = Registry(SPECS, log, book=FigureBook(plan)), sink, folder
        steps: Any = InProcess(plan, engine_of(plan, Queries(log)), folder)
        self.protocol = Protocol(plan, steps, folder, sink, registered=self.registry)

    def add(self, seconds: int) -> str:
        return self.registry.add_all([(None, sql(seconds))])[0]

    def kept(self) -> dict[str, int]:
        """Rows of DISTINCT that units keep, by kind."""
        out: Counter[str] = Counter()
        for _, kind, info in self.protocol.latest.segments():  # type: ignore[union-attr]
            out[kind] += info.rows if kind.startswith((UNTIL, FOR_EVER)) else 0
        return {kind: n for kind, n in out.items() if n}

    def batch(self, number: int) -> None:
        entered: Any = SimpleNamespace(tables=batch_of(number))
        self.protocol(entered, number)

    @property
    def last(self) -> Progress:
        return self.protocol.told[-1].progress()


def in_memory() -> Any:
    return wm.local.subscriptions({n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in SPECS})


def answers(twin: Any, number: int) -> Counter[tuple[str, str]]:
    out = twin.push(batch_of(number))
    return Counter(zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True))


def test_an_intent_names_a_version_and_not_the_queries(tmp_path: Path) -> None:
    life = Life(tmp_path, Sink())
    life.registry.add_all([(None, sql(n + 1)) for n in range(200)])
    life.batch(0)
    intent = life.folder.load(INTENTS, 0, Intent)
    registry = FolderLog(life.folder).identity()
    assert intent.queries == {"registry": registry, "version": 1, "since": [[0, 1]], "snapshot": 0}
    assert len(intent.to_json()) < 2_000
    assert life.last.queries == 200
    assert sum(life.sink.batches[0].values()) == 200 * 6, (
        "of ids 0 to 3 with keys 0, 1, 2, 0: 4 pairs of key 0, one each of 1 and 2"
    )


def test_snapshots_keep_the_log_short_and_the_queries(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MOST_CHANGES", 10)
    life = Life(tmp_path, Sink())
    added = []
    for n in range(60):
        added.append(life.add(n + 1))
        if n % 3 == 2:
            life.registry.remove(added.pop(0))
        life.batch(n)
    assert len(life.folder.names(REGISTRY)) <= 30
    assert len(life.folder.numbers(SNAPSHOTS)) == 2
    again = Life(tmp_path, Sink())
    assert [e.id for e in again.registry.list()] == added
    again.batch(60)
    assert [(e.id, e.since) for e in again.registry.list()] == [(e.id, e.since) for e in life.registry.list()]
    assert again.last.queries == 40


def test_columns_of_queries_that_have_left_are_kept_by_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "MOST_CHANGES", 5)
    life = Life(tmp_path, Sink())
    life.registry.add_all([("007", sql(1)), ("gone", once(1))])
    life.registry.replace("007", "SELECT r.k + 0.5 AS x FROM r, s WHERE r.k = s.k")
    life.registry.remove("gone")
    for n in range(20):  # snapshots are made, and the versions before them are deleted
        life.registry.replace("007", sql(n + 2))
        life.batch(n)
    assert not life.folder.has(REGISTRY, 3)
    for registry in (life.registry, Life(tmp_path, Sink()).registry):
        assert [q.version for q in registry.versions("007")] == [*range(23, 3, -1), 2, 1]
        assert registry.find_version("007").sql == sql(21)
        assert registry.find_version("007", 2).columns == (("x", "decimal(22,1)"),)
        assert registry.find_version("gone").columns == (("x", "bigint"), ("y", "bigint"))
        with pytest.raises(QueryError, match="query '007' has no version 3: it has 23, 22"):
            registry.find_version("007", 3)
        with pytest.raises(QueryError, match="no query '7' is or was registered"):
            registry.find_version("7")


def test_a_backfill_is_answered_once_over_restarts(tmp_path: Path) -> None:
    sink, twin = Sink(), in_memory()
    life = Life(tmp_path, sink, units=3)
    for at in (life.registry, twin):
        at.add_all({"keeps": sql(60)}.items() if at is life.registry else {"keeps": sql(60)})
    for n in range(3):
        life.batch(n)
        assert answers(twin, n) == sink.batches[n]
    life.registry.add_all([("late", sql(4)), ("once", once(60))], backfill=True)
    for id, text in (("late", sql(4)), ("once", once(60))):
        twin.add(text, id=id, backfill=True)
    sink.fails = True
    for _ in range(2):  # the batch is repeated, by this process and by another one
        with pytest.raises(OSError, match="the sink is down"):
            life.batch(3)
        life = Life(tmp_path, sink, units=3)
    sink.fails = False
    for n in range(3, 7):
        life.batch(n)
        assert answers(twin, n) == sink.batches[n]
        life = Life(tmp_path, sink, units=3)
    whole = Counter(pair for n in sink.batches for pair in sink.batches[n].elements())
    alone = in_memory()
    alone.add(sql(4), id="late")
    since = sum((answers(alone, n) for n in range(7)), Counter())
    assert Counter({pair: n for pair, n in whole.items() if pair[0] == "late"}) == since
    assert sum(n for (id, _), n in sink.batches[3].items() if id == "late") > sum(
        n for (id, _), n in sink.batches[4].items() if id == "late"
    ), "what was stored is answered first"


def test_rows_of_the_feed_are_taken_in_once_and_bad_ones_are_said(tmp_path: Path) -> None:
    life = Life(tmp_path, Sink())
    rows = [
        ("alice", "add", sql(5)),
        ("bob", "add", "SELECT nothing"),
        ("carol", "remove", None),
        (None, "add", sql(5)),
        ("dave", "drop", sql(5)),
        ("alice", "add", sql(6)),
        ("erin", "add", None),
        ("frank", "add", sql(7)),
        ("frank", "remove", None),
    ]
    life.registry.take_in(rows, 0)
    life.registry.take_in(rows, 0)
    life.batch(0)
    assert life.last.queries == 1
    said = {"bob": "FROM", "carol": "no query", "None": "id", "dave": "'drop'", "alice": "already", "erin": "text"}
    assert set(life.last.refused) == set(said)
    assert all(words in life.last.refused[id] for id, words in said.items())
    again = Life(tmp_path, Sink())
    again.registry.take_in(rows, 0)
    assert {e.id: e.state for e in again.registry.list()}["bob"] == "refused"
    again.registry.take_in([("bob", "add", sql(9))], 1)
    assert [(e.id, e.state) for e in again.registry.list() if e.id == "bob"] == [("bob", "waiting")]


def test_a_view_goes_forth_and_back_between_versions(tmp_path: Path) -> None:
    life = Life(tmp_path, Sink())
    first, second = life.add(1), life.add(2)
    life.registry.remove(first)
    view = RegistryView(FolderLog(life.folder))
    said = {"registry": "this", "since": [[0, 1], [4, 2], [5, 3]]}
    assert {i: q.effect for i, q in view.at({**said, "version": 3}).items()} == {second: 4}
    assert {i: q.effect for i, q in view.at({**said, "version": 2}).items()} == {first: 0, second: 4}
    assert set(view.at({**said, "version": 1})) == {first}


def test_rows_of_distinct_lie_in_segments_and_outlive_the_process(tmp_path: Path) -> None:
    sink = Sink()
    life = Life(tmp_path, sink, units=1)
    life.registry.add_all([("ever", once(1)), ("ten", once(10))])
    life.batch(0)
    rows = {("ever", '{"x":0,"y":1}'): 1, ("ever", '{"x":1,"y":2}'): 1}
    assert sink.batches[0] == {**rows, **{("ten", answer): 1 for _, answer in rows}}
    for number in range(1, 12):  # a batch is 2 seconds, a bucket 10
        life = Life(tmp_path, sink, units=1)
        life.batch(number)
        buckets = {(1_700_000_000 + 2 * n) // 10 for n in range(number + 1)}
        assert sum(sum(b.values()) for b in sink.batches.values()) == 2 + 2 * len(buckets)
        assert life.kept() == {f"{UNTIL}bigint|bigint": 2, f"{FOR_EVER}bigint|bigint": 2}
    life.registry.remove("ever")
    life.registry.remove("ten")
    life.registry.add_all([("ever", once(1))])
    life.batch(12)
    assert sink.batches[12] == rows, "another query of the same id"
    assert life.kept() == {f"{FOR_EVER}bigint|bigint": 2}


def asked(life: Life, sql: str) -> Counter[tuple[Any, ...]]:
    plan = life.protocol.plan
    join = bind(sql, plan)
    found = answer(join, Latest(plan, life.folder).tables(join))
    return Counter(zip(*(c.to_pylist() for c in found.columns), strict=True))


def test_a_one_time_query_reads_the_latest_batch_from_files(tmp_path: Path) -> None:
    life, twin = Life(tmp_path, Sink(), units=3), in_memory()
    with pytest.raises(wm.WatersmeetError, match="no tuples of 'r' are kept"):
        asked(life, sql(60))
    for n, (id, text) in enumerate([("a", sql(3)), ("b", sql(5)), ("c", once(6)), ("d", sql(7))]):
        life.registry.add_all([(id, text)])
        twin.add(text, id=id)
        life.batch(n)
        twin.push(batch_of(n))
    for n in range(4, 9):
        for text in (sql(60), once(60), "SELECT count(*) AS n FROM r, s WHERE r.k = s.k"):
            found = asked(Life(tmp_path, Sink(), units=3), text)
            expected = twin.ask(text)
            assert found == Counter(zip(*(c.to_pylist() for c in expected.columns), strict=True)) != {}
        if n == 6:
            for at in (life.registry, twin):
                at.remove("d")
        life.batch(n)
        twin.push(batch_of(n))


def test_files_that_are_collected_while_they_are_read_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path, Sink(), units=2)
    life.add(2)
    life.batch(0)
    read, batches = FileStore.table, iter(range(1, 7))

    def slow(store: FileStore, info: Any) -> pa.Table:
        for number in itertools.islice(batches, 3):
            life.batch(number)
        return read(store, info)

    monkeypatch.setattr(FileStore, "table", slow)
    found = asked(life, sql(60))
    assert {x // 10 for x, _ in found} == {5, 6}, "batches of 2 seconds: a window of 2 keeps the last two"
    batches = iter(range(7, 1000))
    with pytest.raises(wm.WatersmeetError, match="ask again"):
        asked(life, sql(60))
    monkeypatch.undo()
    for file in Path(life.folder.path(SEGMENTS)).iterdir():
        file.unlink()
    with pytest.raises(wm.WatersmeetError, match="is missing"):
        asked(life, sql(60))


ODD_IDS = (
    "1",
    "01",
    "null",
    "__HIVE_DEFAULT_PARTITION__",
    "a/b",
    "a=b",
    "%41",
    "A",
    "a",
    "..",
    " ",
    "\u00e9",
    "e\u0301",
    "a\n",
    "\0",
)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(
    ids=st.lists(st.text(min_size=1, max_size=300) | st.sampled_from(ODD_IDS), unique=True, min_size=1, max_size=8),
    fed=st.integers(0, 8),
)
@settings(max_examples=20)
def test_what_is_added_is_answered_under_exactly_its_id(engine: str, ids: list[str], fed: int) -> None:
    texts = {id: sql(5).replace(" FROM", f", {n} AS n FROM") for n, id in enumerate(ids)}
    with tempfile.TemporaryDirectory() as scratch:
        life = Life(Path(scratch), Sink(), engine=engine)
        life.registry.add_all([(id, texts[id]) for id in ids[fed:]])
        life.registry.take_in([(id, "add", texts[id]) for id in ids[:fed]], 0)
        life.batch(0)
        life = Life(Path(scratch), life.sink, engine=engine)
        life.registry.remove(ids[0])
        life.batch(1)
    for batch, there in ((0, ids), (1, ids[1:])):
        found = {(id, json.loads(answer)["n"]) for id, answer in life.sink.batches[batch]}
        assert found == {(id, n) for n, id in enumerate(ids) if id in there}


def test_a_registry_that_is_begun_anew_in_the_same_folder_is_another(tmp_path: Path) -> None:
    for id in ("x", "y"):
        life = Life(tmp_path / "ck", Sink())
        life.registry.add_all([(id, sql(1))])
        life.batch(0)
        assert {found for found, _ in life.sink.batches[0]} == {id}
        shutil.rmtree(tmp_path / "ck")
