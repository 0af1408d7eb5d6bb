"""One life of the driver: start it in a session of its own, watch its checkpoint, kill it, see that it is dead.

What a micro-batch has done so far can be read from outside, from the files that it leaves, in this order:

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
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

Phase = Literal["planned", "running", "state", "sink", "anywhere"]
PHASES: tuple[Phase, ...] = ("planned", "running", "state", "sink", "anywhere")
DRIVER = Path(__file__).with_name("driver.py")
POLL_S = 0.002


class Stuck(AssertionError):
    """A life made no progress in the time it had."""


@dataclass(frozen=True)
class Kill:
    """When to kill: in the batch that follows `spared` committed ones, once it reaches a phase and `delay_s` later."""

    spared: int
    phase: Phase
    delay_s: float

    @classmethod
    def draw(cls, rng: random.Random) -> Kill:
        """A random moment; most lives get at least one batch done, so that all lives together get somewhere."""
        phase = rng.choice(PHASES)
        longest = {"planned": 0.05, "running": 1.0, "state": 0.02, "sink": 0.01, "anywhere": 2.0}[phase]
        return cls(rng.choice((0, 1, 1, 2)), phase, rng.uniform(0, longest))


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
        command = [sys.executable, DRIVER, data, self.out, self.checkpoint, str(files_per_trigger)]
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def end(self, timeout_s: float) -> None:
        """Let it run to its end."""
        code = self.process.wait(timeout_s)
        assert code == 0, f"the driver ended with code {code}:\n{self.log.read_text(errors='replace')[-4000:]}"

    def die(self, kill: Kill, timeout_s: float) -> Death | None:
        """Kill it as told; None if it ran to its end before that."""
        target = latest(self.checkpoint / "commits") + kill.spared
        if self._wait(lambda: self._reached(target + 1, kill.phase), timeout_s):
            time.sleep(kill.delay_s)
        else:
            self.end(1)
        ran = self.process.poll() is None
        self.kill()
        if not ran:
            return None
        sunk = latest(self.out / "_spark_metadata")
        return Death(kill, latest(self.checkpoint / "offsets"), latest(self.checkpoint / "commits"), sunk)

    def kill(self) -> None:
        """SIGKILL the driver and its JVM at once, then what is left of the session; return when all are gone."""
        if members(self.process.pid):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        deadline = time.monotonic() + 30
        while left := members(self.process.pid):
            # Python workers are in a group of their own and end when their JVM has; they can commit nothing.
            if time.monotonic() > deadline:
                for pid in left:
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.01)

    def _wait(self, reached: Callable[[], bool], timeout_s: float) -> bool:
        deadline = time.monotonic() + timeout_s
        while not reached():
            if self.process.poll() is not None:
                return False
            if time.monotonic() > deadline:
                self.kill()
                raise Stuck(f"no progress in {timeout_s} s:\n{self.log.read_text(errors='replace')[-4000:]}")
            time.sleep(POLL_S)
        return True

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
    """The highest version of any partition's state."""
    return max((latest(Path(path)) for path, _, _ in os.walk(folder)), default=-1)


def members(session: int) -> list[int]:
    """The living processes of a session."""
    found = []
    for name in os.listdir("/proc"):
        if name.isdigit():
            try:
                stat = Path(f"/proc/{name}/stat").read_text()
            except OSError:
                continue
            state, _, _, owner = stat.rpartition(")")[2].split()[:4]
            if int(owner) == session and state != "Z":
                found.append(int(name))
    return found
