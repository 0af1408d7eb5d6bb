"""Every file of a checkpoint, cut, flipped, removed or another's: the restarted query fails and names what is wrong, or its results are exact.

Under `dataframe()` most of these files are Spark's: its logs, and the state store's snapshots and change logs. What a unit finds in them is ours: a manifest and segments. Under `start()` all but the logs are
ours, and an error names the file. More kinds of lives of `start()` are damaged without Spark, in tests/rounds/test_damage.py.
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
from tests.spark.streams import Runtime, run, stream
from tests.spark.test_rounds import PAIR, pair, rising

pytestmark = pytest.mark.spark
BATCHES = rising(4)
OTHER = PAIR.replace("10 SECONDS", "20 SECONDS")


class Damaged:
    """A checkpoint after three batches, and lives that go on with copies of it: under the same name the state store would know what it held."""

    def __init__(self, spark: Any, folder: Path, runtime: Runtime) -> None:
        self.folder, self.runtime, self.count = folder, runtime, 0
        self._live(pair(spark, folder, BATCHES[:3]), "whole")
        streams = {n: stream(spark, str(folder / n), lateness="5 seconds") for n in "st"}
        self._live(wm.sql(OTHER, **streams), "another query's")
        self._live(wm.sql(PAIR, **streams), "another run's")
        self.query = pair(spark, folder, [BATCHES[3]], first=3)
        self.exact = self.go_on(lambda root: None)

    def _live(self, query: Any, root: str) -> Counter[Any]:
        return run(query, self.folder / root / "ck", self.folder / root / "out", self.runtime)[0]

    @property
    def files(self) -> list[str]:
        """One file of every kind: those of the state of one partition are those of another, and segments of a batch are alike."""
        alike = re.compile(r"^(state/\d+)/\d+/|^(watersmeet/segments/\d+)-.*")
        kinds = {alike.sub(r"\1\2/", name): name for name in files_of(self.folder / "whole" / "ck")}
        return sorted(kinds.values())

    def go_on(self, hurt: Callable[[Path], Any]) -> Counter[Any]:
        """All results after another life, on a copy that is hurt before."""
        root = self.folder / f"{self.count}"
        self.count += 1
        shutil.copytree(self.folder / "whole", root)
        hurt(root)
        return self._live(self.query, root.name)

    def check(self, name: str, damage: str) -> str:
        """What came of a damaged file: 'exact', or the error's text."""
        donor = self.folder / damage if damage.startswith("another") else None
        try:
            found = self.go_on(lambda root: inflict(root, name, damage, 0.6, donor))
        except Exception as error:
            said = f"{type(error).__name__}: {error}"
        else:
            assert found == self.exact, f"{name} {damage}: {found - self.exact} too many, {self.exact - found} missing"
            return "exact"
        guarded = re.sub(r"/\.([^/]+)\.crc$", r"/\1", f"/{name}")  # Spark names the file whose checksum is another
        assert self.runtime == "stream" or name in said or guarded in said, f"{name} {damage} is not named: {said}"
        return said


@pytest.mark.parametrize("runtime", ["stream", "rounds"])
@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.thorough
def test_every_file(spark: Any, tmp_path: Path, damage: str, runtime: Runtime) -> None:
    case, said, wrong = Damaged(spark, tmp_path, runtime), Counter[str](), []
    assert len(case.files) > 10
    for name in case.files:
        try:
            found = case.check(name, damage)
            said[found.partition(":")[0]] += 1
            print(name, found[:200])
        except AssertionError as error:
            wrong.append(str(error))
    assert wrong == []
    assert len(said) > 1, "nothing was refused, or nothing went on"
