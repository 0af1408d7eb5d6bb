"""The order-consistent protocol on a simulated network.

With the whole protocol results are the oracle's, whatever the network does. Without a part of it there are networks that
lose or double results: each part is there for a reason, and these tests would notice if it did nothing.
"""

from __future__ import annotations

import random
import warnings
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import SECOND, Case, Col, bag, op, rows_of
from tests.properties.test_local import FEW, sources
from tests.strategies import cases, with_lateness
from watersmeet.errors import OptionError
from watersmeet_lab.simulate.biclique.run import Protocol
from watersmeet_lab.simulate.network import Link, Network

# ---------------------------------------------------------------- results


@dataclass(frozen=True)
class Uneven:
    """Every pair has a latency and a jitter of its own."""

    seed: int
    most_us: int

    def __call__(self, sender: str, receiver: str) -> Link:
        chance = random.Random(f"{self.seed} {sender} {receiver}")
        return Link(chance.choice((0, self.most_us)), chance.choice((0, 1, self.most_us)))


SPANS = st.sampled_from((0, 1, 300_000, 3 * SECOND))
EVEN = st.builds(Link, SPANS, SPANS, arrival=st.sampled_from(("any order", "in order")))
NETWORKS = st.builds(Network, EVEN | st.builds(Uneven, st.integers(0, 99), SPANS), seed=st.integers(0, 99))
PROTOCOLS = st.builds(
    Protocol,
    dispatchers=st.integers(1, 4),
    signal_us=st.sampled_from((100_000, 400_000, 2 * SECOND)),
    clock_difference_us=SPANS,
)


def simulated(case: Case, network: Network, protocol: Protocol, **options: Any) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return wm.local.run(case.sql(), sources(case), network=network, protocol=protocol, **options)


def check(case: Case, network: Network, protocol: Protocol, **options: Any) -> None:
    """The oracle's results and late rows; a row that enters alone is a batch of its own."""
    want, got = case.expected(1), simulated(case, network, protocol, **options)
    assert bag(rows_of(got)) == bag(want.rows), case.sql()
    for stream, (least, most) in case.late_bounds(want).items():
        assert least <= wm.local.counts(got).late[stream] <= most, case.sql()


@given(cases(aliases=2, far=False), NETWORKS, PROTOCOLS, st.sampled_from((2, 3, 6)))
@settings(max_examples=FEW)
def test_random_routing_equals_the_oracle(case, network, protocol, units):
    check(case, network, protocol, routing="random", units=units)


@given(
    cases(aliases=2, far=False, equality=True),
    NETWORKS,
    PROTOCOLS,
    st.sampled_from(("contrand", "contrand(2, 1)", "contrand(3, 2)")),
)
@settings(max_examples=FEW)
def test_contrand_and_hash_routing_equal_the_oracle(case, network, protocol, routing):
    """contrand(3, 2) of five units is hash routing: every subgroup is one unit."""
    check(case, network, protocol, routing=routing, units=5)


BANDS = [
    op("<=", op("abs", op("-", Col("a", "n"), Col("b", "n"))), 1),
    op("between", op("-", Col("a", "v"), Col("b", "v")), -1, 0.1),
]


@given(cases(aliases=2, far=False, equality=False), st.sampled_from(BANDS), NETWORKS, PROTOCOLS)
@settings(max_examples=FEW)
def test_range_routing_equals_the_oracle(case, band, network, protocol):
    check(replace(case, predicates=(band, *case.predicates)), network, protocol, routing="range", units=5)


@given(cases(far=False), NETWORKS, PROTOCOLS, st.sampled_from(("hypercube", "hash", "matrix")))
@settings(max_examples=FEW)
def test_grids_equal_the_oracle(case, network, protocol, routing):
    with nullcontext() if routing == "hypercube" else suppress(OptionError):
        check(case, network, protocol, routing=routing, units=4)


@given(st.data(), cases(aliases=2, null_ts=True), NETWORKS, PROTOCOLS)
@settings(max_examples=FEW)
def test_late_rows(data, case, network, protocol):
    check(data.draw(with_lateness(case)), network, protocol, routing="random", units=3)


