"""What a process keeps of registries from one batch to the next: compiled queries, states. Lost without harm.

Invariant: a thing is made once for each registry and key, and forgotten with its registry.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import Any, TypeVar

T = TypeVar("T")

_HELD: dict[str, dict[Hashable, Any]] = {}
_LOCK = threading.RLock()


def get_or_make(registry: str, key: Hashable, make: Callable[[], T]) -> T:
    """A registry's thing under a key; made now if there is none.

    >>> get_or_make("r", "list", list) is get_or_make("r", "list", list)
    True
    >>> forget("r")
    """
    with _LOCK:
        mine = _HELD.setdefault(registry, {})
        if key not in mine:
            mine[key] = make()
        return mine[key]  # type: ignore[no-any-return]


def forget(registry: str) -> None:
    """Let go of all that is kept of a registry."""
    with _LOCK:
        _HELD.pop(registry, None)
