"""The feed: a stream of rows (id, action, sql) that adds and removes queries, as a streaming query of its own.

    id   | action | sql
    alice| add    | SELECT ...
    bob  | remove |

Spark repeats a batch of the feed that it has not committed; the registry remembers the last one it took in, in the same
file as the changes, and a repetition changes nothing. What is wrong with a row is the row's own: it is refused with the reason.

Invariant: every row is taken in exactly once, in the order in which Spark reads them. A feed whose own checkpoint is not the one that
the registry has been fed from is refused: its batches would be numbered anew, and taken for repetitions.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.errors import StreamError
from watersmeet.runtime.spark.failures import raise_unwrapped, unwrap
from watersmeet.runtime.subscriptions.log import FEED, Fed, FolderLog
from watersmeet.runtime.subscriptions.registry import Registry

COLUMNS = ("id", "action", "sql")


class Feed:
    """A feed and the query that runs it."""

    def __init__(self, frame: DataFrame, registry: Registry, log: FolderLog, checkpoint: str) -> None:
        missing = [c for c in COLUMNS if c not in getattr(frame, "columns", ())]
        if missing:
            raise StreamError(f"feed=: no column {missing[0]!r}; a feed has the text columns id, action and sql")
        if not frame.isStreaming:
            raise StreamError("feed=: give a streaming DataFrame; add_all() takes queries that are at hand")
        self.frame = frame.select(*(F.col(c).cast("string").alias(c) for c in COLUMNS))
        self.checkpoint = f"{checkpoint.rstrip('/')}/{FEED}"
        self._query: Any = None
        self._take_in = TakeIn(registry, log)

    def start(self, trigger: dict[str, Any]) -> None:
        """Start; with 'availableNow' all that is there has been taken in when this returns."""
        if self._query is not None and self._query.isActive:
            return
        self._take_in.log.check_feed()
        writer = self.frame.writeStream.foreachBatch(self._take_in).option("checkpointLocation", self.checkpoint)
        self._query = writer.trigger(**trigger).start()
        if trigger.get("availableNow"):
            try:
                self._query.awaitTermination()
            except Exception as error:
                raise_unwrapped(error, self._take_in.raised)

    def stop(self) -> None:
        if self._query is not None:
            self._query.stop()

    def failure(self) -> BaseException | None:
        """What has ended the feed, if something has."""
        error = None if self._query is None else self._query.exception()
        return None if error is None else unwrap(error, self._take_in.raised)


@dataclass
class TakeIn:
    """The function that Spark calls with every batch of the feed; on Spark Connect a copy of it does the work."""

    registry: Registry
    log: FolderLog
    raised: BaseException | None = None

    def __call__(self, rows: DataFrame, batch: int) -> None:
        try:
            self.registry.take_in([tuple(row) for row in rows.collect()], batch)
            logs = self.log.feed_logs
            self.log.note_fed(Fed(str(logs.query_id()), batch, logs.digests(batch)))
        except BaseException as error:
            self.raised = error
            raise
