"""Where rows enter: equal rows are spread where a task's messages are taken whole."""

from __future__ import annotations

import pyarrow as pa

from watersmeet.operators.assemble import PlanFlows, dataflow_of
from watersmeet.plan.options import Options
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of
from watersmeet.sql.parse import parse


def test_equal_rows_are_spread():
    same = pa.table({"v": [1] * 400, "ts": pa.array([0] * 400, pa.timestamp("us"))})
    given = {name: source_of(name, same) for name in "ab"}
    join = parse("SELECT a.v FROM a, b WHERE a.v < b.v WINDOW = 1 SECOND", {n: spec for n, (_, spec) in given.items()})
    run = LocalRun(join, {n: table for n, (table, _) in given.items()}, Options(units=8))

    def stored(flow):
        messages = flow.entries["a"].read(run.wires["a"])[1]
        return {m.to: m.table.num_rows for m in messages if m.kind == "a"}

    numbered, by_content = stored(PlanFlows(run.plan).under({})), stored(dataflow_of(run.plan))
    assert len(by_content) == 1
    assert len(numbered) == 4
    assert max(numbered.values()) < 1.3 * 100
    assert stored(PlanFlows(run.plan).under({})) == numbered
