"""Subscriptions, killed with SIGKILL at chosen and at random moments, while queries come and go: no answer is lost or doubled.

Invariant: after any number of kills on one checkpoint, and a last life that ends, every query has the answers that DuckDB gives for
the batches from its effect on, until it was removed; what add() and remove() have returned from, and every row of the feed,
counts exactly once. CRASH_KILLS sets the number of kills (`make crash`), CRASH_SEED repeats a run's moments, CRASH_ENGINE
asks for an engine.
"""

from __future__ import annotations

import json
import os
import random
import re
from collections import Counter
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from tests.crash.life import MOST_BATCHES, PATIENCE_S, Life, live
from tests.crash.phases import PHASES, moment, planned
from tests.crash.registered import (
    NEVER,
    Spans,
    Versions,
    answered,
    contents,
    expected,
    fed,
    living,
    spans,
    versions,
    written,
)
from tests.crash.state import assert_no_orphans, state_folder
from tests.crash.streams import assert_same, write_streams
from tests.crash.subscriber import BEGIN, tell, text, told
from tests.crash.subscriber_steps import MOMENTS
from tests.crash.subscriber_steps import NEVER as NO_MOMENT

ENGINE = os.environ.get("CRASH_ENGINE", "")
KILLS = int(os.environ.get("CRASH_KILLS", "0")) or 2
RUN = "subscriptions"
INSIDE = ["intent", "mail", "segments", "sink"]
"""Phases of a batch that has decided what to do and is not done: it is repeated. They come first."""
EDGES = [name for name in PHASES[RUN] if name not in INSIDE]
MORE_FILES = 6
"""So many batches are left for the last life."""
DONE = re.compile(r"^done: (add|remove) (\S+)$", re.MULTILINE)


class Lives:
    """Lives on one checkpoint, one after the other, and what was said in the last."""

    def __init__(self, data: Path, work: Path) -> None:
        self.data, self.work, self.feed, self.count = data, work, work / "feed", 0
        self.done: Counter[tuple[str, str]] = Counter()
        self.said = ""
        self.feed.mkdir()

    def live(self, act: Any, moment: str = NO_MOMENT, times: int = 1) -> Any:
        """One more life; before it, the feed has heard something."""
        number = 100 * self.count
        tell(self.feed, f"{number:06d}", [(f"feed-{number}", "add", text(number))])
        folders = [self.data, self.feed, self.work / "out", self.work / "checkpoint"]
        command = ["tests.crash.subscriber_steps", moment, times, *folders, self.count, ENGINE]
        out, self.said = live(lambda life: (act(life), life.said()), self.work, command)
        self.done.update(DONE.findall(self.said))
        self.count += 1
        return out

    def shorten(self) -> None:
        """The streams end soon."""
        for file in self.data.glob("*/*.parquet"):
            if int(file.stem.rpartition("-")[2]) > planned(self.work) + MORE_FILES:
                file.unlink()


def kill(lives: Lives, rng: random.Random) -> None:
    """KILLS lives: by its own hand at the moments of the registry, and from outside at any, in turn."""
    outside = [*rng.sample(INSIDE, len(INSIDE)), *rng.sample(EDGES, len(EDGES))]
    for n in range(KILLS):
        if n % 2 == 0:
            own = MOMENTS[n // 2 % len(MOMENTS)]
            lives.live(Life.fall, own, 1 if own == "snapshot" else rng.choice((1, 2, 3)))
            print(f"life {n} died at: {own}")
        else:
            when = moment(RUN, outside[n // 2 % len(outside)], rng.choice((0, 1, 1, 2)), rng)
            assert lives.live(partial(Life.die, kill=when)), f"the subscriber ended after {n} kills: write more files"
            print(f"life {n} was killed: {when}")


def assert_registered(lives: Lives, changes: Versions, of: Spans, last: int) -> None:
    """Queries have taken effect as it was said, once each, and when they had to."""
    assert all(of[id] == [(0, NEVER)] for id in BEGIN)
    found = Counter((c["action"], c["id"]) for raw in changes.values() for c in raw["changes"])
    assert not lives.done - found, "a call has returned, and the registry has forgotten it"
    assert fed(changes) == Counter(told(lives.feed)), "a row of the feed was lost, doubled or refused for no reason"
    for id, [(first, _), *more] in of.items():
        if id.startswith("batch-"):
            after = int(id.rpartition("-")[2]) + 1
            assert first == (after if after <= last else NEVER)
            assert not more
    listed = re.search(r"^since (.*)$", lives.said, re.MULTILINE)
    assert listed
    assert json.loads(listed[1]) == {id: of[id][-1][0] for id in living(changes) if of[id][-1][0] < NEVER}


@pytest.mark.spark
@pytest.mark.slow
@pytest.mark.thorough
@pytest.mark.timeout(PATIENCE_S + 60 * KILLS)
def test_queries_that_come_and_go_lose_nothing_by_kills(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    seed = int(os.environ.get("CRASH_SEED", "0")) or random.SystemRandom().randrange(1, 2**32)
    print(f"CRASH_SEED={seed} repeats the moments of this run")
    data = tmp_path / "data"
    write_streams(data, KILLS * MOST_BATCHES + 10, seed)
    lives = Lives(data, tmp_path)
    kill(lives, random.Random(seed))
    lives.shorten()
    lives.live(Life.end)

    changes = versions(tmp_path)
    numbers, repeated = answered(tmp_path)
    of = spans(changes, numbers)
    assert repeated >= max(1, KILLS // 6), "too few kills hit a batch: little was tested"
    assert any(name[0].isdigit() for name in os.listdir(state_folder(tmp_path) / "snapshots")), "there was no snapshot"
    assert_registered(lives, changes, of, len(numbers) - 1)
    assert_no_orphans(tmp_path)
    held = contents(tmp_path, len(numbers))
    want = expected(data, held, {id: [s for s in times if s[0] < s[1]] for id, times in of.items()})
    for kind in ("begin", "life", "batch", "timed", "feed"):
        assert any(id.startswith(kind) for id, *_ in want), f"no {kind}- query has an answer: little was tested"
    spark: Any = request.getfixturevalue("spark")  # late, so that the lives have the machine to themselves
    assert_same(written(spark, tmp_path / "out"), want)
