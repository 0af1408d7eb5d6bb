"""Spark's logs beside a state folder: what of a source's log would be read again."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from watersmeet.runtime.rounds.checkpoint import SparkLogs, StateFolder

INTERVAL = 10


def write(root: Path, name: str, text: str = "v1\n{}") -> None:
    path = root / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def entry(number: int) -> str:
    """What Spark calls an entry of a source's log: every tenth has all before it."""
    return f"{number}.compact" if number % INTERVAL == INTERVAL - 1 else f"{number}"


@pytest.mark.parametrize("seed", range(5))
def test_files_are_followed_as_if_the_folder_were_listed(tmp_path: Path, seed: int) -> None:
    """Some batches bring no entry of a source, some several; and Spark deletes what a compacted entry has."""
    drawn, written = random.Random(seed), {"0": 0, "1": 0}
    folder = StateFolder.under(str(tmp_path))
    logs = SparkLogs.beside(folder)
    for batch in range(45):
        write(tmp_path, f"offsets/{batch}", f"{batch}")
        for source in written:
            for _ in range(drawn.choice((0, 1, 1, 3))):
                write(tmp_path, f"sources/{source}/{entry(written[source])}", f"{source} {written[source]}")
                written[source] += 1
            last = written[source] // INTERVAL * INTERVAL - 1
            if drawn.random() < 0.3:
                for number in range(last):
                    (tmp_path / "sources" / source / entry(number)).unlink(missing_ok=True)
        assert logs.digests(batch) == SparkLogs.beside(folder).digests(batch)
    assert max(written.values()) > 2 * INTERVAL


def test_a_folder_is_listed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    logs, listed = SparkLogs.beside(StateFolder.under(str(tmp_path))), []
    live = SparkLogs._live
    monkeypatch.setattr(SparkLogs, "_live", lambda self, source: listed.append(source) or live(self, source))
    for batch in range(25):
        write(tmp_path, f"offsets/{batch}")
        write(tmp_path, f"sources/0/{entry(batch)}")
        assert f"sources/0/{entry(batch)}" in logs.digests(batch)
    assert listed == ["0"]
