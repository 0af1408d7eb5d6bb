"""Two-phase scaling: when a subgroup of units is too full or too empty for some time, it grows or shrinks.

    load        sum of the units' bytes / (units * capacity), or of their CPU time in the batch, whichever is more
    request     out if it is above `high`, in if it is below `low`
    confirm     the same request in `confirm` iterations in a row: a short burst changes nothing
    how many    (load / target - 1) * units                                                          equation 7

A biclique grows by as many units as that. A grid grows by whole shares, see `routing.resize`; its load is that of all its units. Keys of a biclique that have become hot are
spread at the same time, see `routing.hot_keys`.

Invariant: a pure function of the loads and of what it has remembered, so a replay decides alike. Each side keeps at least
one unit in every subgroup.
Implements: Lin, Ooi, Wang, Yu (2015), section 5 (2PS, equation 7).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from watersmeet.query.scaling import Scaling
from watersmeet.routing.biclique import Biclique, Keys
from watersmeet.routing.hot_keys import FADE, HOT, MOST_HOT, count_keys, find_hot
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.resize import LEAST_GAIN, fit_grid


def adjustment(load: float, units: int, target: float) -> int:
    """How many units to add, or to remove if negative (equation 7), rounded so that the load comes to the target or below.

    >>> adjustment(0.9, 4, 0.6), adjustment(0.15, 8, 0.6), adjustment(0.0, 3, 0.6)
    (2, -6, -2)
    """
    return max(math.ceil(round(load / target * units, 9)), 1) - units


@dataclass
class ScalingMemory:
    """What scaling remembers between batches; JSON goes into the manifest."""

    asked: dict[str, list[Any]] = field(default_factory=dict)
    """By 'side.subgroup', of later stages by 'stage.side.subgroup', of grids by 'grid stage': the last request, and how often in a row it came."""
    keys: list[dict[str, float]] = field(default_factory=lambda: [{}, {}])
    """By side, fading counts of the most frequent keys."""
    rows: list[float] = field(default_factory=lambda: [0.0, 0.0])
    fresh: int = 0
    """The number of the next unit; numbers are never used again."""
    grown_at: float = 0.0
    """Of units that share registered queries: the load at which there came to be more of them, until that has made it less."""

    def count(self, side: int, rows: int, keys: Iterable[tuple[int, int]]) -> None:
        """Take a batch's most frequent keys of a side in."""
        self.rows[side] = self.rows[side] * FADE + rows
        self.keys[side] = count_keys(self.keys[side], keys)


@dataclass(frozen=True)
class ScalingDecision:
    """The routing from the next batch on, and what was changed, in words."""

    routing: Biclique
    changes: tuple[str, ...] = ()


def decide(
    scaling: Scaling,
    routing: Biclique,
    loads: Mapping[int, int],
    memory: ScalingMemory,
    *,
    cools: bool = True,
    seconds: Mapping[int, float] | None = None,
    stage: int = 0,
    elsewhere: int = 0,
) -> ScalingDecision:
    """One iteration: `loads` are bytes by unit, `seconds` CPU time; keys cool down if tuples expire. Other stages have units, too, so many `elsewhere`. Changes the memory."""
    memory.fresh = max(memory.fresh, routing.units)
    sides, changes = [list(routing.sides[0]), list(routing.sides[1])], []
    prefix, where = (f"{stage}.", f"join {stage + 1}, ") if stage else ("", "")
    for side in (0, 1):
        for group, units in enumerate(routing.sides[side]):
            load = _weigh(scaling, [loads.get(u, 0) for u in units], [(seconds or {}).get(u, 0.0) for u in units])
            number = adjustment(load, len(units), scaling.target)
            number = number if _confirm(scaling, f"{prefix}{side}.{group}", load, number, memory) else 0
            room = scaling.most_units - elsewhere - sum(len(g) for groups in sides for g in groups)
            number = min(number, max(room, 0))
            if number:
                grown = _resize(units, number, memory.fresh)
                memory.fresh += max(number, 0)
                sides[side][group] = grown
                changes.append(f"{where}side {side}, subgroup {group}: {len(units)} -> {len(grown)} units")
    changed = replace(routing, sides=(tuple(sides[0]), tuple(sides[1])))
    if scaling.hot_keys and isinstance(changed.by, Keys):
        was = set(changed.by.hot)
        hot = find_hot(changed, memory.keys, memory.rows) - was
        cold = was - find_hot(changed, memory.keys, memory.rows, HOT / 2) if cools else set()
        if hot:
            changes.append(f"{len(hot)} keys have become hot: spread over their whole side")
        if cold:
            changes.append(f"{len(cold)} keys have cooled down")
        if hot or cold:
            changed = changed.with_hot(sorted((was - cold) | hot)[:MOST_HOT])
    return ScalingDecision(changed, tuple(changes))


