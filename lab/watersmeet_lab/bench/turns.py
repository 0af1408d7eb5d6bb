"""Timing in turns: every system runs for a while, then the next, and again, so that a busy machine troubles all alike."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any


def turn(run: Callable[[], Any], least_s: float, seconds: list[float], cpu_seconds: list[float]) -> None:
    """Run as often as fits into `least_s`, at least once; wall and CPU seconds of every run are added."""
    end = time.perf_counter() + least_s
    while True:
        wall, cpu = time.perf_counter(), time.process_time()
        run()
        cpu_seconds.append(time.process_time() - cpu)
        seconds.append(time.perf_counter() - wall)
        if time.perf_counter() >= end:
            return
