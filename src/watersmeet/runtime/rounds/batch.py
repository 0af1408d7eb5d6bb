"""One attempt at one batch: what it is given, and what it did.

Invariant: until it ends, the state's maxima are those of the batches before.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pyspark.sql import DataFrame

from watersmeet.dataflow.contract import Message
from watersmeet.dataflow.report import Report
from watersmeet.storage.manifest import BatchManifest

Run = Callable[[DataFrame], None]
"""Runs a frame exactly once."""


@dataclass
class Account:
    """What a batch did, for progress."""

    rows: int = 0
    """That entered, once for every alias."""
    rounds: int = 0
    reports: dict[int, Report] = field(default_factory=dict)
    mail_bytes: int = 0
    """What was sent to units: tuples, where source tasks post them, and what units sent each other."""
    heavy: list[Any] = field(default_factory=list)
    """Frequent keys, see `scaled.Heavy`."""
    said: list[str] = field(default_factory=list)
    """What will change from the next batch on, in words."""
    broken: dict[str, int] = field(default_factory=dict)
    """Rows that were set aside where they entered, by stream, because they break an expression."""
    late_sample: list[dict[str, Any]] = field(default_factory=list)
    """A few of the dropped rows, if somebody asks for them."""
    entered: dict[str, list[int]] = field(default_factory=dict)
    """By alias: tuples read, their bytes without payload, bytes of payload; if the batch weighs them."""
    tasks: int = 1
    """Source tasks."""
    attempt: str = ""
    """What the names of its files begin with."""
    written: set[str] = field(default_factory=set)
    """Files of segments that its units have had after their turns; a unit that takes several may have replaced some itself."""
    units: int = 0
    """How many units shared registered queries; 0: as many as planned."""
    unread: str = ""
    """Why Spark had to read the files of the batch, if source tasks were to read them."""

    @property
    def results(self) -> int:
        return sum(report.results for report in self.reports.values())


@dataclass
class Batch:
    """One attempt at one batch. Until it ends, the state's maxima are those of the batches before."""

    entered: DataFrame
    state: BatchManifest
    attempt: str
    decisions: dict[str, Any] = field(default_factory=dict)
    """What it has decided, by name, see `dataflow.contract.Flows`."""
    watches_keys: bool = False
    weighs: bool = False
    """Whether source tasks say how wide tuples are."""
    writes: bool = True
    """Whether results that become files are written: not if the sink has the batch."""
    deliver_late: Run | None = None
    """Gets the dropped rows, once, if somebody asks for them."""
    inbox: Sequence[Message] = ()
    """What has come from elsewhere for the first round."""

    @property
    def apart(self) -> tuple[str, ...]:
        """The aliases whose payloads follow later."""
        return tuple(self.decisions.get("shipping", ()))
