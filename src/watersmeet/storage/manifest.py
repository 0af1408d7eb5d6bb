"""What a checkpoint remembers and decides, as documents (`storage.document`).

    Manifest        what a unit remembers between batches
    BatchManifest   what is true after a batch under `start()`: that of all its units
    Intent          what a batch has decided to do

Invariant: a manifest names exactly the segments that its state needs; maxima include the last batch.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence, Set
from copy import deepcopy
from dataclasses import dataclass, field, fields, replace
from typing import Any, NoReturn, Protocol

from watersmeet.errors import CheckpointError
from watersmeet.plan.fingerprint import find_differences, parts_of
from watersmeet.storage.document import REMEDY, Document, copy_json
from watersmeet.storage.segment import SegmentInfo

OTHER = ":"
"""Kinds of segments that begin so hold other things than rows of streams or results."""
REWRITTEN = ":rewritten"
"""The kind of RJoin's rows that wait."""


_UPGRADE = "hand its state over with start(upgrade=True) or run --upgrade (explain(checkpoint=...) or explain --checkpoint says what is kept), "


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

    def copy(self) -> Manifest:
        """The same memory, apart."""
        fanout = {pair: list(counts) for pair, counts in self.fanout.items()}
        out = replace(self.snapshot(), fanout=fanout, extra=deepcopy(self.extra))
        out.late, out.driving, out.maxima = dict(self.late), dict(self.driving), dict(self.maxima)
        return out

    def rows(self) -> dict[str, int]:
        return {alias: sum(s.rows for s in infos) for alias, infos in self.segments.items()}

    def bytes(self) -> int:
        return sum(s.bytes for infos in self.segments.values() for s in infos)


def refuse(
    fingerprint: str,
    query: str,
    parts: Mapping[str, str],
    whose: Identity,
    where: str = "the checkpoint",
    *,
    upgrades: bool = False,
) -> NoReturn:
    """The state of one placement is asked for by another; `upgrades`: it may be handed over."""
    names = find_differences(parts, whose.parts) if parts else []
    raise CheckpointError(
        f"{where} belongs to another query or placement"
        + (f"; what differs: {', '.join(names)}. " if names else ". ")
        + f"It was written by fingerprint {fingerprint} of\n  {' '.join(query.split())}\n"
        f"and this is fingerprint {whose.fingerprint} of\n  {whose.query}\nwith {whose.units} units; "
        f"restore the query, schemas, time zone and units= it was started with, {_UPGRADE if upgrades else ''}or start with a new checkpoint folder"
    )


_COMMON = ("fingerprint", "query", "maxima", "parts")
"""What is the same in all units' manifests."""


