"""Which host runs which unit, and how parcels are dealt to tasks.

A unit's segments lie in the cache of the host that has run it (`storage.stores`). So a unit stays where it is as long as its host lives and has no more than
its share of the units; then a batch fetches nothing. Manifests remember it, so a restart finds the caches again.

    w1 dies     its units go to the hosts with the fewest units per core, which fetch their segments, once
    w3 comes    the fullest hosts give units to it until all have their share

Invariant: all units of a task have the same host; all parcels to one unit go to one task. Where a unit runs never changes what it computes.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil

from watersmeet.dataflow.contract import stage_of
from watersmeet.runtime.rounds.files import Parcel


def place_units(units: Iterable[int], before: Mapping[int, str], cores: Mapping[str, int]) -> dict[int, str]:
    """A host for every unit: the one it had, if that lives and is not too full. No hosts, no places.

    >>> place_units(range(4), {}, {"w1": 1, "w2": 1})
    {0: 'w1', 1: 'w2', 2: 'w1', 3: 'w2'}
    >>> place_units(range(4), {0: "w1", 1: "w2", 2: "w1", 3: "w2"}, {"w2": 1, "w3": 1})
    {0: 'w3', 1: 'w2', 2: 'w3', 3: 'w2'}
    """
    if not cores:
        return {}
    stages: dict[int, list[int]] = {}
    for unit in sorted(units):
        stages.setdefault(stage_of(unit), []).append(unit)
    return {unit: host for peers in stages.values() for unit, host in _place_peers(peers, before, cores).items()}


def _place_peers(wanted: list[int], before: Mapping[int, str], cores: Mapping[str, int]) -> dict[int, str]:
    """Units of one stage run at the same time: every host gets its share of each stage."""
    most = {host: ceil(len(wanted) * own / sum(cores.values())) for host, own in cores.items()}
    held = dict.fromkeys(sorted(cores), 0)
    placed: dict[int, str] = {}
    for unit in wanted:
        host = before.get(unit, "")
        if held.get(host, 0) < most.get(host, 0):
            placed[unit] = host
            held[host] += 1
    for unit in wanted:
        if unit not in placed:
            host = min(held, key=lambda h: (held[h] / cores[h], h))
            placed[unit] = host
            held[host] += 1
    return dict(sorted(placed.items()))


def deal(letters: Sequence[Parcel], tasks: int, places: Mapping[int, str]) -> tuple[list[list[Parcel]], list[str]]:
    """Letters by task, and the host of every task; "" if it has none.

    >>> shares, hosts = deal([Parcel(unit, "", "", 0, 0, 0, 0) for unit in (0, 1, 2, 0)], 2, {0: "w1", 1: "w2", 2: "w1"})
    >>> [[parcel.to for parcel in share] for share in shares], hosts
    ([[0, 2, 0], [1]], ['w1', 'w2'])
    """
    at: dict[str, list[int]] = {}
    for unit in sorted({p.to for p in letters}):
        at.setdefault(places.get(unit, ""), []).append(unit)
    total = sum(map(len, at.values()))
    task_of: dict[int, int] = {}
    hosts: list[str] = []
    for host, units in sorted(at.items()):
        count = min(len(units), max(1, round(tasks * len(units) / total)))
        task_of |= {unit: len(hosts) + n % count for n, unit in enumerate(units)}
        hosts += [host] * count
    shares: list[list[Parcel]] = [[] for _ in hosts]
    for parcel in letters:
        shares[task_of[parcel.to]].append(parcel)
    return shares, hosts


def anywhere(tasks: int) -> list[str]:
    """The hosts of tasks that need no state."""
    return [""] * tasks
