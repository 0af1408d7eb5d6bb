"""What ended a query or broke a batch, as the error it was, and not as Spark's account of it.

    user's sink function raises KeyError -> foreachBatch -> py4j -> JVM -> StreamingQueryException, 100 lines
    a worker raises DataError -> its traceback as text -> PythonException -> StreamingQueryException, 100 lines

Whoever waits for a query gets the exception that was raised in the driver, or the error of ours that a worker
raised, with query and batch, and the worker's traceback, as notes; Spark's exception is its `__cause__`, unless it has one of its own. A value for which Spark itself has no result is a `DataError`, too. Any other error is left as Spark reports it.

Registered queries that break a batch are struck out, and the batch runs again without them:

    run the batch           fails: a unit cannot answer its queries
    run it with the first n - 1, n - 2, n - 4, ... queries, in the order in which they were added, until it succeeds; then halve
                            the first k - 1 succeed, the first k fail: the k-th is the culprit
    strike it out           first in the registry, then in the intent: each is one file that is there or not
    run the batch again     there may be another one

Queries that take more than their quota are named by the error itself: they are suspended, and the batch runs again without them.

Wherever the process dies, the next one finds the failure in the registry and strikes the query out of the intent before it runs the batch.
Where several queries fail only together, the youngest is struck out: a query never stops those that were there before it.

Invariant: an error that no query explains is raised as it is, and no query is blamed: errors of the machine, errors that remain without any query,
and errors that do not come again. The other queries' answers are those of a run without the culprit from this batch on.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NoReturn, Protocol, TypeVar

from watersmeet import errors
from watersmeet.errors import BrokenQueryError, DataError, QuotaError, WatersmeetError, WorkerError
from watersmeet.registry.versions import STRUCK

_RAISED = re.compile(
    r"(?:^|: )watersmeet\.errors\.(\w+): (.*?)(?=^ ?SQLSTATE|^\s*at |^\s*$|\Z)", re.MULTILINE | re.DOTALL
)
_TRACE = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n)+\S.*")
_VALUE = re.compile(r"\[([A-Z_.]+)\] ((?:(?!\[[A-Z_.]+\] ).)*?)\s*SQLSTATE: 22\w{3}", re.DOTALL)
"""An error of Spark's about a value: SQL calls those of class 22 data exceptions."""
_FRAGMENT = re.compile(r"== SQL[^\n]*==\n(.*?)\n\s*\^", re.DOTALL)
_MOST_SHOWN = 400
"""Characters of a query in an error."""
_MISMATCH = re.compile(r"different version: ([\d.]+)")
_CANNOT_RUN = re.compile(r'Cannot run program "([^"]+)"')
_NOT_THERE = re.compile(r"ModuleNotFoundError: No module named '(watersmeet|pyarrow|pandas|numpy|numba|duckdb)")
_LOST_AT = re.compile(r"\(TID \d+\) \((\S+) executor (?!driver)")
_REMEDY = (
    "before the session is made, set PYSPARK_PYTHON to an interpreter that has watersmeet on every machine, such as the driver's: "
    "os.environ['PYSPARK_PYTHON'] = sys.executable ({})"
)


def unwrap(error: BaseException, known: BaseException | None = None) -> BaseException:
    """The exception to show in place of Spark's; `known` is what was raised in the driver, inside `foreachBatch`.

    >>> unwrap(RuntimeError("[STREAM_FAILED] ..."), KeyError("price"))
    KeyError('price')
    >>> unwrap(RuntimeError("Traceback ...\\nwatersmeet.errors.DataError: a.x overflows\\n\\n\\tat org.apache.spark"))
    DataError('a.x overflows')
    """
    if isinstance(known, WatersmeetError):
        return known
    first = known if isinstance(known, Exception) else error
    found = from_worker(str(first)) or from_value(str(first)) or _find_lack(str(first))
    if found is None:
        return first
    found.__notes__ = [*getattr(first, "__notes__", ()), *getattr(found, "__notes__", ())]
    return found


def shorten(query: str) -> str:
    """A query in an error.

    >>> shorten("SELECT a.k  FROM s a")
    'SELECT a.k FROM s a'
    """
    text = " ".join(query.split())
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def _find_lack(text: str) -> WatersmeetError | None:
    """A host that came while the query ran may have no watersmeet."""
    problem = problem_of_failure(text, "an interpreter")
    return None if problem is None else error_of(problem)


def problem_of_failure(text: str, python: str, here: str = "driver") -> str | None:
    """What the failure of the job says about the interpreter.

    >>> problem_of_failure('java.io.IOException: Cannot run program "python9": error=2', "python9")
    "Spark's Python workers are to run python9, and there is no such program"
    """
    absent, other, lost = _CANNOT_RUN.search(text), _MISMATCH.search(text), _LOST_AT.search(text)
    who = f"Spark's Python workers{at_host(lost[1] if lost else None)}"
    lacks = _NOT_THERE.search(text)
    if lacks:
        return f"{who} run {python}, which has no {lacks[1]}"
    if absent:
        return f"{who} are to run {absent[1]}, and there is no such program"
    if other or "PYTHON_VERSION_MISMATCH" in text:
        theirs = f"Python {other[1].rstrip('.')}" if other else "another Python"
        return f"{who} run {python}, which is {theirs}, and the {here} Python {sys.version.split()[0]}"
    return None


def at_host(host: str | None) -> str:
    """Where a worker is, if that is known."""
    return f" on {host}" if host else ""


