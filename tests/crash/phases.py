"""How far a driver has come can be read from outside, from the files it leaves, in this order:

offsets/n                       the batch is planned: it will be replayed if it is not committed
state .../n+1                   (stream) a partition's state is committed
watersmeet/intents/n.json       (rounds) the batch has decided what to do
watersmeet/mail/n-*             (rounds) the first job has sent its mail; not of a small batch
watersmeet/segments/n-*         (rounds) a unit has written state
_spark_metadata/n               the sink has committed the batch's results; of a Delta table, an entry with the number n
watersmeet/manifests/n.json     (rounds) the new state counts
commits/n                       the batch is done
"""

from __future__ import annotations

import os
import random
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

COLD_BATCH_S = 6.0
"""A life's first batch takes about so long: workers start, modules are imported, code is generated."""


def latest(folder: Path, named: str = r"(\d+)(\.\w+)?") -> int:
    """The highest batch number among a folder's files; -1 if there is none.

    >>> latest(Path("/nowhere"))
    -1
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(found[1]) for name in names if (found := re.fullmatch(named, name))), default=-1)


def state_version(folder: Path) -> int:
    """The highest version of any partition's state: state/operator/partition/version.zip or .changelog."""
    return max((latest(partition) for partition in folder.glob("*/[0-9]*")), default=-1)


@dataclass(frozen=True)
class Phase:
    """A place within a batch where a driver may be killed."""

    reached: Callable[[Path], int]
    """The latest batch that has come so far, from the work folder."""
    longest_delay_s: float
    """A kill comes at most so long after."""


def planned(work: Path) -> int:
    return latest(work / "checkpoint" / "offsets")


def committed(work: Path) -> int:
    return latest(work / "checkpoint" / "commits")


def sunk(work: Path) -> int:
    return max(latest(work / "out" / "_spark_metadata"), *_numbers(work / "out" / "_delta_log"), -1)


def _numbers(log: Path) -> list[int]:
    """The batches that the last entries of a Delta log are of."""
    entries = sorted(log.glob("[0-9]*.json"))[-2:]
    return [int(found) for entry in entries for found in re.findall(r'"txn":{[^}]*"version":(\d+)', entry.read_text())]


def manifested(work: Path) -> int:
    return latest(work / "checkpoint" / "watersmeet" / "manifests")


def _of_attempts(kind: str) -> Callable[[Path], int]:
    return lambda work: latest(work / "checkpoint" / "watersmeet" / kind, r"(\d+)-.*")


def _posted(work: Path) -> int:
    """Mail, or what comes after it: of a small batch it is in no file."""
    return max(_of_attempts("mail")(work), _of_attempts("segments")(work))


_PHASES: Mapping[str, Mapping[str, Phase]] = {
    "stream": {
        "planned": Phase(planned, 0.05),
        "running": Phase(planned, 1.0),
        "state": Phase(lambda work: state_version(work / "checkpoint" / "state") - 1, 0.02),
        "sink": Phase(sunk, 0.003),
        "anywhere": Phase(planned, 2.0),
    },
    "rounds": {
        "planned": Phase(planned, 0.05),
        "intent": Phase(lambda work: latest(work / "checkpoint" / "watersmeet" / "intents"), 0.05),
        "mail": Phase(_posted, 0.05),
        "segments": Phase(_of_attempts("segments"), 0.02),
        "sink": Phase(sunk, 0.003),
        "manifest": Phase(manifested, 0.003),
        "anywhere": Phase(planned, 2.0),
    },
}
PHASES = {
    **_PHASES,
    "theta": _PHASES["stream"],
    "scaling": _PHASES["rounds"],
    "outer": _PHASES["stream"],
    "settled": _PHASES["rounds"],
    "marked": _PHASES["stream"],
    "late": {
        **_PHASES["rounds"],
        "late rows": Phase(lambda work: latest(work / "out-late" / "_spark_metadata"), 0.003),
    },
    "delta": _PHASES["rounds"],
    "subscriptions": _PHASES["rounds"],
}


@dataclass(frozen=True)
class Kill:
    """When to kill: in the batch that follows `spared` committed ones, once it reaches a phase and `delay_s` later."""

    run: str
    spared: int
    name: str
    delay_s: float

    @property
    def phase(self) -> Phase:
        return PHASES[self.run][self.name]


def draw(run: str, count: int, rng: random.Random) -> list[Kill]:
    """Random moments, every phase equally often or once at most; most lives get a batch done, so that all together get somewhere."""
    phases = list(PHASES[run])
    turns = [name for _ in range(0, count, len(phases)) for name in rng.sample(phases, len(phases))]
    names = turns[:count]
    return [moment(run, name, rng.choice((0, 1, 1, 2)), rng) for name in names]


def moment(run: str, name: str, spared: int, rng: random.Random) -> Kill:
    longest_s = PHASES[run][name].longest_delay_s
    if spared == 0 and name in ("running", "anywhere"):
        longest_s = COLD_BATCH_S
    return Kill(run, spared, name, rng.uniform(0, longest_s))


@dataclass(frozen=True)
class Death:
    """What the checkpoint and the sink looked like after a kill."""

    kill: Kill
    planned: int
    committed: int
    sunk: int
    manifested: int

    @classmethod
    def found(cls, kill: Kill, work: Path) -> Death:
        return cls(kill, planned(work), committed(work), sunk(work), manifested(work))

    @property
    def replayed(self) -> bool:
        """The next life must run a batch again."""
        return self.planned > self.committed

    @property
    def between_commits(self) -> bool:
        """The sink had the batch's results, the commit log did not: the next life must not write them twice."""
        return self.replayed and self.sunk == self.planned
