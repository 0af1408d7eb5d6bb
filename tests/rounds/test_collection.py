"""What a batch has written when the sink gets its rows, and what is deleted after it."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from tests.rounds.lives import Life, patch
from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds import systems
from watersmeet.runtime.rounds.checkpoint import INTENTS, MAIL, MANIFESTS, SEGMENTS
from watersmeet.runtime.rounds.collection import Collection
from watersmeet.storage.manifest import BatchManifest


@pytest.fixture
def life(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Life:
    patch(monkeypatch)
    return Life(tmp_path / "checkpoint", tmp_path / "sink")


def test_the_disk_has_the_intent_before_the_sink_has_rows_and_the_manifest_before_the_batch_is_over(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    sync, seen = systems._sync, []
    monkeypatch.setattr(systems, "_sync", lambda path: (time.sleep(0.05), sync(path)))
    write, batch = life.sink._write, life.protocol._batch

    def write_after(found: Any, batch_id: int) -> None:
        seen.append((batch_id, life.folder.has(INTENTS, batch_id), life.folder.has(MANIFESTS, batch_id)))
        write(found, batch_id)

    def end_after(entered: Any, batch_id: int) -> None:
        batch(entered, batch_id)
        assert life.folder.has(MANIFESTS, batch_id)

    monkeypatch.setattr(life.sink, "_write", write_after)
    monkeypatch.setattr(life.protocol, "_batch", end_after)
    life.run(6)
    assert seen == [(n, True, False) for n in range(3)]


def test_an_intent_that_cannot_be_written_ends_the_batch_before_the_sink(
    life: Life, monkeypatch: pytest.MonkeyPatch
) -> None:
    life.run(2)

    def refuse(path: str) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(systems, "_sync", refuse)
    with pytest.raises(OSError, match="no space left"):
        life.run(4)
    assert life.sink.folder.latest() == 0


def test_a_second_driver_is_stopped_and_deletes_nothing_of_the_first(life: Life, tmp_path: Path) -> None:
    life.run(6)
    behind = Life(tmp_path / "checkpoint", tmp_path / "sink")
    behind.protocol.collection.is_untidy = False
    latest = life.protocol.latest
    assert latest is not None
    old = BatchManifest.fresh(behind.protocol.identity, latest.query_id)
    old.batch = latest.batch - 1
    kept = {kind: {*life.folder.names(kind)} for kind in (INTENTS, MANIFESTS, SEGMENTS)}
    again = old.copy()
    again.batch = latest.batch
    with pytest.raises(CheckpointError, match="another driver runs"):
        behind.protocol.commit(again)
    assert {kind: set(life.folder.names(kind)) for kind in kept} == kept


def test_without_a_sweep_mail_of_the_attempt_is_deleted_and_with_one_all_of_it(life: Life) -> None:
    life.run(2)
    collection, latest = Collection(life.folder), life.protocol.latest
    assert latest is not None
    for name in ("1-aa-x.arrow", "1-bb-y.arrow", "1-aa.1.0.json", ".1-aa-z.arrow.part"):
        life.folder.write(MAIL, name, b"?")
    after = latest.copy()
    after.batch = 1
    collection.is_untidy = False
    collection.collect(latest, after, 2, "1-aa")
    assert life.folder.names(MAIL) == ["1-bb-y.arrow"]
    collection.is_untidy = True
    collection.collect(latest, after, 2, "1-aa")
    assert life.folder.names(MAIL) == []
