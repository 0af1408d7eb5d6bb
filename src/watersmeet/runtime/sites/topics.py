"""Letters in topics of Kafka, one for each ordered pair of sites, by a client of Kafka's in the driver.

    PREFIX.sites               what sites are; by site the last word holds
    PREFIX.paris.tokyo         letters from paris to tokyo, in one partition: 17 0/1, 18 0/3, 18 1/3, 18 2/3 ...

A record's key is the letter's number and which part of how many it is. A sender that is not sure that a letter has come sends it again. The receiver drops parts of letters that
it has taken. Records are deleted when letters have been taken; until then nothing ends them: topics are made without retention.

Invariant: letters of a pair are in the topic in the order of their numbers, where each comes first. No call waits longer than `PATIENCE_S` for a broker, but the first one for topics that are new.
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from watersmeet.errors import OptionError
from watersmeet.runtime.kafka.address import Topic, topic_of
from watersmeet.runtime.kafka.probe import require_broker
from watersmeet.runtime.sites.exchange import Parts, read_greeting, split

PATIENCE_S = 20.0
READY_S = 60.0
"""How long topics that have just been made may have no leader."""
WAIT_MS = 500
"""How long a broker that has nothing new keeps the question: an idle line carries two small requests a second."""
_AHEAD = 4
"""Parts that are sent before the first of them is acknowledged."""
_FOR_EVER = {"retention.ms": "-1", "retention.bytes": "-1", "cleanup.policy": "delete"}
_LAST_WORD = {"cleanup.policy": "compact"}
_SITES = "sites"
_LOGIN = re.compile(r'(username|password)="([^"]*)"')


def name_topic(prefix: str, *sites: str) -> str:
    """The topic of a pair of sites. What topics may not have in their names is written as bytes.

    >>> name_topic("calls", "paris", "new york")
    'calls.paris.new-20york'
    """
    coded = (re.sub(r"[^A-Za-z0-9]", lambda c: "".join(f"-{b:02x}" for b in c[0].encode()), s) for s in sites)
    return ".".join([prefix, *coded])


class TopicExchange:
    """Topics that begin with a prefix."""

    def __init__(self, address: str, sites: Collection[str], at: str) -> None:
        self.address, shown = address, f"exchange={address!r}"
        self._given = address, tuple(sites), at
        self._topic = topic_of(address, "exchange")
        client = _import_client(shown)
        require_broker(self._topic, shown)
        self._client, self._parts = client, dict[str, Parts]()
        settings = _settings(self._topic)
        try:
            self._admin = client.admin.AdminClient(settings)
            self._producer = client.Producer(
                settings
                | {"acks": "all", "max.in.flight": 1, "linger.ms": 0, "message.timeout.ms": int(PATIENCE_S * 1000)}
            )
            self._consumer_settings = settings | {
                "group.id": f"{self._topic.name}.{at}",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "fetch.wait.max.ms": WAIT_MS,
            }
            self._logs = {_SITES: _Log(client, self._admin, self._consumer_settings, f"{self._topic.name}.{_SITES}")}
        except client.KafkaException as error:
            raise OptionError(
                f"{shown}: the client of Kafka refuses its settings ({_say(error)}); write them as librdkafka names them, such as sasl.username and ssl.ca.location"
            ) from error
        self._known: dict[str, dict[str, Any]] = {}
        self._offsets: dict[tuple[str, str], dict[int, int]] = {}
        """By pair, and letter, where its first part lies, of those that this process has sent."""
        self._reached: dict[tuple[str, str], int] = {}
        """By pair the last letter that was read."""
        self._make_topics(sites, at, shown)

    def __reduce__(self) -> Any:
        """Connections do not travel: whoever gets a copy, as a server of Spark Connect does, opens its own."""
        return TopicExchange, self._given

    def _make_topics(self, sites: Collection[str], at: str, shown: str) -> None:
        pairs = [(at, other) for other in sites if other != at] + [(other, at) for other in sites if other != at]
        wanted = {self._name(*pair): _FOR_EVER for pair in pairs} | {f"{self._topic.name}.{_SITES}": _LAST_WORD}
        new = [
            self._client.admin.NewTopic(n, num_partitions=1, replication_factor=-1, config=c) for n, c in wanted.items()
        ]
        there = self._ask(lambda: self._admin.list_topics(timeout=PATIENCE_S)).topics
        missing = [topic for topic in new if topic.topic not in there]
        made = self._admin.create_topics(missing, operation_timeout=PATIENCE_S) if missing else {}
        for name, future in made.items():
            try:
                future.result(PATIENCE_S)
            except Exception as error:
                if "TOPIC_ALREADY_EXISTS" not in str(error):
                    raise OptionError(
                        f"{shown}: topic {name} cannot be made ({_say(error)}); let the client make topics, or make {', '.join(wanted)}, each with one partition and retention.ms=-1"
                    ) from error
        self._await_leaders(wanted, shown)

    def _await_leaders(self, topics: Collection[str], shown: str) -> None:
        """A topic that has just been made, here or by another site, has no leader yet; a broker that has just started takes its time to choose one."""
        deadline = time.monotonic() + READY_S
        while True:
            there = self._ask(lambda: self._admin.list_topics(timeout=PATIENCE_S)).topics
            waiting = [n for n in topics if n not in there or not _has_leader(there[n])]
            if not waiting:
                return
            if time.monotonic() > deadline:
                raise OptionError(
                    f"{shown}: topic {waiting[0]} has had no leader for {READY_S:.0f} s; see that all brokers of {self._topic.servers} run"
                )
            time.sleep(0.2)

    def greet(self, site: str, who: Mapping[str, Any]) -> None:
        self._send(f"{self._topic.name}.{_SITES}", [(site.encode(), json.dumps(who).encode())])

    def greetings(self) -> dict[str, dict[str, Any]]:
        for record in self._logs[_SITES].read():
            site = record.key().decode()
            where = f"what the topic {self._logs[_SITES].topic} has of site {site}"
            self._known[site] = read_greeting(
                record.value(), where, "let nobody but sites write to it, and begin anew with another prefix"
            )
        return dict(self._known)

    def find_unsent(self, sender: str, to: str, numbers: Collection[int]) -> list[int]:
        last = self._log(sender, to).last()
        if last is None:
            return sorted(numbers)
        number, part, parts = _read_key(last)
        whole = number if part == parts - 1 else number - 1
        return sorted(n for n in numbers if n > whole)

    def put(self, sender: str, to: str, number: int, blob: bytes) -> None:
        parts = split(blob)
        records = [(f"{number} {n}/{len(parts)}".encode(), part) for n, part in enumerate(parts)]
        self._offsets.setdefault((sender, to), {})[number] = self._send(self._name(sender, to), records)

    def fetch(self, sender: str, to: str, after: int) -> Iterator[tuple[int, bytes]]:
        pair, log = (sender, to), self._log(sender, to)
        if self._reached.get(pair, 0) != after:
            log.rewind()
            self._parts.pop(log.topic, None)
        self._reached[pair] = after
        parts = self._parts.setdefault(log.topic, Parts())
        for record in log.read():
            number, part, count = _read_key(record)
            if number <= self._reached[pair]:
                continue
            whole = parts.add(number, part, count, record.value())
            if whole is not None:
                self._reached[pair] = number
                parts.drop(number)
                yield number, whole

    def forget(self, sender: str, to: str, until: int) -> None:
        """What an earlier process has sent goes with the first letters of this one. Where nobody may delete, the topic's retention does."""
        offsets = self._offsets.get((sender, to), {})
        taken = [n for n in offsets if n <= until]
        if not taken:
            return
        after = min((offsets[n] for n in offsets if n > until), default=None)
        for number in taken:
            del offsets[number]
        end = self._client.TopicPartition(self._name(sender, to), 0, -1 if after is None else after)
        if after is not None:
            self._admin.delete_records([end])

    def show(self, sender: str, to: str, number: int) -> str:
        return f"letter {number} in the topic {self._name(sender, to)} of {self._topic.servers}"

    def _name(self, *sites: str) -> str:
        return name_topic(self._topic.name, *sites)

    def _log(self, sender: str, to: str) -> _Log:
        name = self._name(sender, to)
        if name not in self._logs:
            self._logs[name] = _Log(self._client, self._admin, self._consumer_settings, name)
        return self._logs[name]

    def _send(self, topic: str, records: list[tuple[bytes, bytes]]) -> int:
        """Send records, and wait until the brokers have them; where the first lies."""
        places: list[int] = []
        errors: list[Any] = []

        def note(error: Any, record: Any) -> None:
            errors.append(error) if error is not None else places.append(record.offset())

        for begin in range(0, len(records), _AHEAD):
            for key, value in records[begin : begin + _AHEAD]:
                self._producer.produce(topic, value, key, partition=0, on_delivery=note)
            waiting = self._producer.flush(2 * PATIENCE_S)
            if waiting or errors:
                raise OSError(
                    f"{topic} of {self._topic.servers} takes no letters ({errors[0].str() if errors else 'no answer'})"
                )
        return min(places)

    def _ask(self, call: Any) -> Any:
        try:
            return call()
        except self._client.KafkaException as error:
            raise OSError(f"{self._topic.servers} does not answer ({_say(error)})") from error


