"""The systems under test: the same streaming inputs, the same result, each at its best setting.

    watersmeet      `wm.sql(...).dataframe()` over the streams, with as many units as cores
    rounds          the same query by `start()`, on the rounds runtime
    connect         the same by a client of Spark Connect, whose server is on this machine; only if it is named
    spark-rocksdb   Spark's stream-stream join, RocksDB state, changelog checkpointing, newest join state format (4:
                    measured faster than 2 and 3), without the count of state rows, which costs a read per write
    spark-default   Spark's stream-stream join, the default state store (a map in memory, deltas to the checkpoint)

All run with the same cores, partitions and memory. Spark's own joins get a watermark of zero delay on every stream, so
that their state is cleaned as early as ours.

Spark's 3-way join: a join result may carry only one event-time column into the next join
(MULTIPLE_EVENT_TIME_COLUMNS). Here b's time goes on as a plain number next to a's, which stays the event time; c meets a
by a time condition that Spark uses to clean state, and b by arithmetic.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Literal, get_args

from watersmeet_lab.bench.answer import Question
from watersmeet_lab.bench.data import ALIASES, START_US

System = Literal["watersmeet", "rounds", "spark-rocksdb", "spark-default", "connect"]
SYSTEMS: tuple[System, ...] = get_args(System)
COMPARED = SYSTEMS[:4]
"""Those that run if none is named."""

ROCKSDB = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
IN_MEMORY = "org.apache.spark.sql.execution.streaming.state.HDFSBackedStateStoreProvider"
_STORE = "spark.sql.streaming.stateStore"

CONF: Mapping[System, Mapping[str, str]] = {
    "watersmeet": {
        f"{_STORE}.providerClass": ROCKSDB,
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
    },
    "rounds": {},
    "connect": {},
    "spark-rocksdb": {
        f"{_STORE}.providerClass": ROCKSDB,
        f"{_STORE}.rocksdb.changelogCheckpointing.enabled": "true",
        f"{_STORE}.rocksdb.trackTotalNumberOfRows": "false",
        "spark.sql.streaming.join.stateFormatVersion": "4",
    },
    "spark-default": {
        f"{_STORE}.providerClass": IN_MEMORY,
        "spark.sql.streaming.join.stateFormatVersion": "2",
    },
}


def results(system: System, spark: Any, streams: Mapping[str, Any], question: Question, units: int) -> Any:
    """The streaming DataFrame of all results: key, and the time and payload of every side that is selected."""
    if system == "watersmeet":
        return query(streams, question, units).dataframe()
    assert question.condition == "equal", "Spark refuses a stream-stream join without an equality"
    assert question.kind != "anti", "Spark refuses a stream-stream anti join"
    for alias, frame in streams.items():
        frame.withWatermark("ts", "0 seconds").createOrReplaceTempView(alias)
    kind, window_us = question.kind.upper(), question.window_us
    window = f"INTERVAL {window_us} MICROSECONDS"
    return spark.sql(_SPARK[len(streams)].format(kind=kind, window=window, window_us=window_us))


def query(streams: Mapping[str, Any], question: Question, units: int) -> Any:
    """The query, bound to the streams."""
    import watersmeet as wm

    named = {alias: wm.Stream(frame, time="ts") for alias, frame in streams.items()}
    return wm.sql(text(list(streams), question), units=units, **named)


def text(aliases: Sequence[str], question: Question) -> str:
    """The query in watersmeet's SQL.

    >>> " ".join(text("ab", Question(2, 5, "band", "anti")).split())
    'SELECT a.key AS key, a.ts AS a_ts, a.payload AS a_payload FROM a a ANTI JOIN b b ON abs(a.key - b.key) <= 1 WINDOW = 5 MICROSECONDS'
    """
    related = {"equal": "a.key = {}.key", "band": "abs(a.key - {}.key) <= 1"}[question.condition]
    joins = (f"{question.kind.upper()} JOIN {x} {x} ON {related.format(x)}" for x in aliases[1:])
    selected = aliases[:1] if question.kind == "anti" else aliases
    return f"""
        SELECT a.key AS key, {", ".join(f"{x}.ts AS {x}_ts, {x}.payload AS {x}_payload" for x in selected)}
        FROM a a {" ".join(joins)}
        WINDOW = {question.window_us} MICROSECONDS
    """


def checksum(question: Question) -> str:
    """The SQL expression whose sum over the results `answer.Answer` holds; of left joins NULL counts as nothing."""
    times = ALIASES[: 1 if question.kind == "anti" else question.ways]
    return " + ".join(["key", *(f"coalesce(unix_micros({alias}_ts) - {START_US}, 0)" for alias in times)])


def count_sql(question: Question) -> str:
    """The SQL condition for results that count."""
    return "true" if question.until_us is None else f"unix_micros(a_ts) < {START_US + question.until_us}"


_SPARK = {
    2: """
        SELECT a.key, a.ts AS a_ts, a.payload AS a_payload, b.ts AS b_ts, b.payload AS b_payload
        FROM a {kind} JOIN b ON a.key = b.key AND b.ts BETWEEN a.ts - {window} AND a.ts + {window}
    """,
    3: """
        SELECT ab.key, a_ts, a_payload, timestamp_micros(b_us) AS b_ts, b_payload, c.ts AS c_ts, c.payload AS c_payload
        FROM (
            SELECT a.key, a.ts AS a_ts, a.payload AS a_payload, unix_micros(b.ts) AS b_us, b.payload AS b_payload
            FROM a JOIN b ON a.key = b.key AND b.ts BETWEEN a.ts - {window} AND a.ts + {window}
        ) ab
        JOIN c ON ab.key = c.key AND c.ts BETWEEN a_ts - {window} AND a_ts + {window}
            AND abs(unix_micros(c.ts) - b_us) <= {window_us}
    """,
}
