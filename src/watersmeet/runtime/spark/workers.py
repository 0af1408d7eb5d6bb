"""Spark's Python workers: what they must have, how they report errors, how they stay light, and how results leave them.

**Probe.** Workers run PYSPARK_PYTHON, or the `python3` of their PATH, which need not be the driver's interpreter. Without a probe, a worker that
has no watersmeet ends the first micro-batch with 90 lines of Spark's. Every host of a session is probed once, by a job that needs only Python's own
library in the worker; of a server of Spark Connect one worker is asked. What fails for other reasons is left to the query itself.

**Tasks** read what they are given by `read_promptly`: a small one would wait for the kernel of the machine otherwise, see `runtime.spark.sockets`.

**Errors.** Spark makes text of a worker's exception, traceback first, and wraps it twice. An error of ours explains itself, so it is
raised with the few frames that Spark adds, and behind a copy of itself without any: Python prints a cause first.

    Traceback (most recent call last):
    watersmeet.errors.DataError: a.x * b.x cannot be evaluated ...

**Heap.** After every task Spark's worker collects garbage over its whole heap before it takes the next one. With our libraries
loaded that is tens of milliseconds, paid in every job of every micro-batch, and 30 more if it holds 20,000 registered
queries. What a worker holds after its first tasks is modules and compiled code, which live as long as it does:
they are frozen, so that the collector skips them. A heap that has grown is frozen again.

**Results** leave as typed columns, and with those of a unit under `dataframe()` comes one row of metrics per batch. Columns of timestamps leave as whole
microseconds and become timestamps again in Spark: its pandas bridge would convert them one by one otherwise. Timestamps inside other values stay as they are, see
`runtime.stream.sealed`.

Invariant: rows with `_metrics` are not results; they are observed and dropped. Nothing that a task makes for itself is frozen, and no garbage. Nothing is frozen when the process ends: a library that counts
what is left at its end (DuckDB does) would find all of it.
"""

from __future__ import annotations

import atexit
import gc
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import wraps
from importlib.metadata import PackageNotFoundError, version
from typing import Any, ParamSpec, TypeVar, cast

import pyarrow as pa
from pyspark.sql import functions as F

from watersmeet.columns.arrow import shrink, slice_by_bytes
from watersmeet.columns.retype import retype_table
from watersmeet.errors import BrokenQueryError, WatersmeetError, WorkerError
from watersmeet.operators.finish.project import Fields
from watersmeet.runtime.spark import pages
from watersmeet.runtime.spark.executors import ask_hosts, find_hosts, is_one_machine
from watersmeet.runtime.spark.failures import at_host, error_of, problem_of_failure
from watersmeet.runtime.spark.sockets import read_promptly
from watersmeet.runtime.spark.versions import is_connect

PACKAGES = ("watersmeet", "pyarrow", "pandas", "numpy", "numba", "duckdb")
_ASKED: set[tuple[str, str]] = set()
"""Hosts of applications that have been asked, by the applications' ids; "" stands for all of them."""

REPORT = f"""def report(host):
    import importlib.metadata, importlib.util, json, sys
    def found(name):
        try:
            if importlib.util.find_spec(name) is None:
                return None
            return importlib.metadata.version(name)
        except Exception:
            return ""
    packages = {{name: found(name) for name in {PACKAGES!r}}}
    return json.dumps({{"host": host, "python": sys.executable, "version": sys.version.split()[0], "packages": packages}})
"""
"""As text: a function of this module would be pickled by its name, and the worker may not have the module."""
_REMEDY_OF_SERVER = "install watersmeet {} there, or start the Spark Connect server with PYSPARK_PYTHON set to an interpreter that has it"


def probe_workers(spark: Any, hosts: Iterable[str] | None = None) -> None:
    """Refuse a session whose workers cannot run watersmeet, on all of its hosts or on these; who has been asked is not asked again."""
    id = _name(spark)
    if (id, "") in _ASKED:
        return
    if is_connect(spark):
        _probe_server(spark)
        return
    among = list(find_hosts(spark) if hosts is None else hosts)
    asked = [host for host in among if (id, host) not in _ASKED]
    if among and not asked:
        return
    problem = _ask(spark, asked or [""])
    if problem is not None:
        raise error_of(problem)
    _ASKED.update((id, host) for host in asked)
    if is_one_machine(spark):
        trust_workers(spark)


def _probe_server(spark: Any) -> None:
    problem = _ask_server(spark)
    if problem is not None:
        raise WorkerError(f"{problem}; {_REMEDY_OF_SERVER.format(_version('watersmeet'))}")
    trust_workers(spark)


def trust_workers(spark: Any) -> None:
    """Do not ask: the session's workers are known to run this interpreter."""
    _ASKED.add((_name(spark), ""))


def _name(spark: Any) -> str:
    return str(spark.session_id if is_connect(spark) else spark.sparkContext.applicationId)


def _ask(spark: Any, hosts: Sequence[str]) -> str | None:
    """What is wrong with the workers of some hosts, if something is; "" is any host."""
    try:
        said = ask_hosts(spark, hosts, _reporter())
    except Exception as error:
        return problem_of_failure(str(error), spark.sparkContext.pythonExec)
    problems = (problem_of_report(json.loads(one)) for one in said)
    return next((problem for problem in problems if problem is not None), None)


def _ask_server(spark: Any) -> str | None:
    """The same of a server's workers."""
    report = F.udf(_reporter(), "string", useArrow=False)
    try:
        said = spark.range(0, 1, 1, 1).select(report(F.lit(""))).collect()
    except Exception as error:
        return problem_of_failure(str(error), "the server's Python", "client")
    return problem_of_report(json.loads(said[0][0]), "client")


