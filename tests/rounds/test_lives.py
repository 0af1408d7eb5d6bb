"""Registered queries through crashes: queries come, go and break batches, and the process dies between any two of its steps.

The twin in memory lives through the same batches without a crash, and its queries do not break. What every query must have been
answered follows from it.
"""

from __future__ import annotations

import contextlib
import json
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.rounds.broken import BREAKING_BATCH, BREAKS_ANSWERED, BREAKS_COMPILED, breaking, broken
from tests.rounds.test_subscriptions import Life, Sink, batch_of, in_memory, once, sql
from watersmeet.runtime.rounds.checkpoint import INTENTS, StateFolder
from watersmeet.runtime.subscriptions import log as log_module

Answers = dict[str, Counter[tuple[Any, ...]]]
"""Rows by query."""
MORE = {
    "left": "SELECT r.id AS x, s.id AS y FROM r LEFT JOIN s ON r.k = s.k AND s.id > r.id WINDOW = {n} SECONDS",
    "anti": "SELECT r.id AS x FROM r LEFT ANTI JOIN s ON r.id + 0 = s.id + 0 AND r.k = s.k DWINDOW (r, s) = {n} SECONDS",
    "none": "SELECT s.id AS x FROM s LEFT ANTI JOIN r ON s.id = r.k AND s.k = r.id DWINDOW (s, r) = {n} SECONDS",
    "semi": "SELECT DISTINCT r.k AS x FROM r LEFT SEMI JOIN s ON r.k = s.id WINDOW = {n} SECONDS",
    "band": "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.id - s.id BETWEEN 1 AND {n} WINDOW = {n} SECONDS",
    "full": "SELECT r.id AS x, s.id AS y FROM r FULL JOIN s ON r.k = s.id WINDOW = {n} SECONDS",
    "count": "SELECT r.k AS x, count(*) AS y FROM r GROUP BY r.k, window(r.ts, '{n} seconds') HAVING count(*) > 1",
    "total": "SELECT r.k AS x, sum(s.id) AS y FROM r, s WHERE r.k = s.k WINDOW = {n} SECONDS GROUP BY r.k",
}
"""Queries beyond inner joins, of which some share nothing."""
CALM = ("add", "once", "once", "remove", "anew", "batch", "batch", "batch")
CRASHES = st.sampled_from(("sink fails", "commit")) | st.tuples(st.integers(0, 12), st.booleans())
"""What ends a life: the sink, before the commit, or before or after the n-th file of the life has been written."""
EVENTS = st.lists(st.sampled_from((*CALM, BREAKS_COMPILED, BREAKS_ANSWERED)) | CRASHES, max_size=30)


def rows_of(pairs: Counter[tuple[str, str]]) -> Answers:
    out: Answers = {}
    for (id, answer), count in pairs.items():
        out.setdefault(id, Counter())[tuple(json.loads(answer).values())] += count
    return out


