"""Kafka by its address, and brokers that do not answer: what is wrong is said within seconds, with the remedy."""

from __future__ import annotations

import socket
import struct
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.cli.test_app import command
from watersmeet.errors import OptionError, StreamError
from watersmeet.runtime.kafka import probe
from watersmeet.runtime.kafka.address import topic_of
from watersmeet.runtime.kafka.probe import require_broker
from watersmeet.runtime.rounds.sinks import KafkaSink, check_names, sink

VERSIONS, METADATA = 18, 3


def answer(body: bytes) -> bytes:
    return struct.pack(">ii", len(body) + 4, 7) + body


def versions(least: int = 0) -> bytes:
    return answer(
        struct.pack(">hi", 0, 2) + struct.pack(">hhh", VERSIONS, 0, 4) + struct.pack(">hhh", METADATA, least, 12)
    )


@contextmanager
def listening(*answers: bytes) -> Iterator[tuple[str, list[bytes]]]:
    """A listener that takes one request for each answer, then hangs up; its address and what it was asked."""
    asked: list[bytes] = []
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()

        def serve() -> None:
            channel, _ = server.accept()
            with channel, suppress(ConnectionResetError):
                for said in answers:
                    asked.append(channel.recv(1000))
                    channel.sendall(said)
                if len(answers) < 2:
                    channel.recv(1000)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}", asked


@pytest.mark.parametrize("least", [0, 4, 8, 9])
def test_a_broker_that_answers(least: int) -> None:
    with listening(versions(least), answer(b"brokers")) as (address, asked):
        require_broker(topic_of(f"kafka:t@{address}", "sink"), "sink")
    assert asked[0][4:8] == struct.pack(">hh", VERSIONS, 0)
    if least < 9:
        assert asked[1][4:8] == struct.pack(">hh", METADATA, max(least, 1))


CASES: list[tuple[tuple[bytes, ...], str]] = [
    ((), r"listens and does not speak plain Kafka: if it wants TLS, give the client's settings .* with \?config=FILE"),
    ((b"\x15\x03\x03\x00\x02\x02\x50",), "does not speak plain Kafka"),
    ((b"HTTP/1.1 400 Bad Request\r\n\r\n",), "does not speak plain Kafka"),
    ((versions(),), r"hangs up on a client without credentials: give .* with \?config=FILE"),
]


@pytest.mark.parametrize(("answers", "said"), CASES)
def test_a_listener_that_wants_something_else(answers: tuple[bytes, ...], said: str) -> None:
    with listening(*answers) as (address, _), pytest.raises(StreamError, match=said):
        require_broker(topic_of(f"kafka:t@{address}", "sink"), "sink")


