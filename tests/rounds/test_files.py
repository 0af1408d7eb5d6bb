"""The state folder without Spark: what is written is read again, near and far, and damage is an error that names the file."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pytest

from watersmeet.dataflow.contract import Message
from watersmeet.errors import CheckpointError
from watersmeet.plan.model import TIME
from watersmeet.runtime.rounds import files
from watersmeet.runtime.rounds.checkpoint import MAIL, MANIFESTS, SEGMENTS, StateFolder
from watersmeet.runtime.rounds.files import FileStore, PostOffice, open_parcels
from watersmeet.runtime.subscriptions.log import Head
from watersmeet.storage.cache import CACHE
from watersmeet.storage.document import FORMAT, seal
from watersmeet.storage.segment import Segment
from watersmeet.storage.stores import HostCache


class Far(StateFolder):
    """A folder that is no local one: nothing of it may be mapped."""

    @property
    def is_local(self) -> bool:
        return False


@pytest.fixture(params=[StateFolder, Far])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StateFolder:
    monkeypatch.setattr(files, "HOST_CACHE", HostCache(tmp_path / "cache"))
    made: StateFolder = request.param.under(str(tmp_path / "checkpoint"))
    made.prepare()
    return made


def segment(rows: int = 100) -> Segment:
    ts = pa.array(range(rows), pa.timestamp("us", tz="UTC"))
    return Segment.of(pa.table({TIME: ts, "v": [f"value {n}" for n in range(rows)]}))


def forget(store: FileStore, one: Segment) -> None:
    CACHE.drop(one.id)


def test_a_segment_comes_back_as_it_was(folder: StateFolder) -> None:
    store, one = FileStore(folder, "3-abc"), segment()
    info = store.write(one)
    assert info.file.startswith("3-abc-")
    assert (info.rows, info.min_ts, info.max_ts) == (100, 0, 99)
    assert info.file_bytes == Path(folder.path(SEGMENTS, info.file)).stat().st_size
    forget(store, one)
    assert FileStore(folder, "4-def").read(info).table == one.table


@pytest.mark.parametrize("damage", ["bit", "cut", "empty", "gone"])
def test_damage_is_an_error_that_names_the_file(
    folder: StateFolder, damage: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, one = FileStore(folder, "3-abc"), segment()
    info = store.write(one)
    forget(store, one)
    monkeypatch.setattr(files, "HOST_CACHE", HostCache(tmp_path / "another host"))
    path = Path(folder.path(SEGMENTS, info.file))
    blob = path.read_bytes()
    if damage == "gone":
        path.unlink()
    elif damage == "bit":
        path.write_bytes(blob[:500] + bytes([blob[500] ^ 1]) + blob[501:])
    else:
        path.write_bytes(blob[:700] if damage == "cut" else b"")
    with pytest.raises(CheckpointError, match=info.file):
        store.read(info)


def test_a_host_fetches_a_far_file_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = Far.under(str(tmp_path / "checkpoint"))
    folder.prepare()
    monkeypatch.setattr(files, "HOST_CACHE", HostCache(tmp_path / "one host"))
    store, one = FileStore(folder, "0-a"), segment()
    info = store.write(one)
    monkeypatch.setattr(files, "HOST_CACHE", HostCache(tmp_path / "another host"))
    for _ in range(2):
        forget(store, one)
        assert store.read(info).table == one.table
        Path(folder.path(SEGMENTS, info.file)).unlink(missing_ok=True)


def test_a_store_deletes_only_what_it_has_written_itself(folder: StateFolder) -> None:
    early, late = FileStore(folder, "1-a"), FileStore(folder, "2-b")
    info, own = early.write(segment()), late.write(segment())
    late.remove(info)
    late.remove(own)
    assert folder.names(SEGMENTS) == [info.file]


def test_mail_of_one_task_is_one_file_and_arrives_by_parcel(folder: StateFolder) -> None:
    post = PostOffice(folder, "1-a")
    text = pa.array(["é"] * 3, pa.large_string())  # as units have it
    tables = [pa.table({"x": list(range(n, n + 3)), "s": text}) for n in range(4)]
    for n, table in enumerate(tables):
        post.post(Message(n % 2, "rows", table.slice(1)), 1)
    post.close()
    assert folder.names(MAIL) == [post.name]
    found = {p.begin: t for p, t in open_parcels(folder, post.parcels)}
    assert [found[p.begin] for p in post.parcels] == [t.slice(1) for t in tables]
    assert [p.to for p in post.parcels] == [0, 1, 0, 1]


def test_json_is_whole_or_absent(folder: StateFolder) -> None:
    folder.save(MANIFESTS, 12, Head(1))
    folder.save(MANIFESTS, 9, Head(2))
    assert folder.numbers(MANIFESTS) == [9, 12]
    assert folder.load(MANIFESTS, 12, Head) == Head(1)
    assert sorted(folder.names(MANIFESTS)) == ["12.json", "9.json"], "no part is left behind"
    Path(folder.path(MANIFESTS, "9.json")).write_text('{"a": ')
    with pytest.raises(CheckpointError, match=r"9\.json"):
        folder.load(MANIFESTS, 9, Head)
    with pytest.raises(CheckpointError, match=r"10\.json is missing"):
        folder.load(MANIFESTS, 10, Head)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"version": 1}', "cannot be read"),
        ('{"format": 1, "version": 1}', "another format"),
        (json.dumps({"format": FORMAT, "other": 1}), "cannot be read"),
        ("[1]", "cannot be read"),
    ],
)
def test_a_sealed_file_that_is_no_such_document_is_refused(folder: StateFolder, text: str, said: str) -> None:
    folder.write(MANIFESTS, "3.json", seal(text, "manifests/3.json"))
    with pytest.raises(CheckpointError, match=rf"3\.json .*{said}"):
        folder.load(MANIFESTS, 3, Head)


def test_addresses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for given in ("ck", f"{tmp_path}/ck", f"file://{tmp_path}/ck", f"file:{tmp_path}/ck"):
        made = StateFolder.under(given)
        assert made.path("x") == f"{tmp_path}/ck/watersmeet/x"
        assert made.is_local


def test_a_table_for_several_units_is_written_once(folder: StateFolder) -> None:
    post, table = PostOffice(folder, "1-a"), pa.table({"x": list(range(1000))})
    for unit in range(5):
        post.post(Message(unit, "rows", table), 1)
    post.post(Message(9, "rows", table), 3)
    post.close()
    assert len({(p.begin, p.bytes) for p in post.parcels}) == 1
    assert [p.round for p in post.parcels] == [1, 1, 1, 1, 1, 3]
    assert all(found.equals(table) for _, found in open_parcels(folder, post.parcels))
