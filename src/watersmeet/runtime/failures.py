"""What ended a query, as the error it was, and not as Spark's account of it.

    user's sink function raises KeyError -> foreachBatch -> py4j -> JVM -> StreamingQueryException, 100 lines
    a worker raises DataError -> its traceback as text -> PythonException -> StreamingQueryException, 100 lines

Invariant: whoever waits for a query gets the exception that was raised in the driver, or the error of ours that a worker
raised; Spark's exception is its `__cause__`, unless it has one of its own. What neither raised is left as Spark tells it.
"""

from __future__ import annotations

import re
from typing import NoReturn

from watersmeet import errors
from watersmeet.errors import WatersmeetError

_RAISED = re.compile(
    r"(?:^|: )watersmeet\.errors\.(\w+): (.*?)(?=^ ?SQLSTATE|^\s*at |^\s*$|\Z)", re.MULTILINE | re.DOTALL
)


def surfaced(error: BaseException, known: BaseException | None = None) -> BaseException:
    """The exception to show in place of Spark's; `known` is what was raised in the driver, inside `foreachBatch`.

    >>> surfaced(RuntimeError("[STREAM_FAILED] ..."), KeyError("price"))
    KeyError('price')
    >>> surfaced(RuntimeError("Traceback ...\\nwatersmeet.errors.DataError: a.x overflows\\n\\n\\tat org.apache.spark"))
    DataError('a.x overflows')
    """
    if isinstance(known, WatersmeetError):
        return known
    first = known if isinstance(known, Exception) else error
    return from_worker(str(first)) or first


def raise_surfaced(error: BaseException, known: BaseException | None = None) -> NoReturn:
    """Raise what `surfaced` finds."""
    shown = surfaced(error, known)
    if shown is error:
        raise error
    raise shown from shown.__cause__ or shown.__context__ or error


def from_worker(text: str, *kinds: type[WatersmeetError]) -> WatersmeetError | None:
    """The first error of ours in the text of a Spark exception; the first of some kinds, if they are given.

    >>> from_worker("[PYTHON_EXCEPTION] Traceback ...\\nwatersmeet.errors.CheckpointError: it is damaged\\n SQLSTATE: 38000")
    CheckpointError('it is damaged')
    """
    for found in _RAISED.finditer(text):
        error = getattr(errors, found[1], WatersmeetError)(found[2].strip())
        if not kinds or isinstance(error, kinds):
            return error
    return None
