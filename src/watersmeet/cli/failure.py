"""Errors as one clear message, without a traceback.

An error that a worker raised reaches the driver inside Spark's exception, with the worker's traceback around it: ours
is taken out of it and shown as itself, the worker's Python traceback after it; of others the first line is shown, and the log is named.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from watersmeet.errors import WatersmeetError
from watersmeet.runtime.spark.failures import from_value, from_worker

OURS, THEIRS = 2, 1
"""Exit codes: a mistake that the message explains, and a failure of Spark."""

_LAST_LINE = re.compile(r"^(\w[\w.]*(?:Error|Exception)): (.+)$", re.MULTILINE)


@contextmanager
def report_errors(log: Path | None = None) -> Iterator[None]:
    """Shows what goes wrong inside, and leaves with an exit code."""
    try:
        yield
    except WatersmeetError as error:
        _show_with_notes(error)
        raise typer.Exit(OURS) from None
    except KeyboardInterrupt:
        raise typer.Exit(130) from None
    except Exception as error:
        if not _is_sparks(error):
            raise
        ours = from_worker(str(error)) or from_value(str(error))
        if ours is not None:
            _show_with_notes(ours)
        else:
            _show(f"Spark failed: {essence(str(error))}")
        if log is not None and ours is None:
            Console(stderr=True).print(f"Spark's log: {log}", highlight=False, soft_wrap=True)
        raise typer.Exit(OURS if ours else THEIRS) from None


def essence(text: str) -> str:
    """What went wrong, in one line: the worker's last words, else the first line.

    >>> essence("[STREAM_FAILED] Query [id = 1] terminated with exception: no such file\\n\\tat java.lang")
    'no such file'
    >>> essence("[PYTHON_EXCEPTION] ... Traceback (most recent call last):\\n  File ...\\nValueError: not a number\\n SQLSTATE: 38000")
    'ValueError: not a number'
    """
    raised = _LAST_LINE.findall(text) if "Traceback" in text else []
    if raised:
        return ": ".join(raised[-1])
    return text.strip().splitlines()[0].split("terminated with exception: ")[-1].split(" SQLSTATE")[0]


def _is_sparks(error: Exception) -> bool:
    return type(error).__module__.split(".")[0] in ("pyspark", "py4j")


def _show_with_notes(error: WatersmeetError) -> None:
    """The message, then where in a worker it was raised."""
    _show(str(error))
    for note in getattr(error, "__notes__", ()):
        Console(stderr=True).print(Text(note, style="dim"), soft_wrap=True)


def _show(message: str) -> None:
    Console(stderr=True).print(Text(message, style="bold red"), soft_wrap=True)
