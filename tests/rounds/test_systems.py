"""File systems of checkpoints keep one contract; object stores are played by a store in memory that knows conditions."""

from __future__ import annotations

import pickle
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from obstore.store import LocalStore, MemoryStore
from pyarrow import fs as pafs

from tests.rounds.lives import FILES, Life, patch
from tests.rounds.mini_spark import Crash
from watersmeet.dataflow.contract import Message
from watersmeet.errors import CheckpointError, OptionError
from watersmeet.plan.model import TIME
from watersmeet.runtime.rounds import files as rounds_files
from watersmeet.runtime.rounds.checkpoint import MANIFESTS, StateFolder
from watersmeet.runtime.rounds.files import FileStore, PostOffice, open_parcels
from watersmeet.runtime.rounds.systems import ArrowFiles, Files, ObjectFiles, check_reach
from watersmeet.runtime.spark import stores
from watersmeet.runtime.spark.stores import lend_settings
from watersmeet.runtime.subscriptions.log import Head
from watersmeet.storage.cache import CACHE
from watersmeet.storage.segment import Segment
from watersmeet.storage.stores import HostCache


class NoLinks(ArrowFiles):
    """A file system that is not this machine's."""

    def __init__(self) -> None:
        super().__init__(pafs.LocalFileSystem())
        self.is_local = False


