"""The program that the crash test of subscriptions kills: queries come and go while three streams are joined.

`python -m tests.crash.subscriber DATA FEED OUT CHECKPOINT LIFE ENGINE` runs until all files are read and the feed has been heard; an empty
ENGINE means that none is asked for. What comes and goes, and how often:

    begin-N    added before the first batch, never removed
    life-N     added before a life's first batch, removed by the next life
    batch-N    added right after batch N, removed two batches later
    again-5    the same id, added and removed in turn
    timed-N    added and removed by the main thread, while batches run
    feed-N     rows of the feed; some are refused

The number at the end of an id says which query it is: `text(N)`. It is a user's script: it knows the public surface.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

import watersmeet as wm
from tests.crash.driver import SCHEMA, session

TEXTS = (
    "SELECT a.id AS x, b.id AS y FROM a, b WHERE a.k = b.k AND a.id >= {n} WINDOW = 1 SECOND",
    "SELECT a.id AS x, b.id AS y, c.id AS z FROM a, b, c WHERE a.k = b.k AND b.k = c.k AND b.id + {n} <= c.id + 200 "
    "WINDOW (a, b) = 2 SECONDS AND DWINDOW (b, c) = 3 SECONDS",
    "SELECT s.id AS x, t.id AS y FROM a s, a t WHERE s.k = t.k AND s.id + {n} < t.id WINDOW = 2 SECONDS",
    "SELECT b.id AS x, c.id AS y FROM b, c WHERE b.k = c.k AND b.k = {n} DWINDOW (b, c) = 3 SECONDS",
)
CONSTANTS = 7
BEGIN = [f"begin-{n}" for n in range(len(TEXTS))]
AGAIN = "again-5"
LIVED = 2
"""Batches that a query lives which a batch adds."""
FED = 4
"""Files of the feed for which a query lives that the feed adds: Spark may take several at once, and in any order, after a crash."""
MOST_TIMED, PAUSE_S, HEARD_S = 6, 0.5, 600.0


def text(number: int) -> str:
    """The query with a number."""
    return TEXTS[number % len(TEXTS)].format(n=number % CONSTANTS)


def tell(folder: Path, name: str, rows: list[tuple[str, str, str | None]]) -> None:
    """One more file of the feed; there at once, or not at all."""
    lines = [json.dumps(dict(zip(("id", "action", "sql"), row, strict=True))) for row in rows]
    (folder / f".{name}").write_text("\n".join(lines))
    (folder / f".{name}").rename(folder / f"{name}.json")


def told(folder: Path) -> list[tuple[str, str]]:
    """(id, action) of all rows of the feed, and what must come of it."""
    lines = [line for file in sorted(folder.glob("*.json")) for line in file.read_text().splitlines()]
    rows = [(row["id"], row["action"]) for row in map(json.loads, lines)]
    return [(id, "refuse" if id.startswith("bad-") else action) for id, action in rows]


class Client:
    """Adds and removes queries, and says what it has done."""

    def __init__(self, subs: Any, feed: Path, life: int) -> None:
        self.subs, self.feed, self.life = subs, feed, life

    def registered(self) -> set[str]:
        return {entry.id for entry in self.subs.list() if entry.state != "refused"}

    def add(self, id: str) -> None:
        """Add a query, if it is not there."""
        if id not in self.registered():
            self.subs.add(text(int(id.rpartition("-")[2])), id=id)
            print(f"done: add {id}", flush=True)

    def remove(self, id: str) -> None:
        """Remove a query, if it is there."""
        if id in self.registered():
            self.subs.remove(id)
            print(f"done: remove {id}", flush=True)

    def before(self) -> None:
        """What happens between two lives."""
        there = self.registered()
        self.subs.add_all({id: text(n) for n, id in enumerate(BEGIN) if id not in there})
        self.remove(f"life-{self.life - 1}")
        self.add(f"life-{self.life}")

    def after_batch(self, progress: Any) -> None:
        """What happens right after a batch, in its own thread."""
        self.add(f"batch-{progress.batch_id}")
        self.remove(f"batch-{progress.batch_id - LIVED}")
        if progress.batch_id % 2:
            (self.remove if AGAIN in self.registered() else self.add)(AGAIN)

    def at_any_time(self) -> None:
        """What happens while batches run: calls, and rows of the feed."""
        for n in range(100 * self.life + 1, 100 * self.life + 1 + MOST_TIMED):
            time.sleep(PAUSE_S)
            self.add(f"timed-{n}")
            if n % 2 == 0:
                self.remove(f"timed-{n - 1}")
            rows = [(f"bad-{n}", "add", "SELECT 1"), (f"feed-{n}", "add", text(n))]
            tell(self.feed, f"{n:06d}", rows if n % 100 <= FED else [*rows, (f"feed-{n - FED}", "remove", None)])

    def wait(self) -> None:
        """Until all files are read and the last row of the feed has been heard."""
        deadline = time.monotonic() + HEARD_S
        while time.monotonic() < deadline:
            self.subs.query.processAllAvailable()
            if [id for id, action in told(self.feed) if action == "add"][-1] in self.registered():
                return
            time.sleep(0.05)
        raise TimeoutError("the feed was not heard")


def main(data: str, feed: str, out: str, checkpoint: str, life: str, engine: str) -> None:
    """One life."""
    spark = session()
    reader = spark.readStream.schema(SCHEMA).option("maxFilesPerTrigger", 1)
    streams = {name: wm.Stream(reader.parquet(f"{data}/{name}"), time="ts", lateness="1 second") for name in "abc"}
    rows = spark.readStream.schema("id string, action string, sql string").option("maxFilesPerTrigger", 1).json(feed)
    asked: dict[str, Any] = {"engine": engine} if engine else {}
    asked["units"] = (2, 3, 1)[int(life) % 3]  # every life has others; a repeated batch keeps those of its intent
    subs = wm.subscriptions(streams, checkpoint=checkpoint, sink=out, feed=rows, **asked)
    client = Client(subs, Path(feed), int(life))
    client.before()
    subs.on_batch(client.after_batch)
    subs.start()
    print("query started", flush=True)
    client.at_any_time()
    client.wait()
    subs.stop()
    print("since " + json.dumps({e.id: e.since for e in subs.list() if e.state == "running"}), flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
