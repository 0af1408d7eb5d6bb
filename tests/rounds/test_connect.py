"""What Spark Connect needs of files: several processes that write one registry, and a client that follows batches it does not run."""

from __future__ import annotations

import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from pyspark import cloudpickle

from tests.rounds.lives import Life as QueryLife
from tests.rounds.lives import patch
from tests.rounds.test_subscriptions import SPECS, Life, Sink, sql
from watersmeet.errors import OptionError, QueryError
from watersmeet.runtime.rounds import follow, protocol
from watersmeet.runtime.rounds.checkpoint import PROGRESS, StateFolder
from watersmeet.runtime.rounds.follow import Followed, check_sinks
from watersmeet.runtime.rounds.sinks import ConsoleSink, FileSink, MemorySink
from watersmeet.runtime.spark.workers import problem_of_report
from watersmeet.runtime.subscriptions import log as log_module
from watersmeet.runtime.subscriptions.log import FolderLog, Head
from watersmeet.runtime.subscriptions.registry import Registry


def registries(folder: Path) -> tuple[Registry, Registry]:
    """A client's registry, and the copy of it that a server has."""
    log = FolderLog(StateFolder.under(str(folder)))
    log.folder.prepare()
    log.prepare()
    client = Registry(SPECS, log)
    server = cloudpickle.loads(cloudpickle.dumps(client))
    assert server is not client
    return client, server


def test_a_file_is_created_once(tmp_path: Path) -> None:
    folder = StateFolder.under(str(tmp_path))
    folder.prepare(PROGRESS)
    assert folder.create(PROGRESS, 7, Head(1))
    assert not folder.create(PROGRESS, 7, Head(2))
    assert folder.load(PROGRESS, 7, Head) == Head(1)
    assert folder.names(PROGRESS) == ["7.json"]


def test_of_many_writers_of_a_version_one_wins_and_the_others_write_the_next(tmp_path: Path) -> None:
    client, server = registries(tmp_path)
    many = [cloudpickle.loads(cloudpickle.dumps(server)) for _ in range(6)]
    threads = [threading.Thread(target=lambda r=r: [r.add_all([(None, sql(n + 1))]) for n in range(5)]) for r in many]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(client.list()) == 30
    assert client.version == 30


def test_what_one_process_adds_and_another_strikes_both_know(tmp_path: Path) -> None:
    client, server = registries(tmp_path)
    client.add_all([("a", sql(1)), ("b", sql(2))])
    queries = server.intend({}, 0)
    assert server.ids(queries) == ["a", "b"]
    struck = server.strike(queries, "b", "it overflows")
    client.add_all([("c", sql(3))])
    with pytest.raises(QueryError, match="registered already"):
        server.add_all([("c", sql(3))])
    server.commit(struck)
    assert [(e.id, e.state) for e in client.list()] == [("a", "waiting"), ("c", "waiting"), ("b", "failed")]
    client.resume(struck)
    assert next((e.id, e.state, e.since) for e in client.list()) == ("a", "running", 0)
    client.remove("a")
    assert server.ids(server.intend(struck, 1)) == ["c"]


def test_a_client_that_has_slept_while_versions_were_compacted_finds_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "MOST_CHANGES", 4)
    client = registries(tmp_path)[0]
    life = Life(tmp_path, Sink())
    for n in range(20):
        life.add(n + 1)
        life.batch(n)
    assert not life.folder.has(log_module.REGISTRY, 1), "it was compacted"
    assert len(client.list()) == 20
    client.remove("q20")
    assert len(life.registry.list()) == 19


def test_a_client_follows_the_batches_of_a_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    monkeypatch.setattr(follow, "POLL_SECONDS", 0.01)
    life = QueryLife(tmp_path / "ck", tmp_path / "out")
    life.folder.prepare(PROGRESS)
    life.protocol.records = True
    query = SimpleNamespace(isActive=True)
    followed, told = Followed(life.folder, -1, query), list[Any]()
    assert followed.told == []
    assert followed.latest is None
    followed.on_batch = told.append
    life.run(6)
    batches = [figures.progress() for figures in life.protocol.told]
    assert [figures.progress() for figures in followed.told] == batches
    assert len(batches) == 3
    with monkeypatch.context() as patched:
        here, read, asked = threading.current_thread(), followed._read, list[Any]()

        def read_for(*about: Any) -> Any:  # the thread that tells of batches reads beside this one
            if threading.current_thread() is here:
                asked.append(about)
            return read(*about)

        patched.setattr(followed, "_read", read_for)
        assert [figures.progress() for figures in followed.told] == batches
        assert asked == [], "nothing is read twice"
    assert followed.latest == life.protocol.latest
    query.isActive = False
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and thread.daemon and "_tell" in thread.name:
            thread.join(30)
    assert told == batches
    assert [figures.progress() for figures in Followed(life.folder, 1, query).told] == batches[2:], "of this run alone"


def test_only_the_last_batches_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    patch(monkeypatch)
    monkeypatch.setattr(protocol, "KEPT_PROGRESS", 2)
    life = QueryLife(tmp_path / "ck", tmp_path / "out")
    life.folder.prepare(PROGRESS)
    life.protocol.records = True
    life.run(6)
    assert life.folder.numbers(PROGRESS) == [1, 2]


class ConnectSession:
    """Looks like a session of Spark Connect."""


ConnectSession.__module__ = "pyspark.sql.connect.session"


@pytest.mark.parametrize("made", [MemorySink, ConsoleSink])
def test_sinks_of_this_process_are_none_of_a_server(made: type) -> None:
    check_sinks(ConnectSession(), FileSink("/a/b"), None)
    check_sinks(object(), made())
    with pytest.raises(OptionError, match=r"Spark Connect .* give a folder or a function"):
        check_sinks(ConnectSession(), FileSink("/a/b"), made())


def test_a_server_with_another_watersmeet_is_named() -> None:
    said = {"python": "/srv/python", "version": "3.11.2", "packages": {"watersmeet": "0.0.7", "pyarrow": "1"}}
    problem = problem_of_report(said, "client")
    assert problem is not None
    assert "/srv/python (3.11.2), which has watersmeet 0.0.7, and the client has" in problem
