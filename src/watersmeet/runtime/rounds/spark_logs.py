"""Spark's own files of a checkpoint, as far as results depend on them.

    metadata            the query's id
    offsets/17          what batch 17 reads
    commits/17          that it is over
    sources/0/17        what a source remembers: a file source, which files each of its offsets stands for

A log that has lost its last file is planned anew from other input, and Spark says nothing. So intents and manifests record the
digests of the files that Spark would read again, and whoever goes on from one compares them.

Invariant: nothing here writes. A file of Spark's, once written, does not change; a source's files before a `.compact` are not needed.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field

from pyarrow import fs as pafs

from watersmeet.errors import CheckpointError
from watersmeet.runtime.rounds.folder import StateFolder
from watersmeet.runtime.rounds.sealed import REMEDY

OFFSETS, COMMITS, SOURCES, METADATA = "offsets", "commits", "sources", "metadata"
_ENTRY = re.compile(r"(\d+)(\.compact)?")


@dataclass
class SparkLogs:
    """The logs of the query whose checkpoint a state folder lies in."""

    system: pafs.FileSystem
    root: str
    _known: dict[str, str] = field(default_factory=dict)

    @classmethod
    def beside(cls, folder: StateFolder, *parts: str) -> SparkLogs:
        return cls(folder.system, folder.beside(*parts))

    def path(self, name: str) -> str:
        return f"{self.root}/{name}"

    def query_id(self) -> str | None:
        """The query's id; None if Spark has not begun."""
        blob = self._read(METADATA)
        if blob is None:
            return None
        try:
            return str(json.loads(blob)["id"])
        except (ValueError, KeyError, TypeError) as error:
            raise CheckpointError(
                f"{self.path(METADATA)} does not name a query of Spark's ({error}); {REMEDY}"
            ) from error

    def latest(self, kind: str) -> int | None:
        """The latest batch of a log; its entry is whole as far as one can see."""
        found = max((int(name) for name in self._names(kind) if name.isdigit()), default=None)
        if found is not None:
            lines = (self._read(f"{kind}/{found}") or b"").split(b"\n")
            if not re.fullmatch(rb"v\d+", lines[0]) or not _is_json(lines[1:2]):
                raise CheckpointError(f"{self.path(f'{kind}/{found}')} is not what Spark writes there; {REMEDY}")
        return found

    def digests(self, batch: int) -> dict[str, str]:
        """By name the digests of the files that Spark would read again after this batch."""
        names = [f"{OFFSETS}/{n}" for n in (batch - 1, batch) if n >= 0]
        names += [f"{SOURCES}/{s}/{name}" for s in self._names(SOURCES) for name in self._live(s)]
        found = {name: known for name in names if (known := self._known.get(name) or self._digest(name)) is not None}
        self._known = found
        return dict(found)

    def check(self, recorded: Mapping[str, str]) -> None:
        """Raise if a recorded file is gone or another."""
        for name, digest in recorded.items():
            found = self._digest(name)
            if found is None and not self._is_compacted(name):
                raise CheckpointError(f"{self.path(name)} is missing from Spark's own logs of the checkpoint; {REMEDY}")
            if found not in (None, digest):
                raise CheckpointError(
                    f"{self.path(name)} is not the file that the state folder beside it was written with; {REMEDY}"
                )

    def _live(self, source: str) -> list[str]:
        """A source's latest compacted file and what came after it; all, if there is none."""
        entries = {name: _ENTRY.fullmatch(name) for name in self._names(f"{SOURCES}/{source}")}
        numbered = {name: (int(m[1]), m[2] is not None) for name, m in entries.items() if m}
        first = max((number for number, compact in numbered.values() if compact), default=-1)
        return sorted(name for name, (number, _) in numbered.items() if number >= first)

    def _is_compacted(self, name: str) -> bool:
        kind, _, rest = name.partition("/")
        source, _, entry = rest.partition("/")
        return kind == SOURCES and any(
            other.endswith(".compact") and int(_number(other)) > int(_number(entry)) for other in self._live(source)
        )

    def _digest(self, name: str) -> str | None:
        blob = self._read(name)
        return None if blob is None else hashlib.sha256(blob).hexdigest()[:16]

    def _names(self, kind: str) -> list[str]:
        found = self.system.get_file_info(pafs.FileSelector(self.path(kind), allow_not_found=True))
        return [f.base_name for f in found if not f.base_name.startswith(".")]

    def _read(self, name: str) -> bytes | None:
        try:
            with self.system.open_input_stream(self.path(name), compression=None) as file:
                return file.read()
        except FileNotFoundError:
            return None
        except OSError as error:
            raise CheckpointError(f"{self.path(name)} cannot be read ({error}); {REMEDY}") from error


def _number(entry: str) -> str:
    """The number of a log's entry.

    >>> _number("19.compact"), _number("20")
    ('19', '20')
    """
    return entry.partition(".")[0]


def _is_json(lines: list[bytes]) -> bool:
    try:
        return bool(lines) and isinstance(json.loads(lines[0]), dict)
    except ValueError:
        return False
