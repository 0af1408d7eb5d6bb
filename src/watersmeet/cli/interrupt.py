"""Ctrl-C as a request to stop, not as an exception in the middle of a batch.

PySpark's own handler cancels the running jobs, which would make the query fail; here the first Ctrl-C sets an event and
the second one is Python's again.
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def stop_requests() -> Iterator[threading.Event]:
    """While it lasts, SIGINT and SIGTERM set the event."""
    asked = threading.Event()

    def ask(number: int, _: Any) -> None:
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    if threading.current_thread() is not threading.main_thread():
        yield asked
        return
    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield asked
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
