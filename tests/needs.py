"""What a test needs of the machine: where that is missing the test is skipped, unless a command of the Makefile is for just these tests. Then it fails."""

from __future__ import annotations

import os

import pytest

ARE_REQUIRED = os.environ.get("NEEDS") == "required"


def require(missing: str | None) -> None:
    """Go on if nothing is missing."""
    if missing is not None:
        pytest.fail(missing) if ARE_REQUIRED else pytest.skip(missing)
