"""Every file of a checkpoint of `dataframe()`, cut, flipped, removed or another's: the restarted query fails and names what is wrong, or its results are exact.

Most of these files are Spark's: its logs, and the state store's snapshots and change logs. What a unit finds in them is ours: a manifest and segments.
"""

from __future__ import annotations

import re
import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from tests.rounds.test_damage import DAMAGES, files_of, inflict
from tests.spark.streams import run, stream
from tests.spark.test_rounds import PAIR, pair, rising

pytestmark = pytest.mark.spark
BATCHES = rising(4)
OTHER = PAIR.replace("10 SECONDS", "20 SECONDS")


class Damaged:
    """A checkpoint after three batches, and lives that go on with copies of it: under the same name the state store would know what it held."""

    def __init__(self, spark: Any, folder: Path) -> None:
        self.folder, self.count = folder, 0
        run(pair(spark, folder, BATCHES[:3]), folder / "whole" / "ck", folder / "whole" / "out")
        streams = {n: stream(spark, str(folder / n), lateness="5 seconds") for n in "st"}
        run(wm.sql(OTHER, **streams), folder / "another query's" / "ck", folder / "another query's" / "out")
        run(wm.sql(PAIR, **streams), folder / "another run's" / "ck", folder / "another run's" / "out")
        self.query = pair(spark, folder, [BATCHES[3]], first=3)
        self.exact = self.go_on(lambda root: None)

    @property
    def files(self) -> list[str]:
        """One file of every kind: those of the state of one partition are those of another."""
        kinds = {re.sub(r"^(state/\d+)/\d+/", r"\1/", name): name for name in files_of(self.folder / "whole" / "ck")}
        return sorted(kinds.values())

    def go_on(self, hurt: Callable[[Path], Any]) -> Counter[Any]:
        """All results after another life, on a copy that is hurt before."""
        root = self.folder / f"{self.count}"
        self.count += 1
        shutil.copytree(self.folder / "whole", root)
        hurt(root)
        return run(self.query, root / "ck", root / "out")[0]

    def check(self, name: str, damage: str) -> str:
        """What came of a damaged file: 'exact', or the error's text."""
        donor = self.folder / damage if damage.startswith("another") else None
        try:
            found = self.go_on(lambda root: inflict(root, name, damage, 0.6, donor))
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        assert found == self.exact, f"{name} {damage}: {found - self.exact} too many, {self.exact - found} missing"
        return "exact"


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.thorough
def test_every_file(spark: Any, tmp_path: Path, damage: str) -> None:
    case = Damaged(spark, tmp_path)
    assert len(case.files) > 10
    wrong = []
    for name in case.files:
        try:
            print(name, case.check(name, damage)[:200])
        except AssertionError as error:
            wrong.append(str(error))
    assert wrong == []