class _Log:
    """One topic, read from a place on."""

    def __init__(self, client: Any, admin: Any, settings: Mapping[str, Any], topic: str) -> None:
        self.topic, self._client, self._admin = topic, client, admin
        self._consumer = client.Consumer(dict(settings))
        self.rewind()

    def rewind(self) -> None:
        self._next: int | None = None
        """None: where the topic begins."""
        self._consumer.assign([self._client.TopicPartition(self.topic, 0, self._client.OFFSET_BEGINNING)])

    def _find(self, end: str) -> int:
        """Where it begins or ends; by a connection of its own, since on the consumer's a request for more records stands open."""
        place, ask = self._client.TopicPartition(self.topic, 0), self._client.admin.OffsetSpec
        at, deadline = ask.earliest() if end == "begin" else ask.latest(), time.monotonic() + PATIENCE_S
        while True:
            try:
                asked = self._admin.list_offsets({place: at}, request_timeout=PATIENCE_S)[place]
                return int(asked.result(2 * PATIENCE_S).offset)
            except (self._client.KafkaException, TimeoutError) as error:
                if time.monotonic() > deadline:
                    raise OSError(f"the topic {self.topic} cannot be read ({_say(error)})") from error
                time.sleep(0.2)  # a topic that has just been made has no leader yet

    def read(self) -> Iterator[Any]:
        """The records up to the end as it is now, as far as they come in time; the next call goes on behind the last that was taken."""
        if self._next is None:
            self._next = self._find("begin")
        high, deadline = self._find("end"), time.monotonic() + PATIENCE_S
        while self._next < high and time.monotonic() < deadline:
            record = self._consumer.poll(1.0)
            if record is None or record.error() is not None:
                continue
            self._next = record.offset() + 1
            deadline = time.monotonic() + PATIENCE_S
            yield record

    def last(self) -> Any | None:
        """The last record; None if there is none."""
        high = self._find("end")
        if self._find("begin") >= high:
            return None
        self._consumer.assign([self._client.TopicPartition(self.topic, 0, high - 1)])
        self._next = high - 1
        found = next(iter(self.read()), None)
        if found is None:
            raise OSError(f"the topic {self.topic} cannot be read (no answer)")
        return found


