"""The driver, saying what step of the rounds protocol it takes, and killed by its own hand at one of them.

`python -m tests.crash.stepping MOMENT BATCH ...` followed by the driver's own arguments; a moment is "before" or "after" with the
name of a step, such as "after commit". What is killed is the process group: this process and its JVM.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

from tests.crash import driver
from watersmeet.runtime.rounds.protocol import Protocol

BATCH = "batch"
"""The step that is all of them: Spark's call."""
BATCH_OF: dict[str, Callable[..., int]] = {
    BATCH: lambda entered, batch_id: batch_id,
    "intend": lambda batch_id, before: batch_id,
    "deliver": lambda rows, batch_id: batch_id,
    "commit": lambda after: after.batch,
    "collect": lambda before, after, account: after.batch,
}
"""The number of the batch, from a step's arguments."""
STEPS = [step for step in BATCH_OF if step != BATCH]
SAID = "step: "


def stepping(step: str, method: Callable[..., Any], reach: Callable[[str], None]) -> Callable[..., Any]:
    """A method that says when it begins and when it has ended."""

    @wraps(method)
    def wrapped(self: Protocol, *args: Any) -> Any:
        batch = BATCH_OF[step](*args)
        reach(f"before {step} {batch}")
        out = method(self, *args)
        reach(f"after {step} {batch}")
        return out

    return wrapped


def main(moment: str, batch: str, *arguments: str) -> None:
    """Wrap the protocol's steps, and run the driver."""

    def reach(said: str) -> None:
        print(f"{SAID}{said}", flush=True)
        if said == f"{moment} {batch}":
            os.killpg(0, signal.SIGKILL)

    for step in BATCH_OF:
        name = "__call__" if step == BATCH else step
        setattr(Protocol, name, stepping(step, getattr(Protocol, name), reach))
    driver.main(*arguments)


if __name__ == "__main__":
    main(*sys.argv[1:])
