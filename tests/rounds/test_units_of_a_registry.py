"""Registries under a checkpoint whose units change: by `units=` of a restart, or with the load. Supersteps are played in process, see tests/rounds/test_subscriptions.py."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.rounds.test_subscriptions import SPECS, InProcess, Life, Sink, answers, asked, in_memory, once, sql
from watersmeet.registry.placement import even_places, move_node, read_placement
from watersmeet.registry.versions import Queries
from watersmeet.runtime.rounds.checkpoint import INTENTS, MANIFESTS, SEGMENTS
from watersmeet.runtime.rounds.protocol import Protocol
from watersmeet.runtime.subscriptions.engines import engine_of
from watersmeet.runtime.subscriptions.log import FolderLog
from watersmeet.runtime.subscriptions.scaled import RegistryDecider, RegistryUnits
from watersmeet.storage.manifest import BatchManifest, Intent

QUERIES = {
    "three": sql(3),
    "nine": sql(9),
    "once": once(6),
    "once for ever": once(7),
    "self": "SELECT a.id AS x, b.id AS y FROM r a, r b WHERE a.k = b.k AND a.id < b.id WINDOW = 5 SECONDS",
    "values": "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k AND r.k = 1 WINDOW = 8 SECONDS",
    "chain": "SELECT a.id AS x, c.id AS y FROM r a, s b, r c WHERE a.k = b.k AND b.id = c.id WINDOW = 6 SECONDS",
}
SHARED = {
    "anti": "SELECT r.id FROM r ANTI JOIN s ON r.id = s.k WINDOW = 3 SECONDS",
    "left": "SELECT r.id AS x, s.id AS y FROM r LEFT JOIN s ON r.id = s.k WINDOW = 5 SECONDS",
    "one": "SELECT DISTINCT r.k AS k FROM r WHERE r.k > 0",
    "groups": "SELECT r.k, count(*) AS n FROM r GROUP BY r.k, window(r.ts, '5 seconds') HAVING count(*) > 1",
    "full": "SELECT r.id AS x, s.id AS y FROM r FULL JOIN s ON r.id = s.k WINDOW = 3 SECONDS",
}


class Scaled(Life):
    """A life whose units may differ from those of the lives before."""

    def __init__(
        self,
        checkpoint: Path,
        sink: Sink,
        wanted: int | None = None,
        engine: str = "shared",
        scaling: wm.Scaling | None = None,
    ) -> None:
        super().__init__(checkpoint, sink, 2, engine)
        plan: Any = self.protocol.plan
        steps: Any = InProcess(plan, engine_of(plan, Queries(FolderLog(self.folder))), self.folder)
        decider = RegistryDecider(RegistryUnits(plan, wanted, scaling))
        self.protocol = Protocol(plan, steps, self.folder, sink, decider, registered=self.registry)

    @property
    def units(self) -> int:
        """Of the latest batch."""
        manifest = self.protocol.latest
        assert manifest is not None
        return read_placement(self.folder.load(INTENTS, manifest.batch, Intent).routing, 2).units

    def fail(self, batch: int) -> None:
        """The sink is down; the batch will be repeated."""
        self.sink.fails = True
        with pytest.raises(OSError, match="the sink is down"):
            self.batch(batch)
        self.sink.fails = False


LIVES = st.lists(
    st.tuples(st.sampled_from((None, 1, 2, 3, 5)), st.integers(1, 3), st.sampled_from((0, 0, 1, 2))),
    min_size=2,
    max_size=5,
)
"""For every life the units that its user asks for, its batches, and how often the first of these is killed, by lives with other units each."""


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(lives=LIVES)
@settings(max_examples=15)
def test_answers_are_those_of_fixed_units_over_restarts_and_kills(
    engine: str, lives: list[tuple[int | None, int, int]]
) -> None:
    texts = QUERIES | (SHARED if engine == "shared" else {})
    with tempfile.TemporaryDirectory() as scratch:
        sink, twin, batch = Sink(), in_memory(), 0
        first = Scaled(Path(scratch), sink, engine=engine)
        first.registry.add_all([*texts.items()])
        twin.add_all(texts)
        for wanted, batches, kills in lives:
            for kill in range(kills):
                Scaled(Path(scratch), sink, (wanted or 1) + kill, engine).fail(batch)
            life = Scaled(Path(scratch), sink, wanted, engine)
            for _ in range(batches):
                life.batch(batch)
                assert sink.batches[batch] == answers(twin, batch), f"batch {batch}"
                batch += 1
            if wanted is not None and (batches > 1 or not kills):
                assert life.units == wanted, "a batch that was killed keeps its units"
            assert life.protocol.latest is not None
            assert set(life.protocol.latest.units) <= set(range(life.units)), "units that are gone are forgotten"
            assert asked(life, sql(60)) == Counter(map(tuple, (row.values() for row in twin.ask(sql(60)).to_pylist())))


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_segments_that_a_unit_replaces_within_a_batch_are_deleted(tmp_path: Path, engine: str) -> None:
    """Nodes of a ring take several turns in a batch: what one has written, the next may have merged."""
    sink = Sink()
    Scaled(tmp_path, sink, engine=engine).registry.add_all([*QUERIES.items()])
    for batch in range(12):
        if (
            batch % 3 == 0
        ):  # the batch is repeated, and looks through the folder; the units change in the next one, which does not
            Scaled(tmp_path, sink, None, engine).fail(batch)
            life = Scaled(tmp_path, sink, 1 + batch % 4, engine)
        life.batch(batch)
        named = [life.folder.load(MANIFESTS, n, BatchManifest).files() for n in life.folder.numbers(MANIFESTS)]
        assert set(life.folder.names(SEGMENTS)) == set().union(*named)
        assert all(named)


def test_a_batch_that_is_repeated_has_the_units_of_its_intent(tmp_path: Path) -> None:
    sink, twin = Sink(), in_memory()
    life = Scaled(tmp_path, sink)
    life.registry.add_all([*QUERIES.items()])
    twin.add_all(QUERIES)
    life.batch(0)
    Scaled(tmp_path, sink, 5).fail(1)
    again = Scaled(tmp_path, sink, 3)
    again.batch(1)
    assert again.units == 5
    again.batch(2)
    assert again.units == 3
    for n in range(3):
        assert sink.batches[n] == answers(twin, n)
    calm = Scaled(tmp_path, sink)
    calm.batch(3)
    assert calm.units == 3, "who says nothing goes on with what is there"


def test_units_follow_the_load(tmp_path: Path) -> None:
    sink, twin = Sink(), in_memory()
    scaling = wm.Scaling(unit_bytes=1, confirm=2, most_units=16)
    life = Scaled(tmp_path, sink, scaling=scaling)
    life.registry.add_all([*QUERIES.items()])
    twin.add_all(QUERIES)
    units = []
    for n in range(8):
        life = Scaled(tmp_path, sink, scaling=scaling) if n == 4 else life
        life.batch(n)
        assert sink.batches[n] == answers(twin, n)
        units.append(life.units)
    assert units[:2] == [2, 2], "a burst changes nothing"
    assert units[2] == 16
    calm = Scaled(tmp_path, sink, 7, scaling=wm.Scaling(unit_bytes="1 GB", confirm=1))
    for n in range(8, 11):
        calm.batch(n)
        assert sink.batches[n] == answers(twin, n)
        units.append(calm.units)
    assert units[-1] == 1, "and less load fewer units; with scaling= what was said at first is of no importance"


def test_nodes_of_a_ring_move_to_those_that_have_much(tmp_path: Path) -> None:
    sink, twin = Sink(), in_memory()
    scaling = wm.Scaling(unit_bytes="1 GB", low=0.0)
    life = Scaled(tmp_path, sink, 6, "rjoin", scaling)
    life.registry.add_all([*QUERIES.items()])
    twin.add_all(QUERIES)
    said: list[str] = []
    for n in range(12):
        life.batch(n)
        assert sink.batches[n] == answers(twin, n), f"batch {n}"
        said += life.last.scaled
        life = Scaled(tmp_path, sink, 6, "rjoin", scaling)
    assert any("moves on the ring" in words for words in said)
    assert life.protocol.decider.taken


PLACES = st.lists(st.integers(0, 2**64 - 1), min_size=1, max_size=6, unique=True).map(tuple)


@given(rings=st.lists(PLACES, min_size=2, max_size=6))
@settings(max_examples=25)
def test_any_ring_may_follow_any_other(rings: list[tuple[int, ...]]) -> None:
    moving, twin = (
        wm.local.subscriptions(
            {n: wm.Stream(in_memory()._schemas[n].empty_table(), time="ts") for n in SPECS}, engine=e
        )
        for e in ("rjoin", "shared")
    )
    for subs in (moving, twin):
        subs.add_all(QUERIES)
    for n, places in enumerate(rings):
        moving._placement = moving._placement.then(places)
        assert answers(moving, n) == answers(twin, n), f"batch {n}"
        if n == 2:
            for subs in (moving, twin):
                subs.add(once(4), id="late")
                subs.remove("nine")


@given(loads=st.lists(st.integers(0, 1000), min_size=2, max_size=9))
def test_a_move_never_gives_anybody_more_than_the_fullest_had(loads: list[int]) -> None:
    places = even_places(len(loads))
    arcs = {n: (float(load), (places[n] - 2**60) % 2**64) for n, load in enumerate(loads)}
    moved = move_node(places, arcs)
    assert len(set(moved)) == len(places)
    if moved != places:
        (light,) = [n for n in range(len(places)) if moved[n] != places[n]]
        assert loads[light] == min(loads) < max(loads) / 4
        heir = (light + 1) % len(loads)
        assert loads[heir] + loads[light] < max(loads) or loads[heir] == max(loads)
