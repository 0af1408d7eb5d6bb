"""Sites over simulated lines give the oracle's results, whatever the delays."""

from __future__ import annotations

import warnings
from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests import strategies
from tests.cases import Case, bag, rows_of
from tests.properties.test_local import FEW
from watersmeet_lab.simulate.network import Link, Network


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
