"""Hot keys: which they are, by fading counts of the most frequent ones.

A key is hot when one unit of its subgroup receives more than HOT times its fair share of tuples with it. Tuples of a hot key
are spread over the whole side, and probe the whole other side (`routing.biclique`).

Invariant: a pure function of what was counted. Beyond Lin, Ooi, Wang, Yu (2015), who know subgroups only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from watersmeet.routing.biclique import Biclique

HOT = 0.2
FADE = 0.5
"""What is left of a key's count after a batch."""
SEEN_AT_LEAST = 1000
"""Rows of a side that must have been seen before a key is called hot."""
MOST_HOT = 1000
MOST_COUNTED = 64
MOST_FREQUENT = 32
"""So many keys a source task tells of; rarer than one row in 200 it tells of none."""


def find_frequent(codes: np.ndarray) -> list[tuple[int, int]]:
    """The most frequent codes and how often they come.

    >>> find_frequent(np.array([7] * 50 + list(range(100, 150))))
    [(7, 50)]
    """
    found, counts = np.unique(codes, return_counts=True)
    most = np.argsort(-counts, kind="stable")[:MOST_FREQUENT]
    often = most[counts[most] * 200 > len(codes)]
    often = often[counts[often] > 1]
    return list(zip(found[often].tolist(), counts[often].tolist(), strict=True))


def count_keys(before: Mapping[str, float], keys: Iterable[tuple[int, int]]) -> dict[str, float]:
    """The counts of the most frequent keys, after a batch with (key, rows).

    >>> count_keys({"7": 10.0, "8": 1.0}, [(7, 3), (9, 4)])
    {'7': 8.0, '9': 4.0}
    """
    faded = {key: number * FADE for key, number in before.items()}
    for code, number in keys:
        faded[str(code)] = faded.get(str(code), 0.0) + number
    most = sorted(faded.items(), key=lambda item: (-item[1], item[0]))[:MOST_COUNTED]
    return {key: round(number, 1) for key, number in most if number >= 1}


def find_hot(
    routing: Biclique, keys: Sequence[Mapping[str, float]], rows: Sequence[float], share: float = HOT
) -> set[int]:
    """Keys of which one unit receives more than this share of what is fair, by side their counts and those of all rows."""
    found: set[int] = set()
    for side in (0, 1):
        units, smallest = len(routing.members[side]), min(len(group) for group in routing.sides[side])
        if rows[side] >= SEEN_AT_LEAST and smallest < units:
            fair = 1 / units
            found |= {int(code) for code, n in keys[side].items() if n / rows[side] / smallest > share * fair}
    return found
