"""Which rows have no value in an expression: a division by zero, an overflow, a cast that fails.

Nothing is looked at twice as long as all rows have a value. Only when the evaluator refuses rows are they asked again, each by itself, under DuckDB's TRY, in one query. What is left must run.
If it does not, TRY has not caught all, and the rows that are left are halved:

    n rows fail --> the first half runs, so the second one fails --> ... --> one row that fails

Invariant: what is found depends on the rows alone, not on their order nor on what they come together with.
"""

from __future__ import annotations

import re

import numpy as np
import pyarrow as pa

from watersmeet.expressions.evaluator import attempt, evaluate, mask

ERROR = "error in "
"""How the reason begins for which such a row, or a combination, is set aside; the expression follows."""

_TEXT = r"'(?:[^']|'')*'"
_ERROR = re.compile(rf"{_TEXT}|(?P<error>ERROR\({_TEXT}\))")
"""In DuckDB's text: a text, or where an error is raised."""
_FAILS = "CAST('no value' AS TINYINT)"


def find_broken(table: pa.Table, text: str, timezone: str) -> np.ndarray:
    """Where an expression has no value.

    >>> find_broken(pa.table({"s": ["1", "x", "3", "y"]}), "CAST(s AS INTEGER)", "UTC").tolist()
    [False, True, False, True]
    """
    return _evaluate_whole(table, text, timezone)[0]


def find_true(table: pa.Table, condition: str, what: str, timezone: str) -> tuple[np.ndarray, np.ndarray]:
    """Where a condition is true, and where it has no value.

    >>> [m.tolist() for m in find_true(pa.table({"s": ["1", "x", "3"]}), "CAST(s AS INTEGER) > 2", "s", "UTC")]
    [[False, False, True], [False, True, False]]
    """
    broken, values = _evaluate_whole(table, f"coalesce({condition}, false)", timezone)
    if values is None:
        return mask(table, condition, what, timezone), broken  # it says what is wrong
    holds = np.zeros(table.num_rows, bool)
    holds[~broken] = values.to_numpy(zero_copy_only=False)
    return holds, broken


def _evaluate_whole(table: pa.Table, text: str, timezone: str) -> tuple[np.ndarray, pa.ChunkedArray | None]:
    """Where an expression has no value, and its values where it has one; None if it has none though no row is to blame."""
    broken, values = np.zeros(table.num_rows, bool), attempt(table, text, timezone)
    if values is not None:
        return broken, values
    broken |= _catch(table, text, timezone)
    rest = table.filter(pa.array(~broken))
    values = attempt(rest, text, timezone) if broken.any() else None
    if values is None:
        broken[np.flatnonzero(~broken)[_halve(rest, text, timezone)]] = True
        values = attempt(table.filter(pa.array(~broken)), text, timezone)
    return broken, values


def _catch(table: pa.Table, text: str, timezone: str) -> np.ndarray:
    """The rows that DuckDB's TRY finds broken; none if it refuses the expression. It refuses `error()`, so a cast fails in its place."""
    soft = _ERROR.sub(lambda found: _FAILS if found["error"] else found[0], text)
    found = attempt(table, f"TRY(({soft}) IS NULL) IS NULL", timezone)
    return np.zeros(table.num_rows, bool) if found is None else np.asarray(found, bool)


def _halve(table: pa.Table, text: str, timezone: str) -> np.ndarray:
    """The rows that fail by themselves, of rows that fail together."""
    broken: list[int] = []
    waiting = [(0, table.num_rows, True)]
    while waiting:
        first, count, fails = waiting.pop()
        if not count or (not fails and _runs(table, first, count, text, timezone)):
            continue
        if count == 1:
            broken.append(first)
            continue
        half = count // 2
        left_runs = _runs(table, first, half, text, timezone)
        if not left_runs:
            waiting.append((first, half, True))
        waiting.append((first + half, count - half, left_runs))
    return np.array(broken, np.int64)


def _runs(table: pa.Table, first: int, count: int, text: str, timezone: str) -> bool:
    return attempt(table.slice(first, count), text, timezone) is not None


def evaluate_some(table: pa.Table, rows: np.ndarray, text: str, what: str, timezone: str) -> pa.Array:
    """The values of an expression for some rows, NULL for the others.

    >>> evaluate_some(pa.table({"s": ["1", "x"]}), np.array([True, False]), "CAST(s AS INTEGER)", "s", "UTC").to_pylist()
    [1, None]
    """
    made = evaluate(table.filter(pa.array(rows)), [text], what, timezone).column(0).combine_chunks()
    places = np.cumsum(rows) - 1
    return made.take(pa.array(places, pa.int64(), mask=~rows))
