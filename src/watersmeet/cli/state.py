"""`watersmeet state`: what a checkpoint of `start()` keeps, whether it is whole, and how it is edited or set back. No Spark is started."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import typer
from rich.console import Console

from watersmeet.errors import OptionError
from watersmeet.runtime.checkpoints.exports import export_state, import_state
from watersmeet.runtime.checkpoints.restore import restore
from watersmeet.runtime.checkpoints.stored import open_checkpoint
from watersmeet.runtime.checkpoints.summary import sum_up
from watersmeet.runtime.checkpoints.upgrade import undo
from watersmeet.runtime.checkpoints.verify import verify

DAMAGED = 3
"""The exit code if a checkpoint is damaged."""


def show(checkpoint: str, batch: int | None) -> None:
    """Sizes, skew, oldest and newest, fingerprint and versions."""
    _say(str(sum_up(open_checkpoint(checkpoint, batch))))


def check(checkpoint: str) -> None:
    """Every finding on a line of its own."""
    found = verify(checkpoint)
    for finding in found:
        _say(f"{'harmless' if finding.is_harmless else 'damage'}: {finding}")
    damaged = sum(not finding.is_harmless for finding in found)
    _say(f"{checkpoint}: {damaged} damaged or missing" if damaged else f"{checkpoint}: whole")
    if damaged:
        raise typer.Exit(DAMAGED)


def export(checkpoint: str, to: Path, batch: int | None) -> None:
    written = export_state(checkpoint, to, batch)
    _say(f"{', '.join(f'{rows:,} rows of {alias}' for alias, rows in written.items()) or 'no rows'} in {to}")


def take_over(checkpoint: str, edited: Path) -> None:
    changed = import_state(checkpoint, edited)
    said = [f"{alias}: {edits:,} rows edited, {deleted:,} deleted" for alias, (edits, deleted) in changed.items()]
    _say("; ".join(said) or "nothing differs")


def set_back(checkpoint: str, batch: int, sink: str | None, late: str | None) -> None:
    """The sinks are written as `watersmeet run` takes them; `function` stands for one that only a program knows."""
    gone = restore(checkpoint, batch, **_sinks("--restore", sink, late))
    _say(f"{checkpoint} is after batch {batch}; {len(gone)} files of later batches are gone")


def take_back(checkpoint: str, sink: str | None, late: str | None) -> None:
    batch = undo(checkpoint, **_sinks("--undo", sink, late))
    _say(f"{checkpoint} is after batch {batch}, as it was before the upgrade; start the query that it had")


def _sinks(option: str, sink: str | None, late: str | None) -> dict[str, Any]:
    if sink is None:
        raise OptionError(
            f"{option} needs --sink, so that it can be seen whether it has later batches: parquet:FOLDER, json:FOLDER, delta:PATH, iceberg:TABLE, or function"
        )
    return {"sink": _sink(sink), "late": None if late is None else _sink(late)}


def _sink(text: str) -> str | None:
    """A sink as `start()` takes it; None for one that nothing is known of.

    >>> _sink("parquet:out"), _sink("delta:/lake/x"), _sink("function")
    ('out', 'delta:/lake/x', None)
    """
    if text in ("function", "console", "noop", "memory"):
        return None
    kind, _, rest = text.partition(":")
    return rest if kind in ("parquet", "json") else text


def _say(text: str) -> None:
    Console().print(text, highlight=False, soft_wrap=True, markup=False)
