"""The fingerprint of a plan, and its parts, so that two fingerprints that differ can say where.

Invariant: parts differ if and only if the descriptions that they are of differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from typing import Any

from watersmeet.routing.biclique import Biclique
from watersmeet.routing.hypercube import Hypercube
from watersmeet.routing.sites import BySite

INPUTS = ("streams and aliases", "streams and aliases", "columns and their types", "filters", "[ROWS n]")
"""What the places of an input's description are, see `Plan.description`."""
_NAMES = {
    "alternatives": "windows",
    "classes": "keys",
    "finish": "DISTINCT or GROUP BY",
    "lateness": "lateness= or idle=",
    "max_ahead": "max_ahead=",
    "routing": "units= or routing=",
    "timezone": "the session's time zone",
    "ansi": "spark.sql.ansi.enabled",
    "subscriptions": "streams, their columns, types, lateness= or idle=",
    "units": "units=",
    "engine": "engine=",
}
"""What users call the keys of a description, where that is not the key itself."""


def fingerprint(description: Mapping[str, Any]) -> str:
    """Changes when, and only when, state stored under one plan is of no use to another."""
    return _digest(description, 16)


def parts_of(description: Mapping[str, Any]) -> dict[str, str]:
    """A digest for every part of a description, by the name under which users know it.

    >>> sorted(parts_of({"windows": [[0, 5]], "routing": ["grid", [8]]}))
    ['units= or routing=', 'windows']
    """
    found: dict[str, list[Any]] = {}
    for key, value in description.items():
        if key == "inputs":
            for place, name in enumerate(INPUTS):
                found.setdefault(name, []).append([i[place] for i in value])
        else:
            found.setdefault(name_part(key), []).append([key, value])
    return {name: _digest(values, 8) for name, values in found.items()}


def name_part(key: str) -> str:
    """What users call a key of a description."""
    return _NAMES.get(key, key)


def find_differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of parts that are not the same.

    >>> find_differences({"windows": "a", "keys": "b"}, {"windows": "c", "keys": "b", "filters": "d"})
    ['filters', 'windows']
    """
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def describe_placement(stages: Sequence[Any]) -> list[Any]:
    """What routing places, as JSON."""
    if len(stages) == 1 and isinstance(stages[0].routing, Hypercube):
        grid = stages[0].routing
        return [grid.kind, list(grid.shares), [list(d) for d in grid.dimensions]]
    return [[[s.name for s in stage.sides], _describe(stage.routing)] for stage in stages]


def _describe(routing: Hypercube | Biclique | BySite) -> Any:
    if isinstance(routing, Biclique):
        return routing.to_json()
    if isinstance(routing, BySite):
        return [routing.kind, list(routing.names), list(routing.unit_of)]
    return [routing.kind, list(routing.shares), [list(d) for d in routing.dimensions]]


def _digest(what: Any, length: int) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:length]
