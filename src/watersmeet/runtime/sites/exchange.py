"""Where sites leave letters for each other: what a carrier of letters does, and which one an address names.

    a path, hdfs:, s3: ...         `folder`    files of a folder that all sites reach
    kafka:PREFIX@HOST:PORT         `topics`    a topic for each ordered pair of sites

Letters larger than a part travel in parts, so that a broker takes them, and that a slow line carries each of them in time.

Invariant: a letter is put whole, after the commit of the batch that made it, and never changed. It may be there twice, and be seen once. Its sender forgets it when its
receiver has said that it has taken it for good. A carrier that cannot be reached raises an OSError, and has lost nothing.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Mapping
from typing import Any, Protocol

from watersmeet.errors import StreamError

PART_BYTES = 900_000
"""Less than what a broker of Kafka takes in one message unless it was told otherwise."""


class Exchange(Protocol):
    """A carrier of letters."""

    address: str

    def greet(self, site: str, who: Mapping[str, Any]) -> None:
        """Say who a site is."""

    def greetings(self) -> dict[str, dict[str, Any]]:
        """Who the sites are that have been here."""

    def find_unsent(self, sender: str, to: str, numbers: Collection[int]) -> list[int]:
        """Which of some letters are not there, or not whole, in order."""

    def put(self, sender: str, to: str, number: int, blob: bytes) -> None:
        """Send a letter; one that is there already changes nothing."""

    def fetch(self, sender: str, to: str, after: int) -> Iterator[tuple[int, bytes]]:
        """The letters that are there, whole and numbered higher than one, each once, in order. Who stops early gets the rest the next time."""

    def forget(self, sender: str, to: str, until: int) -> None:
        """Delete letters up to a number: they have been taken."""

    def show(self, sender: str, to: str, number: int) -> str:
        """Where a letter is, for errors."""


def split(blob: bytes) -> list[bytes]:
    """A letter in parts.

    >>> [len(part) for part in split(bytes(PART_BYTES + 1))]
    [900000, 1]
    """
    return [blob[begin : begin + PART_BYTES] for begin in range(0, max(len(blob), 1), PART_BYTES)]


def read_greeting(blob: bytes, where: str, remedy: str) -> dict[str, Any]:
    """What a site has said of itself; where that lies, and what to do if it is damaged, are for the error.

    >>> read_greeting(b'{"run": "7f"}', "exchange/sites/paris.json", "delete it")
    {'run': '7f'}
    """
    try:
        found = json.loads(blob)
        if isinstance(found, dict):
            return found
    except ValueError:
        pass
    raise StreamError(f"{where} is damaged: it does not say what the site runs; {remedy}")


class Parts:
    """The parts that have come of letters; parts may come twice, and in any order.

    >>> parts = Parts()
    >>> [parts.add(7, n, 2, part) for n, part in ((1, b"b"), (1, b"b"), (0, b"a"))]
    [None, None, b'ab']
    """

    def __init__(self) -> None:
        self._found: dict[int, dict[int, bytes]] = {}

    def add(self, number: int, part: int, parts: int, body: bytes) -> bytes | None:
        """One more part of a letter; the letter, if it was the last."""
        found = self._found.setdefault(number, {})
        found[part] = body
        if len(found) < parts:
            return None
        del self._found[number]
        return b"".join(found[n] for n in range(parts))

    def drop(self, until: int) -> None:
        """Parts of letters up to a number are no longer needed."""
        for number in [n for n in self._found if n <= until]:
            del self._found[number]
