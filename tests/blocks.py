"""Small blocks, so that small data walk the paths on which large data are cut."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from watersmeet.columns import arrow


@contextmanager
def blocks_of(most: int | None) -> Iterator[None]:
    """While it lasts, blocks hold at most so many bytes; None leaves them as they are."""
    before = arrow.BLOCK_BYTES
    arrow.BLOCK_BYTES = before if most is None else most
    try:
        yield
    finally:
        arrow.BLOCK_BYTES = before