def closed_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def test_nobody_listens(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(
        StreamError, match=r"no broker answers at 127.0.0.1:\d+ .*; check the address, and that the broker runs"
    ):
        require_broker(topic_of(f"kafka:t@127.0.0.1:{closed_port()}", "sink"), "sink")

    def fail(*_: Any) -> None:
        raise socket.gaierror

    with monkeypatch.context() as nameless:
        nameless.setattr(probe.socket, "create_connection", fail)
        with pytest.raises(StreamError, match=r"there is no host 'nowhere.invalid'; check the broker's address"):
            require_broker(topic_of("kafka:t@nowhere.invalid:9092", "sink"), "sink")
    with listening(versions(), answer(b"brokers")) as (address, _):
        require_broker(topic_of(f"kafka:t@127.0.0.1:{closed_port()},{address}", "sink"), "sink")


def test_a_listener_that_says_nothing_is_left_after_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    assert probe.PATIENCE_S * 2 < 60
    monkeypatch.setattr(probe, "PATIENCE_S", 0.2)
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen()
        began = time.monotonic()
        with pytest.raises(StreamError, match="does not speak plain Kafka"):
            require_broker(topic_of(f"kafka:t@127.0.0.1:{server.getsockname()[1]}", "sink"), "sink")
        assert time.monotonic() - began < 30


@pytest.mark.parametrize(
    "text",
    ["kafka:", "kafka:topic", "kafka:topic@host", "kafka:topic@host:port", "kafka:a b@host:9092", "kafka:t@h:1?x=y"],
)
def test_an_address_that_is_none(text: str) -> None:
    with pytest.raises(OptionError, match=r"write kafka:TOPIC@HOST:PORT, with :avro"):
        sink(text)


def test_settings_of_the_client(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("# of the client\n\nsecurity.protocol=SASL_SSL\nsasl.jaas.config=a=b c;\n")
    topic = topic_of(f"kafka:t@h:1,[::1]:2:avro?config={file}", "sink")
    assert topic.payload == "avro"
    assert topic.brokers == (("h", 1), ("::1", 2))
    assert topic.options == {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.jaas.config": "a=b c;",
        "kafka.bootstrap.servers": "h:1,[::1]:2",
    }
    assert not topic.is_plain
    file.write_text("nonsense")
    for config, said in ((file, "has the line 'nonsense'; write name=value"), (tmp_path / "none", "cannot be read")):
        with pytest.raises(OptionError, match=said):
            topic_of(f"kafka:t@h:1?config={config}", "sink")


def test_two_columns_of_a_name_are_refused() -> None:
    to = sink("kafka:t@h:1")
    assert isinstance(to, KafkaSink)
    with pytest.raises(OptionError, match="the result has column 'x' twice; rename one with AS"):
        check_names(to, ["x", "y", "X"])
    check_names(to, ["x", "y"])


def run(*arguments: str) -> str:
    result = command("run", "SELECT a.k FROM a, a b WHERE a.k = b.k WINDOW = 1 SECONDS", *arguments)
    assert result.exit_code == 2, result.output
    return str(result.stderr).replace("\n", " ")


def test_the_command_says_what_is_wrong_before_spark_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    nobody, schema = f"127.0.0.1:{closed_port()}", "--schema=a=k int, ts timestamp"
    assert "no broker answers" in run(f"--stream=a=kafka:t@{nobody}", schema)
    assert "say them with --schema a='id bigint" in run(f"--stream=a=kafka:t@{nobody}")
    assert "say them with --schema a=@FILE.avsc" in run(f"--stream=a=kafka:t@{nobody}:avro")
    assert "give its file, as in --schema a=@a.avsc" in run(f"--stream=a=kafka:t@{nobody}:avro", schema)
    assert "the file cannot be read" in run(f"--stream=a=kafka:t@{nobody}:avro", "--schema=a=@none.avsc")
    assert "leave --static out" in run(f"--stream=a=kafka:t@{nobody}", schema, "--static")
    files = (f"--stream=a={tmp_path}:json", schema)
    assert "no broker answers" in run(*files, "--sink", f"kafka:t@{nobody}")
    assert "leave --runtime stream out" in run(*files, "--sink", "delta:out", "--runtime", "stream")
    assert "the folder has no jar" in run(*files, "--jars", str(tmp_path))
    assert "there is no file" in run(*files, "--jars", "none.jar")
    assert "name a folder of this machine" in run(*files, "--sink", "delta:s3://bucket/out")


def test_a_topic_as_sink_needs_a_checkpoint(tmp_path: Path) -> None:
    with listening(versions(), answer(b"brokers")) as (address, _):
        files = (f"--stream=a={tmp_path}:json", "--schema=a=k int, ts timestamp")
        assert "as in --checkpoint progress" in run(*files, "--sink", f"kafka:t@{address}")


@pytest.mark.spark
def test_a_connector_that_is_not_there(spark: Any) -> None:
    from watersmeet.runtime.kafka.topics import require_connector

    with pytest.raises(
        StreamError, match=r"has not the jar spark-sql-kafka-0-10_2.13: set spark.jars.packages=org.apache"
    ):
        require_connector(spark, topic_of("kafka:t@127.0.0.1:1", "sink"), "sink")