@dataclass
class BatchManifest(Document):
    """The state of all units after a batch. Batch -1 is the state before the first."""

    batch: int
    query_id: str
    fingerprint: str
    query: str
    maxima: dict[str, int] = field(default_factory=dict)
    """Highest event time by stream."""
    timeless: dict[str, int] = field(default_factory=dict)
    """Rows without a time or too far ahead, and late rows of units that are gone, by stream, since the beginning."""
    units: dict[int, dict[str, Any]] = field(default_factory=dict)
    """The units' manifests, without what is the same for all."""
    routing: list[dict[str, Any]] = field(default_factory=list)
    """The routing from the next batch on, see `routing.epochs`; empty if it is the plan's."""
    spread: dict[str, Any] = field(default_factory=dict)
    """Hot keys of the next batch (`next`), and what has been counted (`memory`), see `routing.balance`."""
    scaling: dict[str, Any] = field(default_factory=dict)
    """What scaling remembers, see `routing.scaling.ScalingMemory`."""
    shipping: dict[str, Any] = field(default_factory=dict)
    """Aliases whose payloads lie apart (`stored`), those of the next batch (`next`) and the traffic, see `rounds.decide`."""
    queries: dict[str, Any] = field(default_factory=dict)
    """The version of the registry that has been answered, see `subscriptions.registry`; empty for a query by itself."""

    sites: dict[str, Any] = field(default_factory=dict)
    """How sites join in the next batch (`next`), and what has been measured of the streams, see `rounds.decide`."""
    parts: dict[str, str] = field(default_factory=dict)
    """Digests of what the fingerprint covers, see `plan.fingerprint`."""
    spark: dict[str, str] = field(default_factory=dict)
    """Digests of Spark's own files that the batch depends on, see `rounds.checkpoint`."""
    sink: str | None = None
    """What the batch has left in a folder of results, see `rounds.results.folder`."""
    late_sink: str | None = None
    """The same in a folder of dropped rows."""
    hosts: dict[int, str] = field(default_factory=dict)
    """The hosts that units are to run on, where there are several, see `rounds.hosts`."""
    known: dict[str, int] = field(default_factory=dict)
    """By alias the event time from which its stored rows are complete, where the query was changed; see `runtime.checkpoints.upgrade`."""
    sources: list[str] = field(default_factory=list)
    """The aliases in the order in which Spark's logs have their sources; empty if that is the order of FROM."""

    @classmethod
    def fresh(cls, whose: Identity, query_id: str) -> BatchManifest:
        return cls(-1, query_id, whose.fingerprint, whose.query, parts=dict(whose.parts))

    @classmethod
    def restore(cls, raw: dict[str, Any]) -> dict[str, Any]:
        raw["units"] = {int(unit): state for unit, state in raw["units"].items()}
        raw["hosts"] = {int(unit): host for unit, host in raw.get("hosts", {}).items()}
        manifest = cls(**raw)
        manifest.late(), manifest.files()
        return raw

    def copy(self) -> BatchManifest:
        """The same state, apart."""
        return replace(self, **{f.name: copy_json(getattr(self, f.name)) for f in fields(self)})

    def state_of(self, unit: int) -> str | None:
        """A unit's manifest as JSON; None if it has never run."""
        state = self.units.get(unit)
        if state is None:
            return None
        whole = {"fingerprint": self.fingerprint, "query": self.query, "maxima": self.maxima, **state}
        return json.dumps(whole)

    def put(self, unit: int, state: str) -> None:
        """Take a unit's manifest over."""
        raw = json.loads(state)
        self.units[unit] = {k: v for k, v in raw.items() if k not in _COMMON}

    def adopt(self, whose: Identity, unit: int, alias: str, info: Mapping[str, Any]) -> None:
        """Give a unit a segment that was written elsewhere."""
        self._open(whose, unit)
        self.units[unit]["segments"].setdefault(alias, []).append(dict(info))

    @property
    def apart(self) -> tuple[str, ...]:
        """The aliases whose stored payloads lie apart from their tuples."""
        return tuple(self.shipping.get("stored", ()))

    def drop(self, alias: str, first: int) -> None:
        """Let units from a number on forget their segments of an alias."""
        for unit, state in self.units.items():
            if unit >= first and alias in state["segments"]:
                state["segments"][alias] = []

    def expire(self, cuts: Mapping[str, int]) -> None:
        """Drop segments that lie wholly before a cut; a unit need not run for that."""
        for state in self.units.values():
            for alias, segments in state["segments"].items():
                state["segments"][alias] = [s for s in segments if s["max_ts"] >= cuts.get(alias, s["max_ts"])]

    def retire(self, units: Set[int]) -> None:
        """Forget units that hold nothing and get nothing; their late rows stay counted."""
        for unit in units & set(self.units):
            for stream, rows in self.units.pop(unit)["late"].items():
                self.timeless[stream] = self.timeless.get(stream, 0) + rows

    def deal(
        self, whose: Identity, side: str, units: Sequence[int], among: Sequence[int], loads: dict[int, int]
    ) -> int:
        """Deal a side's segments out: those of units that are not `among` go to the emptiest that are; then the fullest
        gives to the emptiest as long as that evens them out. How many were handed over."""
        held = {u: list(self.units[u]["segments"].get(side, [])) if u in self.units else [] for u in units}
        load = {u: loads.get(u, 0) for u in units}
        moved = 0

        def hand(segment: dict[str, Any], giver: int, taker: int) -> None:
            nonlocal moved
            held[giver].remove(segment)
            held[taker].append(segment)
            load[giver] -= segment["bytes"]
            load[taker] += segment["bytes"]
            moved += 1

        for giver in units:
            for segment in [] if giver in among else list(held[giver]):
                hand(segment, giver, min(among, key=lambda u: (load[u], u)))
        while True:
            fullest, emptiest = max(among, key=lambda u: (load[u], u)), min(among, key=lambda u: (load[u], u))
            fitting = [s for s in held[fullest] if 0 < s["bytes"] < load[fullest] - load[emptiest]]
            if not fitting:
                break
            hand(max(fitting, key=lambda s: (s["bytes"], s["id"])), fullest, emptiest)
        for unit in units:
            if held[unit]:
                self._open(whose, unit)
            if unit in self.units:
                self.units[unit]["segments"][side] = held[unit]
        return moved

    def _open(self, whose: Identity, unit: int) -> None:
        if unit not in self.units:
            self.put(unit, Manifest.fresh(whose).to_json())

    def segments(self) -> Iterator[tuple[int, str, SegmentInfo]]:
        """(unit, alias, segment) of all live segments."""
        for unit, state in self.units.items():
            for alias, infos in state["segments"].items():
                yield from ((unit, alias, SegmentInfo(**info)) for info in infos)

    def files(self) -> set[str]:
        return {info.file for _, _, info in self.segments()}

    def files_of(self, unit: int) -> set[str]:
        return {info["file"] for infos in self.units[unit]["segments"].values() for info in infos}

    def late(self) -> dict[str, int]:
        """Late rows by stream since the beginning."""
        out = dict(self.timeless)
        for state in self.units.values():
            for stream, rows in state["late"].items():
                out[stream] = out.get(stream, 0) + rows
        return out

    def fan_outs(self) -> dict[str, float]:
        """Partners that a tuple has found lately, by 'bound>probed'."""
        sums: dict[str, list[float]] = {}
        for state in self.units.values():
            for pair, (probes, matches, *_) in state.get("fanout", {}).items():
                known = sums.setdefault(pair, [0.0, 0.0])
                known[0] += probes
                known[1] += matches
        return {pair: matches / probes for pair, (probes, matches) in sums.items() if probes}

    def check(self, whose: Identity, query_id: str, where: str) -> None:
        """Refuse the state of another query, placement or checkpoint."""
        check_query(self.query_id, query_id, where)
        if self.fingerprint != whose.fingerprint:
            upgrades = not self.queries and not self.sites
            refuse(self.fingerprint, self.query, self.parts, whose, where, upgrades=upgrades)