def error_of(problem: str) -> WorkerError:
    """What is wrong with workers, with the remedy."""
    return WorkerError(f"{problem}; {_REMEDY.format(sys.executable)}")


def raise_unwrapped(error: BaseException, known: BaseException | None = None) -> NoReturn:
    """Raise what `unwrap` finds."""
    shown = unwrap(error, known)
    if shown is error:
        raise error
    raise shown from shown.__cause__ or shown.__context__ or error


def from_worker(text: str, *kinds: type[WatersmeetError]) -> WatersmeetError | None:
    """The first error of ours in the text of a Spark exception; the first of some kinds, if they are given.

    >>> from_worker("[PYTHON_EXCEPTION] Traceback ...\\nwatersmeet.errors.CheckpointError: it is damaged\\n SQLSTATE: 38000")
    CheckpointError('it is damaged')
    """
    for found in _RAISED.finditer(text):
        error: WatersmeetError = getattr(errors, found[1], WatersmeetError)(found[2].strip())
        if not kinds or isinstance(error, kinds):
            trace = _TRACE.search(text)
            if trace is not None:
                error.add_note(f"in a worker: {trace[0].strip()}")
            return error
    return None


def from_value(text: str) -> DataError | None:
    """What Spark itself could not evaluate for a value, in one message; None if that is not what has failed.

    >>> str(from_value("Job aborted: [DIVIDE_BY_ZERO] Division by zero. SQLSTATE: 22012"))[:78]
    'a value has no result in an expression of the query: Division by zero. (DIVIDE'
    """
    found = _VALUE.search(text)
    if found is None:
        return None
    piece = _FRAGMENT.search(text)
    where = f", in {' '.join(piece[1].split())}" if piece else ""
    return DataError(
        f"a value has no result in an expression of the query: {' '.join(found[2].split())} ({found[1]}{where}); "
        "change the expression, leave such rows out with a condition on their stream, or have them named and set aside: on_error='set aside'"
    )


T = TypeVar("T")
Queries = Mapping[str, Any]
"""What an intent says of a batch's queries."""


class Striking(Protocol):
    """A registry from which queries can be struck out."""

    def ids(self, queries: Queries) -> Sequence[str]:
        """The queries of a batch, in the order in which they were added."""

    def strike(self, queries: Queries, id: str, reason: str) -> dict[str, Any]:
        """Say that a query has failed, durably; the batch without it."""

    def suspend(self, queries: Queries, ids: Sequence[str], reason: str) -> dict[str, Any]:
        """Say that queries have taken more than their quota, durably; the batch without them."""


def run_without_culprits(
    registry: Striking,
    queries: Queries,
    run: Callable[[Queries], T],
    probe: Callable[[Queries], object],
    amend: Callable[[Queries], object],
) -> T:
    """Run a batch; as long as a query breaks it, strike that one out, `amend` the intent and run again.

    `probe` runs it with some of its queries and leaves no trace.
    """
    while True:
        try:
            return run(queries)
        except Exception as error:
            greedy, found = _find_greedy(error), None
            if greedy is None and fault_of(error):
                try:
                    found = _culprit(registry.ids(queries), queries, probe)
                except Exception as met:  # what takes too much is found before what breaks the batch
                    greedy = _find_greedy(met)
                    if greedy is None:
                        raise
            if found is None and greedy is None:
                raise
        queries = registry.suspend(queries, *greedy) if greedy else registry.strike(queries, *found)  # type: ignore[misc]
        amend(queries)


def _find_greedy(error: Exception) -> tuple[list[str], str] | None:
    """The queries that have taken more than their quota, if that is what an error says, and the reason."""
    found = error if isinstance(error, QuotaError) else from_worker(str(error), QuotaError)
    return (found.queries, found.reason) if isinstance(found, QuotaError) else None


def fault_of(error: Exception) -> str | None:
    """What is wrong with some query, if that is what an error says; None if the machine failed."""
    found = error if isinstance(error, BrokenQueryError) else from_worker(str(error), BrokenQueryError)
    return None if found is None else str(found)


def _culprit(ids: Sequence[str], queries: Queries, probe: Callable[[Queries], object]) -> tuple[str, str] | None:
    """The query that breaks a batch, and the reason; None if the batch fails without any."""
    reasons: dict[int, str] = {}

    def fails(count: int) -> bool:
        struck = [*queries.get(STRUCK, ()), *ids[count:]]
        try:
            probe({**queries, STRUCK: struck} if struck else queries)
        except Exception as error:
            reason = fault_of(error)
            if reason is None or _find_greedy(error) is not None:
                raise
            reasons[count] = reason
            return True
        return False

    last = first_to_fail(len(ids), fails) if ids else None
    if last is None or not fails(last):  # once more: what comes and goes is not blamed
        return None
    return ids[last - 1], reasons[last]


def first_to_fail(count: int, fails: Callable[[int], bool]) -> int | None:
    """The least number of queries that fail; all of them do. None if it fails without any.

    >>> tried = []
    >>> first_to_fail(1000, lambda n: tried.append(n) or n >= 998), tried
    (998, [999, 997, 998])
    """
    low, high, step = 0, count, 1
    while high - step > 0:
        if not fails(high - step):
            low = high - step
            break
        high, step = high - step, 2 * step
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if fails(middle) else (middle, high)
    return None if low == 0 and fails(0) else high
