"""Two-phase scaling: equation 7, confirmations, bounds, hot keys; and routings that follow each other."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from watersmeet.errors import OptionError
from watersmeet.query.scaling import Scaling
from watersmeet.routing.biclique import Biclique, Keys, biclique
from watersmeet.routing.epochs import Epochs, covers
from watersmeet.routing.hypercube import Hypercube, grid
from watersmeet.routing.resize import fit_grid
from watersmeet.routing.scaling import ScalingMemory, adjustment, decide, decide_grid

PAPER = Scaling(unit_bytes=100, high=0.8, low=0.3, target=0.6, confirm=3)
"""The thresholds of Lin et al., section 6.4."""


def iterations(routing: Biclique, bytes_of_a_side: list[int], scaling: Scaling = PAPER) -> Iterator[Biclique]:
    """The routing after each iteration; each side holds so many bytes, evenly."""
    memory = ScalingMemory()
    for held in bytes_of_a_side:
        loads = {u: held // len(members) for members in routing.members for u in members}
        routing = decide(scaling, routing, loads, memory).routing
        yield routing


def test_it_grows_after_three_confirmations_and_by_equation_7() -> None:
    sizes = [[len(m) for m in r.members] for r in iterations(biclique(4, 4), [360] * 4)]
    assert sizes == [[4, 4], [4, 4], [6, 6], [6, 6]], "0.9 / 0.6 * 4 = 6"


def test_a_short_burst_changes_nothing() -> None:
    assert all(r == biclique(4, 4) for r in iterations(biclique(4, 4), [360, 360, 200, 360, 360, 200]))


def test_it_shrinks_and_grows_again_with_fresh_units() -> None:
    *_, small = iterations(biclique(4, 4), [40] * 3)
    assert [len(m) for m in small.members] == [1, 1]
    *_, large = iterations(small, [150] * 3)
    assert [len(m) for m in large.members] == [3, 3]
    assert len({u for m in large.members for u in m}) == 6


def test_each_subgroup_decides_for_itself() -> None:
    routing, memory = biclique(4, 4, Keys((0,)), 2, 2), ScalingMemory()
    loads = {0: 95, 1: 95, 2: 50, 3: 50, 4: 50, 5: 50, 6: 50, 7: 50}
    for _ in range(3):
        decision = decide(PAPER, routing, loads, memory)
    assert decision.routing.sides == (((0, 1, 8, 9), (2, 3)), ((4, 5), (6, 7)))
    assert decision.changes == ("side 0, subgroup 0: 2 -> 4 units",)


def test_there_are_never_more_units_than_allowed() -> None:
    bounded = Scaling(unit_bytes=100, confirm=1, most_units=10)
    *_, routing = iterations(biclique(4, 4), [4000] * 5, bounded)
    assert sum(len(m) for m in routing.members) == 10


def test_a_hot_key_is_spread_and_cools_down() -> None:
    routing, memory = biclique(4, 4, Keys((0,)), 4, 4), ScalingMemory()
    memory.count(0, 2000, [(77, 300), (5, 20)])
    decision = decide(PAPER, routing, {}, memory)
    assert isinstance(decision.routing.by, Keys)
    assert decision.routing.by.hot == (77,)
    for _ in range(20):
        memory.count(0, 2000, [])
    cooled = decide(PAPER, decision.routing, {}, memory)
    assert (cooled.routing, cooled.changes) == (routing, ("1 keys have cooled down",))
    assert decide(PAPER, decision.routing, {}, memory, cools=False).routing == decision.routing  # nothing expires


@pytest.mark.parametrize(("load", "units", "number"), [(0.9, 4, 2), (0.6, 4, 0), (0.2, 6, -4), (1.81, 2, 5)])
def test_equation_7(load: float, units: int, number: int) -> None:
    """delta = (load / target - 1) * units, rounded so that the load comes to the target or below it."""
    assert adjustment(load, units, 0.6) == number
    assert number - 1 < (load / 0.6 - 1) * units <= number


def test_an_old_routing_is_kept_as_long_as_its_units_hold_rows() -> None:
    wide, narrow = biclique(2, 3), biclique(2, 2)
    epochs = Epochs((wide,)).then(narrow)
    assert epochs.prune(set()).routings == (wide, narrow)
    assert epochs.prune({4}).routings == (narrow,)
    assert Epochs((narrow,)).then(wide).prune(set()).routings == (wide,)
    assert Epochs.from_json(epochs.to_json()) == epochs


def test_a_routing_covers_another_only_with_the_same_groups() -> None:
    by = biclique(4, 4, Keys((0,)), 2, 2)
    assert covers(by.with_hot([1, 2]), by.with_hot([1]))
    assert not covers(by, by.with_hot([1]))
    assert not covers(by, biclique(4, 4, Keys((0,)), 4, 4))
    assert not covers(by, biclique(4, 4))


@pytest.mark.parametrize(
    "wrong",
    [
        {"unit_bytes": 0},
        {"unit_bytes": "many"},
        {"unit_bytes": 1, "low": 0.9},
        {"unit_bytes": 1, "confirm": 0},
        {"unit_bytes": "x MB"},
        {"unit_bytes": 1, "units_per_executor": 0},
        {"unit_bytes": 1, "executors": "yarn"},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, object]) -> None:
    with pytest.raises(OptionError, match="Scaling"):
        Scaling(**wrong)  # type: ignore[arg-type]


def test_it_grows_by_cpu_time() -> None:
    """Units of one side take 0.9 of what they may, those of the other 0.45."""
    routing, memory = biclique(4, 4), ScalingMemory()
    scaling = Scaling(unit_time="2 seconds", confirm=2)
    for _ in range(2):
        decision = decide(scaling, routing, {}, memory, seconds={u: 1.8 if u < 4 else 0.9 for u in range(8)})
    assert decision.changes == ("side 0, subgroup 0: 4 -> 6 units",)


def test_the_higher_load_counts() -> None:
    both = Scaling(unit_bytes=100, unit_time=1.0, confirm=1)
    idle, full = dict.fromkeys(range(8), 0.0), dict.fromkeys(range(8), 50)
    assert not decide(both, biclique(4, 4), full, ScalingMemory(), seconds=idle).changes, (
        "nothing shrinks: memory is needed"
    )
    busy = dict.fromkeys(range(8), 0.9)
    grown = decide(both, biclique(4, 4), full, ScalingMemory(), seconds=busy).routing
    assert [len(members) for members in grown.members] == [6, 6]


@pytest.mark.parametrize("given", ["soon", 0, -1.0, True, "0 seconds"])
def test_a_time_that_is_none_is_refused(given: object) -> None:
    with pytest.raises(OptionError, match="unit_time"):
        Scaling(unit_time=given)  # type: ignore[arg-type]


def test_one_of_both_is_needed() -> None:
    with pytest.raises(OptionError, match="unit_bytes='256 MB', unit_time"):
        Scaling()


KEYED = grid((frozenset({0}), frozenset({0})), 4)


def grids(loads: list[float], start: Hypercube = KEYED, scaling: Scaling = PAPER) -> Iterator[Hypercube]:
    """The grid after each iteration; both sides together hold so many bytes."""
    memory, now = ScalingMemory(), start
    for held in loads:
        each = dict.fromkeys(range(now.units), held / 2 / now.units)
        now = decide_grid(scaling, now, [each, each], memory)
        yield now


def test_a_grid_grows_after_three_confirmations_by_whole_shares() -> None:
    assert [g.shares for g in grids([360] * 4)] == [(4,), (4,), (8,), (8,)], "0.9 / 2 is below 0.6"
    assert [g.shares for g in grids([1200] * 3)][-1] == (32,), "3.0 / 8 is below 0.6"


def test_a_grid_shrinks_and_does_not_swing() -> None:
    assert [g.shares for g in grids([80] * 6)][-1] == (2,), "0.2 * 2 is below 0.6, 0.4 * 2 is not"
    assert {g.shares for g in grids([360, 360, 200, 360, 360, 200])} == {(4,)}
    eager = Scaling(unit_bytes=100, low=0.5, target=0.6, high=0.7, confirm=1)
    assert [g.shares for g in grids([300] * 5, scaling=eager)] == [(8,)] * 5, "half of 0.75 is below low, and stays"


def test_a_grid_never_has_more_units_than_allowed() -> None:
    bounded = Scaling(unit_bytes=100, confirm=1, most_units=10)
    assert [g.shares for g in grids([4000] * 3, scaling=bounded)][-1] == (8,)
    memory = ScalingMemory()
    full = [dict.fromkeys(range(4), 500.0)] * 2
    assert decide_grid(bounded, KEYED, full, memory, elsewhere=4) == KEYED, "other joins have the rest"


def test_a_side_without_keys_of_a_dimension_gains_nothing_by_it() -> None:
    one_sided = grid((frozenset(), frozenset()), 4, (0, 1))
    assert one_sided.shares == (2, 2)
    assert fit_grid(one_sided, [8.0, 0.0], 1.0, 0.6, 64).shares == (4, 2)


def test_routings_of_several_joins_are_told_apart() -> None:
    first, third = Epochs((biclique(2, 2),)), Epochs((biclique(1, 1),)).then(biclique(2, 1), 7)
    entries = [*first.to_json(), {"stage": 1, "shares": [3]}, *third.to_json(2)]
    assert Epochs.by_stage(entries) == {0: first, 2: third}
