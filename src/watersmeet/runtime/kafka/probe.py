"""Whether a broker answers, asked in Kafka's own protocol before Spark is: Spark's connector would wait for minutes and say little.

    ApiVersions v0  ->  versions        a listener that wants TLS hangs up, or answers with an alert
    Metadata        ->  brokers         a listener that wants a name (SASL) hangs up here

With a client that brings TLS or a name, it is only looked whether somebody listens.
"""

from __future__ import annotations

import socket
import struct

from watersmeet.errors import StreamError
from watersmeet.runtime.kafka.address import Topic

PATIENCE_S = 5.0
_METADATA, _VERSIONS = 3, 18
_CLIENT = b"watersmeet"
_MOST_BYTES = 2**20
_LAST_PLAIN = 8
"""Later versions of Metadata are encoded otherwise."""


def require_broker(topic: Topic, shown: str) -> None:
    """Raise if none of a topic's brokers answers a client with these settings."""
    problems = [_ask(host, port, topic.is_plain) for host, port in topic.brokers]
    if all(problems):
        raise StreamError(f"{shown}: {problems[0]}")


def _ask(host: str, port: int, plain: bool) -> str:
    """What is wrong with a broker; empty: nothing."""
    where = f"{host}:{port}"
    try:
        with socket.create_connection((host, port), PATIENCE_S) as channel:
            channel.settimeout(PATIENCE_S)
            return _talk(channel, where) if plain else ""
    except socket.gaierror:
        return f"there is no host {host!r}; check the broker's address"
    except OSError as error:
        return f"no broker answers at {where} ({error.strerror or error}); check the address, and that the broker runs"


def _talk(channel: socket.socket, where: str) -> str:
    remedy = "give the client's settings (security.protocol, sasl.*, ssl.*) with ?config=FILE"
    versions = _call(channel, _VERSIONS, 0, b"")
    if versions is None:
        return f"{where} listens and does not speak plain Kafka: if it wants TLS, {remedy}; else check the port"
    least = _least_version(versions)
    if least > _LAST_PLAIN:
        return ""
    version = max(least, 1)
    body = struct.pack(">i", 0) + (b"\0" if version >= 4 else b"") + (b"\0\0" if version >= 8 else b"")
    if _call(channel, _METADATA, version, body) is None:
        return f"the broker at {where} hangs up on a client without credentials: {remedy}"
    return ""


def _call(channel: socket.socket, key: int, version: int, body: bytes) -> bytes | None:
    """The answer to a request; None if there is none that Kafka would give."""
    head = struct.pack(">hhih", key, version, 7, len(_CLIENT)) + _CLIENT
    try:
        channel.sendall(struct.pack(">i", len(head) + len(body)) + head + body)
        length, number = struct.unpack(">ii", _read(channel, 8))
        return _read(channel, length - 4) if number == 7 and 4 <= length < _MOST_BYTES else None
    except (OSError, EOFError):
        return None


def _read(channel: socket.socket, count: int) -> bytes:
    found = b""
    while len(found) < count:
        more = channel.recv(count - len(found))
        if not more:
            raise EOFError
        found += more
    return found


def _least_version(answer: bytes) -> int:
    """The least version of Metadata in an answer to ApiVersions v0: an error, then (key, least, greatest) by request."""
    for at in range(6, len(answer) - 5, 6):
        key, least, _ = struct.unpack_from(">hhh", answer, at)
        if key == _METADATA:
            return int(least)
    return 0
