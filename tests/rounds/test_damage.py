"""Every file of a checkpoint, cut, flipped, removed or another's: a named error, or exact results.

Lives of a process are played in this one, see `lives`: a checkpoint is built, perhaps with a crash at its end, one file is damaged, and
another life goes on with more input. What comes out must be what an undamaged life makes of the same files, or an error that names
the file.
"""

from __future__ import annotations

import shutil
import tempfile
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.rounds.lives import FILES, Fed, Life, Registered, Upgraded, patch
from tests.rounds.mini_spark import Crash, SparkError
from tests.rounds.site_lives import AtSite
from watersmeet.errors import WatersmeetError
from watersmeet.runtime.rounds.checkpoint import INTENTS, MANIFESTS, SEGMENTS

SITE = "at a site"
LIVES = {"query": Life, "registered": Registered, "upgraded": Upgraded, "fed": Fed, SITE: AtSite}
ENDS = ("", "before the sink", "after the sink", "before Spark's commit")
"""Where a life ends in its last batch; the first is a stop after it."""
DAMAGES = ("empty", "half", "short", "flip", "gone", "another query's", "another run's", "a sibling's")
LONG, COMMON = ("fed", SITE), ("half", "flip", "gone")
"""Lives of many batches, and the damages that they suffer where not all tests are asked for."""
OTHER_SECONDS = 8


@contextmanager
def in_process() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as monkeypatch:
        patch(monkeypatch)
        yield


def build(root: Path, kind: str, files: int, end: str = "", seconds: int = 4) -> Path:
    """A checkpoint and its results, after so many files."""
    with in_process():
        life = LIVES[kind](root / "ck", root / "out", seconds)
        try:
            life.run(files, end)
            assert not end, "it should have died"
        except Crash:
            assert end
    return root / "ck"


def go_on(root: Path, kind: str) -> Counter[Any]:
    """Another life, to the end of the files: all results."""
    with in_process():
        life = LIVES[kind](root / "ck", root / "out")
        life.run(FILES)
        return life.rows()


def _make_folder() -> Path:
    """A folder that is deleted when the process ends."""
    _folders.append(tempfile.TemporaryDirectory(prefix="watersmeet-damage-"))
    return Path(_folders[-1].name)


_folders: list[tempfile.TemporaryDirectory[str]] = []


@cache
def built(kind: str, files: int, end: str, seconds: int = 4, run: int = 0) -> Path:
    """The same, kept for all tests; to be copied."""
    root = _make_folder()
    build(root, kind, files, end, seconds)
    return root


@cache
def expected(kind: str) -> Counter[Any]:
    root = _make_folder()
    build(root, kind, FILES)
    return go_on(root, kind)


def files_of(checkpoint: Path) -> list[str]:
    return sorted(str(p.relative_to(checkpoint)) for p in checkpoint.rglob("*") if p.is_file())


