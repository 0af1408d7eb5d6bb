"""Keeping Spark's Python workers light between tasks.

After every task Spark's worker collects garbage over its whole heap before it takes the next one. With our libraries
loaded that is tens of milliseconds, paid in every job of every micro-batch, and 30 more if it holds 20,000 registered
queries. What a worker holds after its first tasks is modules and compiled code, which live as long as it does:
they are frozen, so that the collector passes them by. Later on a heap that has grown is frozen again.

Invariant: nothing that a task makes for itself is frozen, and no garbage; and nothing is when the process ends: a library that counts
at its end what is left of it (DuckDB does) would find all of it.
"""

from __future__ import annotations

import atexit
import gc

import pyarrow as pa

FREEZES = 3
"""Libraries load lazily: the heap is settled after a worker's first tasks, not after the very first."""
MOST_OBJECTS = 50_000
"""So many objects more than are frozen have come to stay: a collection over them costs several milliseconds."""
_done = 0


def after_task() -> None:
    """Call when a task has let go of its data: give memory back, and freeze what stays."""
    global _done
    pa.default_memory_pool().release_unused()
    if _done < FREEZES or len(gc.get_objects()) > MOST_OBJECTS:
        if _done == 0:
            atexit.register(gc.unfreeze)
        _done += 1
        gc.collect()
        gc.freeze()
