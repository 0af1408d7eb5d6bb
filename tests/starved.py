"""Runs that a busy machine does not let start are run again.

Spark gives a Python process of transformWithState ten seconds to start, and offers no setting. On a machine that is busy with other things that
may not be enough: the query fails before it has read anything of the batch, and a restart goes on from the checkpoint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

T = TypeVar("T")

SAID = "failed to connect back"
"""What Spark says then."""
TRIES = 5


def until_ended(start: Callable[[], Any]) -> list[Any]:
    """Start a streaming query that ends by itself, again if the machine was too busy; the queries that ran."""
    ran = []
    for left in reversed(range(TRIES)):
        ran.append(start())
        try:
            ran[-1].awaitTermination()
            break
        except Exception as error:
            if not left or SAID not in str(error):
                raise
    return ran


def until_started(start: Callable[[], T]) -> T:
    """What starts, on Spark Connect with a Python worker of its own, again if the machine was too busy."""
    for left in reversed(range(TRIES)):
        try:
            return start()
        except Exception as error:
            if not left or SAID not in str(error):
                raise
    raise AssertionError("it has returned or raised")
