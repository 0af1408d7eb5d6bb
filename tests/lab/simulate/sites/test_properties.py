"""All plans of a query are equivalent (Tran and Lee, appendix A): each gives the oracle's results, whatever the delays."""

from __future__ import annotations

import warnings
from dataclasses import replace
from unittest import mock

from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests import strategies
from tests.cases import Case, bag, rows_of
from tests.lab.simulate.sites.cases import bounded_networks, cases, found, wild_networks
from tests.properties.test_local import FEW
from tests.sites.plans import linear_plans, tree_plans
from watersmeet.sites.planning.model import Algorithm
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites import lockstep
from watersmeet_lab.simulate.sites.model import SiteProtocol
from watersmeet_lab.simulate.sites.run import SiteRun
from watersmeet_lab.simulate.sites.streams import joint
from watersmeet_lab.simulate.sites.window import Rows

INTERVALS = st.sampled_from((1, 4, 10, 100))


@given(st.data())
def test_linear_plans(data):
    case = data.draw(cases(4))
    plan = data.draw(linear_plans(case.query))
    protocol = SiteProtocol(data.draw(INTERVALS))
    outcome = SiteRun(plan, case.streams, data.draw(bounded_networks()), protocol).run()
    assert found(case, outcome) == case.expected()


@given(st.data())
def test_keys_that_do_not_fit_into_64_bits(data):
    """They are hashed, and results are verified."""
    case = data.draw(cases(3, least=3))
    plan = data.draw(linear_plans(case.query))
    with mock.patch("watersmeet_lab.simulate.sites.streams._BITS", 1):
        outcome = SiteRun(plan, case.streams, protocol=SiteProtocol(10)).run()
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


# ---------------------------------------------------------------- letters over lines


@given(st.data(), strategies.cases(far=False))
@settings(max_examples=FEW)
def test_letters_over_lines(data, case):
    """Any query, whatever the sites and however slow the lines: the oracle's results."""
    case = ordered(case)
    places = {a: data.draw(st.sampled_from(("A", "B", f"S{a}"))) for a in case.names}
    link = Link(latency_us=data.draw(st.sampled_from((0, 300_000, 1_700_000))), bytes_per_s=1e5)
    network = Network(link, interval_us=data.draw(st.sampled_from((300_000, 1_000_000, 7_000_000))))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        got = wm.local.run(case.sql(), case.tables(), sites=places, network=network)
    assert bag(rows_of(got)) == bag(case.expected().rows), case.sql()


def ordered(case: Case) -> Case:
    """Tuples in the order of their times, those without one last."""

    def at(row):
        return (row[-1] is None, row[-1] or 0)

    return replace(case, data=tuple((name, replace(d, rows=tuple(sorted(d.rows, key=at)))) for name, d in case.data))
