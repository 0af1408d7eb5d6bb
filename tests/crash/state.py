"""What the rounds runtime's state folder holds, read without its code."""

from __future__ import annotations

import json
import os
from pathlib import Path

from tests.crash.phases import latest


def state_folder(work: Path) -> Path:
    return work / "checkpoint" / "watersmeet"


def has(work: Path, kind: str, batch: int) -> bool:
    return (state_folder(work) / kind / f"{batch}.json").exists()


def named(manifest: Path) -> set[str]:
    """The segment files that a manifest names."""
    units = json.loads(manifest.read_text())["units"].values()
    return {info["file"] for unit in units for infos in unit["segments"].values() for info in infos}


def assert_no_orphans(work: Path) -> None:
    """The last two manifests are there, and the files they name, and no others."""
    folder = state_folder(work)
    last = latest(folder / "manifests")
    kept = {f"{n}.json" for n in (last - 1, last)}
    for kind in ("manifests", "intents"):
        assert set(os.listdir(folder / kind)) == kept, "a part that was never renamed counts as an orphan, too"
    manifests = [named(folder / "manifests" / name) for name in kept]
    assert set().union(*manifests), "the manifests name no file: nothing was tested"
    assert set(os.listdir(folder / "segments")) == set().union(*manifests)
    assert os.listdir(folder / "mail") == []


def units_ever(work: Path) -> int:
    """How many units there have been: numbers are never used again."""
    folder = state_folder(work) / "manifests"
    return int(json.loads((folder / f"{latest(folder)}.json").read_text())["scaling"]["fresh"])
