"""Small blocks, so that small data walk the paths on which large data are cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from watersmeet.units import blocks


@contextmanager
def blocks_of(most: int | None) -> Iterator[None]:
    """While it lasts, blocks hold at most so many bytes; None leaves them as they are."""
    before = blocks.BLOCK_BYTES
    blocks.BLOCK_BYTES = before if most is None else most
    try:
        yield
    finally:
        blocks.BLOCK_BYTES = before
