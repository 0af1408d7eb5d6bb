"""All plans of a query are equivalent (Tran and Lee, appendix A): each gives the oracle's results, whatever the delays."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.sites.cases import bounded_networks, cases, found, linear_plans, tree_plans, wild_networks
from watersmeet.plan.sites.model import Algorithm
from watersmeet.runtime.sites import SiteProtocol, SiteRun
from watersmeet.units.sites import lockstep
from watersmeet.units.sites.rows import Rows
from watersmeet.units.sites.streams import joint

INTERVALS = st.sampled_from((1, 4, 10, 100))


@given(st.data())
def test_linear_plans(data):
    case = data.draw(cases(4))
    plan = data.draw(linear_plans(case.query))
    protocol = SiteProtocol(data.draw(INTERVALS))
    outcome = SiteRun(plan, case.streams, data.draw(bounded_networks()), protocol).run()
    assert found(case, outcome) == case.expected()


@given(st.data())
def test_trees(data):
    case = data.draw(cases(4, rows=False))
    plan = data.draw(tree_plans(case.query))
    protocol = SiteProtocol(data.draw(INTERVALS))
    outcome = SiteRun(plan, case.streams, data.draw(bounded_networks()), protocol).run()
    assert found(case, outcome) == case.expected()


@given(st.data())
def test_heartbeats_bear_any_delay(data):
    case = data.draw(cases(3))
    plan = data.draw(linear_plans(case.query))
    protocol = SiteProtocol(data.draw(INTERVALS), bound="heartbeats")
    outcome = SiteRun(plan, case.streams, data.draw(wild_networks()), protocol).run()
    assert found(case, outcome) == case.expected()


@given(st.data())
def test_all_one_way_joins_are_equivalent(data):
    """In every interval, also without a network: the results of each are those of the simple join."""
    case = data.draw(cases(2))
    streams, interval = case.streams, data.draw(INTERVALS)
    spans = [(begin, begin + interval) for begin in range(0, 41, interval)]
    made, keys = joint(streams, frozenset("a"), frozenset("b"), streams.base["b"])
    heads = [streams.base["a"].head(span) for span in spans]
    arrivals = [streams.base["b"].arrival(span, keys) for span in spans]
    lows = [span[0] * streams.width for span in spans]
    results = {
        a: [_pairs(rows) for rows in lockstep.run(a, made, heads, arrivals, lows).by_interval()] for a in Algorithm
    }
    assert all(results[a] == results[Algorithm.SP_S] for a in Algorithm)


def _pairs(rows: Rows) -> list[tuple[int, int]]:
    return sorted(zip(*(rows.members[a].tolist() for a in "ab"), strict=True)) if len(rows) else []
