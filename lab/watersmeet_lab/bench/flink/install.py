"""Flink in a virtualenv of its own: its Python package wants other versions of Arrow and pandas than ours.

    FOLDER/lib/.../pyflink/lib     Flink's jars, and the one that reads Parquet, which Maven fetches
    Hadoop's classes               those that come with pyspark: the Parquet format asks for them

Invariant: a virtualenv with a `_done` file is complete and is used again. Nothing is imported from it here.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

from watersmeet_lab.machines.jars import fetch, find_missing

FLINK = "2.3.0"
NEEDED = (("org.apache.flink", "flink-sql-parquet", FLINK, False),)


class InstallError(RuntimeError):
    """Flink cannot be had; the message says why."""


def install(folder: Path, say: Callable[[str], None]) -> Path:
    """The Python of a virtualenv that has Flink, which is made if it is not there."""
    python = folder / "bin" / "python"
    if (folder / "_done").exists() and python.exists():
        return python
    if missing := find_missing():
        raise InstallError(f"apache-flink {FLINK} could not be installed into {folder}: there is {missing}")
    say(f"installing apache-flink {FLINK} into {folder}")
    try:
        _run(sys.executable, "-m", "venv", str(folder))
        _run(str(python), "-m", "pip", "install", "--quiet", f"apache-flink=={FLINK}")
        jars = Path(_run(str(python), "-c", "import pyflink; print(pyflink.__path__[0])").strip()) / "lib"
        for jar in fetch(f"flink-{FLINK}", NEEDED).glob("*.jar"):
            shutil.copy(jar, jars)
    except (OSError, subprocess.SubprocessError) as error:
        said = error.stderr if isinstance(error, subprocess.CalledProcessError) else str(error)
        raise InstallError(
            f"apache-flink {FLINK} could not be installed into {folder}: {(said or '').strip()[-600:]}"
        ) from error
    (folder / "_done").touch()
    return python


def find_hadoop() -> list[Path]:
    """The jars of Hadoop's client that come with pyspark."""
    spec = find_spec("pyspark")
    jars = (
        []
        if spec is None or spec.origin is None
        else [*(Path(spec.origin).parent / "jars").glob("hadoop-client-*.jar")]
    )
    if not jars:
        raise InstallError("Flink's Parquet format needs Hadoop's classes, which pyspark brings: pip install pyspark")
    return sorted(jars)


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=1800).stdout
