"""Where answers go: one sink for all queries, or one for each.

    all      any sink of `rounds.sinks`: rows (query, ts, answer)
    each     a folder: a sub-folder query=<id> for every query; or a function (id, rows, batch_id), rows in the query's own types

Invariant: as in `rounds.sinks`: `write` runs the frame exactly once.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from watersmeet.errors import OptionError
from watersmeet.plan.catalogue import ANSWER, QUERY
from watersmeet.plan.subscription import Subscription
from watersmeet.runtime.rounds.sinks import FileSink, Sink, folder_of, sink

Find = Callable[[str], Subscription]


def ddl_of(query: Subscription) -> str:
    """The columns of a query's answers, as Spark writes a schema."""
    return ", ".join(f"`{o.name.replace('`', '``')}` {o.type}" for o in query.outputs)


def typed(rows: DataFrame, query: Subscription) -> DataFrame:
    """Answers of one query in its own types."""
    return rows.select(F.from_json(ANSWER, ddl_of(query)).alias("a")).select("a.*")


def answer_sink(given: Any, per_query: bool, find: Find) -> Sink:
    """The sink that a user means; `find` knows the queries."""
    if not per_query:
        return sink(given)
    if callable(given):
        return EachSink(given, find)
    if isinstance(given, (str, os.PathLike)) and os.fspath(given) and given not in ("console", "memory", "noop"):
        return FileSink(folder_of(os.fspath(given)), by=[QUERY])
    raise OptionError(f"sink={given!r} with per_query=True: give a folder, or a function (id, rows, batch_id)")


class EachSink:
    """A user's function, called for every query that has answers in a batch; rows are computed, and kept until it returns."""

    def __init__(self, function: Callable[[str, DataFrame, int], Any], find: Find) -> None:
        self.function, self.find = function, find

    def has(self, batch_id: int, spark: Any) -> bool:
        return False

    def write(self, rows: DataFrame, batch_id: int) -> None:
        held = rows.localCheckpoint(eager=True)
        try:
            for id in sorted(row[0] for row in held.select(QUERY).distinct().collect()):
                self.function(id, typed(held.where(F.col(QUERY) == id), self.find(id)), batch_id)
        finally:
            held._jdf.logicalPlan().rdd().unpersist(True)
