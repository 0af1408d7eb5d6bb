"""A checkpoint handed over to a changed query: generated pairs of queries over one stream of files.

What `explain(checkpoint=)` calls possible gives, from the stated time on, exactly the results of a run that had the new query from the start; what it calls
impossible is refused, and nothing has been changed.
"""

from __future__ import annotations

import os
import random
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.rounds.lives import Played, patch
from tests.rounds.mini_spark import MiniSpark, plain
from watersmeet.errors import CheckpointError, WatersmeetError
from watersmeet.query.expr import ColumnRef
from watersmeet.runtime.checkpoints.stored import open_checkpoint
from watersmeet.runtime.checkpoints.upgrade import upgrade
from watersmeet.runtime.checkpoints.verdicts import judge
from watersmeet.runtime.in_process import LocalRun
from watersmeet.runtime.rounds import files, posting
from watersmeet.runtime.rounds.batch import Account, Batch
from watersmeet.runtime.rounds.check import check_checkpoint
from watersmeet.runtime.rounds.checkpoint import StateFolder
from watersmeet.runtime.rounds.decide import Decider
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.rounds.running import Running
from watersmeet.storage.cache import CACHE

PAIRS = int(os.environ.get("UPGRADE_PAIRS", "4"))
"""Generated pairs of queries; the bar asks for 500."""
SECOND = 1_000_000
ROWS = 5
"""Of each stream in a file."""
NAMES = ("id", "k", "v", "w", "ts")
TYPES = [pa.int64(), pa.int64(), pa.int64(), pa.string(), pa.timestamp("us", tz="UTC")]
SCHEMA = pa.schema(list(zip(NAMES, TYPES, strict=True)))
STREAMS = ("r", "s", "t")


def rows_of(stream: str, file: int, seed: int) -> pa.Table:
    """What a file holds of a stream: keys that repeat, values that may be NULL, times up to three seconds behind."""
    chance = random.Random(f"{stream}{file}{seed}")
    rows = []
    for n in range(ROWS):
        ts = (1_700_000_000 + 2 * file - chance.choice((0, 0, 1, 3))) * SECOND
        value = chance.choice((None, 0, 1, 2, 3))
        rows.append((100 * file + n, chance.randrange(2), value, chance.choice((None, "a", "b")), ts))
    return pa.table(dict(zip(NAMES, zip(*rows, strict=True), strict=True)), schema=SCHEMA)


@dataclass(frozen=True)
class Asked:
    """A query, and how it runs."""

    streams: int = 2
    swapped: bool = False
    match: str = "k"
    window: str = "WINDOW = 4 SECONDS"
    filters: tuple[str, ...] = ()
    conditions: tuple[str, ...] = ()
    select: tuple[str, ...] = ("id",)
    finish: str = ""
    lateness: int = 3
    units: int = 2
    routing: str = "auto"
    rows: str = ""
    join: str = ","

    @property
    def aliases(self) -> tuple[str, ...]:
        return STREAMS[: self.streams]

    @property
    def text(self) -> str:
        names = self.aliases[::-1] if self.swapped else self.aliases
        pairs = list(zip(self.aliases, self.aliases[1:], strict=False))
        met = [MATCHES[self.match].format(x=x, y=y) for x, y in pairs]
        more = [text for text in (*self.filters, *self.conditions) if set(used(text)) <= {*self.aliases}]
        times = ", ".join(f"{a}.ts AS {a}_ts" for a in self.aliases)
        own = ", ".join(f"{a}.{c} AS {a}_{c}" for a in self.aliases for c in self.select)
        head, tail = f"{own}, {times}", ""
        if self.finish == "distinct":
            head = f"DISTINCT {self.aliases[0]}.k AS k, {times}"
        elif self.finish == "group":
            head, tail = f"{self.aliases[0]}.k AS k, count(*) AS n", f" GROUP BY {self.aliases[0]}.k"
        sources = ", ".join(f"{n}{self.rows if n == self.aliases[0] else ''}" for n in names)
        if self.join == "LEFT" and self.streams == 2 and not self.rows:
            return f"SELECT {head} FROM r LEFT JOIN s ON {met[0]} {self.window}{tail}"
        return f"SELECT {head} FROM {sources} WHERE {' AND '.join([*met, *more])} {self.window}{tail}"

    @property
    def told(self) -> tuple[Any, ...]:
        """All that a query is told."""
        return self.text, self.lateness, self.units, self.routing

    def query(self, tables: dict[str, pa.Table]) -> wm.Query:
        streams = {n: wm.Stream(tables[n], time="ts", lateness=f"{self.lateness} seconds") for n in self.aliases}
        return wm.sql(self.text, streams, units=self.units, routing=self.routing)


