"""`verify` and damage, file by file: what it calls whole goes on exactly; what would not go on exactly it names."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.rounds.mini_spark import SparkError
from tests.rounds.test_damage import (
    COMMON,
    DAMAGES,
    ENDS,
    LIVES,
    LONG,
    built,
    damaged_copy,
    expected,
    files_of,
    go_on,
)
from watersmeet.cli import app
from watersmeet.errors import CheckpointError
from watersmeet.runtime.checkpoints.verify import Finding, verify


def look(root: Path) -> list[Finding]:
    """What `verify` finds; that there is no state any more is a finding, too."""
    try:
        return verify(root / "ck")
    except CheckpointError as error:
        return [Finding("watersmeet", str(error))]


def check(kind: str, files: int, end: str, name: str, damage: str, at: float) -> str:
    """What came of one damage: unchanged, named, harmless."""
    with damaged_copy(kind, files, end, name, damage, at) as root:
        if root is None:
            return "unchanged"
        found = [f for f in look(root) if not f.is_harmless]
        if any(name in str(f) for f in found):
            return "named"
        assert not found, f"{name} {damage}: {found[0]} is blamed"
        try:
            assert go_on(root, kind) == expected(kind), f"{name} {damage}: other results, and nothing was found"
        except (CheckpointError, SparkError) as error:
            pytest.fail(f"{name} {damage}: nothing was found, and then: {error}")
        return "harmless"


@pytest.mark.parametrize("kind", LIVES)
@pytest.mark.parametrize("end", ENDS)
def test_what_is_whole_is_called_whole(kind: str, end: str) -> None:
    """A death leaves unreachable files, and no damage."""
    for files in (2, 4):
        found = verify(built(kind, files, end) / "ck")
        assert [f for f in found if not f.is_harmless] == []
        assert bool(found) == (end in ("before the sink", "after the sink")) or not end.endswith("sink")


@pytest.mark.parametrize(
    ("kind", "damage"),
    [
        *(("query", damage) for damage in DAMAGES),
        *(("registered", damage) for damage in COMMON),
        *(pytest.param(kind, damage, marks=pytest.mark.thorough) for kind in LONG for damage in COMMON),
    ],
)
def test_every_file_is_named_or_harmless(kind: str, damage: str) -> None:
    end = ENDS[DAMAGES.index(damage) % len(ENDS)]
    outcomes = {check(kind, 4, end, name, damage, 0.6) for name in files_of(built(kind, 4, end) / "ck")}
    assert "named" in outcomes


@given(
    st.sampled_from(sorted(LIVES)), st.sampled_from((2, 4)), st.sampled_from(ENDS), st.sampled_from(DAMAGES), st.data()
)
@settings(max_examples=12)
def test_any_file_any_damage_any_batch(kind: str, files: int, end: str, damage: str, data: st.DataObject) -> None:
    name = data.draw(st.sampled_from(files_of(built(kind, files, end) / "ck")))
    check(kind, files, end, name, damage, data.draw(st.floats(0, 0.999)))


def test_of_two_strangers_both_are_named() -> None:
    assert check("query", 2, "before the sink", "watersmeet/intents/0.json", "another query's", 0) == "named"
    assert check("query", 2, "before the sink", "metadata", "another query's", 0) == "named"


def test_before_the_first_commit_an_intent_is_not_needed() -> None:
    assert check("query", 2, "before the sink", "watersmeet/intents/0.json", "gone", 0) == "harmless"


def test_the_command_says_which_and_leaves_with_a_code(tmp_path: Path) -> None:
    root = Path(shutil.copytree(built("query", 4, ""), tmp_path / "copy"))
    whole = CliRunner().invoke(app, ["state", str(root / "ck"), "--verify"])
    assert (whole.exit_code, whole.output.endswith("whole\n")) == (0, True)
    segment = next((root / "ck" / "watersmeet" / "segments").iterdir())
    (segment.parent / "left.arrow").write_bytes(b"")
    for path in segment.parent.iterdir():
        path.write_bytes(path.read_bytes()[:-1])
    broken = CliRunner().invoke(app, ["state", str(root / "ck"), "--verify"], env={"COLUMNS": "300"})
    assert broken.exit_code == 3
    assert f"damage: watersmeet/segments/{segment.name}" in broken.output or segment.name.startswith("0-")
    assert "harmless: watersmeet/segments/left.arrow: unreachable" in broken.output
