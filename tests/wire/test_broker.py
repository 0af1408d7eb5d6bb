"""Letters in the topics of a real broker: topics are made, letters of any size arrive, what has been taken is deleted, and a client brings its name."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import require
from watersmeet.errors import OptionError, StreamError
from watersmeet.runtime.sites.start import open_exchange
from watersmeet.runtime.sites.topics import TopicExchange
from watersmeet_lab.machines import jars
from watersmeet_lab.machines.broker import running_broker

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.thorough]
SITES = ("paris", "new york")
LOGIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required username="admin" password="{}";'


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    require(jars.find_missing())
    with running_broker(tmp_path_factory.mktemp("kafka") / "broker") as address:
        yield address


def pair(address: str) -> tuple[TopicExchange, TopicExchange]:
    one, other = (TopicExchange(address, SITES, at) for at in SITES)
    return one, other


def test_letters_of_any_size_arrive_and_go_when_they_have_been_taken(broker: str) -> None:
    paris, york = pair(f"kafka:any@{broker}")
    sent = {n: os.urandom(10 if n % 2 else 3_000_000) for n in range(1, 7)}
    for number, blob in sent.items():
        paris.put("paris", "new york", number, blob)
    assert dict(york.fetch("paris", "new york", 0)) == sent
    assert paris.find_unsent("paris", "new york", range(3, 9)) == [7, 8]
    paris.forget("paris", "new york", 4)
    deadline = time.monotonic() + 30
    while True:
        left = dict(TopicExchange(f"kafka:any@{broker}", SITES, "new york").fetch("paris", "new york", 0))
        if sorted(left) == [5, 6]:
            break
        assert time.monotonic() < deadline, sorted(left)
    paris.put("paris", "new york", 7, b"seven")
    assert list(york.fetch("paris", "new york", 6)) == [(7, b"seven")]


def test_greetings_are_the_last_words_of_sites(broker: str) -> None:
    paris, york = pair(f"kafka:greet@{broker}")
    for run in (1, 2):
        paris.greet("paris", {"run": run})
    york.greet("new york", {"run": 9})
    assert york.greetings() == {"paris": {"run": 2}, "new york": {"run": 9}}
    paris.greet("paris", {"run": 3})
    assert york.greetings()["paris"] == {"run": 3}


def test_a_client_brings_its_name_as_other_tools_write_it(tmp_path: Path) -> None:
    settings = "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\nsasl.jaas.config=" + LOGIN
    with running_broker(tmp_path / "broker", wants_name=True) as address:
        with pytest.raises(StreamError, match=r"hangs up on a client without credentials: give .* with \?config=FILE"):
            TopicExchange(f"kafka:named@{address}", SITES, "paris")
        (tmp_path / "client").write_text(settings.format("secret"))
        paris, york = pair(f"kafka:named@{address}?config={tmp_path / 'client'}")
        paris.put("paris", "new york", 1, b"one")
        assert list(york.fetch("paris", "new york", 0)) == [(1, b"one")]
        (tmp_path / "other").write_text(settings.format("guess"))
        with pytest.raises(OptionError, match=r"exchange='.*' cannot be used .*; see that this site reaches"):
            open_exchange(f"kafka:named@{address}?config={tmp_path / 'other'}", SITES, "paris")
        (tmp_path / "wrong").write_text(settings.format("secret") + "\nssl.truststore.location=/somewhere\n")
        with pytest.raises(OptionError, match=r"refuses its settings .*as librdkafka names them"):
            TopicExchange(f"kafka:named@{address}?config={tmp_path / 'wrong'}", SITES, "paris")