def inflict(root: Path, name: str, damage: str, at: float, donor: Path | None) -> bool:
    """Damage a file of a checkpoint; whether it is another one now."""
    path = root / "ck" / name
    before = path.read_bytes()
    if damage == "gone":
        path.unlink()
        return True
    if damage == "flip":
        bit = int(at * 8 * len(before))
        after = bytearray(before)
        after[bit // 8] ^= 1 << bit % 8
        path.write_bytes(after)
    elif damage in ("another query's", "another run's"):
        assert donor is not None
        found = donor / "ck" / name
        if not found.exists():  # segments have names of their own
            same = sorted((donor / "ck" / name).parent.iterdir()) if found.parent.exists() else []
            if not same:
                return False
            found = same[int(at * len(same))]
        shutil.copyfile(found, path)
    elif damage == "a sibling's":
        siblings = sorted(p for p in path.parent.iterdir() if p.is_file() and p != path)
        if not siblings:
            return False
        shutil.copyfile(siblings[int(at * len(siblings))], path)
    else:
        path.write_bytes(before[: {"empty": 0, "half": len(before) // 2, "short": len(before) - 1}[damage]])
    return path.read_bytes() != before


@contextmanager
def damaged_copy(kind: str, files: int, end: str, name: str, damage: str, at: float) -> Iterator[Path | None]:
    """A copy of a run with one file damaged; None if the damage changes nothing."""
    other = {"another query's": (OTHER_SECONDS, 1), "another run's": (4, 2)}.get(damage)
    donor = built(kind, files, end, *other) if other else None
    with tempfile.TemporaryDirectory() as scratch:
        root = Path(scratch) / "copy"
        shutil.copytree(built(kind, files, end), root)
        yield root if inflict(root, name, damage, at, donor) else None


def check(kind: str, files: int, end: str, name: str, damage: str, at: float) -> str:
    """What came of it: 'exact', or the error's text, which must name the file."""
    with damaged_copy(kind, files, end, name, damage, at) as root:
        if root is None:
            return "unchanged"
        try:
            assert go_on(root, kind) == expected(kind), f"{name} {damage}: other results"
            return "exact"
        except (WatersmeetError, SparkError) as error:
            said = str(error)
        assert name.removeprefix("../") in said, f"{name} {damage}: {said}"
        return said


@pytest.mark.parametrize("kind", LIVES)
@pytest.mark.parametrize("end", ENDS)
def test_undamaged_lives_go_on_exactly(kind: str, end: str) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for files in (2, 4):
            root = Path(scratch) / f"{files}"
            shutil.copytree(built(kind, files, end), root)
            assert go_on(root, kind) == expected(kind)
    assert sum(expected(kind).values()) > 30, "nothing was tested"


SWEEPS = [
    pytest.param(kind, damage, marks=[] if kind not in LONG or damage in COMMON else [pytest.mark.thorough])
    for kind in LIVES
    for damage in DAMAGES
]


@pytest.mark.parametrize(("kind", "damage"), SWEEPS)
def test_every_file(kind: str, damage: str) -> None:
    """Each file once."""
    said, end = Counter[str](), ENDS[DAMAGES.index(damage) % len(ENDS)]
    for name in files_of(built(kind, 4, end) / "ck"):
        said[check(kind, 4, end, name, damage, 0.6)] += 1
    assert len(said) > 1, "nothing was refused, or nothing went on"


@pytest.mark.parametrize("damage", ["empty", "half", "flip", "gone"])
def test_every_file_of_an_exchange(damage: str) -> None:
    """Of letters and greetings; those of another run are told by what is in them, not by the file."""
    said, end = Counter[str](), ENDS[DAMAGES.index(damage) % len(ENDS)]
    for name in files_of(built(SITE, 4, end) / "exchange"):
        said[check(SITE, 4, end, f"../exchange/{name}", damage, 0.6)] += 1
    assert said["exact"]
    assert (len(said) > 1) == (damage != "gone"), "what is gone is sent, or said, again"


@given(
    st.sampled_from(sorted(LIVES)), st.sampled_from((2, 4)), st.sampled_from(ENDS), st.sampled_from(DAMAGES), st.data()
)
@settings(max_examples=40)
def test_any_file_any_damage_any_batch(kind: str, files: int, end: str, damage: str, data: Any) -> None:
    name = data.draw(st.sampled_from(files_of(built(kind, files, end) / "ck")))
    check(kind, files, end, name, damage, data.draw(st.floats(0, 0.999)))


def test_a_long_run_keeps_few_files(tmp_path: Path) -> None:
    """Windows of 10 s, 4 s per batch: files, manifests and bytes stay where they were after the first windows."""
    sizes: list[tuple[int, int, int]] = []
    with in_process():
        life = Life(tmp_path / "ck", tmp_path / "out", 10, count=60)
        folder, write = life.folder, life.sink.write

        def measure(rows: Any, batch: int) -> None:
            write(rows, batch)
            documents = len(folder.names(MANIFESTS)) + len(folder.names(INTENTS))
            sizes.append((len(folder.names(SEGMENTS)), sum(folder.lengths(SEGMENTS).values()), documents))

        life.sink.write = measure  # type: ignore[method-assign]
        life.run(60)
    assert len(sizes) == 30
    assert max(n for n, _, _ in sizes[16:]) <= max(n for n, _, _ in sizes[6:16]) + 4
    assert max(d for _, d, _ in sizes[16:]) <= 1.2 * max(d for _, d, _ in sizes[6:16])
    assert max(m for _, _, m in sizes) <= 6
    assert life.protocol.latest is not None
    live = sum(info.bytes for _, _, info in life.protocol.latest.segments())
    assert sum(folder.lengths(SEGMENTS).values()) - 1_500 * len(folder.names(SEGMENTS)) <= 2 * live
