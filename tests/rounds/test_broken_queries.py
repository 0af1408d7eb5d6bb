"""Queries that break a batch: who is blamed, who is not, and what a restart finds; without a JVM."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.rounds.broken import BREAKS_ANSWERED, BREAKS_COMPILED, breaking, broken
from tests.rounds.test_lives import killed
from tests.rounds.test_subscriptions import SCHEMA, Life, Sink, batch_of, in_memory, sql
from watersmeet.errors import BrokenQueryError, CheckpointError
from watersmeet.registry.shared.compiled import Compiled
from watersmeet.registry.subscription import Computed
from watersmeet.runtime.rounds.checkpoint import INTENTS
from watersmeet.runtime.spark.failures import first_to_fail
from watersmeet.storage.manifest import Intent

GOOD = sql(5)
ENGINES = pytest.mark.parametrize("engine", ["shared", "rjoin"])


@pytest.fixture
def lives(tmp_path: Path) -> Iterator[Callable[..., Life]]:
    """Lives on one checkpoint and one sink."""
    sink = Sink()
    return lambda **options: Life(tmp_path, sink, **options)


def states(life: Life) -> dict[str, str]:
    return {entry.id: entry.state for entry in life.registry.list()}


def of(pairs: Counter[tuple[str, str]]) -> set[str]:
    return {id for id, _ in pairs}


@ENGINES
def test_one_broken_query_of_many_is_found_said_and_struck_out(engine: str, lives: Callable[..., Life]) -> None:
    life = lives(engine=engine)
    life.registry.add_all([(f"a{n}", sql(n + 1)) for n in range(10)])
    life.registry.add_all([("bad", broken(BREAKS_ANSWERED)), ("worse", broken(BREAKS_COMPILED))])
    life.registry.add_all([(f"b{n}", sql(n + 20)) for n in range(10)])
    with breaking(first_id=10):  # of batch 1
        life.batch(0)
        assert states(life)["worse"] == "failed"
        assert of(life.sink.batches[0]) == set(states(life)) - {"worse"}
        life.batch(1)
        life.batch(2)
    good = {id for id, state in states(life).items() if state == "running"}
    assert states(life)["bad"] == "failed"
    assert good == {f"{x}{n}" for x in "ab" for n in range(10)} == of(life.sink.batches[1]) == of(life.sink.batches[2])
    assert dict(life.last.failed) == {
        "worse": "ValueError: compiled by nobody",
        "bad": "IndexError: answered by nobody",
    }
    assert life.last.queries == 20
    assert life.folder.load(INTENTS, 1, Intent).queries["struck"] == ["bad"]
    assert "struck" not in life.folder.load(INTENTS, 2, Intent).queries, "the registry knows it by then"
    again = lives(engine=engine)
    assert states(again)["bad"] == "failed"
    again.registry.remove("bad")
    again.registry.add_all([("worse", GOOD)])
    assert "bad" not in states(again)
    assert states(again)["worse"] == "waiting"


@ENGINES
def test_a_registry_in_process_goes_on_as_well(engine: str) -> None:
    subs = wm.local.subscriptions({n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in "rs"}, engine=engine, units=2)
    twin = in_memory()
    subs.add_all({"good": GOOD, "bad": broken(BREAKS_ANSWERED)})
    twin.add(GOOD, id="good")
    with breaking(first_id=20):
        for n in range(4):
            found, expected = subs.push(batch_of(n)), twin.push(batch_of(n))
            mine = found.filter(pa.compute.equal(found["query"], "good"))
            assert Counter(mine["answer"].to_pylist()) == Counter(expected["answer"].to_pylist())
            assert ("bad" in found["query"].to_pylist()) == (n < 2)
    assert {e.id: (e.state, e.reason) for e in subs.list()} == {
        "good": ("running", None),
        "bad": ("failed", "IndexError: answered by nobody"),
    }
    assert {i.id for m in subs._units.states.values() for infos in m.segments.values() for i in infos} == set(
        subs._units.store.segments
    )


@pytest.mark.parametrize(
    "error",
    [OSError(28, "No space left on device"), MemoryError(), pa.ArrowMemoryError("malloc"), CheckpointError("damaged")],
    ids=repr,
)
def test_the_machine_is_not_blamed_on_a_query(
    error: Exception, lives: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = lives()
    life.registry.add_all([("good", GOOD), ("bad", broken(BREAKS_COMPILED))])
    monkeypatch.setattr(Compiled, "_become", lambda *_: (_ for _ in ()).throw(error))
    with pytest.raises(type(error)):
        life.batch(0)
    monkeypatch.setattr(Compiled, "_become", lambda *_: _raise_from(error))
    with pytest.raises(ValueError, match="while"):
        life.batch(0)
    assert set(states(life).values()) == {"waiting"}


def _raise_from(error: Exception) -> None:
    raise ValueError("while something was done") from error


@ENGINES
def test_an_error_that_comes_once_or_without_any_query_is_raised_and_nobody_is_blamed(
    engine: str, lives: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = lives(engine=engine)
    life.registry.add_all([("one", GOOD), ("two", sql(7))])
    become, times = Compiled._become, iter([True, True])  # the batch, and the first probe

    def fails(self: Compiled, queries: Any) -> None:
        if next(times, False):
            raise ValueError("by chance")
        become(self, queries)

    monkeypatch.setattr(Compiled, "_become", fails)
    with pytest.raises(BrokenQueryError, match="by chance"):
        life.batch(0)
    monkeypatch.setattr(Compiled, "_become", lambda *_: (_ for _ in ()).throw(ValueError("always")))
    with pytest.raises(BrokenQueryError, match="always"):
        life.batch(0)
    monkeypatch.undo()
    life.batch(0)
    assert set(states(life).values()) == {"running"}


def test_a_query_that_broke_a_batch_stays_out_of_it_whatever_a_restart_would_find(lives: Callable[..., Life]) -> None:
    life = lives()
    life.registry.add_all([("good", GOOD), ("bad", broken(BREAKS_COMPILED))])
    life.protocol.commit = killed  # type: ignore[method-assign]
    with breaking(0), pytest.raises(KeyboardInterrupt):
        life.batch(0)
    assert of(life.sink.batches[0]) == {"good"}
    again = lives()
    again.batch(0)  # it would not break any more
    assert of(again.sink.batches[0]) == {"good"}
    assert states(again) == {"good": "running", "bad": "failed"}


@ENGINES
def test_remove_reaches_a_query_that_kills_the_process(
    engine: str, lives: Callable[..., Life], monkeypatch: pytest.MonkeyPatch
) -> None:
    life = lives(engine=engine)
    life.registry.add_all([("good", GOOD), ("deadly", broken("deadly"))])
    become = Compiled._become

    def dies(self: Compiled, queries: Any) -> None:
        if "deadly" in queries:
            raise KeyboardInterrupt
        become(self, queries)

    monkeypatch.setattr(Compiled, "_become", dies)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            lives(engine=engine).batch(0)
    last = lives(engine=engine)
    last.registry.remove("deadly")
    last.batch(0)
    assert of(last.sink.batches[0]) == {"good"}
    assert last.folder.load(INTENTS, 0, Intent).queries["struck"] == ["deadly"]
    assert states(last) == {"good": "running"}


def test_a_batch_that_the_sink_has_keeps_the_queries_that_were_removed(tmp_path: Path) -> None:
    sink = Sink(remembers=True)
    life = Life(tmp_path, sink)
    life.registry.add_all([("stays", GOOD), ("goes", sql(7))])
    life.protocol.commit = killed  # type: ignore[method-assign]
    with pytest.raises(KeyboardInterrupt):
        life.batch(0)
    again = Life(tmp_path, sink)
    again.registry.remove("goes")
    again.batch(0)
    assert "struck" not in again.folder.load(INTENTS, 0, Intent).queries
    again.batch(1)
    assert (of(sink.batches[0]), of(sink.batches[1])) == ({"stays", "goes"}, {"stays"})


def test_a_later_query_of_the_same_id_has_not_failed(lives: Callable[..., Life]) -> None:
    life = lives()
    life.registry.add_all([("x", GOOD)])
    version = life.registry.version
    life.registry.remove("x")
    life.registry.add_all([("x", sql(7))])
    life.registry.put_out("fail", ["x"], "of old", version)
    assert states(life) == {"x": "waiting"}
    life.registry.put_out("fail", ["x"], "of now", life.registry.version)
    assert states(life) == {"x": "failed"}


def wide(aliases: int) -> str:
    """A self join whose aliases are all equal in all columns."""
    names = [f"a{n}" for n in range(aliases)]
    equal = [f"{x}.{c} = {y}.{c}" for x, y in itertools.pairwise(names) for c in ("id", "k", "ts")]
    return f"SELECT a0.id FROM {', '.join(f'r {n}' for n in names)} WHERE {' AND '.join(equal)} WINDOW = 1 SECOND"


def test_a_registry_of_before_the_limits_is_freed_of_what_its_engine_cannot_do(lives: Callable[..., Life]) -> None:
    life = lives(engine="rjoin")  # which does not ask the engine, as was the case
    life.registry.add_all([("good", GOOD), ("wide", wide(63))])
    life.batch(0)
    assert of(life.sink.batches[0]) == {"good"}
    (said,) = [e.reason for e in life.registry.list() if e.id == "wide"]
    assert said == "the query reads 63 streams: a continuous join has 2 to 62"


@ENGINES
def test_what_the_evaluator_cannot_evaluate_breaks_its_own_query_only(engine: str, lives: Callable[..., Life]) -> None:
    """An expression that the list of functions should not have let through: found when a pair of tuples is at hand."""
    life = lives(engine=engine)
    bind = life.registry.bind
    life.registry.bind = lambda sql, backfill=False: replace(  # type: ignore[method-assign]
        bind(sql), residuals=(Computed("no_such_function({0}, {1})", ((0, "id"), (1, "id"))),)
    )
    life.registry.add_all([("odd", sql(6).replace("WINDOW", "AND r.id = 11 WINDOW"))])
    life.registry.bind = bind  # type: ignore[method-assign]
    life.registry.add_all([("good", GOOD)])
    life.batch(0)
    assert states(life) == {"odd": "running", "good": "running"}
    life.batch(1)
    assert states(life) == {"good": "running", "odd": "failed"}
    assert "no_such_function" in life.last.failed["odd"]
    assert of(life.sink.batches[1]) == {"good"}


@given(st.data(), st.integers(1, 300))
def test_the_first_to_fail_is_found_with_few_probes(data: Any, count: int) -> None:
    least = data.draw(st.integers(0, count))
    probes: list[int] = []
    found = first_to_fail(count, lambda n: (probes.append(n), n >= least)[1])
    assert found == (least or None)
    assert len(probes) == len(set(probes)) <= 2 * (count - max(least, 1)).bit_length() + 3
