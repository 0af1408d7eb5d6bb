"""One Python worker is asked what it has, before the first query of a session needs it.

Workers run PYSPARK_PYTHON, or the `python3` of their PATH, which need not be the driver's interpreter. Without this, a worker that has
no watersmeet ends the first micro-batch with 90 lines of Spark's.

Invariant: a session is asked once, by a job of one row that needs nothing but Python's own library in the worker. What fails for
other reasons is left to the query itself. Sessions of Spark Connect are not asked: they cannot run such a job.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from watersmeet.errors import WorkerError
from watersmeet.runtime.spark_versions import is_connect

PACKAGES = ("watersmeet", "pyarrow", "pandas", "numpy", "numba", "duckdb")
_ASKED: set[str] = set()
"""Applications that have been asked, by their ids."""

REPORT = f"""def report(_):
    import importlib.metadata, importlib.util, json, sys
    def found(name):
        try:
            if importlib.util.find_spec(name) is None:
                return None
            return importlib.metadata.version(name)
        except Exception:
            return ""
    packages = {{name: found(name) for name in {PACKAGES!r}}}
    return json.dumps({{"python": sys.executable, "version": sys.version.split()[0], "packages": packages}})
"""
"""As text: a function of this module would be pickled by its name, and the worker may not have the module."""
_MISMATCH = re.compile(r"different version: ([\d.]+)")
_CANNOT_RUN = re.compile(r'Cannot run program "([^"]+)"')
_REMEDY = (
    "before the session is made, set PYSPARK_PYTHON to an interpreter that has watersmeet on every machine, such as the driver's: "
    "os.environ['PYSPARK_PYTHON'] = sys.executable ({})"
)


def probe_workers(spark: Any) -> None:
    """Refuse a session whose workers cannot run watersmeet."""
    if is_connect(spark) or spark.sparkContext.applicationId in _ASKED:
        return
    problem = _ask(spark.sparkContext)
    if problem is not None:
        raise WorkerError(f"{problem}; {_REMEDY.format(sys.executable)}")
    trust_workers(spark)


def trust_workers(spark: Any) -> None:
    """Do not ask: the session's workers are known to run this interpreter."""
    _ASKED.add(spark.sparkContext.applicationId)


def _ask(context: Any) -> str | None:
    """What is wrong with the workers, if something is."""
    made: dict[str, Any] = {"__name__": "__main__"}
    exec(REPORT, made)
    try:
        said = context.parallelize([0], 1).map(made["report"]).collect()
    except Exception as error:
        return problem_of_failure(str(error), context.pythonExec)
    return problem_of_report(json.loads(said[0]))


def problem_of_report(said: Mapping[str, Any]) -> str | None:
    """What a worker lacks.

    >>> problem_of_report({"python": "/usr/bin/python3", "version": "3.11.2", "packages": {"watersmeet": None, "pyarrow": None, "numpy": "2.2"}})
    "Spark's Python workers run /usr/bin/python3 (3.11.2), which has no watersmeet and no pyarrow"
    """
    who = f"Spark's Python workers run {said['python']} ({said['version']}), which has"
    missing = [name for name, found in said["packages"].items() if found is None]
    if missing:
        return f"{who} {' and '.join(f'no {name}' for name in missing)}"
    own, theirs = _version("watersmeet"), said["packages"]["watersmeet"]
    if own and theirs and own != theirs:
        return f"{who} watersmeet {theirs}, and the driver has {own}: install the same on both"
    return None


def problem_of_failure(text: str, python: str) -> str | None:
    """What the failure of the job says about the interpreter.

    >>> problem_of_failure('java.io.IOException: Cannot run program "python9": error=2', "python9")
    "Spark's Python workers are to run python9, and there is no such program"
    """
    absent, other = _CANNOT_RUN.search(text), _MISMATCH.search(text)
    if absent:
        return f"Spark's Python workers are to run {absent[1]}, and there is no such program"
    if other or "PYTHON_VERSION_MISMATCH" in text:
        theirs = f"Python {other[1].rstrip('.')}" if other else "another Python"
        return f"Spark's Python workers run {python}, which is {theirs}, and the driver Python {sys.version.split()[0]}"
    return None


def _version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