MATCHES = {
    "k": "{x}.k = {y}.k",
    "kv": "{x}.k = {y}.k AND {x}.v = {y}.v",
    "sum": "{x}.k + 1 = {y}.k + 1",
    "band": "abs({x}.id - {y}.id) <= 200",
    "less": "{x}.v <= {y}.v",
}


def used(text: str) -> list[str]:
    return [a for a in STREAMS if f"{a}." in text]


def some(*texts: str) -> Any:
    return st.lists(st.sampled_from(texts), max_size=2, unique=True).map(tuple)


PARTS: dict[str, Any] = {
    "streams": st.sampled_from((2, 2, 2, 3)),
    "swapped": st.booleans(),
    "match": st.sampled_from(tuple(MATCHES)),
    "window": st.sampled_from(
        (
            "WINDOW = 2 SECONDS",
            "WINDOW = 4 SECONDS",
            "WINDOW = 8 SECONDS",
            "DWINDOW (r, s) = 4 SECONDS WINDOW = 6 SECONDS",
        )
    ),
    "filters": some("r.v > 0", "s.w = 'a'", "s.id % 2 = 0", "t.v IS NOT NULL", "r.w IS NULL"),
    "conditions": some("r.id < s.id", "r.v <= s.v", "r.w <> s.w", "r.id + s.id > 100"),
    "select": st.lists(st.sampled_from(("id", "k", "v", "w")), min_size=1, max_size=3, unique=True).map(tuple),
    "finish": st.sampled_from(("", "", "", "", "distinct", "group")),
    "lateness": st.sampled_from((1, 3, 5)),
    "units": st.integers(1, 4),
    "routing": st.sampled_from(("auto", "auto", "auto", "hypercube", "random")),
    "rows": st.sampled_from(("",) * 18 + (" [ROWS 3]", " [TUMBLING 3 ROWS]")),
    "join": st.sampled_from((",",) * 19 + ("LEFT",)),
}
"""What each part of a query may be."""
CHANGED = ("window",) * 4 + ("select", "filters", "conditions", "units", "lateness", "streams") * 2
CHANGED += ("match", "finish", "routing", "swapped", "rows", "join")
"""Which part of a query changes: mostly one of which the state can be kept."""


@st.composite
def pairs(draw: Any) -> tuple[Asked, Asked]:
    """A query, and another one that differs from it in one or two parts, and not only in how it is written."""
    base = draw(st.builds(Asked, **PARTS))
    names = draw(st.lists(st.sampled_from(CHANGED), min_size=1, max_size=2, unique=True))
    after = base
    for name in names:
        now = getattr(after, name)
        after = replace(after, **{name: draw(PARTS[name].filter(lambda value, now=now: value != now))})
    assume(after.told != base.told)
    return base, after


class Kept:
    """A sink that keeps batches."""

    def __init__(self) -> None:
        self.batches: dict[int, Counter[Any]] = {}

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: Any, batch_id: int) -> None:
        self.batches[batch_id] = Counter(tuple(row) for row in rows())


class Steps(Played):
    """Supersteps over files, of which a stream may bring the earlier ones, too."""

    def __init__(self, asked: World, run: LocalRun, folder: StateFolder) -> None:
        super().__init__(run.plan, run, folder)
        self.world = asked

    def run(self, batch: Batch, deliver: Any) -> Account:
        batch.entered = self.taken(self.world.enter(self.wires, batch.entered.files), batch.decisions, batch.attempt)
        return Running(self, batch, deliver).run()  # type: ignore[arg-type]


