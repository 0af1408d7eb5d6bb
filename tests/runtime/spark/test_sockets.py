"""What comes by TCP is acknowledged at once, and nothing else of a process' descriptors is touched."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from watersmeet.runtime.spark.sockets import read_promptly


@contextmanager
def connect() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Both ends of a connection over loopback."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as one:
        other, _ = server.accept()
        with other:
            yield one, other


def is_prompt(reader: socket.socket) -> bool:
    """Whether the kernel acknowledges what comes at once, or waits for an answer."""
    return reader.getsockopt(socket.IPPROTO_TCP, socket.TCP_QUICKACK) != 0


def converse(one: socket.socket, other: socket.socket) -> None:
    """Questions and answers: from now on the kernel waits for answers, to acknowledge by them."""
    for _ in range(3):
        one.sendall(b"?")
        other.recv(1)
        other.sendall(b"!")
        one.recv(1)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has TCP_QUICKACK")
def test_what_comes_is_acknowledged_before_each_item():
    with connect() as (writer, reader):
        converse(writer, reader)
        assert not is_prompt(reader)
        rows = read_promptly(iter([1, 2]))
        assert next(rows) == 1
        assert is_prompt(reader)
        converse(writer, reader)  # a task that answers while it reads
        assert not is_prompt(reader)
        assert next(rows) == 2
        assert is_prompt(reader)


def test_descriptors_are_given_back():
    with connect() as (_, reader):
        before = set(os.listdir("/proc/self/fd"))
        rows = read_promptly(iter([1, 2, 3]))
        assert next(rows) == 1
        rows.close()
        assert list(read_promptly([4])) == [4]
        assert set(os.listdir("/proc/self/fd")) == before
        assert reader.fileno() >= 0


def test_an_end_that_has_gone_is_no_error():
    with connect() as (writer, reader):
        rows = read_promptly(iter([1, 2]))
        assert next(rows) == 1
        writer.close()
        reader.shutdown(socket.SHUT_RDWR)
        assert list(rows) == [2]
