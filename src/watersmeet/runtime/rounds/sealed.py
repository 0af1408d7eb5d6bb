"""JSON files that know whether they are what was written.

    {"batch": 17, ..., "checksum": 2774069133}

The checksum stands at the end and covers every byte before it and the file's name. So a file that was cut, changed or put in the
place of another is an error that names it. Whether it belongs to this query is for its content to say.

Invariant: `unseal` returns what `seal` was given, or raises `CheckpointError`.
"""

from __future__ import annotations

import json
import re
import zlib
from typing import Any

from watersmeet.errors import CheckpointError

REMEDY = "restore the checkpoint as it was, or start with a new one"
_SEAL = re.compile(rb', "checksum": (\d{1,10})\}\Z')


def seal(content: dict[str, Any], name: str) -> bytes:
    """The bytes of a file of this name.

    >>> seal({"batch": 7}, "manifests/7.json")
    b'{"batch": 7, "checksum": 1610229052}'
    """
    body = json.dumps(content).encode()[:-1]
    return b'%s, "checksum": %d}' % (body, _checksum(body, name))


def unseal(blob: bytes, name: str, path: str) -> dict[str, Any]:
    """The content of a file of this name; `path` is where it lies, for the error."""
    found = _SEAL.search(blob)
    if found is None:
        raise CheckpointError(
            f"{path} has no checksum at its end: it was cut, or watersmeet did not write it; {REMEDY}"
        )
    body = blob[: found.start()]
    if _checksum(body, name) != int(found[1]):
        raise CheckpointError(f"{path} is not what was written under this name: its checksum differs; {REMEDY}")
    content: dict[str, Any] = json.loads(body + b"}")
    return content


def _checksum(body: bytes, name: str) -> int:
    return zlib.crc32(body, zlib.crc32(name.encode()))
