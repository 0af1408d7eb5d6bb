"""The events of a query, kept for those who come later and handed to those who wait.

    tell(event)  ->  the last KEPT events, and totals since the first        ->  every listener, each once, in order

Invariant: batches are told in order, each once. A listener that comes later gets all that is kept, then what follows; nobody waits for a slow one: it finds what it has missed
among what is kept.
"""

from __future__ import annotations

import threading
from collections import Counter, deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

KEPT = 300
"""Batches that are kept for listeners who come later."""


@dataclass
class Totals:
    """Sums over all batches that were told: what counters of metrics show."""

    batches: int = 0
    seconds: float = 0.0
    input_rows: int = 0
    results: int = 0
    late: Counter[str] = field(default_factory=Counter)
    set_aside: Counter[str] = field(default_factory=Counter)

    def add(self, event: Mapping[str, Any]) -> None:
        self.batches += 1
        self.seconds += event["seconds"]
        self.input_rows += event["input_rows"]
        self.results += event["results"]
        self.late.update(event["late"])
        self.set_aside.update(event["set_aside"])


class Hub:
    """What is known of one query."""

    def __init__(self, about: Mapping[str, Any]) -> None:
        self.about = dict(about)
        """What does not change: title, query, plan."""
        self.totals = Totals()
        self._events: deque[dict[str, Any]] = deque(maxlen=KEPT)
        self._told, self._status = 0, "running"
        self._news = threading.Condition()

    def tell(self, event: dict[str, Any]) -> None:
        """A batch is over."""
        with self._news:
            self.totals.add(event)
            self._events.append(event | {"late_total": dict(self.totals.late)})
            self._told += 1
            self._news.notify_all()

    def end(self, status: str) -> None:
        """Nothing more comes, and why."""
        with self._news:
            self._status = status
            self._news.notify_all()

    @property
    def status(self) -> str:
        return self._status

    @property
    def latest(self) -> dict[str, Any] | None:
        """The latest batch; None before the first."""
        with self._news:
            return self._events[-1] if self._events else None

    def read(self) -> tuple[dict[str, Any] | None, Totals]:
        """The latest batch, and the totals up to it: those that are here go on to grow meanwhile."""
        with self._news:
            totals = replace(self.totals, late=self.totals.late.copy(), set_aside=self.totals.set_aside.copy())
            return self._events[-1] if self._events else None, totals

    def listen(self, patience_s: float) -> Iterator[dict[str, Any] | None]:
        """Every batch that is kept, then every new one; None when nothing came for so long, and for every status, the first among them, behind the batches that were told before it."""
        heard, status = 0, ""
        while True:
            with self._news:
                if heard == self._told and status == self._status:
                    self._news.wait(patience_s)
                new = list(self._events)[-min(self._told - heard, len(self._events)) :] if self._told > heard else []
                is_same, heard, status = status == self._status, self._told, self._status
            yield from new
            if not (new and is_same):
                yield None
