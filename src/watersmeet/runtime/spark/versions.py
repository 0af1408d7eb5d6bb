"""What differs between the Sparks that watersmeet runs on: versions 4.0 to 4.3, and sessions of Spark Connect.

                        4.0             4.1             4.2             4.3
    classes of streaming    in `streaming`  in packages below it
    repartitionById         none            there
    to_arrow_schema         timestamp_utc                   timezone
    Connect                 no              yes

Invariant: no other module compares versions, tries an import or looks at a session's kind; what is asked here has the same
meaning on all of them.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyspark
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from watersmeet.columns.arrow import rebuilt
from watersmeet.errors import OptionError, StreamError
from watersmeet.routing.labels import labels

TESTED = ((4, 0), (4, 1), (4, 2), (4, 3))
"""All of them run the tests: `make matrix`."""


def _of(version: str) -> tuple[int, int]:
    """Major and minor version.

    >>> _of("4.2.1"), _of("4.3.0.dev1")
    ((4, 2), (4, 3))
    """
    major, minor = version.split(".")[:2]
    return int(major), int(minor)


INSTALLED = _of(pyspark.__version__)
WRITER = {b"org.apache.spark.version": pyspark.__version__.encode()}
"""What Spark's own writer says in a Parquet file: with it readers know that days and times are of the proleptic Gregorian calendar."""
_STREAMING = "org.apache.spark.sql.execution.streaming"
CHECKPOINTING = f"{_STREAMING}.checkpointing" if INSTALLED >= (4, 1) else _STREAMING
"""The package of the classes that write a checkpoint's files."""


def minor_of(session: Any) -> str:
    """The version of a session's Spark without its patch, as in the names of jars: 4.3."""
    return _show(_of(session.version))


def check_version(session: Any) -> None:
    """Refuse a Spark that nobody has tested; the library's version counts, and the session's, which may be a server's."""
    for found in (pyspark.__version__, session.version):
        if _of(found) not in TESTED:
            raise OptionError(
                f"this is Spark {found}: watersmeet runs on Spark {_show(TESTED[0])} to {_show(TESTED[-1])}; "
                f'install one of them: pip install "pyspark~={_show(TESTED[-1])}.0"'
            )


def check_connect(frame: Any, what: str) -> None:
    """Refuse a frame of a Connect that can neither keep state in Python nor observe an array."""
    if is_connect(frame) and INSTALLED < (4, 1):
        raise StreamError(
            f"{what} runs on Spark Connect from Spark 4.1 on, and this is 4.0: give it frames of a classic session"
        )


def parallelism(spark: Any) -> int:
    """How many tasks run at once; a client of Spark Connect knows no more than how many a shuffle has."""
    return (
        int(spark.conf.get("spark.sql.shuffle.partitions"))
        if is_connect(spark)
        else spark.sparkContext.defaultParallelism
    )


def in_session(frame: DataFrame, other: DataFrame) -> DataFrame:
    """A frame, in the session of another: a micro-batch of Spark Connect has a session of its own."""
    if is_connect(frame) and frame.sparkSession is not other.sparkSession:
        return type(frame)(frame._plan, other.sparkSession)  # type: ignore[attr-defined]
    return frame


def arrow_schema(schema: StructType) -> pa.Schema:
    """Columns of Spark as Arrow's; timestamps are UTC, and parts of a NULL may be NULL: Spark has it otherwise of variants."""
    zone: dict[str, Any] = {"timezone": "UTC"} if INSTALLED >= (4, 2) else {"timestamp_utc": True}
    found = to_arrow_schema(schema, **zone)
    return pa.schema([f.with_type(_allow_nulls(f.type)) for f in found])


def _allow_nulls(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([f.with_type(_allow_nulls(f.type)).with_nullable(True) for f in kind])
    return rebuilt(kind, _allow_nulls)


def repartition_by_id(frame: DataFrame, partitions: int, id: Column) -> DataFrame:
    """Rows by the number of their partition, an expression from 0 to `partitions` - 1."""
    if INSTALLED >= (4, 1):
        return frame.repartitionById(partitions, id)
    hashed = F.array(*(F.lit(i).cast("bigint") for i in labels(partitions, partitions)))
    return frame.repartition(partitions, F.get(hashed, id))


def is_connect(thing: Any) -> bool:
    """Whether a session or a frame is of Spark Connect."""
    return type(thing).__module__.startswith("pyspark.sql.connect")


def _show(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
