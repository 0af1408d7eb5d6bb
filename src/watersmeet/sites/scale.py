"""What letters take on a line, where nobody writes them.

    large item of a kind    1st  2nd  3rd  4th  5th ... 16th ... 64th ... 128th       weighed: written, as it would travel
                             w    -    -    w    -        w       w         w         the others are taken to shrink as the last one that was weighed

Small items are all weighed, of the largest ones the first rows. What letters say besides their items is written always.

Invariant: a scale changes no letter; the same letters in the same order weigh the same.
"""

from __future__ import annotations

from typing import NamedTuple

from watersmeet.sites.letter import CHECKSUM_BYTES, Item, Letter, write_item

SMALL_BYTES, LARGE_BYTES = 2048, 2**14
"""Smaller items are all weighed; of larger ones the first rows."""
_LEAST_ROWS = 64
RARELY = 64
"""One item of a kind in so many is weighed at least."""
_SOON = (1, 4, 16)


class Weight(NamedTuple):
    """Of a letter, in bytes."""

    kinds: dict[str, int]
    total: int


class Scale:
    """Weighs the letters of one site to another."""

    def __init__(self, *, exact: bool = False) -> None:
        self.exact = exact
        """Whether every item is weighed."""
        self._seen: dict[str, int] = {}
        self._shrinks: dict[str, float] = {}
        """By kind what is left of a byte of the last item that was weighed."""

    def weigh(self, letter: Letter) -> Weight:
        sizes = [self._weigh(item) for item in letter.items]
        kinds: dict[str, int] = {}
        for item, size in zip(letter.items, sizes, strict=True):
            kinds[item.kind] = kinds.get(item.kind, 0) + size
        return Weight(kinds, len(letter.write_head(sizes)) + sum(sizes) + CHECKSUM_BYTES)

    def _weigh(self, item: Item) -> int:
        raw = 0 if self.exact else item.table.nbytes
        if raw <= SMALL_BYTES:
            return len(item.body)
        seen = self._seen[item.kind] = self._seen.get(item.kind, 0) + 1
        if seen not in _SOON and seen % RARELY:
            return round(raw * self._shrinks[item.kind])
        some = item.table.slice(0, max(_LEAST_ROWS, item.rows * LARGE_BYTES // raw))
        self._shrinks[item.kind] = len(write_item(some)) / max(some.nbytes, 1)
        return round(raw * self._shrinks[item.kind])
