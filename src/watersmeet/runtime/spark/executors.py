"""The hosts that a session's executors run on, and jobs whose tasks prefer some of them.

Spark has no public call for either. A session of Spark Connect, and one whose tasks all run on one machine, has no hosts to tell apart: then nothing
is preferred.

Invariant: a preference is no more than that. A task whose host is gone, or busy for longer than `spark.locality.wait`, runs elsewhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from pyspark import RDD
from pyspark.serializers import UTF8Deserializer
from pyspark.sql import DataFrame
from pyspark.sql.types import IntegerType, StructType

from watersmeet.runtime.spark.environment import OF_SQL, functions_with
from watersmeet.runtime.spark.versions import is_connect

_DRIVER = "driver"


def is_one_machine(spark: Any) -> bool:
    """Whether all tasks of a session run on one machine."""
    return str(spark.conf.get("spark.master", "local")).startswith("local")


def find_hosts(spark: Any) -> dict[str, int]:
    """Cores by host of the executors that live; empty where hosts cannot be told apart."""
    if is_connect(spark) or is_one_machine(spark):
        return {}
    cores: dict[str, int] = {}
    found = spark.sparkContext._jsc.sc().statusStore().executorList(True)
    for n in range(found.size()):
        executor = found.apply(n)
        if executor.id() != _DRIVER:
            host = executor.hostPort().rpartition(":")[0]
            cores[host] = cores.get(host, 0) + executor.totalCores()
    return cores


def count_cores(spark: Any) -> int:
    """How many tasks of a session run at a time; on Spark Connect, that has no call for it, as many as its shuffles have partitions."""
    if is_connect(spark):
        return max(1, int(spark.conf.get("spark.sql.shuffle.partitions") or 1))
    return max(1, int(spark.sparkContext.defaultParallelism))


def number_shares(spark: Any, hosts: Sequence[str]) -> DataFrame:
    """The numbers from 0, one in each task: task n prefers the n-th host, if it has a name."""
    if not any(hosts):
        return spark.range(0, len(hosts), 1, len(hosts))
    context = spark.sparkContext
    rows = []
    for number in range(len(hosts)):
        values = context._gateway.new_array(context._jvm.java.lang.Object, 1)
        values[0] = number
        rows.append(context._jvm.org.apache.spark.sql.catalyst.expressions.GenericInternalRow(values))
    session = spark._jsparkSession
    schema = session.parseDataType(StructType().add("id", IntegerType(), nullable=False).json())
    return DataFrame(session.internalCreateDataFrame(_distribute(context, rows, hosts), schema, False), spark)


def ask_hosts(spark: Any, hosts: Iterable[str], function: Callable[[Any], str]) -> list[str]:
    """What a function says in a task of every host; it is called with the host's name, in a worker of those that functions of SQL run in."""
    asked, context = list(hosts), spark.sparkContext
    names = _distribute(context, asked, asked).toJavaRDD()
    with functions_with(spark, OF_SQL):
        return RDD(names, context, UTF8Deserializer()).map(function).collect()


def _distribute(context: Any, values: Sequence[Any], hosts: Sequence[str]) -> Any:
    """An RDD of Scala's with one value in each task, which prefers a host."""
    jvm = context._jvm
    pairs = [
        jvm.scala.Tuple2(value, _sequence(jvm, [host] if host else []))
        for value, host in zip(values, hosts, strict=True)
    ]
    return context._jsc.sc().makeRDD(_sequence(jvm, pairs), jvm.scala.reflect.ClassTag.Any())


def _sequence(jvm: Any, values: Sequence[Any]) -> Any:
    filled = jvm.java.util.ArrayList()
    for value in values:
        filled.add(value)
    return jvm.org.apache.spark.api.python.PythonUtils.toSeq(filled)
