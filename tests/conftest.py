"""Hypothesis profiles, and one Spark session for the whole Spark tier.

HYPOTHESIS_PROFILE=thorough draws many more cases; the default keeps the tier without a JVM under a minute.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

QUIET = [HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much]
settings.register_profile("default", max_examples=30, deadline=None, suppress_health_check=QUIET)
settings.register_profile("quick", max_examples=10, deadline=None, suppress_health_check=QUIET)
settings.register_profile("thorough", max_examples=2000, deadline=None, suppress_health_check=QUIET)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "default"))

FAST_START = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
"""Queries of a few rows end before a JVM that compiles for long runs has compiled them."""


@pytest.fixture(scope="session")
def spark() -> Iterator[Any]:
    """Workers run this interpreter; the state store provider is left to watersmeet."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    session = (
        SparkSession.builder.master("local[2]")
        .appName("watersmeet tests")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.session.timeZone", "UTC")
        .config("spark.ui.enabled", "false")
        .config("spark.driver.extraJavaOptions", FAST_START)
        .getOrCreate()
    )
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()
