"""Every file of a checkpoint of `dataframe()`, cut, flipped or removed: the restarted query fails and says so, or its results are exact.

Most of these files are Spark's: its logs, and the state store's snapshots and change logs. Minutes of Spark: only `make test-all` runs it.
"""

from __future__ import annotations

import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.spark.streams import run
from tests.spark.test_rounds import pair, rising

pytestmark = pytest.mark.slow
DAMAGES = ("half", "flip", "gone")


def damage(file: Path, how: str) -> None:
    whole = file.read_bytes()
    if how == "gone":
        file.unlink()
    elif how == "half":
        file.write_bytes(whole[: len(whole) // 2])
    else:
        at = len(whole) // 2
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] if whole else b"\x00")


@pytest.mark.parametrize("how", DAMAGES)
def test_every_file(spark: Any, tmp_path: Path, how: str) -> None:
    batches, checkpoint, out = rising(4), tmp_path / "ck", tmp_path / "out"
    run(pair(spark, tmp_path, batches[:3]), checkpoint, out, runtime="stream")
    query, wrong = pair(spark, tmp_path, [batches[3]], first=3), dict[str, Counter[Any]]()
    files = sorted(f.relative_to(checkpoint) for f in checkpoint.rglob("*") if f.is_file())
    assert len(files) > 10

    def go_on(name: str, damaged: Path | None = None) -> Counter[Any]:
        """Another life on copies: under the same name the state store would know what it held."""
        for kept in (checkpoint, out):
            shutil.copytree(kept, tmp_path / name / kept.name)
        if damaged is not None:
            damage(tmp_path / name / "ck" / damaged, how)
        return run(query, tmp_path / name / "ck", tmp_path / name / "out", runtime="stream")[0]

    exact = go_on("whole")
    for n, file in enumerate(files):
        try:
            found = go_on(f"{n}", file)
        except Exception as error:
            print(file, str(error)[:200])
            continue
        if found != exact:
            wrong[str(file)] = found - exact or exact - found
    assert wrong == {}
