"""After the last crash test no process waits for another life."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.crash.life import CRADLE


@pytest.fixture(scope="package", autouse=True)
def _cradle() -> Iterator[None]:
    yield
    CRADLE.clear()
