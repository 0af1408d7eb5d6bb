"""How many units answer a registry's queries in a batch, and where they sit on the circle of keys: what the batch's intent says of it.

    batch       4          5              6          7
    units       2          4, was 2       4          4         in batch 5 every unit takes over what is its own now, from what units have stored

Under the shared plan units divide queries, and only their number counts. Under RJoin they divide keys, too: the node of a key is the first at or after it on the circle.

                 a node joins at +, in the middle of what another has: that one keeps the second half
    0 ----1------+---2------------3---|            the last node leaves: what it had is its successor's
                                                    a node with little to do moves next to one with much

Invariant: a placement that begins in a batch names the one under which rows are stored, so a batch that is repeated takes over alike. Nodes sit at different places. The last
number is the one that leaves, so numbers have no gaps.
Implements: Karger, Ruhl (2004), item balancing, as Idreos, Liarou, Koubarakis (2008) use it in section 8, figure 9.
Departs from the paper: nodes do not meet by chance; between batches the one with the least looks at the one with the most.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

CIRCLE = 2**64
EPSILON = 0.25
"""A node moves if it has less than this share of the other's load."""
Places = tuple[int, ...]
"""Where nodes sit on the circle, by number."""
Load = tuple[float, int]
"""How much a node has, and the key up to which it is half of that."""