@given(cases(aliases=2, far=False), NETWORKS, PROTOCOLS)
@settings(max_examples=max(1, FEW // 2))
def test_a_simulation_repeats_itself(case, network, protocol):
    first, again = (simulated(case, network, protocol, routing="random", units=3) for _ in range(2))
    assert [*bag(rows_of(first)).items()] == [*bag(rows_of(again)).items()]
    assert wm.local.counts(first) == wm.local.counts(again)


# ---------------------------------------------------------------- what each part is for


def stream(times_us: list[int]) -> pa.Table:
    return pa.table({"id": range(len(times_us)), "ts": pa.array(times_us, pa.timestamp("us"))})


def pairs(
    left: list[int], right: list[int], network: Network, protocol: Protocol, window: str = "", **options: Any
) -> Counter[Any]:
    """How often each pair of ids is a result; without a window all pairs should be, once."""
    query = f"SELECT a.id AS r, b.id AS s FROM r a CROSS JOIN s b {window}"
    tables = {"r": stream(left), "s": stream(right)}
    out = wm.local.run(query, tables, network=network, protocol=protocol, routing="random", **{"units": 2, **options})
    return Counter(rows_of(out))


OFF = Protocol(order="arrival", pairs="arrival")


def delayed(*slow: tuple[str, str]) -> Network:
    return Network(lambda sender, receiver: Link(latency_us=SECOND if (sender, receiver) in slow else 1000))


R_SENDER, S_SENDER, R_UNIT, S_UNIT = "dispatcher:0", "dispatcher:1", "unit:0", "unit:1"
FIGURE_4 = {
    "a": (delayed((S_SENDER, R_UNIT), (S_SENDER, S_UNIT)), 1),
    "b": (delayed((R_SENDER, R_UNIT), (R_SENDER, S_UNIT)), 1),
    "c, missed": (delayed((R_SENDER, R_UNIT), (S_SENDER, S_UNIT)), 0),
    "d, duplicated": (delayed((S_SENDER, R_UNIT), (R_SENDER, S_UNIT)), 2),
}
"""How r and s, which match, reach the unit that stores R and the one that stores S; how often they are then joined."""


@pytest.mark.parametrize("figure", FIGURE_4)
def test_figure_4(figure):
    network, times = FIGURE_4[figure]
    assert pairs([0], [0], network, OFF) == Counter({(0, 0): times} if times else {})
    assert pairs([0], [0], network, replace(OFF, pairs="fifo")) == Counter({(0, 0): times} if times else {})
    assert pairs([0], [0], network, Protocol()) == {(0, 0): 1}


LEFT, RIGHT = [1000 * n for n in range(0, 24, 2)], [1000 * n for n in range(1, 25, 2)]
WHOLE = Counter({(r, s): 1 for r in range(len(LEFT)) for s in range(len(RIGHT))})
SHAKY = Link(latency_us=1000, jitter_us=30_000)


def outcomes(protocol: Protocol, link: Link = SHAKY, seeds: int = 20) -> Iterator[Counter[Any]]:
    return (pairs(LEFT, RIGHT, Network(link, seed), protocol) for seed in range(seeds))


def shows(found: Iterator[Counter[Any]], *anomalies: Callable[[Counter[Any]], bool]) -> bool:
    """Whether each anomaly occurs, sooner or later."""
    open_ = list(anomalies)
    for one in found:
        open_ = [anomaly for anomaly in open_ if not anomaly(one)]
        if not open_:
            return True
    return False


def misses(found: Counter[Any]) -> bool:
    return bool(WHOLE - found)


def doubles(found: Counter[Any]) -> bool:
    return bool(found - WHOLE)


@pytest.mark.parametrize(
    "off", [{"order": "arrival"}, {"pairs": "arrival"}, {"order": "arrival", "pairs": "arrival"}], ids=str
)
def test_without_a_part_results_are_missed_and_doubled(off):
    assert shows(outcomes(Protocol(dispatchers=3, signal_us=5000, **off)), misses, doubles)


def test_with_all_parts_none_is():
    assert all(found == WHOLE for found in outcomes(Protocol(dispatchers=3, signal_us=5000), seeds=5))


def test_one_dispatcher_needs_no_global_order_but_first_in_first_out():
    assert all(found == WHOLE for found in outcomes(Protocol(dispatchers=1, order="arrival"), seeds=5))
    assert shows(outcomes(replace(OFF, dispatchers=1)), misses, doubles)


def test_a_network_that_keeps_order_needs_no_numbers():
    in_order = replace(SHAKY, arrival="in order")
    assert all(found == WHOLE for found in outcomes(Protocol(pairs="arrival"), in_order, seeds=5))


# ---------------------------------------------------------------- theorem 1


@pytest.mark.parametrize(("max_delay_us", "found"), [(27, 0), (28, 0), (29, 1), (30, 1), ("auto", 1), ("unknown", 1)])
@pytest.mark.parametrize("order", ["global", "arrival"])
def test_theorem_1_to_the_microsecond(max_delay_us, found, order):
    """s is within r's window of 20 us but 30 us on its way; meanwhile another tuple, of time 49, reaches r's unit."""
    late = Network(lambda sender, receiver: Link(30 if (sender, receiver) == ("shuffler:b", "dispatcher:1") else 0))
    protocol = Protocol(signal_us=1, max_delay_us=max_delay_us, order=order)
    assert pairs([0], [20, 49], late, protocol, "WINDOW = 20 MICROSECONDS")[0, 0] == found


TICKS = [10_000 * n for n in range(150)]
WINDOW, WINDOW_US = "WINDOW = 50 MILLISECONDS", 50_000
IN_WINDOW = Counter({(r, s): 1 for r, x in enumerate(TICKS) for s, y in enumerate(TICKS) if abs(x - y) <= WINDOW_US})


@pytest.mark.parametrize(("jitter_us", "clock_difference_us"), [(100_000, 0), (0, 100_000)])
def test_a_smaller_delay_than_the_true_one_loses_results_and_never_doubles_any(jitter_us, clock_difference_us):
    """Units process in the order of the dispatchers' clocks, so clocks that differ delay like a slow network."""
    true = Protocol(dispatchers=3, signal_us=20_000, clock_difference_us=clock_difference_us)
    networks = [Network(Link(jitter_us=jitter_us), seed) for seed in range(2)]
    found = [pairs(TICKS, TICKS, network, replace(true, max_delay_us=0), WINDOW) for network in networks]
    assert any(IN_WINDOW - one for one in found)
    assert not any(one - IN_WINDOW for one in found)
    assert all(pairs(TICKS, TICKS, network, true, WINDOW) == IN_WINDOW for network in networks)


def test_with_the_true_delay_memory_is_bounded_and_nothing_is_lost():
    network = Network(Link(jitter_us=50_000))
    protocol = Protocol(dispatchers=3, signal_us=20_000, clock_difference_us=50_000)
    tables = {"r": stream(TICKS), "s": stream(TICKS)}
    query = f"SELECT a.id AS r, b.id AS s FROM r a CROSS JOIN s b {WINDOW}"
    out = wm.local.run(query, tables, network=network, protocol=protocol, routing="random", units=4)
    counts = wm.local.counts(out).simulated
    assert Counter(rows_of(out)) == IN_WINDOW
    assert counts["max_delay_us"] == 150_000
    kept_us = WINDOW_US + counts["max_delay_us"] + protocol.clock_difference_us + 2 * protocol.signal_us
    most = 1.1 * (kept_us // 10_000 + 1) + 2
    assert all(0 < rows <= most for rows in counts["stored"].values()), (counts["stored"], most)
    for_ever = wm.local.run(
        query, tables, network=network, protocol=replace(protocol, max_delay_us="unknown"), routing="random", units=4
    )
    assert wm.local.counts(for_ever).simulated["stored"] == {"a": len(TICKS), "b": len(TICKS)}


# ---------------------------------------------------------------- counts and errors

TABLES = {"r": stream(LEFT), "s": stream(RIGHT)}
CROSS = "SELECT a.id AS r, b.id AS s FROM r a CROSS JOIN s b"


def test_counts():
    out = wm.local.run(CROSS, TABLES, network=Network(SHAKY), protocol=Protocol(3), routing="random", units=5)
    counts = wm.local.counts(out).simulated
    assert counts["rows"] == 12 * (1 + 2) + 12 * (1 + 3)
    assert counts["stored"] == {"a": 12, "b": 12}
    assert sum(counts["stored_by_unit"]) == 24
    assert counts["messages"] == counts["rows"] + counts["signals"]
    assert counts["bytes"] == 24 * counts["messages"] + counts["rows"] * 16
    assert counts["buffered"] > 0
    to_unit = {pair: traffic for pair, traffic in counts["pairs"].items() if pair.endswith("unit:4")}
    assert len(to_unit) == 3
    shuffled = [traffic for pair, traffic in counts["pairs"].items() if pair.startswith("shuffler:a")]
    assert [rows for _, rows, _ in shuffled] == [4, 4, 4]


def test_the_matrix_stores_more_than_the_biclique():
    stored = {
        routing: sum(
            wm.local.counts(wm.local.run(CROSS, TABLES, network=Network(), routing=routing, units=4))
            .simulated["stored"]
            .values()
        )
        for routing in ("random", "matrix")
    }
    assert stored == {"random": 24, "matrix": 48}


@pytest.mark.parametrize(
    "wrong",
    [
        {"dispatchers": 0},
        {"signal_us": 0},
        {"clock_difference_us": -1},
        {"order": "none"},
        {"pairs": "none"},
        {"max_delay_us": "long"},
    ],
    ids=str,
)
def test_a_wrong_protocol_is_an_error(wrong):
    with pytest.raises(OptionError, match=next(iter(wrong))):
        Protocol(**wrong)


def test_what_is_not_simulated_is_an_error():
    with pytest.raises(OptionError, match="give network="):
        wm.local.run(CROSS, TABLES, protocol=Protocol())
    with pytest.raises(OptionError, match="pipeline"):
        wm.local.run(
            "SELECT a.id FROM r a CROSS JOIN s b CROSS JOIN s c", TABLES, network=Network(), routing="pipeline", units=4
        )
    with pytest.raises(OptionError, match="ROWS"):
        wm.local.run("SELECT a.id FROM r a [ROWS 2] CROSS JOIN s b", TABLES, network=Network())
    silent = TABLES | {"r": wm.Stream(TABLES["r"], time="ts", idle="1 second")}
    with pytest.raises(OptionError, match="idle"):
        wm.local.run(CROSS, silent, network=Network())
