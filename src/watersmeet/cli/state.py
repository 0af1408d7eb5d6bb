"""`watersmeet state`: what a checkpoint of `start()` keeps, whether it is whole, and how it is edited or set back. No Spark is started."""

from __future__ import annotations

from collections.abc import Iterator
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
from watersmeet.runtime.checkpoints.verify import Finding, verify

DAMAGED = 3
"""The exit code if a checkpoint is damaged."""
FEW = 3
"""So many files that are harmless for one reason are named one by one."""


def show(checkpoint: str, batch: int | None) -> None:
    """Sizes, skew, oldest and newest, fingerprint and versions."""
    _say(str(sum_up(open_checkpoint(checkpoint, batch))))


def check(checkpoint: str) -> None:
    """Every finding on a line of its own."""
    found = verify(checkpoint)
    harmless = [finding for finding in found if finding.is_harmless]
    for finding in found[: len(found) - len(harmless)]:
        _say(f"damage: {finding}")
    for line in _fold(harmless):
        _say(f"harmless: {line}")
    damaged = len(found) - len(harmless)
    _say(f"{checkpoint}: {damaged} damaged or missing" if damaged else f"{checkpoint}: whole")
    if damaged:
        raise typer.Exit(DAMAGED)


def _fold(findings: list[Finding]) -> Iterator[str]:
    """Findings, those that say the same of many files of a folder on one line.

    >>> list(_fold([Finding(f"segments/{n}", "nobody names it") for n in range(5)]))
    ['5 files of segments, such as 0: nobody names it']
    """
    alike: dict[tuple[str, str], list[Finding]] = {}
    for finding in findings:
        alike.setdefault((finding.file.rpartition("/")[0], finding.problem), []).append(finding)
    for (folder, problem), same in alike.items():
        if len(same) <= FEW:
            yield from map(str, same)
        else:
            yield f"{len(same)} files of {folder}, such as {same[0].file.rpartition('/')[2]}: {problem}"


def export(checkpoint: str, to: Path, batch: int | None) -> None:
    written = export_state(checkpoint, to, batch)
    _say(f"{', '.join(f'{rows:,} rows of {alias}' for alias, rows in written.items()) or 'no rows'} in {to}")


def take_over(checkpoint: str, edited: Path) -> None:
    changed = import_state(checkpoint, edited)
    said = [
        f"{alias}: {edits:,} row{'' if edits == 1 else 's'} edited, {deleted:,} deleted"
        for alias, (edits, deleted) in changed.items()
    ]
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
