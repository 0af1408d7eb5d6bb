"""What a unit remembers between batches: a small JSON manifest, and segments by id.

Invariant: the manifest names exactly the live segments; maxima include the last batch. It is JSON and Arrow, never
pickle: a checkpoint cannot run code.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, NoReturn

from watersmeet.errors import CheckpointError
from watersmeet.plan.model import Plan
from watersmeet.plan.parts import differing, parts_of

FORMAT = 2
OTHER = ":"
"""Kinds of segments that begin so hold other things than rows of streams or results."""
REWRITTEN = ":rewritten"
"""The kind of RJoin's rows that wait."""


@dataclass
class SegmentInfo:
    """A live segment, as the manifest knows it."""

    id: str
    rows: int
    bytes: int
    min_ts: int
    max_ts: int
    file: str = ""
    """The name of its file, where segments are files."""
    file_bytes: int = 0
    """The length of its file or blob."""
    checksum: int = 0
    """CRC-32 of these bytes."""


@dataclass
class Manifest:
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
    """Digests of what the fingerprint covers, see `plan.parts`; where units' manifests lie together, these lie beside them."""

    @classmethod
    def fresh(cls, plan: Plan) -> Manifest:
        segments: dict[str, list[SegmentInfo]] = {a: [] for a in plan.aliases}
        return cls(plan.fingerprint(), plan.title, segments=segments, parts=parts_of(plan.description()))

    def to_json(self) -> str:
        return json.dumps({"format": FORMAT, **asdict(self)})

    @classmethod
    def from_json(cls, text: str, plan: Plan) -> Manifest:
        """Read a manifest; refuse one of another query or placement."""
        try:
            raw = json.loads(text)
            if raw.pop("format") != FORMAT:
                raise CheckpointError(
                    f"the checkpoint was written in another format than {FORMAT}; start with a new checkpoint folder"
                )
            raw["segments"] = {a: [SegmentInfo(**s) for s in infos] for a, infos in raw["segments"].items()}
            manifest = cls(**raw)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointError(
                f"corrupt checkpoint: the unit's manifest cannot be read ({error}); start with a new checkpoint folder"
            ) from error
        if manifest.fingerprint != plan.fingerprint():
            refuse(manifest.fingerprint, manifest.query, manifest.parts, plan)
        return manifest

    def seen_by_others(self) -> Manifest:
        """As it is now, whatever its unit changes."""
        return replace(self, segments={kind: list(infos) for kind, infos in self.segments.items()})

    def rows(self) -> dict[str, int]:
        return {alias: sum(s.rows for s in infos) for alias, infos in self.segments.items()}

    def bytes(self) -> int:
        return sum(s.bytes for infos in self.segments.values() for s in infos)


def refuse(
    fingerprint: str, query: str, parts: Mapping[str, str], plan: Plan, where: str = "the checkpoint"
) -> NoReturn:
    """The state of one placement is asked for by another."""
    names = differing(parts, parts_of(plan.description())) if parts else []
    raise CheckpointError(
        f"{where} belongs to another query or placement"
        + (f"; what differs: {', '.join(names)}. " if names else ". ")
        + f"It was written by fingerprint {fingerprint} of\n  {' '.join(query.split())}\n"
        f"and this is fingerprint {plan.fingerprint()} of\n  {plan.title}\nwith {plan.units} units; "
        "restore the query, schemas, time zone and units= it was started with, or start with a new checkpoint folder"
    )
