"""Which rows have no value in an expression: a division by zero, an overflow, a cast that fails.

Nothing is looked at twice as long as all rows have a value. Only when the evaluator refuses rows are they asked again, in halves:

    n rows fail --> the first half runs, so the second one fails --> ... --> one row that fails

Invariant: what is found depends on the rows alone, not on their order nor on what they come together with.
"""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.errors import DataError
from watersmeet.expressions.evaluator import evaluate, mask, runs

ERROR = "error in "
"""How the reason begins for which such a row, or a combination, is set aside; the expression follows."""


def find_broken(table: pa.Table, text: str, timezone: str) -> np.ndarray:
    """Where an expression has no value.

    >>> find_broken(pa.table({"s": ["1", "x", "3", "y"]}), "CAST(s AS INTEGER)", "UTC").tolist()
    [False, True, False, True]
    """
    found = np.zeros(table.num_rows, bool)
    waiting = [(0, table.num_rows, False)]
    while waiting:
        first, count, fails = waiting.pop()
        if not count or (not fails and runs(table.slice(first, count), text, timezone)):
            continue
        if count == 1:
            found[first] = True
            continue
        half = count // 2
        left_runs = runs(table.slice(first, half), text, timezone)
        if not left_runs:
            waiting.append((first, half, True))
        waiting.append((first + half, count - half, left_runs))
    return found


def find_true(table: pa.Table, condition: str, what: str, timezone: str) -> tuple[np.ndarray, np.ndarray]:
    """Where a condition is true, and where it has no value.

    >>> [m.tolist() for m in find_true(pa.table({"s": ["1", "x", "3"]}), "CAST(s AS INTEGER) > 2", "s", "UTC")]
    [[False, False, True], [False, True, False]]
    """
    try:
        return mask(table, condition, what, timezone), np.zeros(table.num_rows, bool)
    except DataError:
        broken = find_broken(table, condition, timezone)
        if not broken.any():
            raise
    holds = np.zeros(table.num_rows, bool)
    holds[~broken] = mask(table.filter(pa.array(~broken)), condition, what, timezone)
    return holds, broken


def evaluate_some(table: pa.Table, rows: np.ndarray, text: str, what: str, timezone: str) -> pa.Array:
    """The values of an expression for some rows, NULL for the others.

    >>> evaluate_some(pa.table({"s": ["1", "x"]}), np.array([True, False]), "CAST(s AS INTEGER)", "s", "UTC").to_pylist()
    [1, None]
    """
    made = evaluate(table.filter(pa.array(rows)), [text], what, timezone).column(0).combine_chunks()
    places = np.cumsum(rows) - 1
    return made.take(pa.array(places, pa.int64(), mask=~rows))
