"""Whose fault an error in a unit is: the machine's, or that of the queries that the unit answers.

    disk full, no memory, a damaged or missing file, a module that cannot be loaded     the machine's: raised as it is
    more than a quota                                                                   that of the queries that it names: QuotaError
    everything else                                                                     the queries': BrokenQueryError

A unit does not know which of its queries breaks it, since they are compiled and evaluated together; the runtime finds out by running
the batch without some of them (`runtime.spark.failures`).

Invariant: an error of the machine is never turned into one of a query, at whatever depth it was raised.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

from watersmeet.errors import BrokenQueryError, CheckpointError, QuotaError, StreamError, WatersmeetError

T = TypeVar("T")

_OF_THE_MACHINE = (OSError, MemoryError, ImportError, EOFError, CheckpointError, StreamError)
_OF_THE_MACHINE_BY_NAME = ("OutOfMemoryException", "IOException")
"""Of DuckDB, which is loaded when a query needs it."""
_MOST_SHOWN = 500


def blame_queries(items: Iterator[T]) -> Iterator[T]:
    """The same items; an error that is not the machine's is one of the queries.

    >>> list(blame_queries(1 // n for n in (1, 0)))
    Traceback (most recent call last):
        ...
    watersmeet.errors.BrokenQueryError: ZeroDivisionError: integer division or modulo by zero
    """
    try:
        yield from items
    except Exception as error:
        if isinstance(error, QuotaError) or is_of_the_machine(error):
            raise
        raise BrokenQueryError(_text(error)) from error


def is_of_the_machine(error: BaseException | None) -> bool:
    """Whether the machine is the reason of an error, or of what caused it.

    >>> is_of_the_machine(OSError(28, "No space left on device")), is_of_the_machine(ValueError("7 of 5"))
    (True, False)
    """
    while error is not None:
        if isinstance(error, _OF_THE_MACHINE) or type(error).__name__ in _OF_THE_MACHINE_BY_NAME:
            return True
        error = error.__cause__ or error.__context__
    return False


def _text(error: Exception) -> str:
    """An error in one line."""
    first = (str(error).splitlines() or [""])[0]
    return (first if isinstance(error, WatersmeetError) else f"{type(error).__name__}: {first}")[:_MOST_SHOWN]
