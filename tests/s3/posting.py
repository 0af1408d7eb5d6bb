"""A trial whose source tasks post tuples to their units through the bucket, where `start()` would let Spark shuffle them. `python -m tests.s3.posting SPEC RESULT`."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path

from watersmeet.runtime.rounds import handle
from watersmeet.runtime.rounds.supersteps import Supersteps
from watersmeet_lab.bench.trials.trial import main

if __name__ == "__main__":
    handle.Supersteps = partial(Supersteps, posts=True)  # type: ignore[assignment,misc]
    main(Path(sys.argv[1]), Path(sys.argv[2]))
