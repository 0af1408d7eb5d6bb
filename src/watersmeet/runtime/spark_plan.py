"""Planning with Spark's analyser.

Invariant: every expression that the query will hand to Spark has passed its analyser here, in the driver.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.errors import StreamError
from watersmeet.plan.build import Options, build
from watersmeet.plan.model import Plan
from watersmeet.query.join import Join
from watersmeet.runtime.spark_types import SPARK, SparkTypes, check
from watersmeet.runtime.spark_versions import check_version


def plan(join: Join, frames: Mapping[str, Any], options: Options) -> Plan:
    """Plan a query over DataFrames, by alias."""
    spark = next(iter(frames.values())).sparkSession
    check_version(spark)
    if len({frame.isStreaming for frame in frames.values()}) > 1:
        static = [a for a, f in frames.items() if not f.isStreaming]
        raise StreamError(
            f"{', '.join(static)} is static and the rest streams: Spark cannot union them; read all as streams, or all as static data"
        )
    if len({id(frame.sparkSession) for frame in frames.values()}) > 1:
        raise StreamError("the streams belong to different Spark sessions; read them all with one session")
    for alias, frame in frames.items():
        texts = {str(f): f.spark(lambda ref: SPARK.quote(ref.column)) for f in join.filters_of(alias)}
        check(frame, texts, "condition")
    ansi = spark.conf.get("spark.sql.ansi.enabled", "true").lower() == "true"
    return build(join, SparkTypes(frames), options, "portable" if ansi else "nothing")
