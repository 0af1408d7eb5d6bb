"""Carriers of letters to test with: a folder, and topics of a broker that the client of Kafka plays by itself, in this process."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from watersmeet.runtime.sites.exchange import Exchange
from watersmeet.runtime.sites.start import open_exchange

PREFIX = "calls"


@contextmanager
def running_address(kind: str, folder: Path, sites: Collection[str]) -> Iterator[str]:
    """The address of an exchange; the played broker makes topics when it is asked of them."""
    if kind == "folder":
        yield str(folder / "exchange")
        return
    from confluent_kafka import Producer

    from watersmeet.runtime.sites import topics
    from watersmeet.runtime.sites.topics import name_topic

    topics.WAIT_MS = 10  # the played broker does not answer earlier when something comes
    broker = Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "", "log_level": 0})
    (where,) = broker.list_topics(timeout=10).brokers.values()
    for names in [("sites",), *((a, b) for a in sites for b in sites if a != b)]:
        broker.list_topics(name_topic(PREFIX, *names), timeout=10)
    yield f"kafka:{PREFIX}@{where.host}:{where.port}"


class Faulty:
    """An exchange with faults: letters get lost or are damaged on their way, are sent twice, or the line is cut."""

    def __init__(self, address: str, sites: Collection[str], at: str) -> None:
        self.inner: Exchange = open_exchange(address, tuple(sites), at)
        self.address = self.inner.address
        self.lost: set[int] = set()
        self.changed: dict[int, Any] = {}
        self.times, self.is_cut = 1, False

    def _cross(self) -> Exchange:
        if self.is_cut:
            raise OSError("the line is cut")
        return self.inner

    def greet(self, site: str, who: Mapping[str, Any]) -> None:
        self._cross().greet(site, who)

    def greetings(self) -> dict[str, dict[str, Any]]:
        return self._cross().greetings()

    def find_unsent(self, sender: str, to: str, numbers: Collection[int]) -> list[int]:
        return self._cross().find_unsent(sender, to, numbers)

    def put(self, sender: str, to: str, number: int, blob: bytes) -> None:
        if number not in self.lost:
            for _ in range(self.times):
                self._cross().put(sender, to, number, self.changed.get(number, lambda b: b)(blob))

    def fetch(self, sender: str, to: str, after: int) -> Iterator[tuple[int, bytes]]:
        return self._cross().fetch(sender, to, after)

    def forget(self, sender: str, to: str, until: int) -> None:
        self._cross().forget(sender, to, until)

    def show(self, sender: str, to: str, number: int) -> str:
        return self.inner.show(sender, to, number)
