"""Driver policies change the order of results and nothing else."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.properties.test_local import check
from tests.strategies import BATCHES, cases, with_lateness
from watersmeet.operators.probing import driving
from watersmeet.plan.options import POLICIES

FORCED = st.sampled_from(POLICIES)
FEW = max(1, settings.default.max_examples // 2)


@given(st.data(), cases(null_ts=True), BATCHES, FORCED, st.sampled_from((1, 1, 3, 4)))
def test_policies_change_nothing(data, case, batch_rows, driver, units):
    check(data.draw(with_lateness(case, idle=True)), batch_rows, driver=driver, units=units)


@given(cases(), BATCHES, FORCED, st.sampled_from(("hypercube", "random", "pipeline")))
@settings(max_examples=FEW)
def test_policies_and_routings(case, batch_rows, driver, routing):
    check(case, batch_rows, driver=driver, routing=routing, units=4)


@pytest.mark.parametrize("driver", driving.INTERLEAVED)
@given(cases(), BATCHES, st.sampled_from((1, 2, 5)))
@settings(max_examples=FEW)
def test_slices_change_nothing(driver, case, batch_rows, slice_rows):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(driving, "SLICE", slice_rows)
        check(case, batch_rows, driver=driver, units=1)


@given(cases(rows=True), BATCHES, FORCED)
@settings(max_examples=FEW)
def test_policies_and_rows_windows(case, batch_rows, driver):
    check(case, batch_rows, driver=driver)
