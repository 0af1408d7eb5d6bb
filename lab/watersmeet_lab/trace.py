"""Which files of ours a row passes: the calls of a settled micro-batch of a two-way join, traced on every runtime.

`python -m watersmeet_lab.trace [local] [dataframe] [start]` prints the files in the order of the tree, driver and workers together. A settled
batch is every batch after the first SETTLED ones; what runs before (parsing, planning, imports, compilation) does not count.

On Spark every Python process imports a `sitecustomize` that this module writes to a folder of PYTHONPATH. It notes the file of each call into
watersmeet, and starts anew once the file `settled` is there.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import watersmeet

ROOT = str(Path(watersmeet.__file__).parent) + os.sep
SETTLED = 8
BATCHES = 20
ROWS = 2_000
TEXT = "SELECT a.k, a.v, b.v AS w FROM a, b WHERE a.k = b.k WINDOW (a, b) = 1 SECOND"

_HOOK = """
import os, sys, threading
_root, _out = {root!r}, {out!r}
_seen, _settled = set(), False

def _note(frame, event, arg):
    global _settled
    name = frame.f_code.co_filename
    if event != "call" or not name.startswith(_root) or frame.f_code.co_name == "<module>":
        return
    if not _settled:
        if not os.path.exists(os.path.join(_out, "settled")):
            return
        _settled = True
        _seen.clear()
    if name not in _seen:
        _seen.add(name)
        with open(os.path.join(_out, f"files-{{os.getpid()}}"), "a") as file:
            file.write(name[len(_root):] + "\\n")

threading.setprofile(_note)
sys.setprofile(_note)
"""


def main(runtimes: list[str]) -> None:
    """Trace the runtimes that are named, or all."""
    unknown = [name for name in runtimes if name not in TRACES]
    if unknown:
        sys.exit(f"no runtime {unknown[0]}; there are {', '.join(TRACES)}")
    if len(runtimes) != 1:  # each in its own process: a JVM keeps the environment that it was started with
        for name in runtimes or TRACES:
            subprocess.run([sys.executable, "-m", "watersmeet_lab.trace", name], check=True)
        return
    files = sorted(TRACES[runtimes[0]]())
    print(f"{runtimes[0]}: {len(files)} files")
    print(textwrap.fill(" ".join(files), 150, break_on_hyphens=False), flush=True)


def streams() -> Iterator[tuple[str, pa.Table]]:
    """Two streams of BATCHES * ROWS tuples, a millisecond apart."""
    rows = BATCHES * ROWS
    for seed, name in enumerate("ab"):
        keys = np.random.default_rng(seed).integers(0, 500, rows)
        times = pa.array(np.arange(rows) * 1_000, pa.timestamp("us", tz="UTC"))
        yield name, pa.table({"k": keys, "v": np.arange(rows), "ts": times})


def trace_local() -> set[str]:
    """The files that a batch of `wm.local.run` passes, in this process."""
    from watersmeet.runtime.local import LocalRun

    seen: set[str] = set()
    push, batches = LocalRun.push, 0

    def note(frame: FrameType, event: str, _: Any) -> None:
        name = frame.f_code.co_filename
        if event == "call" and name.startswith(ROOT) and frame.f_code.co_name != "<module>":
            seen.add(name.removeprefix(ROOT))

    def trace_push(self: Any, *args: Any, **options: Any) -> Any:
        nonlocal batches
        batches += 1
        if batches > SETTLED:
            sys.setprofile(note)
        try:
            return push(self, *args, **options)
        finally:
            sys.setprofile(None)

    LocalRun.push = trace_push  # type: ignore[method-assign]
    try:
        watersmeet.local.run(TEXT, dict(streams()), batch_rows=ROWS)
    finally:
        LocalRun.push = push  # type: ignore[method-assign]
    return seen


def trace_dataframe() -> set[str]:
    """The files that a batch of `dataframe()` passes, in the driver and in the workers."""

    def run(query: watersmeet.Query, folder: Path) -> Any:
        writer = query.dataframe().writeStream.format("noop").outputMode("append")
        return writer.option("checkpointLocation", str(folder / "checkpoint")).start()

    return _on_spark(run)


def trace_start() -> set[str]:
    """The files that a batch of `start()` passes, in the driver and in the workers."""
    return _on_spark(lambda query, folder: query.start(sink="noop", checkpoint=str(folder / "checkpoint")))


def _on_spark(run: Callable[[watersmeet.Query, Path], Any]) -> set[str]:
    """Trace a query over two folders of files, one file to a batch."""
    from watersmeet.runtime.spark.session import local_session

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "sitecustomize.py").write_text(_HOOK.format(root=ROOT, out=str(folder)))
        os.environ["PYTHONPATH"] = os.pathsep.join([str(folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        tables = dict(streams())
        with local_session("trace", log=folder / "spark.log") as spark:
            exec(compile((folder / "sitecustomize.py").read_text(), "trace", "exec"), {})
            frames = {}
            for alias, table in tables.items():
                _add(folder / alias, table, 0)
                reader = spark.readStream.schema("k BIGINT, v BIGINT, ts TIMESTAMP").option("maxFilesPerTrigger", 1)
                frames[alias] = watersmeet.Stream(reader.parquet(str(folder / alias)), time="ts")
            running = run(watersmeet.sql(TEXT, frames, units=2), folder)
            for batch in range(BATCHES):
                if batch == SETTLED:
                    (folder / "settled").touch()
                for alias, table in tables.items() if batch else ():
                    _add(folder / alias, table, batch)
                getattr(running, "query", running).processAllAvailable()
            sys.setprofile(None)
            threading.setprofile(None)  # type: ignore[arg-type]
            running.stop()
        return {line for file in folder.glob("files-*") for line in file.read_text().split()}


def _add(folder: Path, table: pa.Table, batch: int) -> None:
    folder.mkdir(exist_ok=True)
    hidden = folder / f".{batch:04}.parquet"
    pq.write_table(table.slice(batch * ROWS, ROWS), hidden)
    hidden.rename(folder / f"{batch:04}.parquet")
    os.utime(folder / f"{batch:04}.parquet", (time.time(), time.time()))


TRACES = {"local": trace_local, "dataframe": trace_dataframe, "start": trace_start}

if __name__ == "__main__":
    main(sys.argv[1:])
