"""Upgrades through deaths, taken back, one after the other, and of checkpoints of earlier formats."""

from __future__ import annotations

import shutil
import tarfile
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from tests.rounds.lives import Life, patch, wires
from tests.rounds.mini_spark import Crash
from tests.rounds.test_damage import LIVES, expected, go_on
from tests.rounds.test_lives import kill_at_file
from tests.rounds.test_upgrades import Asked, World, snapshot
from watersmeet.cli import app
from watersmeet.errors import CheckpointError
from watersmeet.runtime.checkpoints.stored import open_checkpoint
from watersmeet.runtime.checkpoints.summary import sum_up
from watersmeet.runtime.checkpoints.upgrade import Sinks, end_upgrade, undo, upgrade
from watersmeet.runtime.checkpoints.verdicts import judge
from watersmeet.runtime.checkpoints.verify import verify
from watersmeet.runtime.rounds.checkpoint import UPGRADES, StateFolder
from watersmeet.storage.document import FORMAT, READABLE

FIXTURES = Path(__file__).parents[1] / "fixtures" / "checkpoints"
KEPT = FIXTURES.parent / "lives"
"""Checkpoints of other kinds than a query by itself, from format 7 on."""
NARROW, WIDE = Asked(), Asked(window="WINDOW = 8 SECONDS", units=3)


@pytest.fixture(autouse=True)
def in_process(monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)


@pytest.fixture
def world(tmp_path: Path) -> World:
    """A query that has run four of ten files."""
    made = World(tmp_path, 7, 10, {})
    made.live(WIDE, 4)
    return made


def plan_of(world: World, asked: Asked) -> Any:
    return world.prepare(asked).plan


def check_end(world: World, asked: Asked) -> None:
    """That a query goes on to the end, exactly; files that were listed before they were undone come in one batch."""
    world.live(asked, world.count)
    found, reference = world.sink.batches, world.reference(asked)
    whole = sum(found.values(), Counter[object]())
    assert whole == sum(reference.values(), Counter[object]())
    assert whole.total() > 100, "nothing was tested"


def test_an_upgrade_is_undone_to_the_byte(world: World, tmp_path: Path) -> None:
    was = snapshot(tmp_path / "ck")
    told = upgrade(plan_of(world, NARROW), world.folder)
    assert told is not None
    assert told.since is None
    assert "windows" in str(told)
    assert "all answers are those of a run that had the query from the start" in str(told)
    assert undo(tmp_path / "ck", sink=None) == 3
    now = snapshot(tmp_path / "ck")
    assert {name: blob for name, blob in now.items() if name in was} == was
    assert all(name.startswith("watersmeet/segments/") for name in now.keys() - was.keys())
    assert all(f.is_harmless for f in verify(tmp_path / "ck"))
    check_end(world, WIDE)


def test_batches_since_then_are_undone_with_it(world: World, tmp_path: Path) -> None:
    upgrade(plan_of(world, NARROW), world.folder)
    world.live(NARROW, 5)
    assert verify(tmp_path / "ck") == []
    assert undo(tmp_path / "ck", sink=None) == 3
    check_end(world, WIDE)


def test_an_upgrade_can_be_undone_as_long_as_its_batch_is_kept(world: World, tmp_path: Path) -> None:
    held = set(world.folder.names("segments"))
    upgrade(plan_of(world, NARROW), world.folder)
    world.live(NARROW, 7)
    assert world.folder.names(UPGRADES) == []
    assert not held & set(world.folder.names("segments"))
    with pytest.raises(CheckpointError, match="no upgrade that can be undone"):
        undo(tmp_path / "ck", sink=None)


def test_the_command_undoes(world: World, tmp_path: Path) -> None:
    upgrade(plan_of(world, NARROW), world.folder)
    ran = CliRunner().invoke(app, ["state", str(tmp_path / "ck"), "--undo"])
    assert ran.exit_code != 0
    assert "--undo needs --sink" in ran.output
    ran = CliRunner().invoke(app, ["state", str(tmp_path / "ck"), "--undo", "--sink", "function"])
    assert ran.exit_code == 0, ran.output
    assert "is after batch 3, as it was before the upgrade" in ran.output
    check_end(world, WIDE)


def deaths(writes: int) -> Iterator[tuple[int, bool]]:
    """Before or after the first files, and all of the last ones."""
    yield from ((count, is_there) for count in (0, *range(max(1, writes - 5), writes)) for is_there in (False, True))


