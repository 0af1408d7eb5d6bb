"""The JSON documents of a checkpoint, a unit's manifest among them: one family with one format number, one seal, and one way to refuse what cannot be read.

    {"format": 5, "batch": 17, ..., "checksum": 2774069133}

A kind of document is a dataclass, and its fields are the keys. A document that is a file ends with a checksum of the file's name and of every byte
before it. So a file that was cut, changed or put in the place of another is an error that names it.

Invariant: a document is JSON and names its format. `parse` returns what `to_json` was asked of, and `unseal` what `seal` was given, or they
raise `CheckpointError`. Never pickle: a checkpoint cannot run code. A unit's manifest names exactly its live segments; maxima include the last batch.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn, Protocol, Self

from watersmeet.errors import CheckpointError
from watersmeet.plan.fingerprint import find_differences, parts_of
from watersmeet.storage.segment import SegmentInfo

FORMAT = 5
REMEDY = "restore the checkpoint as it was, or start with a new one"
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
            if raw.pop("format") != FORMAT:
                raise CheckpointError(
                    f"{where} was written in another format than {FORMAT}; start with a new checkpoint"
                )
            return cls(**cls.restore(raw))
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise CheckpointError(f"{where} cannot be read ({error}); {REMEDY}") from error

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> dict[str, Any]:
        """The values of fields, where JSON has made something else of them."""
        return raw


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


OTHER = ":"
"""Kinds of segments that begin so hold other things than rows of streams or results."""
REWRITTEN = ":rewritten"
"""The kind of RJoin's rows that wait."""


class Described(Protocol):
    """What state is stored under: a query's plan, or a registry's."""

    @property
    def title(self) -> str:
        """What checkpoints call it."""

    @property
    def units(self) -> int:
        """How many units join."""

    @property
    def aliases(self) -> tuple[str, ...]:
        """What tuples are stored under."""

    def description(self) -> dict[str, Any]:
        """What stored state depends on, as JSON."""

    def fingerprint(self) -> str:
        """Of the description."""


@dataclass(frozen=True)
class Identity:
    """Whose state it is: what a checkpoint must agree in."""

    fingerprint: str
    query: str
    parts: Mapping[str, str]
    """Digests of what the fingerprint covers, see `plan.fingerprint`."""
    units: int
    kinds: tuple[str, ...]
    """Kinds of segments that a fresh unit has."""

    @classmethod
    def of(cls, plan: Described) -> Identity:
        return cls(plan.fingerprint(), plan.title, parts_of(plan.description()), plan.units, plan.aliases)


@dataclass
class Manifest(Document):
    """One unit's memory."""

    fingerprint: str
    query: str
    maxima: dict[str, int] = field(default_factory=dict)
    segments: dict[str, list[SegmentInfo]] = field(default_factory=dict)
    late: dict[str, int] = field(default_factory=dict)
    fanout: dict[str, list[float]] = field(default_factory=dict)
    """Measured fan-outs by 'bound>probed': probes, matches, and probes times rows that were there, all fading."""
    driving: dict[str, float] = field(default_factory=dict)
    """What driver selection has measured, see `driving.DriverStats`."""
    extra: dict[str, Any] = field(default_factory=dict)
    parts: dict[str, str] = field(default_factory=dict)
    """Digests of what the fingerprint covers, see `plan.fingerprint`; where units' manifests lie together, these lie beside them."""

    @classmethod
    def fresh(cls, whose: Identity) -> Manifest:
        segments: dict[str, list[SegmentInfo]] = {kind: [] for kind in whose.kinds}
        return cls(whose.fingerprint, whose.query, segments=segments, parts=dict(whose.parts))

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> dict[str, Any]:
        raw["segments"] = {a: [SegmentInfo(**s) for s in infos] for a, infos in raw["segments"].items()}
        return raw

    @classmethod
    def from_json(cls, text: str, whose: Identity) -> Manifest:
        """Read a manifest; refuse one of another query or placement."""
        manifest = cls.parse(text, "the unit's manifest in the checkpoint")
        if manifest.fingerprint != whose.fingerprint:
            refuse(manifest.fingerprint, manifest.query, manifest.parts, whose)
        return manifest

    def snapshot(self) -> Manifest:
        """As it is now, whatever its unit changes."""
        return replace(self, segments={kind: list(infos) for kind, infos in self.segments.items()})

    def rows(self) -> dict[str, int]:
        return {alias: sum(s.rows for s in infos) for alias, infos in self.segments.items()}

    def bytes(self) -> int:
        return sum(s.bytes for infos in self.segments.values() for s in infos)


def refuse(
    fingerprint: str, query: str, parts: Mapping[str, str], whose: Identity, where: str = "the checkpoint"
) -> NoReturn:
    """The state of one placement is asked for by another."""
    names = find_differences(parts, whose.parts) if parts else []
    raise CheckpointError(
        f"{where} belongs to another query or placement"
        + (f"; what differs: {', '.join(names)}. " if names else ". ")
        + f"It was written by fingerprint {fingerprint} of\n  {' '.join(query.split())}\n"
        f"and this is fingerprint {whose.fingerprint} of\n  {whose.query}\nwith {whose.units} units; "
        "restore the query, schemas, time zone and units= it was started with, or start with a new checkpoint folder"
    )
