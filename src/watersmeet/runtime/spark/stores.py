"""What Spark knows of object stores, lent to this process and to Spark's Python workers: pyarrow and other clients read the environment.

Invariant: what the environment says already stays.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any

from watersmeet.runtime.spark.versions import is_connect

_S3A = {
    "access.key": "AWS_ACCESS_KEY_ID",
    "secret.key": "AWS_SECRET_ACCESS_KEY",
    "session.token": "AWS_SESSION_TOKEN",
    "endpoint": "AWS_ENDPOINT_URL",
    "endpoint.region": "AWS_REGION",
}


def lend_settings(spark: Any, addresses: Iterable[str]) -> None:
    """Let this process and Spark's Python workers reach S3 as Spark does, if one of some addresses is there. What the environment says already stays."""
    buckets = [a.partition("://")[2].partition("/")[0] for a in addresses if a.startswith(("s3a:", "s3:", "s3n:"))]
    if not buckets:
        return
    found = _settings_of(spark, buckets[0])
    for name, value in found.items():
        os.environ.setdefault(name, value)
    if not is_connect(spark):
        known = {name: os.environ[name] for name in _S3A.values() if name in os.environ}
        spark.sparkContext.environment.update(known)


def _settings_of(spark: Any, bucket: str) -> dict[str, str]:
    """What Spark's Hadoop knows of a bucket, by variables of the environment."""
    read = _reader_of(spark)
    found: dict[str, str] = {}
    for name, variable in _S3A.items():
        value = read(f"fs.s3a.bucket.{bucket}.{name}") or read(f"fs.s3a.{name}")
        if value:
            found[variable] = value
    endpoint = found.get("AWS_ENDPOINT_URL")
    if endpoint and "://" not in endpoint:
        is_plain = read("fs.s3a.connection.ssl.enabled") == "false"
        found["AWS_ENDPOINT_URL"] = f"{'http' if is_plain else 'https'}://{endpoint}"
    return found


def _reader_of(spark: Any) -> Any:
    if is_connect(spark):
        return lambda name: spark.conf.get(f"spark.hadoop.{name}", None)
    return spark.sparkContext._jsc.hadoopConfiguration().get
