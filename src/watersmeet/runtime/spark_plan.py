"""Planning over Spark DataFrames: types are those that Spark's analyser finds, in the session's mode."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from watersmeet.errors import OptionError
from watersmeet.plan.build import Options, build
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.place_conditions import Inside
from watersmeet.query.join import Join
from watersmeet.query.session import Session
from watersmeet.runtime.spark_types import SparkTypes
from watersmeet.runtime.spark_versions import check_version
from watersmeet.units.evaluator import knows

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"


def session_of(spark: Any) -> Session:
    """What the Spark session says now."""
    return Session(spark.conf.get(ZONE), (spark.conf.get(ANSI, None) or "true").lower() == "true")


def check_session(join: Join, spark: Any) -> None:
    """A query means what it meant when it was made; if the session has changed since, Spark's part would mean something else."""
    bound, now = join.session, session_of(spark)
    for name, before, after in ((ZONE, bound.timezone, now.timezone), (ANSI, bound.ansi, now.ansi)):
        if before != after:
            raise OptionError(
                f"{name} was {before} when the query was made, and is {after} now: make the query again, or set it back"
            )


def plan(join: Join, frames: Mapping[str, Any], options: Options) -> Plan:
    """Plan a query over DataFrames, by alias."""
    spark = next(iter(frames.values())).sparkSession
    check_version(spark)
    inside: Inside = "portable" if join.session.ansi and knows(join.session.timezone) else "nothing"
    return build(join, SparkTypes(frames), options, inside)