def decide_grid(
    scaling: Scaling,
    grid: Hypercube,
    sides: Sequence[Mapping[int, float]],
    memory: ScalingMemory,
    *,
    seconds: Mapping[int, float] | None = None,
    stage: int = 0,
    elsewhere: int = 0,
) -> Hypercube:
    """The same of a grid: by side the bytes that each unit holds, copies among them. The grid of the next batch. Changes the memory."""
    units = range(grid.units)
    held = [sum(side.get(unit, 0.0) for side in sides) for unit in units]
    load = _weigh(scaling, held, [(seconds or {}).get(unit, 0.0) for unit in units])
    weights = [sum(side.values()) / grid.copies(n) for n, side in enumerate(sides)]
    weights = weights if any(weights) else [1.0] * len(sides)
    wanted = fit_grid(grid, weights, load, scaling.target, max(scaling.most_units - elsewhere, grid.units))
    return wanted if _confirm(scaling, f"grid {stage}", load, wanted.units - grid.units, memory) else grid


def decide_units(
    scaling: Scaling,
    units: int,
    loads: Mapping[int, float],
    memory: ScalingMemory,
    *,
    seconds: Mapping[int, float] | None = None,
) -> int:
    """The same of units that share registered queries: how many there are to be from the next batch on. If more units have not made the load less, there will not be more yet: each of
    them stores the tuples that its queries need, and takes all in. Changes the memory.

    >>> memory, once = ScalingMemory(), Scaling(unit_time=1.0, confirm=1)
    >>> [decide_units(once, 2, {}, memory, seconds={0: busy, 1: busy}) for busy in (0.9, 0.85, 2.0, 0.1, 0.9, 0.5, 0.9)]
    [3, 2, 7, 1, 3, 2, 3]
    """
    numbers = range(units)
    load = _weigh(scaling, [loads.get(n, 0) for n in numbers], [(seconds or {}).get(n, 0.0) for n in numbers])
    number = min(adjustment(load, units, scaling.target), max(scaling.most_units - units, 0))
    if load <= LEAST_GAIN * memory.grown_at:
        memory.grown_at = 0.0
    if number > 0 and load < memory.grown_at / LEAST_GAIN:
        number = 0
    if not _confirm(scaling, "registry", load, number, memory):
        return units
    memory.grown_at = load if number > 0 else 0.0
    return units + number


def _weigh(scaling: Scaling, loads: Sequence[float], seconds: Sequence[float]) -> float:
    """The load of a subgroup, as a share of what its units may have."""
    by_memory = sum(loads) / (len(loads) * scaling.unit_bytes) if isinstance(scaling.unit_bytes, int) else 0.0
    by_time = sum(seconds) / (len(seconds) * scaling.unit_time) if isinstance(scaling.unit_time, float) else 0.0
    return max(by_memory, by_time)


def _confirm(scaling: Scaling, name: str, load: float, number: int, memory: ScalingMemory) -> bool:
    """The requesting phase of one subgroup, or of a grid, that would have so many units more, or fewer: whether it is to be so now."""
    request = "out" if load > scaling.high and number > 0 else "in" if load < scaling.low and number < 0 else ""
    last, times = memory.asked.get(name, ["", 0])
    times = times + 1 if request and request == last else 1 if request else 0
    if times >= scaling.confirm:
        memory.asked[name] = ["", 0]
        return True
    memory.asked[name] = [request, times]
    return False


def _resize(units: tuple[int, ...], number: int, fresh: int) -> tuple[int, ...]:
    return (*units, *range(fresh, fresh + number)) if number > 0 else units[:number]