@lru_cache(64)
def even_places(units: int) -> Places:
    """Nodes at equal distances: a handful at places of chance would share the keys unequally.

    >>> [place >> 60 for place in even_places(4)]
    [2, 6, 10, 14]
    """
    return tuple(((2 * n + 1) << 63) // units for n in range(units))


@dataclass(frozen=True)
class Placement:
    """The units of a batch."""

    places: Places
    before: Places = ()
    """Those under which rows are stored, in the first batch under others."""
    weighs: bool = False
    """Whether units tell what they have in memory, and nodes of a ring how they would divide it."""

    @property
    def units(self) -> int:
        return len(self.places)

    @property
    def stored(self) -> Places:
        """The places under which rows are stored when the batch begins."""
        return self.before or self.places

    @property
    def awake(self) -> int:
        """How many units take a turn: those that give, too."""
        return max(len(self.places), len(self.before))

    def settle(self) -> Placement:
        """The same after its first batch."""
        return replace(self, before=())

    def then(self, places: Places) -> Placement:
        """Other places from the next batch on."""
        return replace(self, places=places, before=() if places == self.stored else self.stored)

    def resize(self, units: int, loads: Mapping[int, Load] | None = None) -> Placement:
        """As many units: each that comes takes half of what the fullest has, and the last ones go.

        >>> two = Placement(even_places(2))
        >>> two.resize(4).units, two.resize(4).before == two.places, two.resize(4).resize(2) == two
        (4, True, True)
        >>> [place >> 60 for place in two.resize(4).places]
        [4, 12, 0, 8]
        """
        return self.then(resize_places(self.stored, units, loads or {}))


def resize_places(places: Places, units: int, loads: Mapping[int, Load]) -> Places:
    """Places of so many nodes; without loads the widest arc counts as the fullest."""
    held = {n: loads.get(n, (0.0, 0)) for n in range(len(places))}
    out = list(places[:units])
    while len(out) < units:
        widths = {n: (place - _before(out, place)) % CIRCLE or CIRCLE for n, place in enumerate(out)}
        fullest = max(widths, key=lambda n: (held.get(n, (0.0, 0))[0], widths[n], -n))
        load, half = held.get(fullest, (0.0, 0))
        low = _before(out, out[fullest])
        if not load or half in out or not _lies_between(low, half, out[fullest]):
            half = (low + widths[fullest] // 2) % CIRCLE
        held[fullest], held[len(out)] = (load / 2, 0), (load / 2, 0)
        out.append(half)
    return tuple(out)


def move_node(places: Places, loads: Mapping[int, Load]) -> Places:
    """The node with the least takes half of what the one with the most has, unless somebody would end up with more than that one has now.

    >>> places = even_places(3)
    >>> moved = move_node(places, {0: (100.0, 5), 1: (1.0, 0), 2: (50.0, 0)})
    >>> moved == (places[0], 5, places[2])
    True
    >>> move_node(places, {0: (100.0, 5), 1: (1.0, 0), 2: (99.5, 0)}) == places  # node 2 would inherit more than node 0 has
    True
    """
    if len(places) < 2:
        return places
    load = {n: loads.get(n, (0.0, 0))[0] for n in range(len(places))}
    light, heavy = min(load, key=lambda n: (load[n], n)), max(load, key=lambda n: (load[n], -n))
    half = loads.get(heavy, (0.0, 0))[1]
    heir = places.index(_at_or_after([p for p in places if p != places[light]], places[light]))
    inherited = load[light] + (load[heir] / 2 if heir == heavy else load[heir])
    fits = half not in places and _lies_between(_before(places, places[heavy]), half, places[heavy])
    if not fits or load[light] >= EPSILON * load[heavy] or inherited >= load[heavy]:
        return places
    return (*places[:light], half, *places[light + 1 :])


def find_givers(before: Places, now: Places, unit: int) -> list[int]:
    """The nodes of an earlier ring that had a part of what a node has now; nobody for one that is no longer there.

    >>> find_givers((100, 200), (100, 200, 150), 2), find_givers((100, 200, 150), (100, 200), 1), find_givers((100,), (100, 50), 0)
    ([1], [1, 2], [0])
    >>> find_givers((100, 200), (100, 200), 2)
    []
    """
    if unit >= len(now):
        return []
    high, low = now[unit], _before(now, now[unit])
    found = {n for n, place in enumerate(before) if _lies_between(low, place, high) or len(now) == 1}
    return sorted(found | {before.index(_at_or_after(before, high))})


def find_arc(places: Sequence[int], unit: int) -> tuple[int, int]:
    """(predecessor, own place]: the keys of a node."""
    return _before(places, places[unit]), places[unit]


def read_placement(raw: Iterable[Mapping[str, Any]], planned: int) -> Placement:
    """The placement of a batch, from its routing as JSON; as planned if it says nothing."""
    for entry in raw:
        places = tuple(entry.get("places", ())) or even_places(entry["units"])
        before = tuple(entry.get("places_were", ())) or even_places(entry["was"]) if "was" in entry else ()
        return Placement(places, before, entry.get("weighs", False))
    return Placement(even_places(planned))


def write_placement(placement: Placement, planned: int) -> list[dict[str, Any]]:
    """A placement as a batch's routing; nothing if it is as planned.

    >>> two = Placement(even_places(2))
    >>> write_placement(two, 2), write_placement(two.resize(1), 2)
    ([], [{'stage': 0, 'units': 1, 'places': [4611686018427387904], 'was': 2}])
    >>> read_placement(write_placement(two.resize(3), 2), 2) == two.resize(3)
    True
    """
    if placement == Placement(even_places(planned)):
        return []
    entry: dict[str, Any] = {"stage": 0, "units": placement.units}
    if placement.places != even_places(placement.units):
        entry["places"] = list(placement.places)
    if placement.before:
        entry["was"] = len(placement.before)
        if placement.before != even_places(len(placement.before)):
            entry["places_were"] = list(placement.before)
    return [{**entry, "weighs": True} if placement.weighs else entry]


def _before(places: Iterable[int], place: int) -> int:
    """The place of a node's predecessor; its own if it is alone."""
    return min(places, key=lambda other: (place - other - 1) % CIRCLE)


def _at_or_after(places: Iterable[int], place: int) -> int:
    return min(places, key=lambda other: (other - place) % CIRCLE)


def _lies_between(low: int, place: int, high: int) -> bool:
    """Whether a place lies after one and not after another, clockwise."""
    return 0 < (place - low) % CIRCLE <= ((high - low) % CIRCLE or CIRCLE)
