"""Every tuple-at-a-time kernel against all combinations tested one by one, and what the kernels count."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.kernels.test_window_joins import LIMITS, ORDERS, check, counted, problems, streams
from watersmeet.kernels import catalogue
from watersmeet.kernels.problem import in_time
from watersmeet_lab.kernels.catalogue import KERNELS, named
from watersmeet_lab.kernels.tuplewise import ripple, round_robin, xjoin

ADDED = [name for name in KERNELS if name not in catalogue.KERNELS]
WAYS = {
    **{name: named(name) for name in (*ADDED, *(f"gca({name})" for name in ADDED))},
    "ripple, purged often": lambda p, a, c, n: ripple(p, a, c, n, 3),
    "xjoin, purged often": lambda p, a, c, n: xjoin(p, a, c, n, 2),
}


@pytest.mark.parametrize("way", WAYS)
@given(problems(), st.sampled_from(LIMITS), st.sampled_from(ORDERS))
def test_finds_every_combination_once(way, problem, limit, order):
    check(WAYS[way], problem, limit, order)


def test_what_the_kernels_count():
    """Unequal rates, read in turn: a sweep drops what has no partner, a scan meets it again and again."""
    p = streams([1000, 100])
    arrival = round_robin(p)
    scan, bucket, sweep = (counted(named(way), p, arrival) for way in ("nlw", "hw", "mw"))
    assert scan["results"] == bucket["results"] == sweep["results"] > 0
    assert 10 * (sweep["times"] + sweep["tests"]) < scan["times"] + scan["tests"]
    assert bucket["visits"] < scan["visits"]
    assert sweep["admitted"] + sweep["purged"] >= sum(map(len, p.ts)) - 100
    assert sweep["switches"] > 0 == scan["switches"]
    assert scan["most_stored"] > 10 * sweep["most_stored"]


def test_periodic_purging_meets_more():
    p = streams([500, 500])
    for ours, theirs in (("nlw", "ripple"), ("hw", "xjoin")):
        assert counted(named(ours), p, in_time(p))["visits"] < counted(named(theirs), p, in_time(p))["visits"]
