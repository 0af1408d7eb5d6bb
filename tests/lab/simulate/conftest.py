"""Simulations, too, hold whatever the size of blocks."""

from __future__ import annotations

from tests.properties.conftest import _blocks

__all__ = ["_blocks"]
