"""What Spark's Python workers say: our errors first, and no chatter.

Spark makes text of a worker's exception, traceback first, and wraps it twice. An error of ours explains itself, so it is
raised with the few frames that Spark adds, and behind a copy of itself without any: Python prints a cause first.

    Traceback (most recent call last):
    watersmeet.errors.DataError: a.x * b.x cannot be evaluated ...

Spark's worker that prepares a stateful stage prints a diary on its standard output, which Spark sends to the driver's
terminal. Its lines are dropped from the moment our code is loaded there; the first, `Starting ...`, is older than that.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from functools import wraps
from typing import Any, ParamSpec, TextIO, TypeVar

from watersmeet.errors import BrokenQueryError, WatersmeetError

_PREPARES = "pyspark.sql.streaming.transform_with_state_driver_worker"
_DIARY = "Streaming TransformWithState"

_P = ParamSpec("_P")
_T = TypeVar("_T")


def errors_first(task: Callable[_P, Iterator[_T]]) -> Callable[_P, Iterator[_T]]:
    """A task of a worker, whose errors of ours are told before Spark's frames."""

    @wraps(task)
    def told(*args: _P.args, **kwargs: _P.kwargs) -> Iterator[_T]:
        try:
            yield from task(*args, **kwargs)
        except BrokenQueryError:  # its frames say what broke
            raise
        except WatersmeetError as error:
            raise error.with_traceback(None) from type(error)(*error.args)

    return told


def drop_diary() -> None:
    """Drop what Spark prints about itself, if this is the worker that does so."""
    if _is_preparing() and not isinstance(sys.stdout, Sieve):
        sys.stdout = Sieve(sys.stdout)


def _is_preparing() -> bool:
    main = getattr(sys.modules["__main__"], "__spec__", None)
    return _PREPARES in sys.modules or getattr(main, "name", None) == _PREPARES


class Sieve:
    """A text stream without the lines of the diary.

    >>> import io
    >>> out = io.StringIO()
    >>> print("Streaming TransformWithStateInPandas Python worker Starting execution of UDF: f.\\n", file=Sieve(out))
    >>> print("a user's own line", file=Sieve(out))
    >>> out.getvalue()
    "a user's own line\\n"
    """

    def __init__(self, inner: TextIO) -> None:
        self._inner, self._dropped = inner, False

    def write(self, text: str) -> int:
        if text.startswith(_DIARY):
            self._dropped = True
            return len(text)
        if self._dropped and text == "\n":
            self._dropped = False
            return 1
        return self._inner.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)
