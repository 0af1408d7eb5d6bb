"""Section 2.2: each constraint, removed, produces the paper's wrong output; kept, the right one. And heartbeats.

Windows of 100, a delay of 10, as in figure 1; times are milliseconds.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.lab.simulate.sites.cases import SiteCase, found
from watersmeet.errors import OptionError
from watersmeet.sites.planning.model import Algorithm, LinearPlan, SiteQuery
from watersmeet.sites.planning.trees import TreePlan
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites.model import SiteProtocol
from watersmeet_lab.simulate.sites.one_way import MIRRORED
from watersmeet_lab.simulate.sites.run import SiteRun

MS = 1000
QUERY = SiteQuery.of({"s1": "N1", "s2": "N2"}, ["s1.k = s2.k"], window_us=100 * MS)
SLOW = Network(Link(latency_us=10 * MS))
TIGHT = SiteProtocol(interval_us=MS)


def case(s1: list[float], s2: list[float]) -> SiteCase:
    # A tuple at 0 of a key of its own starts the clock.
    return SiteCase(
        QUERY, {"s1": [(0, 9, 9), *((int(t * MS), 1, 1) for t in s1)], "s2": [(int(t * MS), 1, 1) for t in s2]}
    )


def plan(algorithm: Algorithm) -> LinearPlan:
    return LinearPlan.of(QUERY, {"s1": f"s2 {algorithm.value}", "s2": "s1 SP-D"})


def results(
    c: SiteCase, algorithm: Algorithm, protocol: SiteProtocol, network: Network = SLOW
) -> list[tuple[int, ...]]:
    return found(c, SiteRun(plan(algorithm), c.streams, network, protocol).run())


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_a_copy_is_probed_when_its_updates_have_come(algorithm):
    """Figure 1(a): s_2 of 105 is under way to N_1 when s_1 of 110 arrives there."""
    c = case([110], [105])
    assert c.expected() == [(1, 0)]
    assert results(c, algorithm, TIGHT) == c.expected()
    hasty = results(c, algorithm, replace(TIGHT, without=("delayed probe",)))
    assert hasty == ([] if algorithm in MIRRORED else c.expected())


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_what_has_expired_waits_for_heads_under_way(algorithm):
    """Figure 1(b): s_1 of 105 comes to N_2 when the window has moved on, past the tuple of 8."""
    c = case([105], [8, 104, 110])
    assert c.expected() == [(1, 0), (1, 1), (1, 2)]
    assert results(c, algorithm, TIGHT) == c.expected()
    forgetful = results(c, algorithm, replace(TIGHT, without=("delayed removal",)))
    assert forgetful == [(1, 1), (1, 2)]


@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_a_head_meets_only_older_tuples_in_its_window(algorithm):
    """Figure 1(b): a younger s_2 is in the window when s_1 of 105 comes to it, and must not be matched by it."""
    c = case([105], [8, 105.5])
    assert c.expected() == [(1, 0), (1, 1)]
    greedy = results(c, algorithm, replace(TIGHT, without=("limited match",)))
    assert greedy == [(1, 0), (1, 1), (1, 1)]


@pytest.mark.parametrize("algorithm", [Algorithm.SP_S, Algorithm.SM_D2])
def test_a_delay_beyond_delta_makes_results_wrong_but_not_under_heartbeats(algorithm):
    c = case([110, 111, 240], [8, 12, 105, 141, 230])
    wrong = results(c, algorithm, replace(TIGHT, delta_us=1 * MS))
    assert wrong != c.expected()
    late = SiteRun(
        plan(algorithm), c.streams, Network(Link(latency_us=900 * MS)), replace(TIGHT, bound="heartbeats")
    ).run()
    assert found(c, late) == c.expected()
    assert late.counts.latest_us >= 900 * MS
    assert late.counts.heartbeats > 0


@pytest.mark.parametrize("bound", ["delta", "heartbeats"])
@pytest.mark.parametrize("algorithm", list(Algorithm))
def test_windows_and_copies_stay_small(algorithm, bound):
    """However long the streams, what is kept is a window, an interval and the delay."""
    times = list(range(0, 3000, 5))
    c = case(times[1:], times)
    run = SiteRun(plan(algorithm), c.streams, SLOW, SiteProtocol(10 * MS, bound=bound))
    most = []
    for second in range(200_000, 3_000_000, 200_000):
        run.simulation.at(second, lambda: most.append(_kept(run)))
    outcome = run.run()
    assert len(outcome.results) > 10_000
    assert max(most) <= (100 + 10 + 90) / 5


def _kept(run: SiteRun) -> int:
    halves = [h for j in run.joinings for h in (j.source, j.destination)]
    return max(len(half.window) for half in halves if hasattr(half, "window"))


def test_a_line_that_reorders_is_refused():
    c = case([1], [2])
    with pytest.raises(OptionError, match="the line from N1 to N2 reorders"):
        SiteRun(plan(Algorithm.SP_S), c.streams, Network(Link(jitter_us=5)))


def test_a_bandwidth_needs_a_delta_or_heartbeats():
    c = case([1], [2])
    network = Network(Link(bytes_per_s=1000))
    with pytest.raises(OptionError, match="no longest delay"):
        SiteRun(plan(Algorithm.SP_S), c.streams, network)
    assert (
        found(c, SiteRun(plan(Algorithm.SP_S), c.streams, network, SiteProtocol(bound="heartbeats")).run())
        == c.expected()
    )


def test_a_tree_has_no_heartbeats():
    c = case([1], [2])
    tree = TreePlan.of(QUERY, "s1, s2 SP-S/SP-D")
    with pytest.raises(OptionError, match="close their intervals by delta"):
        SiteRun(tree, c.streams, SLOW, SiteProtocol(bound="heartbeats"))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"interval_us": 0}, "interval_us=0"),
        ({"bound": "hope"}, "there are 'delta' and 'heartbeats'"),
        ({"delta_us": -1}, "delta_us=-1"),
        ({"without": ("sleep",)}, "without='sleep'"),
    ],
)
def test_protocol_errors(given, said):
    with pytest.raises(OptionError, match=said):
        SiteProtocol(**given)
