"""Nexmark's generator: the program of the crate `nexmark`, which prints events as lines of JSON.

Cargo builds it once, with the versions that the crate was released with, into a folder that is named after its version.

Invariant: the n-th event of this version is always the same but for its times, which are relative to the moment of the call.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from pathlib import Path

from watersmeet.errors import OptionError

VERSION = "0.2.0"
CRATE = f"the crate nexmark {VERSION}"


def locate(root: Path) -> Path:
    """The generator below `root`, built if it is not there."""
    folder = root / f"nexmark-{VERSION}"
    program = folder / "bin" / "nexmark"
    if not program.exists():
        _install(folder)
    return program


def _install(folder: Path) -> None:
    """Cargo builds in a folder beside, which becomes `folder` when it is complete."""
    cargo = shutil.which("cargo")
    if cargo is None:
        raise OptionError(
            f"Nexmark's events come from {CRATE}, and there is no cargo to build it with: install Rust (https://rustup.rs),"
            f" or put the program to {folder / 'bin' / 'nexmark'}"
        )
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="building-", dir=folder.parent) as building:
        wanted = ["nexmark", "--version", VERSION, "--locked", "--features", "bin"]
        done = subprocess.run([cargo, "install", *wanted, "--root", building], capture_output=True, text=True)
        if done.returncode:
            raise OptionError(f"cargo could not build {CRATE}: {done.stderr.strip()[-1000:]}")
        shutil.copytree(building, folder, dirs_exist_ok=True)


def print_events(program: Path, count: int, path: Path) -> None:
    """Write the first `count` events to a file, a line of JSON for each."""
    with path.open("wb") as out:
        done = subprocess.run(
            [program, "--number", str(count), "--no-wait"], stdout=out, stderr=subprocess.PIPE, text=True
        )
    if done.returncode:
        raise OptionError(f"{program} failed: {done.stderr.strip()[-1000:]}")