@dataclass
class World:
    """A checkpoint, and its lives under different queries."""

    root: Path
    seed: int
    count: int
    began: dict[str, int]
    """By stream the file with which it came to the query."""

    def __post_init__(self) -> None:
        self.tables = {n: pa.concat_tables([rows_of(n, f, self.seed) for f in range(self.count)]) for n in STREAMS}
        self.sink, self.folder = Kept(), StateFolder.under(str(self.root / "ck"))

    def enter(self, wires: dict[str, pa.Table], taken: list[int]) -> dict[str, pa.Table]:
        """The wire rows of a batch; a stream that has come to the query brings what it has."""
        out = {}
        for alias, wire in wires.items():
            first = 0 if self.began.get(alias) in taken else min(taken)
            some = [] if max(taken) < self.began.get(alias, 0) else range(first, max(taken) + 1)
            out[alias] = pa.concat_tables([wire.slice(0, 0), *(wire.slice(ROWS * f, ROWS) for f in some)])
        return out

    def prepare(self, asked: Asked) -> LocalRun:
        return asked.query(self.tables)._in_process("UTC")

    def live(self, asked: Asked, files_: int) -> None:
        """A process that runs until no file is left."""
        CACHE._segments.clear()
        run = self.prepare(asked)
        self.folder.prepare()
        steps: Any = Steps(self, run, self.folder)
        for module in (files, posting):
            module.TaskContext = steps  # type: ignore[attr-defined]
        decider = Decider(run.plan, cores=2)
        protocol = Protocol(run.plan, steps, self.folder, self.sink, decider)  # type: ignore[arg-type]
        check_checkpoint(run.plan, self.folder)
        MiniSpark(self.root / "ck", most=1).run(
            lambda taken, batch, _: protocol(SimpleNamespace(files=taken), batch), files_
        )

    def reference(self, asked: Asked) -> dict[int, Counter[Any]]:
        """The results of a run that had the query from the start, by batch."""
        run = self.prepare(asked)
        found = {}
        for n in range(self.count):
            found[n] = Counter(tuple(row) for row in plain(run.push(self.enter(run.wires, [n]))))
        return found


def times_of(asked: Asked, run: LocalRun) -> list[int] | None:
    """Where results have the event times of their members; None: they have none."""
    if asked.finish == "group":
        return None
    if asked.finish == "distinct":
        return list(range(1, 1 + asked.streams))
    return [run.plan.output.index(ColumnRef(a, "ts")) for a in asked.aliases]


def from_then_on(rows: Counter[Any], places: list[int] | None, since: int | None) -> Counter[Any]:
    if since is None:
        return rows
    assert places is not None
    bound = str(pa.scalar(since, pa.timestamp("us", tz="UTC")).as_py())
    return Counter({row: n for row, n in rows.items() if all(row[p] >= bound for p in places)})


def snapshot(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def try_pair(root: Path, before: Asked, after: Asked, seed: int, at: int) -> str:
    """What was said of a pair of queries; it must be what happens."""
    added = {n: at for n in after.aliases if n not in before.aliases}
    world = World(root, seed, at + 6, added)
    world.live(before, at)
    new = after.query(world.tables)
    stored = open_checkpoint(root / "ck")
    judged = judge(stored, new.plan)
    told = new.explain(checkpoint=root / "ck").to_dict()["checkpoint"]
    assert told["upgrades"] == (not judged.impossible)
    was = snapshot(root / "ck")
    if judged.impossible:
        with pytest.raises(CheckpointError, match="cannot go on"):
            upgrade(new.plan, world.folder)
        assert snapshot(root / "ck") == was
        return "impossible"
    made = upgrade(new.plan, world.folder)
    assert (made is None) == judged.is_same == told["goes_on"]
    world.live(after, world.count)
    expected, places = world.reference(after), times_of(after, world.prepare(after))
    compared = 0
    for batch in range(at, world.count):
        found = from_then_on(world.sink.batches[batch], places, judged.since)
        assert found == from_then_on(expected[batch], places, judged.since), (batch, judged.changes)
        compared += sum(found.values())
    event("results were compared" if compared else "there was no result to compare")
    return "same" if judged.is_same else "complete" if judged.since is None else "from a time on"


@given(pair=pairs(), seed=st.integers(0, 1000), at=st.integers(1, 5))
@example((Asked(), Asked(window="WINDOW = 8 SECONDS")), 1, 4)
@example((Asked(), Asked(window="WINDOW = 2 SECONDS")), 1, 4)
@example((Asked(), Asked(streams=3)), 1, 4)
@example((Asked(), Asked(select=("id", "v"))), 1, 4)
@example((Asked(match="band"), Asked(match="band", units=3, routing="random")), 1, 4)
@example((Asked(filters=("r.v > 0", "r.w IS NULL")), Asked(filters=("r.w IS NULL", "r.v > 0"))), 0, 1)
@example((Asked(match="less", units=1), Asked(match="less", conditions=("r.v <= s.v",), units=1)), 0, 1)
@settings(max_examples=PAIRS, deadline=None)
def test_what_is_called_kept_is_exact_and_what_is_called_impossible_is_refused(
    pair: tuple[Asked, Asked], seed: int, at: int
) -> None:
    before, after = pair
    with tempfile.TemporaryDirectory() as scratch, pytest.MonkeyPatch.context() as monkeypatch:
        patch(monkeypatch)
        world = World(Path(scratch), seed, 1, {})
        try:
            [world.prepare(asked) for asked in pair]
        except WatersmeetError:
            assume(False)
        event(try_pair(Path(scratch), before, after, seed, at))
