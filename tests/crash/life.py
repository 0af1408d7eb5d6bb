"""One life of the driver: start it in a session of its own, watch its checkpoint, kill it, see that it is dead.

What has been done so far can be read from outside, from the driver's log and the files it leaves, in this order:

    "query started"     said by the driver: Spark reads its checkpoint and replays what was not committed
    offsets/n           the batch is planned: it will be replayed if it is not committed
    state .../n+1       a partition's state is committed
    _spark_metadata/n   the sink has committed the batch's results
    commits/n           the batch is done
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Phase = Literal["planned", "running", "state", "sink", "anywhere"]
LONGEST_DELAY_S: Mapping[Phase, float] = {
    "planned": 0.05,
    "running": 1.0,
    "state": 0.02,
    "sink": 0.003,
    "anywhere": 2.0,
}
PHASES = tuple(LONGEST_DELAY_S)
COLD_BATCH_S = 6.0
"""A life's first batch takes about so long: workers start, modules are imported, code is generated."""
MOST_BATCHES = 5
"""A life is killed after so many batches at the latest."""
DRIVER = Path(__file__).with_name("driver.py")
POLL_S = 0.002


class Stuck(AssertionError):
    """A life made no progress in the time it had."""


class Starved(Exception):
    """The driver ended by itself: Spark gives a Python process ten seconds to start, and on a busy machine it took longer."""


@dataclass(frozen=True)
class Kill:
    """When to kill: in the batch that follows `spared` committed ones, once it reaches a phase and `delay_s` later."""

    spared: int
    phase: Phase
    delay_s: float


def draw(count: int, rng: random.Random) -> list[Kill]:
    """Random moments, every phase equally often; most lives get a batch done, so that all together get somewhere."""
    phases = [PHASES[n % len(PHASES)] for n in range(count)]
    rng.shuffle(phases)
    return [_moment(phase, rng.choice((0, 1, 1, 2)), rng) for phase in phases]


def _moment(phase: Phase, spared: int, rng: random.Random) -> Kill:
    longest_s = LONGEST_DELAY_S[phase]
    if spared == 0 and phase in ("running", "anywhere"):
        longest_s = COLD_BATCH_S
    return Kill(spared, phase, rng.uniform(0, longest_s))


@dataclass(frozen=True)
class Death:
    """What the checkpoint and the sink looked like after a kill."""

    kill: Kill
    planned: int
    committed: int
    sunk: int

    @property
    def replayed(self) -> bool:
        """The next life must run a batch again."""
        return self.planned > self.committed

    @property
    def between_commits(self) -> bool:
        """The sink had the batch's results, the commit log did not: the next life must not write them twice."""
        return self.replayed and self.sunk == self.planned


class Life:
    """A running driver."""

    def __init__(self, data: Path, work: Path, files_per_trigger: int) -> None:
        self.checkpoint, self.out, self.log = work / "checkpoint", work / "out", work / "log"
        command = [sys.executable, *map(str, (DRIVER, data, self.out, self.checkpoint, files_per_trigger))]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def end(self, timeout_s: float) -> None:
        """Let it run to its end."""
        code = self.process.wait(timeout_s)
        if code and b"failed to connect back" in self.log.read_bytes():
            raise Starved
        assert code == 0, f"the driver ended with code {code}:\n{self.tail()}"

    def die(self, kill: Kill, timeout_s: float) -> Death | None:
        """Kill it as told; None if it ran to its end before that."""
        first = latest(self.checkpoint / "commits") + 1
        target = first + kill.spared
        if kill.phase in ("state", "sink") and self._reached(target, kill.phase):
            target += 1  # it was there before this life
        if not self._until(lambda: self._started() and self._reached(target, kill.phase), timeout_s):
            if self.process.poll() is None:
                raise Stuck(f"no progress in {timeout_s} s, processes {members(self.process.pid)}:\n{self.tail()}")
            self.end(1)
        self._until(lambda: latest(self.checkpoint / "commits") + 1 >= first + MOST_BATCHES, kill.delay_s)
        ran = self.process.poll() is None
        self.kill()
        if not ran:
            return None
        sunk = latest(self.out / "_spark_metadata")
        return Death(kill, latest(self.checkpoint / "offsets"), latest(self.checkpoint / "commits"), sunk)

    def kill(self) -> None:
        """SIGKILL the driver and its JVM at once, then what is left of the session; return when all are gone."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + 30
        while left := members(self.process.pid):
            # Python workers are in a group of their own and end when their JVM has; they can commit nothing.
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def tail(self) -> str:
        """What it said last."""
        return self.log.read_text(errors="replace")[-4000:]

    def _until(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        """Whether a condition came true before the time was over and before the driver ended."""
        deadline = time.monotonic() + timeout_s
        while not reached():
            if self.process.poll() is not None or time.monotonic() > deadline:
                return False
            time.sleep(POLL_S)
        return True

    def _started(self) -> bool:
        return b"query started" in self.log.read_bytes()

    def _reached(self, batch: int, phase: Phase) -> bool:
        if phase == "state":
            return state_version(self.checkpoint / "state") > batch
        if phase == "sink":
            return latest(self.out / "_spark_metadata") >= batch
        return latest(self.checkpoint / "offsets") >= batch


def latest(folder: Path) -> int:
    """The highest batch number in one of Spark's logs; -1 if there is none.

    >>> latest(Path("/nowhere"))
    -1
    """
    try:
        names = os.listdir(folder)
    except FileNotFoundError:
        return -1
    return max((int(name.split(".")[0]) for name in names if name.split(".")[0].isdigit()), default=-1)


def state_version(folder: Path) -> int:
    """The highest version of any partition's state: state/operator/partition/version.zip or .changelog."""
    return max((latest(partition) for partition in folder.glob("*/[0-9]*")), default=-1)


def members(session: int) -> dict[int, str]:
    """The living processes of a session and their states (R, S, D, T for stopped)."""
    found = {}
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            state, _, _, owner = stat.rpartition(")")[2].split()[:4]
            if int(owner) == session and state != "Z":
                found[int(name)] = state
    return found