@dataclass(frozen=True)
class Intent(Document):
    """What a batch has decided before its first round. A replay reads it instead of deciding again."""

    batch: int
    query_id: str
    fingerprint: str
    previous: int
    plan: dict[str, Any]
    """The plan's description: routing among it."""
    routing: list[dict[str, Any]] = field(default_factory=list)
    """The routing of this batch, where it is not the plan's."""
    spread: list[dict[str, Any]] = field(default_factory=list)
    """The hot keys of this batch, see `routing.spread`."""
    shipping: list[str] = field(default_factory=list)
    """The aliases whose payloads follow later."""
    queries: dict[str, Any] = field(default_factory=dict)
    """The version of the registry that the batch answers."""
    sites: dict[str, Any] = field(default_factory=dict)
    """Of a site: the letters of others that the batch takes, and what it knows with them."""
    query: str = ""
    spark: dict[str, str] = field(default_factory=dict)
    """Digests of Spark's own files that the batch depends on, see `rounds.checkpoint`."""
    required: dict[str, list[str]] | None = None
    """By alias the expressions without which a row was not stored; None: not known."""

    def check(self, whose: Identity, query_id: str, previous: int, where: str) -> None:
        """Refuse what another query, placement or checkpoint has decided."""
        check_query(self.query_id, query_id, where)
        if self.fingerprint != whose.fingerprint:
            upgrades = not self.queries and not self.sites
            refuse(self.fingerprint, self.query, parts_of(self.plan), whose, where, upgrades=upgrades)
        if self.previous != previous:
            raise CheckpointError(
                f"{where} follows batch {self.previous}, and the state is of batch {previous}; {REMEDY}"
            )


def check_query(found: str, query_id: str, where: str) -> None:
    if found != query_id:
        raise CheckpointError(
            f"{where} belongs to Spark query {found}, and the checkpoint's own file metadata names {query_id}: they do not belong together; {REMEDY}"
        )
