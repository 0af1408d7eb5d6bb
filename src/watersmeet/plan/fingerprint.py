"""The fingerprint of a plan, and its parts, so that two fingerprints that differ can say where.

Invariant: parts differ if and only if the descriptions that they are of differ.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

_INPUTS = ("streams and aliases", "streams and aliases", "columns and their types", "filters", "[ROWS n]")
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
            for place, name in enumerate(_INPUTS):
                found.setdefault(name, []).append([i[place] for i in value])
        else:
            found.setdefault(_NAMES.get(key, key), []).append([key, value])
    return {name: _digest(values, 8) for name, values in found.items()}


def find_differences(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    """The names of parts that are not the same.

    >>> find_differences({"windows": "a", "keys": "b"}, {"windows": "c", "keys": "b", "filters": "d"})
    ['filters', 'windows']
    """
    return sorted(name for name in {*before, *now} if before.get(name) != now.get(name))


def _digest(what: Any, length: int) -> str:
    return hashlib.sha256(json.dumps(what, sort_keys=True).encode()).hexdigest()[:length]
