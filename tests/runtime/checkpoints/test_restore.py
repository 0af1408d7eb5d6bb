"""Checkpoints that are set back: the next life plans the later batches anew, and all results are there once."""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.rounds.lives import FILES, Life
from tests.rounds.mini_spark import SparkError
from tests.rounds.test_damage import built, expected, files_of, go_on, in_process
from watersmeet.cli import app
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.runtime.checkpoints.restore import restore
from watersmeet.runtime.checkpoints.verify import verify
from watersmeet.runtime.rounds.checkpoint import INTENTS, MANIFESTS, PROGRESS, StateFolder
from watersmeet.runtime.rounds.systems import ArrowFiles


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """After four files, two a batch: batches 0 and 1."""
    return Path(shutil.copytree(built("query", 4, ""), tmp_path / "copy"))


def forget_results(root: Path, batch: int) -> None:
    """Set the sink back, too."""
    for entry in (root / "out" / "_spark_metadata").iterdir():
        if int(entry.name) > batch:
            entry.unlink()


def test_a_sink_with_later_batches_is_refused(root: Path) -> None:
    before = files_of(root)
    with pytest.raises(CheckpointError, match=r"has the results of batch 1.*restore the sink to batch 0 first"):
        restore(root / "ck", 0, sink=str(root / "out"))
    with pytest.raises(OptionError, match="give it, so that it can be seen"):
        restore(root / "ck", 0, sink=None)
    with pytest.raises(CheckpointError, match="records of later batches stay in the topic"):
        restore(root / "ck", 0, sink="kafka:pairs@localhost:9092")
    with pytest.raises(CheckpointError, match="is not where"):
        restore(root / "ck", 0, sink=str(root / "elsewhere"))
    assert files_of(root) == before


def test_it_goes_on_from_there_exactly(root: Path) -> None:
    forget_results(root, 0)
    gone = restore(root / "ck", 0, sink=str(root / "out"))
    assert {"offsets/1", "commits/1", "watersmeet/manifests/1.json"} <= set(gone)
    assert [f for f in verify(root / "ck") if not f.is_harmless] == []
    assert go_on(root, "query") == expected("query")


def test_who_watches_sees_no_batch_that_is_gone(root: Path) -> None:
    forget_results(root, 0)
    folder = StateFolder.under(str(root / "ck"))
    folder.make_folder(PROGRESS)
    for number in (0, 1):
        folder.write(PROGRESS, f"{number}.json", b"{}")
    restore(root / "ck", 0, sink=str(root / "out"))
    assert folder.numbers(PROGRESS) == [0]


def test_a_death_at_any_file_can_be_made_good(root: Path, tmp_path: Path) -> None:
    forget_results(root, 0)
    steps = len(
        restore(Path(shutil.copytree(root, tmp_path / "whole")) / "ck", 0, sink=str(tmp_path / "whole" / "out"))
    )
    refused = 0
    delete = ArrowFiles.delete
    for step in range(steps):
        here = Path(shutil.copytree(root, tmp_path / f"{step}"))
        left = [step]

        def dying(self: ArrowFiles, path: str, left: list[int] = left) -> None:
            left[0] -= 1
            if left[0] < 0:
                raise KeyboardInterrupt
            delete(self, path)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(ArrowFiles, "delete", dying)
            with pytest.raises(KeyboardInterrupt):
                restore(here / "ck", 0, sink=str(here / "out"))
        try:
            shutil.copytree(here, tmp_path / f"{step} as it is")
            assert go_on(tmp_path / f"{step} as it is", "query") == expected("query")
        except (CheckpointError, SparkError):
            refused += 1
        restore(here / "ck", 0, sink=str(here / "out"))
        assert go_on(here, "query") == expected("query")
    assert refused, "nothing was half done"


def test_a_damaged_state_is_not_restored(root: Path) -> None:
    forget_results(root, 0)
    name = wm.state(root / "ck", batch=0)["segment"][0].as_py()
    (root / "ck" / "watersmeet" / "segments" / name).unlink()
    before = files_of(root)
    with pytest.raises(CheckpointError, match=name):
        restore(root / "ck", 0, sink=str(root / "out"))
    assert files_of(root) == before


def test_a_registry_is_not_set_back(tmp_path: Path) -> None:
    root = Path(shutil.copytree(built("registered", 4, ""), tmp_path / "copy"))
    with pytest.raises(CheckpointError, match="queries of its registry have come and gone"):
        restore(root / "ck", 0, sink=str(root / "out"))


def play(root: Path, keep: int, files: int) -> tuple[Counter[Any], Life]:
    with in_process():
        life = Life(root / "ck", root / "out")
        life.protocol.keep = keep
        life.run(files)
        return life.sink.rows(), life


def test_keep_says_how_far_back(tmp_path: Path) -> None:
    """Over two lives, and back from the last batch to the first that is kept."""
    play(tmp_path, 3, 4)
    _, life = play(tmp_path, 3, FILES)
    assert life.folder.numbers(MANIFESTS) == life.folder.numbers(INTENTS) == [0, 1, 2]
    forget_results(tmp_path, 0)
    restore(tmp_path / "ck", 0, sink=str(tmp_path / "out"))
    found, life = play(tmp_path, 2, FILES)
    assert found == expected("query")
    assert life.folder.numbers(MANIFESTS) == [0, 1], (
        "files of later batches, which the source has listed, are one batch now"
    )
    assert [f for f in verify(tmp_path / "ck") if not f.is_harmless] == []


def test_the_command(root: Path) -> None:
    def command(*arguments: str) -> Any:
        return CliRunner().invoke(
            app, ["state", str(root / "ck"), "--restore", "0", *arguments], env={"COLUMNS": "300"}
        )

    assert (command().exit_code, "--restore needs --sink" in command().stderr) == (2, True)
    assert command("--sink", f"json:{root / 'out'}").exit_code == 2
    forget_results(root, 0)
    done = command("--sink", f"json:{root / 'out'}")
    assert (done.exit_code, "is after batch 0" in done.output) == (0, True)
    assert go_on(root, "query") == expected("query")
