"""Which engine `auto` takes."""

from __future__ import annotations

import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.errors import OptionError
from watersmeet.runtime.subscriptions import engines
from watersmeet.runtime.subscriptions.engines import choose_engine, estimate_us

EMPTY = pa.schema([("k", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))]).empty_table()


@pytest.mark.parametrize("streams", [1, 3, 10, 100, 1000])
@pytest.mark.parametrize("units", [1, 8, 64, 256, 1000])
def test_auto_takes_the_engine_whose_busiest_unit_has_less_to_do(streams: int, units: int) -> None:
    costs = {engine: estimate_us(engine, streams, units) for engine in ("shared", "rjoin")}
    assert choose_engine("auto", streams, units) == min(costs, key=costs.__getitem__)


def test_auto_follows_what_is_measured(monkeypatch: pytest.MonkeyPatch) -> None:
    assert {choose_engine("auto", 10, units) for units in (1, 8, 64, 256)} == {"shared"}, "as counted by units"
    monkeypatch.setattr(engines, "_SHARED_US", 4.0)
    assert [choose_engine("auto", 10, units) for units in (1, 64)] == ["shared", "rjoin"]


def test_fewer_tuples_favour_the_shared_plan() -> None:
    ratios = [
        estimate_us("rjoin", 1000, 96, n) / estimate_us("shared", 1000, 96, n) for n in (1_000, 100_000, 10_000_000)
    ]
    assert ratios == sorted(ratios, reverse=True)
    assert ratios[0] > 1 > ratios[-1]


def test_one_that_is_named_is_taken_and_a_quota_of_state_decides() -> None:
    assert [choose_engine(engine, 1000, 96) for engine in ("shared", "rjoin", "auto")] == ["shared", "rjoin", "rjoin"]
    assert choose_engine("auto", 1000, 96, wm.Quotas(state=1_000_000)) == "shared"
    with pytest.raises(OptionError, match="'auto', 'shared', 'rjoin'"):
        choose_engine("fastest", 2, 1)


def test_a_registry_in_process_takes_it() -> None:
    assert wm.local.subscriptions({"r": EMPTY, "s": EMPTY}, units=8).plan.engine == "shared"
    assert wm.local.subscriptions({"r": EMPTY, "s": EMPTY}, units=8, engine="rjoin").plan.engine == "rjoin"
    many = {f"s{n}": EMPTY for n in range(1000)}
    assert wm.local.subscriptions(many, units=96, engine="auto").plan.engine == "rjoin"