class World:
    """A checkpoint and its lives, a twin, and what must be true of them."""

    def __init__(self, folder: Path, engine: str, units: int, *, remembers: bool) -> None:
        self.open = lambda: Life(folder, self.sink, units, engine)
        self.sink, self.twin = Sink(remembers=remembers), in_memory()
        self.life, self.number, self.is_open = self.open(), 0, False
        self.waiting: list[Callable[[], Any]] = []
        self.living: list[str] = []
        self.breaks: dict[str, int] = {}
        """The batch that a broken query of the registry breaks, by id."""
        self.failed: set[str] = set()
        self.expected: dict[int, Answers] = {}
        self.left: dict[int, set[str]] = {}
        """Queries that were removed before a batch was repeated: it answers them, or does not."""

    def hear(self) -> None:
        """The twin does now what the registry has heard since the batch began."""
        for call in self.waiting:
            call()
        self.waiting.clear()

    def begin(self) -> None:
        """The twin answers the batch that is due, once."""
        if self.is_open:
            return
        self.hear()
        out = self.twin.push(batch_of(self.number))
        found = rows_of(Counter(zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True)))
        self.breaking = {id for id, batch in self.breaks.items() if batch <= self.number}
        self.expected[self.number] = {id: rows for id, rows in found.items() if id not in self.breaking}
        self.is_open = True

    def arrive(self) -> None:
        self.begin()
        self.life.batch(self.number)
        for id in self.breaking & set(self.living):
            self.living.remove(id)
            self.failed.add(id)
            self.twin.remove(id)
            del self.breaks[id]
        self.number, self.is_open = self.number + 1, False

    def add(self, text: str, id: str | None = None, breaks: int | None = None) -> None:
        (id,) = self.life.registry.add_all([(id, text)])
        self.living.append(id)
        for column in (BREAKS_COMPILED, BREAKS_ANSWERED):
            text = text.replace(column, "x")
        self.waiting.append(lambda: self.twin.add(text, id=id))
        if breaks is not None:
            self.breaks[id] = max(breaks, self.number + self.is_open)

    def remove(self, id: str) -> None:
        self.life.registry.remove(id)
        self.living.remove(id)
        self.waiting.append(lambda: self.twin.remove(id))
        self.breaks.pop(id, None)
        if self.is_open:
            self.left.setdefault(self.number, set()).add(id)
            self.breaking.discard(id)  # a query that is added under its id is another one

    def die(self, how: Any) -> None:
        """A life that ends in the batch that is due, unless it is done before. Only an intent fixes the batch's queries."""
        with pytest.MonkeyPatch.context() as patch:
            if how == "sink fails":
                patch.setattr(self.sink, "fails", True)
            elif how == "commit":
                patch.setattr(self.life.protocol, "commit", killed)
            else:
                kill_at_file(patch, *how)
            with contextlib.suppress(OSError, KeyboardInterrupt):
                self.life.batch(self.number)
        if self.number in self.life.protocol.folder.numbers(INTENTS):
            self.begin()
        self.life = self.open()

    def check(self) -> None:
        if self.is_open:
            self.arrive()
        for batch, expected in self.expected.items():
            found = rows_of(self.sink.batches[batch])
            maybe = {id for id in self.left.get(batch, ()) if id not in found}
            assert found == {id: rows for id, rows in expected.items() if id not in maybe}
        states = {e.id: e.state for e in self.life.registry.list()}
        assert {id for id, state in states.items() if state in ("waiting", "running")} == set(self.living)
        assert {id for id, state in states.items() if state == "failed"} == self.failed
        assert all("nobody" in e.reason for e in self.life.registry.list() if e.state == "failed")


def killed(*_: Any) -> None:
    raise KeyboardInterrupt


def kill_at_file(patch: pytest.MonkeyPatch, count: int, is_there: bool) -> None:
    """Die at a file of the state folder, with or without it."""
    write, left = StateFolder.write, [count]

    def dying(self: StateFolder, *args: Any, **named: Any) -> None:
        left[0] -= 1
        if left[0] >= 0 or is_there:
            write(self, *args, **named)
        if left[0] < 0:
            raise KeyboardInterrupt

    patch.setattr(StateFolder, "write", dying)


@given(
    events=st.lists(st.sampled_from((*MORE, "remove", *("batch",) * 6)) | CRASHES, max_size=30), units=st.integers(1, 2)
)
@example(events=["anti", "count", "batch", "batch", "commit", "batch"], units=1)
@settings(max_examples=12)
def test_crashes_change_no_answer_of_queries_that_wait_for_what_does_not_come(events: list[Any], units: int) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        world = World(Path(scratch), "shared", units, remembers=True)
        for n, event in enumerate(events):
            if event in MORE:
                world.add(MORE[event].format(n=n + 1))
            elif event == "remove":
                if world.living:
                    world.remove(world.living[0])
            elif event == "batch":
                world.arrive()
            else:
                world.die(event)
        world.check()


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(events=EVENTS, units=st.integers(1, 3), remembers=st.booleans())
@example(events=[BREAKS_COMPILED, "sink fails", "anew"], units=1, remembers=False)
@example(events=[(0, False), "add"], units=1, remembers=False)
@settings(max_examples=40)
def test_crashes_and_queries_that_break_batches_change_no_answer_of_others(
    engine: str, events: list[Any], units: int, remembers: bool
) -> None:
    """What is added between a crash and the replay takes effect in the batch after the replayed one."""
    with (
        tempfile.TemporaryDirectory() as scratch,
        pytest.MonkeyPatch.context() as patch,
        breaking(10 * BREAKING_BATCH),
    ):
        patch.setattr(log_module, "MOST_CHANGES", 3)
        world = World(Path(scratch), engine, units, remembers=remembers)
        for n, event in enumerate(events):
            if event == "add":
                world.add(sql(n + 1))
            elif event == "once":
                world.add(once(n + 1))
            elif event == "anew" and world.living:
                id = world.living[-1]
                world.remove(id)
                world.add(once(n + 1), id)
            elif event == "remove" and world.living:
                world.remove(world.living[0])
            elif event in (BREAKS_COMPILED, BREAKS_ANSWERED):
                world.add(broken(event), breaks=0 if event == BREAKS_COMPILED else BREAKING_BATCH)
            elif event == "batch":
                world.arrive()
            elif event not in CALM:
                world.die(event)
        world.check()
