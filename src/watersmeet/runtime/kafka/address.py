"""A topic as users write it: `kafka:TOPIC@HOST:PORT[,HOST:PORT...][:json|:avro][?config=FILE]`.

FILE has settings of Kafka's client, as Kafka's own tools take them: one `name=value` per line. Secrets belong there and not on a command line.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from watersmeet.errors import OptionError

NAME = "kafka"
Payload = Literal["json", "avro"]
_FORM = re.compile(
    r"kafka:(?P<topic>[\w.-]+)@(?P<brokers>[^?@]+?)(?::(?P<payload>json|avro))?(?:\?config=(?P<config>.+))?"
)
_BROKER = re.compile(r"(\[[0-9a-fA-F:]+\]|[\w.-]+):(\d{1,5})")


@dataclass(frozen=True)
class Topic:
    """A topic of some brokers, and what its records hold."""

    name: str
    brokers: tuple[tuple[str, int], ...]
    payload: Payload = "json"
    config: tuple[tuple[str, str], ...] = ()
    """Settings of the client."""

    @property
    def servers(self) -> str:
        return ",".join(f"{f'[{host}]' if ':' in host else host}:{port}" for host, port in self.brokers)

    @property
    def options(self) -> dict[str, str]:
        """What Spark's source and sink are given."""
        given = {f"kafka.{name}": value for name, value in self.config}
        return {**given, "kafka.bootstrap.servers": self.servers}

    @property
    def is_plain(self) -> bool:
        """Whether the client speaks without encryption and without a name."""
        return dict(self.config).get("security.protocol", "PLAINTEXT").upper() == "PLAINTEXT"


def topic_of(text: str, option: str) -> Topic:
    """The topic that a text names; raises if it names none.

    >>> topic_of("kafka:clicks@localhost:9092,other:9093:avro", "sink").brokers
    (('localhost', 9092), ('other', 9093))
    """
    found = _FORM.fullmatch(text)
    brokers = [_BROKER.fullmatch(part) for part in found["brokers"].split(",")] if found else [None]
    if found is None or not all(brokers):
        raise OptionError(f"{option}={text}: write kafka:TOPIC@HOST:PORT, with :avro behind it if records are not JSON, and ?config=FILE for settings of the client")  # fmt: skip
    places = tuple((b[1].strip("[]"), int(b[2])) for b in brokers if b is not None)
    config = () if found["config"] is None else read_config(found["config"], f"{option}={text}")
    return Topic(found["topic"], places, "avro" if found["payload"] == "avro" else "json", config)


def read_config(path: str, shown: str) -> tuple[tuple[str, str], ...]:
    """The settings in a file of Kafka's kind."""
    try:
        lines = [line.strip() for line in Path(path).read_text().splitlines()]
    except OSError as error:
        raise OptionError(f"{shown}: {path} cannot be read: {error.strerror}") from error
    given = [line.partition("=") for line in lines if line and not line.startswith(("#", "!"))]
    wrong = next((name for name, equals, _ in given if not equals), None)
    if wrong is not None:
        raise OptionError(f"{shown}: {path} has the line {wrong!r}; write name=value")
    return tuple((name.strip(), value.strip()) for name, _, value in given)
