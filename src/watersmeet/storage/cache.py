"""The cache of a process: segments with what has been derived from them, up to a number of bytes.

Invariant: what is dropped is made again, so nothing depends on what is here.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from watersmeet.storage.segment import Segment

CACHE_BYTES = 256 * 2**20


class SegmentCache:
    """Segments that this process has seen lately, up to a number of bytes. What is derived from a segment is counted when it is next asked for."""

    def __init__(self, limit: int = CACHE_BYTES) -> None:
        self.limit = limit
        self._segments: OrderedDict[str, Segment] = OrderedDict()
        self._sizes: dict[str, int] = {}
        self._total = 0
        self._lock = threading.Lock()

    def get(self, id: str) -> Segment | None:
        with self._lock:
            segment = self._segments.get(id)
            if segment is not None:
                self._segments.move_to_end(id)
                self._weigh(segment)
            return segment

    def put(self, segment: Segment) -> None:
        with self._lock:
            self._segments[segment.id] = segment
            self._weigh(segment)
            while self._total > self.limit and len(self._segments) > 1:
                oldest, _ = self._segments.popitem(last=False)
                self._total -= self._sizes.pop(oldest)

    def drop(self, id: str) -> None:
        with self._lock:
            if self._segments.pop(id, None) is not None:
                self._total -= self._sizes.pop(id)

    def _weigh(self, segment: Segment) -> None:
        """All of them are too many to be weighed whenever one comes."""
        now = segment.nbytes
        self._total += now - self._sizes.get(segment.id, 0)
        self._sizes[segment.id] = now


CACHE = SegmentCache()
