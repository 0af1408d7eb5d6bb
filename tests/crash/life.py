"""One life of a driver: in a session of its own, watch what it leaves, kill it, see that it is dead.

Invariant: a life is over when no process of its session is left, so the next one has the folders to itself.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from tests.crash.phases import Death, Kill, committed
from tests.starved import SAID, TRIES

T = TypeVar("T")

MOST_BATCHES = 5
"""A life is killed after so many batches at the latest."""
ROOT = Path(__file__).parents[2]
PATIENCE_S = 3600
"""For a chain of lives. Like the next it only ends what hangs: a busy machine may take ten times as long as a quiet one."""
LIFE_S = 900.0
POLL_S = 0.002


class Stuck(AssertionError):
    """A life made no progress in the time it had."""


class Starved(Exception):
    """The driver ended by itself because the machine was busy, see `tests.starved`."""


def go_by_jobs(work: Path, by_jobs: bool) -> None:
    """Whether lives that follow run small batches by jobs, and not in the driver."""
    mark = work / "out-by-jobs"
    mark.touch() if by_jobs else mark.unlink(missing_ok=True)


def driving(
    run: str, data: Path, work: Path, files_per_trigger: int = 1, dies: tuple[str, int] | None = None
) -> list[Any]:
    """The driver's module and arguments, or those of the one that steps if it is told when to die."""
    module = ["tests.crash.driver"] if dies is None else ["tests.crash.stepping", *dies]
    return [*module, run, data, work / "out", work / "checkpoint", files_per_trigger]


class Waiting:
    """A process that has a Spark session and waits for a command."""

    def __init__(self) -> None:
        handle, name = tempfile.mkstemp(suffix=".log")
        self.log = Path(name)
        with os.fdopen(handle, "wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.crash.waiting"],
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=log,
                start_new_session=True,
                cwd=ROOT,
            )

    def told(self, command: Sequence[Any]) -> Waiting:
        """The process, which now runs a module of the tests with its arguments."""
        assert self.process.stdin is not None
        with suppress(BrokenPipeError):  # it has died: whoever waits for it will see
            self.process.stdin.write(json.dumps([str(part) for part in command]).encode() + b"\n")
            self.process.stdin.flush()
        return self

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

    def gone(self) -> None:
        """Kill it, and remove its log."""
        self.kill()
        if self.process.stdin is not None:
            with suppress(BrokenPipeError):
                self.process.stdin.close()
        self.log.unlink(missing_ok=True)


class Cradle:
    """Has the next process start while the present one runs."""

    def __init__(self) -> None:
        self._next: Waiting | None = None

    def take(self) -> Waiting:
        taken, self._next = self._next or Waiting(), Waiting()
        return taken

    def clear(self) -> None:
        if self._next is not None:
            self._next.gone()
            self._next = None


CRADLE = Cradle()


class Life:
    """A running driver: a module of the tests and its arguments, with a work folder that has its checkpoint and its sink."""

    def __init__(self, work: Path, command: Sequence[Any]) -> None:
        self.work, self._waiting = work, CRADLE.take().told(command)
        self.process, self.log = self._waiting.process, self._waiting.log

    def end(self) -> str:
        """Let it run to its end; what it said."""
        code = self._code(LIFE_S)
        assert code == 0, f"the driver ended with code {code}:\n{self.tail()}"
        return self.said()

    def fall(self) -> str:
        """Let it run until it kills itself; what it said."""
        code = self._code(LIFE_S)
        assert code == -signal.SIGKILL, f"the driver ended with code {code} and should have died:\n{self.tail()}"
        return self.said()

    def die(self, kill: Kill) -> Death | None:
        """Kill it as told; None if it ran to its end before that."""
        first = committed(self.work) + 1
        target = first + kill.spared
        if kill.name not in ("planned", "running", "anywhere") and kill.phase.reached(self.work) >= target:
            target += 1  # it was there before this life
        if not self._until(lambda: self._started() and kill.phase.reached(self.work) >= target, LIFE_S):
            if self.process.poll() is None:
                raise Stuck(f"no progress in {LIFE_S} s, processes {members(self.process.pid)}:\n{self.tail()}")
            self.end()
        self._until(lambda: committed(self.work) + 1 >= first + MOST_BATCHES, kill.delay_s)
        ran = self.process.poll() is None
        self.kill()
        return Death.found(kill, self.work) if ran else None

    def kill(self) -> None:
        self._waiting.kill()

    def gone(self) -> None:
        self._waiting.gone()

    def said(self) -> str:
        """All that it has said."""
        return self.log.read_text(errors="replace")

    def tail(self) -> str:
        """What it said last."""
        return self.said()[-4000:]

    def _code(self, timeout_s: float) -> int:
        code = self.process.wait(timeout_s)
        if code and SAID.encode() in self.log.read_bytes():
            raise Starved
        return code

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


def live(act: Callable[[Life], T], work: Path, command: Sequence[Any]) -> T:
    """Start a driver and do something to it; again, a few times, if the machine did not let it start."""
    for _ in range(TRIES):
        life = Life(work, command)
        try:
            return act(life)
        except Starved:
            print("a driver could not start: the machine is busy")
        finally:
            life.gone()
    raise Starved


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
