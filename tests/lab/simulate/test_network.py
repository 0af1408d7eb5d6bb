"""The simulated network: delays, bandwidth, order, counts, and endpoints that come and go."""

from __future__ import annotations

from typing import Any

import pytest

from watersmeet.errors import OptionError
from watersmeet_lab.simulate.network import Link, Network, Simulation, Traffic


def received(network: Network, sent: list[tuple[int, str, str, int]]) -> list[tuple[int, str, str, int]]:
    """(when, sender, receiver, number of the message) for messages given as (when, sender, receiver, bytes)."""
    run, out = Simulation(network), []
    for end in {receiver for _, _, receiver, _ in sent}:
        run.enter(end, lambda sender, number, end=end: out.append((run.now_us, sender, end, number)))
    for number, (at_us, sender, receiver, nbytes) in enumerate(sent):
        run.at(at_us, lambda s=sender, r=receiver, n=number, b=nbytes: run.send(s, r, n, nbytes=b))
    run.run()
    return out


def test_latency_by_pair():
    network = Network(lambda sender, receiver: Link(latency_us=3 if receiver == "near" else 70))
    assert received(network, [(0, "a", "far", 1), (5, "a", "near", 1)]) == [(8, "a", "near", 1), (70, "a", "far", 0)]


def test_bandwidth_makes_messages_wait_for_those_before_them():
    network = Network(Link(latency_us=10, bytes_per_s=1_000_000))
    sent = [(0, "a", "b", 100), (0, "a", "b", 100), (500, "a", "b", 100), (0, "c", "b", 100)]
    assert sorted(received(network, sent)) == [
        (110, "a", "b", 0),
        (110, "c", "b", 3),
        (210, "a", "b", 1),
        (610, "a", "b", 2),
    ]


@pytest.mark.parametrize("arrival", ["any order", "in order"])
def test_random_delays_reorder_unless_the_line_keeps_order(arrival: Any):
    sent = [(n, "a", "b", 1) for n in range(50)]
    numbers = [n for *_, n in received(Network(Link(jitter_us=40, arrival=arrival)), sent)]
    assert sorted(numbers) == list(range(50))
    assert (numbers == sorted(numbers)) == (arrival == "in order")


def test_delays_stay_within_the_bound_and_are_used():
    network = Network(Link(latency_us=100, jitter_us=20))
    delays = {at - 1000 * n for at, *_, n in received(network, [(1000 * n, "a", "b", 1) for n in range(300)])}
    assert min(delays) >= 100
    assert max(delays) <= 120 == network.worst_us(["a"], ["b"])
    assert len(delays) > 15


def test_a_seed_repeats_everything_and_another_does_not():
    sent = [(n, "a", "b", 1) for n in range(20)]
    first, again, other = (received(Network(Link(jitter_us=1000), seed), sent) for seed in (1, 1, 2))
    assert first == again != other


def test_what_happens_on_one_pair_does_not_change_another():
    alone = [(n, "a", "b", 1) for n in range(20)]
    busy = alone + [(n, "c", "b", 1) for n in range(20)]
    network = Network(Link(jitter_us=1000))
    assert received(network, alone) == [e for e in received(network, busy) if e[1] == "a"]


def test_counts():
    run = Simulation(Network(Link(latency_us=7)))
    run.enter("b1", lambda sender, message: run.send("b1", "a", "answer"))
    run.enter("a", lambda sender, message: None)
    run.send("a", "b1", "question", rows=3, nbytes=50)
    run.send("a", "b1", "question", rows=1, nbytes=20)
    run.run()
    assert run.traffic["a", "b1"] == Traffic(2, 4, 70, 7)
    assert run.total("b", "a") == Traffic(2, 0, 0, 7)
    assert run.total() == Traffic(4, 4, 70, 7)
    assert run.now_us == 14


def test_an_endpoint_reaches_itself_at_once():
    assert received(Network(Link(latency_us=100)), [(5, "a", "a", 1)]) == [(5, "a", "a", 0)]


def test_what_reaches_an_endpoint_that_has_left_is_lost_and_counted():
    run, heard = Simulation(Network(Link(latency_us=10))), []
    run.enter("b", lambda sender, message: heard.append(message))
    for at_us in (0, 5, 20):
        run.at(at_us, lambda at_us=at_us: run.send("a", "b", at_us))
    run.at(12, lambda: run.leave("b"))
    run.at(25, lambda: run.enter("b", lambda sender, message: heard.append(-message)))
    run.run()
    assert heard == [0, -20]
    assert run.lost == 1


def test_with_a_bandwidth_there_is_no_longest_delay():
    assert Network(Link(latency_us=1, bytes_per_s=10)).worst_us(["a"], ["b"]) is None
    assert Network(lambda s, r: Link(latency_us=len(r))).worst_us(["a"], ["bb", "cccc"]) == 4


@pytest.mark.parametrize("wrong", [{"latency_us": -1}, {"jitter_us": -1}, {"bytes_per_s": 0}])
def test_impossible_links_are_errors(wrong: dict[str, Any]):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Link(**wrong)