@pytest.fixture(params=["disk", "far", "objects"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Files, str]:
    made: dict[str, Any] = {"disk": lambda: ArrowFiles(pafs.LocalFileSystem()), "far": NoLinks}
    root = str(tmp_path / "ck") if request.param in made else "ck"
    found: Files = made[request.param]() if request.param in made else ObjectFiles(MemoryStore())
    found.make_folder(root)
    return found, root


def test_a_file_is_created_once_and_replaced_at_will(place: tuple[Files, str]) -> None:
    files, root = place
    path = f"{root}/one"
    assert not files.has(path)
    assert files.create(path, b"first", durably=True)
    assert not files.create(path, b"second", durably=True)
    assert files.read(path).to_pybytes() == b"first"
    files.replace(path, b"third", durably=True)
    assert files.read(path).to_pybytes() == b"third"
    assert files.lengths(root) == {"one": 5}, "nothing is left beside it"
    files.delete(path)
    files.delete(path)
    assert files.lengths(root) == {}
    with pytest.raises(FileNotFoundError):
        files.read(path)


def test_of_many_drivers_one_creates(place: tuple[Files, str]) -> None:
    files, root = place
    if isinstance(files, NoLinks):
        pytest.skip("without links or conditions two may think so")
    won: list[int] = []
    racers = [
        threading.Thread(
            target=lambda n=n: files.create(f"{root}/n", b"%d" % n, durably=False) and won.append(n)  # type: ignore[misc]
        )
        for n in range(8)
    ]
    for racer in racers:
        racer.start()
    for racer in racers:
        racer.join()
    assert len(won) == 1
    assert files.read(f"{root}/n").to_pybytes() == b"%d" % won[0]


def test_parts_of_a_file_that_grew(place: tuple[Files, str]) -> None:
    files, root = place
    writer = files.open_writer(f"{root}/grown")
    for piece in (b"01234", pa.py_buffer(b"56789")):
        writer.write(piece)
    writer.close()
    parts = files.read_ranges(f"{root}/grown", [(0, 2), (4, 3)])
    assert [part.to_pybytes() for part in parts] == [b"01", b"456"]
    assert "grown" in files.lengths(root)


@pytest.fixture
def folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> StateFolder:
    """A state folder in a bucket, and a host with a cache of its own."""
    store = ObjectFiles(MemoryStore())
    monkeypatch.setattr("watersmeet.runtime.rounds.checkpoint.open_files", lambda uri: (store, uri.partition("//")[2]))
    monkeypatch.setattr(rounds_files, "HOST_CACHE", HostCache(tmp_path / "host"))
    made = StateFolder.under("s3a://bucket/ck")
    made.prepare()
    return made


def test_state_and_mail_in_a_bucket(folder: StateFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ts = pa.array(range(100), pa.timestamp("us", tz="UTC"))
    store, one = FileStore(folder, "0-a"), Segment.of(pa.table({TIME: ts}))
    info = store.write(one)
    CACHE.drop(one.id)
    assert store.read(info).table == one.table
    assert store.fetched_bytes == 0, "the host has a copy of what it has written"
    monkeypatch.setattr(rounds_files, "HOST_CACHE", HostCache(tmp_path / "another host"))
    for _ in range(2):
        CACHE.drop(one.id)
        assert store.read(info).table == one.table
        assert store.fetched_bytes == info.file_bytes, "another host fetches it, once"
    post = PostOffice(folder, "0-a")
    tables = [pa.table({"x": list(range(n, n + 3))}) for n in range(4)]
    for n, table in enumerate(tables):
        post.post(Message(n, "rows", table), 1)
    post.close()
    assert [found for _, found in open_parcels(folder, post.parcels)] == tables


def test_a_second_driver_is_stopped_by_the_first_ones_manifest(folder: StateFolder) -> None:
    folder.save(MANIFESTS, 3, Head(1), is_new=True)
    folder.save(MANIFESTS, 3, Head(1), is_new=True)  # its answer was lost: the same again
    with pytest.raises(CheckpointError, match=r"3\.json is there already: another driver"):
        folder.save(MANIFESTS, 3, Head(2), is_new=True)
    assert folder.load(MANIFESTS, 3, Head) == Head(1)
    assert folder.numbers(MANIFESTS) == [3]


class Broken(ObjectFiles):
    def __init__(self, says: Exception | None) -> None:
        super().__init__(MemoryStore())
        self.says = says

    def create(self, path: str, blob: bytes, *, durably: bool) -> bool:
        if self.says is not None:
            raise self.says
        return True


def test_a_bucket_that_cannot_be_written_is_refused_with_the_remedy() -> None:
    check_reach(ObjectFiles(MemoryStore()), "ck", "checkpoint='s3a://b/ck'")
    with pytest.raises(
        OptionError,
        match=r"checkpoint='s3a://b/ck' cannot be written \(no such bucket\); make the bucket, .*fs\.s3a\.access\.key",
    ):
        check_reach(Broken(OSError("no such bucket")), "ck", "checkpoint='s3a://b/ck'")
    with pytest.raises(OptionError, match="ignores the condition"):
        check_reach(Broken(None), "ck", "checkpoint='s3a://b/ck'")


def test_what_spark_knows_of_s3_is_lent_to_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in stores._S3A.values():
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-west-1")
    known = {
        "fs.s3a.access.key": "all",
        "fs.s3a.bucket.b.access.key": "mine",
        "fs.s3a.secret.key": "secret",
        "fs.s3a.endpoint": "127.0.0.1:9",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.endpoint.region": "us-east-1",
    }
    configuration = SimpleNamespace(hadoopConfiguration=lambda: SimpleNamespace(get=known.get))
    context = SimpleNamespace(environment={}, _jsc=configuration)
    lend_settings(SimpleNamespace(sparkContext=context), ["/tmp/ck"])
    assert context.environment == {}
    lend_settings(SimpleNamespace(sparkContext=context), ["s3a://b/ck"])
    assert context.environment == {
        "AWS_ACCESS_KEY_ID": "mine",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_ENDPOINT_URL": "http://127.0.0.1:9",
        "AWS_REGION": "eu-west-1",
    }
    for name in stores._S3A.values():
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize("dies", ["before the sink", "after the sink", "before Spark's commit"])
def test_lives_in_a_bucket_end_and_go_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dies: str) -> None:
    """The store keeps its objects in a folder, so that Spark's logs, played here, are seen beside them."""
    patch(monkeypatch)
    calm = Life(tmp_path / "calm", tmp_path / "calm-out")
    calm.run(FILES)
    disk = ObjectFiles(LocalStore("/"))
    monkeypatch.setattr("watersmeet.runtime.rounds.checkpoint.open_files", lambda uri: (disk, uri.lstrip("/")))
    for count in range(1, FILES):
        with pytest.raises(Crash):
            Life(tmp_path / "ck", tmp_path / "out").run(count, dies)
    last = Life(tmp_path / "ck", tmp_path / "out")
    assert not last.folder.is_local
    last.run(FILES)
    assert last.sink.rows() == calm.sink.rows() != Counter()


def test_a_folder_travels_without_its_open_store(folder: StateFolder) -> None:
    folder.save(MANIFESTS, 1, Head(1))
    assert "_opened" in vars(folder)
    there = pickle.loads(pickle.dumps(replace(folder, is_shared=True)))
    assert vars(there) == {"uri": folder.uri, "is_shared": True}
    assert there.load(MANIFESTS, 1, Head) == Head(1)