def _reporter() -> Callable[[Any], str]:
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(REPORT, made)
    report: Callable[[Any], str] = made["report"]
    return report


def problem_of_report(said: Mapping[str, Any], other: str = "driver") -> str | None:
    """What a worker lacks; `other` is who runs this.

    >>> problem_of_report({"python": "/usr/bin/python3", "version": "3.11.2", "packages": {"watersmeet": None, "pyarrow": None, "numpy": "2.2"}})
    "Spark's Python workers run /usr/bin/python3 (3.11.2), which has no watersmeet and no pyarrow"
    """
    who = f"Spark's Python workers{at_host(said.get('host'))} run {said['python']} ({said['version']}), which has"
    missing = [name for name, found in said["packages"].items() if found is None]
    if missing:
        return f"{who} {' and '.join(f'no {name}' for name in missing)}"
    own, theirs = _version("watersmeet"), said["packages"]["watersmeet"]
    if own and theirs and own != theirs:
        return f"{who} watersmeet {theirs}, and the {other} has {own}: install the same on both"
    return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None


_P = ParamSpec("_P")
_T = TypeVar("_T")


def as_task(task: Callable[_P, Iterator[_T]]) -> Callable[_P, Iterator[_T]]:
    """A task of a worker. What it is given last is read as it comes, and errors of ours are told before Spark's frames."""

    @wraps(task)
    def run(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        _before_task()
        *others, rows = args
        given: Any = (*others, read_promptly(cast("Iterable[Any]", rows)))
        try:
            yield from task(*given, **kwargs)
        except BrokenQueryError:  # its frames say what broke
            raise
        except WatersmeetError as error:
            raise error.with_traceback(None) from type(error)(*error.args)

    return run


FREEZES = 3
"""Libraries load lazily: the heap is settled after a worker's first tasks, not after the very first."""
MOST_OBJECTS = 50_000
"""So many objects more than are frozen have come to stay: a collection over them costs several milliseconds."""
_done: int | None = None
"""How often the heap has been frozen; None before the first task."""


def _before_task() -> None:
    """What was loaded for a worker's first task, which has been unpickled now, lies in memory that the task will want."""
    global _done
    if _done is None:
        _done = 0
        pages.give_back_all()


def after_task() -> None:
    """Call when a task has let go of its data: give memory back, and freeze what stays."""
    global _done
    pa.default_memory_pool().release_unused()
    _done = _done or 0
    if _done < FREEZES or len(gc.get_objects()) > MOST_OBJECTS:
        if _done == 0:
            atexit.register(gc.unfreeze)
        _done += 1
        gc.collect()
        gc.freeze()
        pages.look_again()
        if _done == FREEZES:
            pages.give_back_all()
    pages.give_back()


METRICS = "_metrics"
MARK = "late "
"""What a dropped row begins with in the column of metrics, if somebody asks for dropped rows; behind it stands the row as JSON."""


_OUT = {"timestamp": "bigint"}
"""Types that leave Python as others."""


def schema_of(fields: Fields) -> str:
    """The DDL of columns that leave Python."""
    return ", ".join(f"`{name}` {_OUT.get(kind, kind)}" for name, kind in fields)


def with_metrics(fields: Fields) -> str:
    """The same with a column of metrics."""
    return f"{schema_of(fields)}, `{METRICS}` string"


def columns_of(schema: pa.Schema, table: pa.Table) -> dict[str, pa.ChunkedArray]:
    """A table's columns as they leave Python, by position; metrics, if the schema has them, are empty."""
    columns: dict[str, pa.ChunkedArray] = {}
    for n, field in enumerate(schema):
        if field.name == METRICS:
            columns[METRICS] = pa.chunked_array([pa.nulls(table.num_rows, pa.string())])
            continue
        column = table.column(n)
        if pa.types.is_int64(field.type) and pa.types.is_timestamp(column.type):
            column = pa.chunked_array([c.view(pa.int64()) for c in column.chunks], pa.int64())
        columns[field.name] = column
    return columns


def metrics_columns(schema: pa.Schema, reports: Sequence[Mapping[str, Any]]) -> dict[str, pa.ChunkedArray]:
    """A row of metrics for every unit's report."""
    return aside_columns(schema, [json.dumps(r) for r in reports])


def aside_columns(schema: pa.Schema, texts: Sequence[str]) -> dict[str, pa.ChunkedArray]:
    """Rows that are no results: texts in the column of metrics."""
    columns = {f.name: pa.chunked_array([pa.nulls(len(texts), f.type)]) for f in schema}
    columns[METRICS] = pa.chunked_array([pa.array(texts, pa.string())])
    return columns


def result_batches(columns: dict[str, pa.ChunkedArray], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Columns as they leave mapInArrow, in Spark's types and in batches of bounded bytes."""
    for block in slice_by_bytes(pa.table(columns)):
        yield from retype_table(shrink(block).combine_chunks(), schema).to_batches()


@dataclass
class AsRows:
    """Results go to Spark, as a function makes batches of them."""

    batches: Callable[[pa.Table], Iterator[pa.RecordBatch]]

    @property
    def takes_codes(self) -> bool:
        return False

    def take(self, results: pa.Table) -> Iterator[pa.RecordBatch]:
        return self.batches(results)

    def close(self) -> Iterator[pa.RecordBatch]:
        return iter(())

    def __enter__(self) -> AsRows:
        return self

    def __exit__(self, *_: object) -> None:
        return None
