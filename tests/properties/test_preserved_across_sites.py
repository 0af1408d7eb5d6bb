"""Outer, semi and anti joins of two streams at sites: whatever the plan, the pace and the changes of plan, every tuple leaves as the oracle says, once."""

from __future__ import annotations

import random
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, reject
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import rows_of
from tests.properties.test_across_sites import ChangingPace, any_plans
from tests.sites.test_results_at import prepare
from tests.trees import SCHEMA, TreeCase, counted, generate
from watersmeet.errors import UnsupportedError, WindowError

KINDS = ("left", "right", "full", "semi", "anti")


class TreePace(ChangingPace):
    """The batches of the case, as they are."""

    def __init__(self, case: TreeCase, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self.case = case

    def _batches(self, name: str) -> list[dict[str, pa.Table]]:
        reader, out = self.run.reader, list[dict[str, pa.Table]]()
        homes = [self.run.plan.inputs[n] for n in self.across.sites[name].station.homes]
        for n in range(4):
            wires = {}
            for source in homes:
                sizes = [len(batch) for batch in self.case.arrivals[source.stream].batches]
                if n < len(sizes):
                    begin = sum(sizes[:n])
                    wires[source.alias] = reader.slice(source.alias, self.run.wires[source.alias], begin, sizes[n])
            out.append(wires)
        return out


@pytest.mark.filterwarnings("ignore:watersmeet dropped late rows")
@given(st.data(), st.randoms(use_true_random=False))
def test_tuples_leave_with_partners_or_without(data: Any, chance: random.Random) -> None:
    case = generate(chance, KINDS, most=2)
    streams = {}
    for n, (name, arrival) in enumerate(case.arrivals.items()):
        rows = [row for batch in arrival.batches for row in batch]
        table = pa.Table.from_pylist(rows, schema=SCHEMA)
        site = ("paris", chance.choice(("paris", "tokyo", "tokyo")))[n]
        streams[name] = wm.Stream(table, time="ts", lateness=f"{arrival.lateness_us} microseconds", site=site)
    sites = {"results_at": "paris"} if chance.random() < 0.3 else {}
    try:
        run = prepare(case.sql, streams, sites=wm.Sites(**sites))
        plans = data.draw(st.lists(any_plans(run.plan.sites.query), min_size=1, max_size=3))
    except (UnsupportedError, WindowError):
        reject()
    pace = TreePace(case, run, 1, chance.choice((1, 1, 3)), chance.randrange(10**6), plans=plans[1:], plan=plans[0])
    assert counted(rows_of(pace.play())) == counted(case.expected().rows), (case.sql, [*map(str, plans)])