def _has_leader(topic: Any) -> bool:
    return bool(topic.partitions) and all(part.leader >= 0 for part in topic.partitions.values())


def _read_key(record: Any) -> tuple[int, int, int]:
    """Number, part and parts."""
    number, _, rest = record.key().decode().partition(" ")
    part, _, parts = rest.partition("/")
    return int(number), int(part), int(parts)


def _settings(topic: Topic) -> dict[str, Any]:
    """Settings of Kafka's own tools, as this client names them."""
    given = dict(topic.config)
    jaas = given.pop("sasl.jaas.config", None)
    if jaas is not None:
        given |= {f"sasl.{name}": value for name, value in _LOGIN.findall(jaas)}
    return {**given, "bootstrap.servers": topic.servers, "socket.timeout.ms": int(PATIENCE_S * 1000), "log_level": 2}


def _import_client(shown: str) -> Any:
    try:
        import confluent_kafka
        import confluent_kafka.admin
    except ImportError:
        raise OptionError(
            f'{shown}: letters in topics need a client of Kafka in the driver; pip install "watersmeet[kafka]"'
        ) from None
    return confluent_kafka


def _say(error: BaseException) -> str:
    """What an error of the client's says, in one line."""
    inner = error.args[0] if error.args else error
    return " ".join(str(inner.str() if hasattr(inner, "str") else inner).split())