def count_writes(call: Any) -> int:
    """How many files of the state folder a call writes."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        written, write = [], StateFolder.write

        def counting(self: StateFolder, *args: Any, **named: Any) -> None:
            written.append(args)
            write(self, *args, **named)

        monkeypatch.setattr(StateFolder, "write", counting)
        call()
    return len(written)


@pytest.mark.parametrize("back", [False, True])
def test_a_death_leaves_one_query_or_the_other(world: World, tmp_path: Path, back: bool) -> None:
    """At any file that an upgrade, or its undoing, writes."""
    if back:
        upgrade(plan_of(world, NARROW), world.folder)
    plans = {asked: plan_of(world, asked) for asked in (WIDE, NARROW)}

    def act() -> None:
        undo(tmp_path / "ck", sink=None) if back else upgrade(plans[NARROW], world.folder)

    whole, seen = snapshot(tmp_path / "ck"), Counter[str]()
    for count, is_there in deaths(count_writes(act)):
        shutil.rmtree(tmp_path / "ck")
        for name, blob in whole.items():
            (tmp_path / "ck" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "ck" / name).write_bytes(blob)
        world.folder.prepare()
        with pytest.MonkeyPatch.context() as monkeypatch:
            kill_at_file(monkeypatch, count, is_there)
            try:
                act()
            except KeyboardInterrupt:
                seen["died"] += 1
        end_upgrade(world.folder)
        found = open_checkpoint(tmp_path / "ck").manifest.fingerprint
        [now] = [asked for asked, plan in plans.items() if plan.fingerprint() == found]
        seen["wide" if now is WIDE else "narrow"] += 1
        assert all(f.is_harmless for f in verify(tmp_path / "ck"))
    world.live(now, 6)
    assert world.sink.batches[5] == world.reference(now)[5]
    assert min(seen[name] for name in ("died", "wide", "narrow")) > 0


def test_a_batch_that_had_begun_is_run_by_the_new_query(tmp_path: Path) -> None:
    root = tmp_path / "life"
    with pytest.raises(Crash):
        Life(root / "ck", root / "out", 8).run(4, "before the sink")
    upgrade(wires(4).plan, StateFolder.under(str(root / "ck")), Sinks(Life.sink_of(root / "out")))
    assert go_on(root, "query") != Counter()


def test_results_that_only_the_sink_has_are_the_old_query_s(tmp_path: Path) -> None:
    root = tmp_path / "life"
    with pytest.raises(Crash):
        Life(root / "ck", root / "out", 8).run(4, "after the sink")
    with pytest.raises(CheckpointError, match="has results of batch 1, which the query as it was has not committed"):
        upgrade(wires(4).plan, StateFolder.under(str(root / "ck")), Sinks(Life.sink_of(root / "out")))


def test_what_one_upgrade_lacks_the_next_one_knows(world: World, tmp_path: Path) -> None:
    wider = Asked(window="WINDOW = 20 SECONDS", units=3)
    first = upgrade(plan_of(world, wider), world.folder)
    assert first is not None
    assert first.since is not None
    second = upgrade(plan_of(world, Asked(window="WINDOW = 20 SECONDS", units=2)), world.folder)
    assert second is not None
    assert second.since == first.since
    narrow = judge(open_checkpoint(tmp_path / "ck"), plan_of(world, Asked(window="WINDOW = 2 SECONDS")))
    assert narrow.since is None


@pytest.mark.parametrize("number", READABLE)
def test_checkpoints_of_every_format_go_on_and_are_upgraded(number: int, tmp_path: Path) -> None:
    root = tmp_path / "life"
    shutil.copytree(FIXTURES / f"format-{number}", root)
    StateFolder.under(str(root / "ck")).prepare()
    assert f'"format": {number}' in (root / "ck" / "watersmeet" / "manifests" / "1.json").read_text()
    assert sum_up(open_checkpoint(root / "ck")).format == number
    judged = judge(open_checkpoint(root / "ck"), wires(2).plan)
    assert not judged.impossible
    assert judged.since is None
    assert go_on(root, "query") == expected("query")


def test_there_is_a_checkpoint_of_every_format() -> None:
    assert sorted(p.name for p in FIXTURES.iterdir()) == [f"format-{n}" for n in range(READABLE[0], FORMAT + 1)]


@pytest.mark.parametrize("path", sorted(KEPT.iterdir()), ids=lambda path: path.name)
def test_checkpoints_of_registries_sites_and_changed_queries_go_on(path: Path, tmp_path: Path) -> None:
    [kind] = [k for k in LIVES if path.name.endswith(f"-{k.replace(' ', '-')}.tar.gz")]
    with tarfile.open(path) as kept:
        kept.extractall(tmp_path / "life", filter="data")
    assert [f for f in verify(tmp_path / "life" / "ck") if not f.is_harmless] == []
    assert go_on(tmp_path / "life", kind) == expected(kind)


def test_there_is_one_of_every_kind() -> None:
    kinds = {kind.replace(" ", "-") for kind in LIVES} - {"query"}
    assert {p.name for p in KEPT.iterdir()} >= {f"format-{FORMAT}-{kind}.tar.gz" for kind in kinds}


def test_an_error_in_a_batch_names_batch_and_query(tmp_path: Path) -> None:
    life = Life(tmp_path / "ck", tmp_path / "out")
    with pytest.raises(Crash) as raised:
        life.run(4, "before the sink")
    assert raised.value.__notes__ == [f"in batch 1 of {wires(4).plan.title}"]
    assert life.protocol.error is raised.value
