"""What `wm.local` can do without a network it can do over one: paths, DISTINCT, GROUP BY."""

from __future__ import annotations

import pytest

import watersmeet as wm
from tests.cases import SECOND, Agg, All, bag, rows_of
from tests.properties.test_finish import expected, pair
from tests.properties.test_local import stops


@pytest.mark.parametrize("routing", ["hash", "random"])
def test_a_path_over_a_simulated_network(routing):
    case = stops((0, 1), (2, 2), (4, 3), (4, 6), hops=(SECOND,))
    found = wm.local.run(case.sql(), case.tables(), network=wm.local.Network(), routing=routing, units=4)
    assert bag(rows_of(found)) == bag(case.expected().rows)


@pytest.mark.parametrize("changes", [{"distinct": True}, {"distinct": False, "aggregates": (Agg("count"),)}])
def test_a_simulated_network_changes_nothing(changes):
    case = pair([0, 1, 2, 3], [0, 2, 2, 3], All("WINDOW", SECOND), **changes)
    found = wm.local.run(case.sql(), case.tables(), network=wm.local.Network(), routing="random", units=4)
    assert bag(rows_of(found)) == expected(case, 1000)
