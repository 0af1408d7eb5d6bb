"""The contract between units and a runtime of rounds: a unit takes its inbox and answers with results and mail.

    round 0    the batch's tuples, by alias           --step-->   results, mail to other units
    round 1    mail of round 0, by kind               --step-->   results, mail
    ...        until no unit has sent anything

Invariant: what a step yields depends on its call alone, never on chance or on the order of the rows inside it; only
ids of segments differ between two attempts.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from watersmeet.errors import WatersmeetError
from watersmeet.routing.biclique import Role
from watersmeet.units.join_unit import Inbox, StepReport
from watersmeet.units.pack import Punctuation
from watersmeet.units.segment_store import SegmentStore
from watersmeet.units.state import Manifest

CONTROL = "control"
"""The kind of mail that is JSON in one cell, see `control` and `said`."""


PROBE = "probe "
"""Prefix of the kind of tuples that only probe, see `kind_of`."""


@dataclass(frozen=True)
class Mail:
    """Rows for a unit, to be read in the next round or in a later one."""

    to: int
    kind: str
    table: pa.Table
    round: int | None = None


@dataclass
class Call:
    """One unit's turn in one round."""

    round: int
    unit: int
    inbox: dict[str, list[pa.Table]]
    """Tables by kind of mail; tuples that enter have the kind of their side."""
    manifest: Manifest
    """The unit's memory, changed in place; its maxima are those of the batches before this one."""
    store: SegmentStore
    seen: Mapping[str, int] = field(default_factory=dict)
    """Event times that this batch has reached for certain, by stream; the true maxima may be higher."""
    batch: int = 0
    """The number of the micro-batch: the same on a replay."""
    queries: Mapping[str, Any] = field(default_factory=dict)
    """Which registered queries the batch answers, as its intent says it; empty for a query by itself."""
    peers: Mapping[int, Manifest] = field(default_factory=dict)
    """The memories of all units as they were when the round began; to read, not to change."""
    report: StepReport = field(default_factory=StepReport)


class Program(Protocol):
    """What the units of a query do. Programs travel to the workers, so they are small and hold no data."""

    @property
    def rounds(self) -> int | None:
        """How many rounds a batch has at most, if that is known; results come in the last one only."""

    @property
    def wakes(self) -> bool:
        """Whether all units take a turn in round 0, those without mail too."""

    def entrance(self) -> int | None:
        """The unit that gets all tuples in round 0; None if they are routed by their keys."""

    def step(self, call: Call) -> Iterator[pa.Table | Mail]:
        """One unit's turn: tables of results, and mail."""

    def cuts(self, maxima: Mapping[str, int]) -> Mapping[str, int]:
        """For every alias the time before which its stored tuples are dead, once a batch has reached these maxima."""


class Answering(Program, Protocol):
    """What answers registered queries: it says itself where tuples go."""

    def address(self, stream: str, columns: Sequence[str], wire: pa.Table, first: int) -> Iterator[Mail]:
        """A stream's new tuples to their units. `columns` are those that queries compare (`plan.shape.indexed`); the tuples may be
        numbered from `first` on: no others of the checkpoint have these numbers."""


def kind_of(side: str, role: Role) -> str:
    """The kind of mail that brings tuples of a side."""
    return PROBE + side if role == "probe" else side


def inbox_of(mail: dict[str, list[pa.Table]], seen: Mapping[str, int]) -> Inbox:
    """Mail of tuples as a join unit takes it. The mail is handed over, so that what the unit consumes is let go.

    >>> inbox = inbox_of({"a": [], "probe b": []}, {})
    >>> list(inbox.tables), list(inbox.probes)
    (['a'], ['b'])
    """
    inbox = Inbox(punctuations={s: Punctuation(ts) for s, ts in seen.items()})
    while mail:
        kind, tables = mail.popitem()
        into = inbox.probes if kind.startswith(PROBE) else inbox.tables
        into[kind.removeprefix(PROBE)] = tables
    return inbox


def id_of(batch: int, task: int, row: int) -> int:
    """A number for the row of a source task's batch.

    >>> id_of(1, 0, 5) - id_of(1, 0, 0), id_of(0, 1, 0) > id_of(0, 0, 2**26 - 1), id_of(1, 0, 0) > id_of(0, 2**12 - 1, 0)
    (5, True, True)
    """
    if row >= 2**26 or task >= 2**12:
        raise WatersmeetError(
            f"row {row} of task {task} in one micro-batch: RJoin numbers 2^26 rows of 2^12 tasks; limit what a trigger reads (maxFilesPerTrigger, maxOffsetsPerTrigger)"
        )
    return batch << 38 | task << 26 | row


def control(to: int, said: Mapping[str, Any]) -> Mail:
    """A mail of JSON.

    >>> said(control(3, {"cut": 5}).table)
    {'cut': 5}
    """
    return Mail(to, CONTROL, pa.table({"json": [json.dumps(said)]}))


def said(table: pa.Table) -> dict[str, Any]:
    """What a control mail says."""
    return json.loads(table.column("json")[0].as_py())
