"""A folder of results: which checkpoints may write to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.results.folder import LOG, SinkFolder


def logged(path: Path, *names: str) -> SinkFolder:
    (path / LOG).mkdir(parents=True)
    for name in names:
        (path / LOG / name).write_text(f"v1\n{name} of {path.name}")
    return SinkFolder(str(path))


def test_a_new_checkpoint_begins_with_an_empty_folder(tmp_path: Path) -> None:
    SinkFolder(str(tmp_path / "absent")).check_new("ck")
    (tmp_path / "out" / "_checkpoint").mkdir(parents=True)
    SinkFolder(str(tmp_path / "out")).check_new("ck")
    (tmp_path / "out" / "part-0.parquet").write_text("rows")
    with pytest.raises(CheckpointError, match=r"out holds 'part-0.parquet' and has no _spark_metadata"):
        SinkFolder(str(tmp_path / "out")).check_new("ck")
    with pytest.raises(CheckpointError, match=r"old holds results that were written with another checkpoint than ck"):
        logged(tmp_path / "old", "0", "1").check_new("ck")


def test_a_checkpoint_goes_on_where_it_has_written(tmp_path: Path) -> None:
    mine, other = logged(tmp_path / "mine", "7", "8"), logged(tmp_path / "other", "7", "8")
    for batch in (7, 8):
        mine.check_goes_on(batch, mine.mark(batch), "ck")
        with pytest.raises(CheckpointError, match="another checkpoint than ck"):
            other.check_goes_on(batch, mine.mark(batch), "ck")
    with pytest.raises(CheckpointError, match="up to batch 8"):
        mine.check_goes_on(6, "any", "ck")
    for folder, mark in (SinkFolder(str(tmp_path / "absent")), "any"), (mine, None):
        with pytest.raises(CheckpointError, match="is not where ck has written its 9 batches"):
            folder.check_goes_on(8, mark, "ck")


def test_the_first_batch_may_be_there_already_and_a_compacted_log_is_one(tmp_path: Path) -> None:
    logged(tmp_path / "first", "0").check_goes_on(-1, None, "ck")
    compact = logged(tmp_path / "compact", "9.compact")
    assert compact.latest() == 9
    compact.check_goes_on(8, "of a file that is gone", "ck")
    compact.check_goes_on(9, compact.mark(9), "ck")


def test_nothing_is_said_of_a_file_system_that_arrow_does_not_know() -> None:
    folder = SinkFolder("unheard://of/it")
    assert not folder.is_known
    folder.check_new("ck")
    folder.check_goes_on(8, None, "ck")
