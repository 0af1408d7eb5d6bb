"""All sites in one process, batch by batch: whatever the plan of one-way joins, the sites and the batches, the oracle's results."""

from __future__ import annotations

import warnings
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import Case, bag, rounded, rows_of
from tests.properties.test_local import FEW, sources
from tests.sites.plans import linear_plans
from tests.strategies import BATCHES, cases, distinct_cases, grouped_cases, shuffled, with_lateness
from watersmeet.plan.options import Options
from watersmeet.runtime.local import LocalRun
from watersmeet.runtime.sources import source_of
from watersmeet.sql.parse import parse

PLACES = ("paris", "tokyo", "rome", "lima")


@st.composite
def at_sites(draw: Any, case: Case) -> dict[str, wm.Stream]:
    """The streams of a case, each at a site; some sites have several."""
    out = {}
    for name, given_ in sources(case).items():
        stream = given_ if isinstance(given_, wm.Stream) else wm.Stream(given_, time="ts", lateness="1 day")
        stream.site = draw(st.sampled_from(PLACES))
        out[name] = stream
    return out


def prepared(case: Case, streams: dict[str, wm.Stream], **options: Any) -> LocalRun:
    specs = {name: source_of(name, s) for name, s in streams.items()}
    join = parse(case.sql(), {name: spec for name, (_, spec) in specs.items()})
    tables = {name: table for name, (table, _) in specs.items()}
    return LocalRun(join, tables, Options(units=1, **options), late=True)


def results(run: LocalRun, batch_rows: int) -> pa.Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return run.run(batch_rows)


@given(st.data(), cases(far=False), BATCHES)
@settings(max_examples=FEW)
def test_every_plan_equals_the_oracle(data, case, batch_rows):
    case = data.draw(shuffled(case))
    streams = data.draw(at_sites(case))
    first = prepared(case, streams).plan.sites
    plan = data.draw(linear_plans(first.query))
    got = results(prepared(case, streams, sites=wm.Sites(plan=plan)), batch_rows)
    assert bag(rows_of(got)) == bag(case.expected(batch_rows).rows), (case.sql(), str(plan))


@given(st.data(), cases(far=False), BATCHES)
@settings(max_examples=FEW)
def test_late_rows_are_dropped_and_counted(data, case, batch_rows):
    case = data.draw(with_lateness(case))
    streams = data.draw(at_sites(case))
    plan = data.draw(linear_plans(prepared(case, streams).plan.sites.query))
    run = prepared(case, streams, sites=wm.Sites(plan=plan))
    got = results(run, batch_rows)
    want = case.expected(batch_rows)
    assert bag(rows_of(got)) == bag(want.rows), case.sql()
    for stream, (least, most) in case.late_bounds(want).items():
        counted = wm.local.counts(got).late.get(stream, 0)
        assert least <= counted <= most, case.sql()
        assert counted == sum(lost.column("stream").to_pylist().count(stream) for lost in run.lost), case.sql()


@given(st.data(), distinct_cases(far=False) | grouped_cases(far=False), BATCHES)
@settings(max_examples=FEW)
def test_distinct_and_groups(data, case, batch_rows):
    streams = data.draw(at_sites(case))
    sites = wm.Sites(results_at=data.draw(st.sampled_from(sorted({str(s.site) for s in streams.values()}))))
    got = results(prepared(case, streams, sites=sites), batch_rows)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        plain = {name: wm.Stream(s.source, time="ts", lateness="1 day") for name, s in streams.items()}
        expected = wm.local.run(case.sql(), plain, batch_rows=batch_rows)
    assert bag(rounded(rows_of(got))) == bag(rounded(rows_of(expected)))
