"""`make fuzz`: thousands of hostile queries under both engines, in slices, each a process of its own with so much CPU time and memory.

    python -m tests.registry.fuzz --queries 5000 --seconds 1200 --kept .fuzz.jsonl

A slice is a running registry that gets SLICE queries, drawn from a seed: the slice's number. A slice that takes too long ends with the stack of where it was, one
that fails with its error; the others go on. What has passed is kept in a file by engine and seed, so that the command goes on where it was ended. `--seed 17`
runs one slice again, whatever is kept. Delete the file when the code has changed.
"""

from __future__ import annotations

import argparse
import faulthandler
import json
import os
import random
import resource
import signal
import sys
import time
import traceback
from pathlib import Path

from tests.registry.hostile import hurt_nobody

SLICE = 100
CPU_SECONDS = 180
MEMORY = 6 << 30
ENGINES = ("shared", "rjoin")


def main() -> int:
    options = _parse()
    passed, failed, waiting = read_kept(options.kept), [], []
    began = time.monotonic()
    seeds = range(options.queries // SLICE) if options.seed is None else [options.seed]
    for seed in seeds:
        for engine in options.engine or ENGINES:
            if options.seed is None and (engine, seed) in passed:
                continue
            if time.monotonic() - began > options.seconds:
                waiting.append((engine, seed))
                continue
            spent, is_passed = run_slice(engine, seed)
            print(f"{engine} {seed}: {'passed' if is_passed else 'FAILED'}, {spent:.1f} s CPU", flush=True)
            if is_passed:
                passed.add((engine, seed))
                with options.kept.open("a") as file:
                    file.write(json.dumps([engine, seed]) + "\n")
            else:
                failed.append((engine, seed))
    for engine in ENGINES:
        print(f"{engine}: {SLICE * sum(e == engine for e, _ in passed):,} queries passed", flush=True)
    if waiting:
        print(f"{len(waiting)} slices of {SLICE} are left: give the command again", flush=True)
    return bool(failed or waiting)


def read_kept(path: Path) -> set[tuple[str, int]]:
    """(engine, seed) of slices that have passed."""
    lines = path.read_text().splitlines() if path.exists() else []
    return {(engine, seed) for engine, seed in map(json.loads, lines)}


def run_slice(engine: str, seed: int) -> tuple[float, bool]:
    """Run a slice in a process of its own: its CPU seconds, and whether it passed."""
    sys.stdout.flush()
    child = os.fork()
    if child == 0:
        os._exit(_live(engine, seed))
    _, status, used = os.wait4(child, 0)
    return used.ru_utime + used.ru_stime, status == 0


def _live(engine: str, seed: int) -> int:
    faulthandler.register(signal.SIGXCPU, chain=True)
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS + 5))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    try:
        hurt_nobody(random.Random(seed), SLICE, engine)
    except BaseException:
        traceback.print_exc()
        return 1
    return 0


def _parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="hostile queries added to running registries: nobody else may notice")
    parser.add_argument("--queries", type=int, default=5_000, help="queries for each engine")
    parser.add_argument(
        "--seconds", type=float, default=1_200, help="no slice begins later; give the command again to go on"
    )
    parser.add_argument("--engine", action="append", choices=ENGINES)
    parser.add_argument("--seed", type=int, help="one slice, whether it has passed or not")
    parser.add_argument("--kept", type=Path, default=Path(".fuzz.jsonl"), help="what has passed")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
