"""The JSON documents of a checkpoint: one family with one format number, one seal, and one way to refuse what cannot be read.

    {"format": 7, "batch": 17, ..., "checksum": 2774069133}

A kind of document is a dataclass, and its fields are the keys. A document that is a file ends with a checksum of the file's name and of every byte
before it. So a file that was cut, changed or put in the place of another is an error that names it.

Invariant: a document is JSON and names its format. `parse` returns what `to_json` was asked of, and `unseal` what `seal` was given, or they
raise `CheckpointError`. Never pickle: a checkpoint cannot run code.
"""

from __future__ import annotations

import json
import re
import zlib
from copy import deepcopy
from dataclasses import fields
from typing import Any, Self

from watersmeet.errors import CheckpointError

FORMAT = 7
READABLE = (6, FORMAT)
"""The formats that are read: a document of an earlier one lacks fields, which then have their defaults."""
REMEDY = "restore the checkpoint as it was, or start with a new one"
_SHARED = {str, int, float, bool, type(None)}
_SEAL = re.compile(rb', "checksum": (\d{1,10})\}\Z')


class Document:
    """What a checkpoint keeps as JSON. Its kinds are dataclasses."""

    def to_json(self) -> str:
        """The document as text; dataclasses inside it become objects."""
        own = {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]
        return json.dumps({"format": FORMAT, **own}, default=vars)

    @classmethod
    def parse(cls, text: str | bytes, where: str) -> Self:
        """Read a document; `where` it lies is for the error."""
        try:
            raw = json.loads(text)
            if raw.pop("format") not in READABLE:
                raise CheckpointError(
                    f"{where} was written in another format than {READABLE[0]} to {FORMAT}; start with a new checkpoint"
                )
            return cls(**cls.restore(raw))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{where} cannot be read ({error}); {REMEDY}") from error

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """The values of fields, where JSON has made something else of them."""
        return raw


def copy_json(value: Any) -> Any:
    """What a document holds, apart from the original, in a fraction of the time of `deepcopy`, which looks for what is there twice.

    >>> first = {"a": [1, {"b": 2}]}
    >>> second = copy_json(first)
    >>> second["a"][1]["b"] = 3
    >>> first, second
    ({'a': [1, {'b': 2}]}, {'a': [1, {'b': 3}]})
    """
    kind = type(value)
    if kind is dict:
        return {key: item if type(item) in _SHARED else copy_json(item) for key, item in value.items()}
    if kind is list:
        return [item if type(item) in _SHARED else copy_json(item) for item in value]
    return value if kind in _SHARED else deepcopy(value)


def seal(text: str, name: str) -> bytes:
    """The bytes of a file of this name.

    >>> seal('{"batch": 7}', "manifests/7.json")
    b'{"batch": 7, "checksum": 1610229052}'
    """
    body = text.encode()[:-1]
    return b'%s, "checksum": %d}' % (body, _checksum(body, name))


def unseal(blob: bytes, name: str, path: str) -> bytes:
    """The text of a file of this name; `path` is where it lies, for the error."""
    found = _SEAL.search(blob)
    if found is None:
        raise CheckpointError(
            f"{path} has no checksum at its end: it was cut, or watersmeet did not write it; {REMEDY}"
        )
    body = blob[: found.start()]
    if _checksum(body, name) != int(found[1]):
        raise CheckpointError(f"{path} is not what was written under this name: its checksum differs; {REMEDY}")
    return body + b"}"


def _checksum(body: bytes, name: str) -> int:
    return zlib.crc32(body, zlib.crc32(name.encode()))
