"""`watersmeet compact`: small files of results, merged."""

from __future__ import annotations

from pathlib import Path

from rich.console import Console

from watersmeet.errors import OptionError
from watersmeet.query.duration import show_bytes
from watersmeet.query.scaling import parse_bytes
from watersmeet.runtime.rounds.checkpoint import absolute
from watersmeet.runtime.rounds.results.compact import compact_folder, compact_table
from watersmeet.runtime.rounds.results.delta import NAME, DeltaFolder
from watersmeet.runtime.rounds.results.folder import SinkFolder


def compact(where: str, target: str) -> None:
    """Merge the files of a folder, or of a table, and say what was done."""
    most = parse_bytes(target, "--target")
    if where.startswith(f"{NAME}:"):
        done = compact_table(DeltaFolder(absolute(where.partition(":")[2])), most)
    else:
        if "://" not in where and not Path(where).is_dir():
            raise OptionError(f"there is no folder {where}")
        done = compact_folder(SinkFolder(absolute(where)), most)
    said = f"{done.before:,} files became {done.after:,}, each of up to {show_bytes(most)}"
    Console().print(said if done.before else "nothing to merge", highlight=False, soft_wrap=True)
