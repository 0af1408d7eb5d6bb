"""The feed: a stream of rows (id, action, sql) that adds and removes queries, as a streaming query of its own.

    id   | action | sql
    alice| add    | SELECT ...
    bob  | remove |

Spark repeats a batch of the feed that it has not committed; the registry remembers the last one it took in, in the same
file as the changes, and a repetition changes nothing. What is wrong with a row is the row's own: it is refused with the reason.

Invariant: every row is taken in exactly once, in the order in which Spark reads them.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.errors import StreamError
from watersmeet.runtime.failures import raise_surfaced, surfaced
from watersmeet.runtime.subscriptions.registry import Registry

COLUMNS = ("id", "action", "sql")


class Feed:
    """A feed and the query that runs it."""

    def __init__(self, frame: DataFrame, registry: Registry, checkpoint: str) -> None:
        missing = [c for c in COLUMNS if c not in getattr(frame, "columns", ())]
        if missing:
            raise StreamError(f"feed=: no column {missing[0]!r}; a feed has the text columns id, action and sql")
        if not frame.isStreaming:
            raise StreamError("feed=: give a streaming DataFrame; add_all() takes queries that are at hand")
        self.frame = frame.select(*(F.col(c).cast("string").alias(c) for c in COLUMNS))
        self.registry, self.checkpoint = registry, f"{checkpoint.rstrip('/')}/feed"
        self._query: Any = None
        self._raised: BaseException | None = None

    def start(self, trigger: dict[str, Any]) -> None:
        """Start; with 'availableNow' all that is there has been taken in when this returns."""
        if self._query is not None and self._query.isActive:
            return
        writer = self.frame.writeStream.foreachBatch(self._take_in).option("checkpointLocation", self.checkpoint)
        self._query = writer.trigger(**trigger).start()
        if trigger.get("availableNow"):
            try:
                self._query.awaitTermination()
            except Exception as error:
                raise_surfaced(error, self._raised)

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def failure(self) -> BaseException | None:
        """What has ended the feed, if something has."""
        error = None if self._query is None else self._query.exception()
        return None if error is None else surfaced(error, self._raised)

    def _take_in(self, rows: DataFrame, batch: int) -> None:
        try:
            self.registry.take_in([tuple(row) for row in rows.collect()], batch)
        except BaseException as error:
            self._raised = error
            raise
