"""Jars that tests and benchmarks need beside Spark's own, fetched by Maven once."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

Artifact = tuple[str, str, str, bool]
"""Group, artifact, version, and whether what it needs comes with it."""
CACHE = Path("/var/tmp/watersmeet-jars")
"""Not in the home folder's cache, of which every host of `machines.hosts` has its own."""
_ALONE = "<exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"


def find_missing() -> str | None:
    """Why jars cannot be fetched; None if they can."""
    return None if shutil.which("mvn") else "no mvn, which fetches jars"


def fetch(name: str, artifacts: Sequence[Artifact]) -> Path:
    """A folder with the jars."""
    folder = CACHE / name
    if (folder / "lib").exists():
        return folder / "lib"
    folder.mkdir(parents=True, exist_ok=True)
    needed = "".join(
        f"<dependency><groupId>{g}</groupId><artifactId>{a}</artifactId><version>{v}</version>{'' if whole else _ALONE}</dependency>"
        for g, a, v, whole in artifacts
    )
    (folder / "pom.xml").write_text(
        f'<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion><groupId>watersmeet</groupId>'
        f"<artifactId>{name}</artifactId><version>1</version><dependencies>{needed}</dependencies></project>"
    )
    copy = ["dependency:copy-dependencies", f"-DoutputDirectory={folder / 'part'}"]
    subprocess.run(["mvn", "--quiet", "--batch-mode", *copy], cwd=folder, check=True)
    (folder / "part").rename(folder / "lib")
    return folder / "lib"
