"""Section 2.2: each constraint, removed, produces the paper's wrong output; kept, the right one. And a line that breaks the bound.

Windows of 100, a delay of 10, as in figure 1; times are milliseconds.
"""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest

from watersmeet.errors import OptionError
from watersmeet.sites.planning.model import Algorithm, LinearPlan, SiteQuery
from watersmeet_lab.reproduce.semijoin.answer import ask_duckdb
from watersmeet_lab.reproduce.semijoin.execute import execute
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites.bounded import Bound, under
from watersmeet_lab.simulate.sites.samples import Sample, Streams

MS = 1000
QUERY = SiteQuery.of({"a": "N1", "b": "N2"}, ["a.k = b.k"], window_us=100 * MS)
SLOW = Network(Link(latency_us=10 * MS), interval_us=5 * MS)


def streams(a: list[int], b: list[int]) -> Streams:
    # A tuple at 0 of a key of its own starts the clock.
    keys, times = [9] + [1] * len(a), [0, *a]
    found = {"a": (times, keys), "b": (b, [1] * len(b))}
    samples = {
        alias: Sample(np.array(ts, np.int64) * MS, {"k": np.array(codes, np.int64)}, 10.0, {"k": 4.0})
        for alias, (ts, codes) in found.items()
    }
    return Streams(QUERY, samples)


def results(of: Streams, algorithm: Algorithm, bound: Bound | None, network: Network = SLOW) -> Counter:
    plan = LinearPlan.of(QUERY, {"a": f"b {algorithm.value}", "b": "a SP-D"})
    found = execute(of, plan, network, carrier=under(bound)) if bound else execute(of, plan, network)
    return Counter(row for t in found.results for row in zip(*(c.to_pylist() for c in t.columns), strict=True))


@pytest.mark.parametrize("algorithm", [Algorithm.SP_S, Algorithm.SP_D])
def test_a_copy_is_probed_when_its_updates_have_come(algorithm):
    """Figure 1(a): s_2 of 105 is under way to N_1 when s_1 of 110 arrives there."""
    of = streams([110], [105])
    assert results(of, algorithm, Bound(10 * MS)) == {(1, 0): 1}
    hasty = results(of, algorithm, Bound(10 * MS, ("delayed probe",)))
    assert hasty == ({(1, 0): 1} if algorithm is Algorithm.SP_D else {})


def test_what_has_expired_waits_for_heads_under_way():
    """Figure 1(b): s_1 of 105 comes to N_2 when the window has moved on, past the tuple of 8."""
    of = streams([105], [8, 104, 110])
    assert results(of, Algorithm.SP_D, Bound(10 * MS)) == {(1, 0): 1, (1, 1): 1, (1, 2): 1}
    assert (1, 0) not in results(of, Algorithm.SP_D, Bound(10 * MS, ("delayed removal",)))


def test_heads_meet_older_tuples_only():
    """Figure 1(b): s_1 of 105 meets the tuple of 110 at N_2; the tuple of 110 meets it, too."""
    of = streams([105], [104, 110])
    assert results(of, Algorithm.SP_D, Bound(10 * MS)) == {(1, 0): 1, (1, 1): 1}
    assert results(of, Algorithm.SP_D, Bound(10 * MS, ("limited match",)))[1, 1] == 2


@pytest.mark.parametrize("algorithm", [Algorithm.SP_S, Algorithm.SM_S2, Algorithm.SM_D2, Algorithm.SMB_D1])
def test_a_line_that_breaks_the_bound_breaks_results_and_heartbeats_do_not(algorithm):
    rng = np.random.default_rng(3)
    of = streams(np.sort(rng.integers(1, 200, 30)).tolist(), np.sort(rng.integers(1, 200, 30)).tolist())
    slower = Network(Link(latency_us=150 * MS), interval_us=20 * MS)
    right = results(of, algorithm, None, Network(interval_us=20 * MS))
    assert sum(right.values()) == ask_duckdb(of).results > 100
    assert results(of, algorithm, None, slower) == right
    assert results(of, algorithm, Bound(10 * MS), slower) != right
    kept = Network(Link(latency_us=10 * MS), interval_us=20 * MS)
    assert results(of, algorithm, Bound(10 * MS), kept) == right


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (lambda: Bound(-1), "whole microseconds"),
        (lambda: Bound(5, ("patience",)), "there are delayed probe"),
    ],
)
def test_bounds_that_make_no_sense_are_refused(made, said):
    with pytest.raises(OptionError, match=said):
        made()
