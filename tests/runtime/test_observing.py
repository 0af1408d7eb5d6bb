"""Events of batches, and who holds state back: the frozen one of three streams is named within two batches."""

from __future__ import annotations

import json
import shutil
from dataclasses import fields, replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import watersmeet as wm
from tests.rounds.lives import Life, wires
from tests.rounds.test_damage import built, in_process
from tests.view.batches import batches, query
from watersmeet.cli import app
from watersmeet.cli.follow import describe
from watersmeet.dataflow.clock import NEVER, dead_before, find_holds
from watersmeet.dataflow.contract import first_unit
from watersmeet.errors import OptionError
from watersmeet.query.window import UNBOUNDED
from watersmeet.runtime.checkpoints.stored import open_checkpoint
from watersmeet.runtime.observing import Events, NewEvents, OfCheckpoint, describe_plan, waits_of
from watersmeet.runtime.progress import Progress
from watersmeet.runtime.rounds.checkpoint import PROGRESS, StateFolder

SILENT = 5


def test_a_frozen_stream_is_named_within_two_batches() -> None:
    events = Events(waits_of(query().plan))
    named = [[h["stream"] for h in events.make(p)["holds"]] for p in batches(10, SILENT)]
    assert all(names[:1] != ["payments"] for names in named[: SILENT + 1])
    assert all(names[:1] == ["payments"] for names in named[SILENT + 2 :])


def test_it_is_said_in_words() -> None:
    events = Events(waits_of(query().plan))
    *_, last = (events.make(p) for p in batches(10, SILENT))
    assert (
        last["holds"][0]["text"]
        == "payments holds state back: 75 s of event time is kept for it alone; its watermark has not moved for 4 batches"
    )


def test_a_stream_that_has_never_come_holds_all_back() -> None:
    one = batches(1, 0)[0]
    unseen = replace(one, watermarks={**one.watermarks, "clicks": None})
    assert Events(waits_of(query().plan)).make(unseen)["holds"][0]["text"] == (
        "clicks holds all state back: no row of it has come yet"
    )


def test_when_all_stand_still_nobody_is_waited_for() -> None:
    events, one = Events(waits_of(query().plan)), batches(1, 0)[0]
    for _ in range(3):
        assert {h["still"] for h in events.make(one)["holds"]} <= {0}


SPANS = st.integers(-50, 50)
WAITS = st.lists(st.lists(st.tuples(st.sampled_from("rst"), SPANS), min_size=1, max_size=3), min_size=1, max_size=4)


@given(WAITS, st.fixed_dictionaries({s: st.integers(0, 200) for s in "rst"}))
def test_who_holds_back_would_let_more_go_together(waits: list[list[tuple[str, int]]], marks: dict[str, int]) -> None:
    """Exactly if some side would be cut later with all streams as far as the furthest, somebody is named; with the named ones there, it is."""

    def cuts(at: dict[str, int]) -> list[int]:
        return [min(dead_before(at[s], hi) for s, hi in bounds) for bounds in waits]

    holds, furthest = find_holds(waits, marks), max(marks.values())
    best = cuts(dict.fromkeys(marks, furthest))
    assert bool(holds) == (cuts(marks) != best)
    assert cuts({s: furthest if s in holds else m for s, m in marks.items()}) == best
    for stream in holds:
        others = {s: furthest if s != stream else m for s, m in marks.items()}
        assert cuts(others) != best, f"{stream} is blamed for others"


def test_where_nothing_is_ever_cut_nobody_is_to_blame() -> None:
    assert find_holds([[("r", UNBOUNDED), ("s", 5)]], {"r": 5, "s": 100}) == {}
    assert find_holds([[("r", 5)]], {"r": NEVER}) == {}


def test_an_event_has_every_figure_of_its_progress_and_is_json() -> None:
    line = ("paris", "tokyo")
    told = {key: {"q7": "why"} for key in ("refused", "failed", "suspended")}
    progress = replace(batches(3, 1)[-1], shipped={line: (1, 2, 3)}, expected={line: 4.5}, **told)  # type: ignore[arg-type]
    event = json.loads(json.dumps(Events().make(progress)))
    assert {f.name for f in fields(Progress)} - {"batch_id"} <= event.keys()
    for name in (
        "seconds",
        "input_rows",
        "results",
        "late",
        "state_rows",
        "state_bytes",
        "kernels",
        "pruned",
        "phases",
    ):
        assert event[name] == getattr(progress, name)
    assert (event["shipped"], event["expected"]) == ([[*line, 1, 2, 3]], [[*line, 4.5]])
    assert {name: event[name] for name in told} == told
    assert event["unit_rows"] == {str(u): n for u, n in progress.unit_rows.items()}
    assert event["age_us"]["p"] == timedelta(minutes=30) // timedelta(microseconds=1) - 5_000_000


def test_skew_is_that_of_the_most_uneven_join() -> None:
    """Two joins that follow each other: the second gets fewer rows, evenly."""
    one = replace(batches(1, 0)[0], unit_rows={0: 300, 1: 100, first_unit(1): 10, first_unit(1) + 1: 10})
    assert Events().make(one)["skew"] == one.skew == 1.5


def test_the_plan_is_drawn_and_names_are_escaped() -> None:
    about = describe_plan(query().plan, "orders", "rounds")
    for name in ("orders o", "hash, 8 units", "kernel hw"):
        assert name in about["dataflow"]
    assert "-10 min &lt;= c - o &lt;= 10 min" in about["windows"]
    assert about["bounds"]["c"]["kept_us"] == 40 * 60_000_000


def test_observe_takes_what_runs() -> None:
    page = wm.observe(SimpleNamespace(serve=lambda port: f"page at {port}"), port=7)
    assert page == "page at 7"
    with pytest.raises(OptionError, match="give what writeStream"):
        wm.observe(query())


def test_spark_progress_becomes_events() -> None:
    report = {"unit": 0, "rows_in": {"o": 3}, "late": {}, "results": 2, "retained": {"o": 3}, "bytes": 9}
    report["watermarks"] = {"orders": 5_000_000, "clicks": 2_000_000, "payments": 9_000_000}
    spark = {"numInputRows": 4, "durationMs": {"triggerExecution": 500, "addBatch": 400}}
    recent = [
        {**spark, "batchId": n, "observedMetrics": {"watersmeet-x": {"units": [json.dumps(report)]}}} for n in range(3)
    ]
    last = SimpleNamespace(batchId=2, timestamp="2026-01-31T10:00:00.000Z")
    running = SimpleNamespace(
        name="q", lastProgress=last, recentProgress=recent, isActive=False, exception=lambda: None
    )
    with wm.observe(running, query()) as page:
        for _ in range(100):
            page.wait(0.05)
            if page.hub.status == "ended":
                break
        assert page.hub.totals.batches == 3
        latest = page.hub.latest
    assert latest is not None
    assert (latest["phases"], latest["holds"][0]["stream"]) == ({"addBatch": 0.4}, "clicks")


class Told:
    """A query of Spark's that tells of batches, and counts how often all of them are read."""

    def __init__(self) -> None:
        self.events: list[Any] = []
        self.asked = 0

    def tell(self, batch: int) -> None:
        self.events.append(SimpleNamespace(batchId=batch, timestamp=f"{len(self.events)}"))

    @property
    def lastProgress(self) -> Any:
        return self.events[-1] if self.events else None

    @property
    def recentProgress(self) -> list[Any]:
        self.asked += 1
        return self.events[-100:]


def test_events_of_spark_are_read_once() -> None:
    told, last = Told(), -1
    events = NewEvents(told)
    assert events.after(last) == []
    for batch in range(5):
        told.tell(batch)
        assert [e.batchId for e in events.after(last)] == [batch]
        last = batch
        assert events.after(last) == []
    told.tell(5)  # nothing to do: no figures, and the batch comes later
    assert [e.batchId for e in events.after(last)] == [5]
    assert [e.batchId for e in events.after(last)] == []
    assert told.asked == 0
    for batch in (5, 6, 7):
        told.tell(batch)
    assert {5, 6, 7} <= {e.batchId for e in events.after(last)}
    assert told.asked == 1
    assert events.after(7) == []


@pytest.fixture
def recorded(tmp_path: Path) -> Path:
    """A checkpoint in which batches are recorded, as `start()` does on a disk."""
    with in_process():
        life = Life(tmp_path / "ck", tmp_path / "out")
        life.protocol.records = True
        life.folder.prepare(PROGRESS)
        life.run(6)
    return tmp_path / "ck"


def test_watch_shows_the_batches_of_another_process(recorded: Path) -> None:
    done = CliRunner().invoke(app, ["watch", str(recorded), "--seconds", "0"], env={"COLUMNS": "200"})
    assert done.exit_code == 0
    assert [line.partition(":")[0] for line in done.output.splitlines()] == ["batch 0", "batch 1", "batch 2"]


def test_the_page_of_watch_draws_the_plan_that_the_checkpoint_describes(recorded: Path) -> None:
    stored, plan = open_checkpoint(recorded), wires(4).plan
    found, own = describe(stored), describe_plan(plan, "ck", "rounds")
    assert found["windows"] == own["windows"]
    assert str(found["dataflow"]) == own["dataflow"].replace(f"kernel {plan.kernel}", "")
    bounds = {n: (b["kept_us"], b["late_us"]) for n, b in own["bounds"].items()}
    assert {n: (b["kept_us"], b["late_us"]) for n, b in found["bounds"].items()} == bounds
    assert found["decisions"] == [["routing", ["hash: 2 units"]]]


def test_a_registry_is_not_drawn() -> None:
    assert "dataflow" not in describe(open_checkpoint(built("registered", 4, "") / "ck"))


def test_watch_says_what_it_cannot_follow(tmp_path: Path) -> None:
    root = shutil.copytree(built("query", 4, ""), tmp_path / "copy")
    done = CliRunner().invoke(app, ["watch", f"{root}/ck", "--seconds", "0"], env={"COLUMNS": "300"})
    assert (done.exit_code, "has no progress" in done.stderr) == (2, True)


def test_progress_of_start_has_phases_fan_outs_and_the_oldest(recorded: Path) -> None:

    last = OfCheckpoint(StateFolder.under(str(recorded))).since(1)[-1]
    assert last.seconds == pytest.approx(sum(last.phases.values()))
    assert last.fanout.keys() == {"r>s", "s>r"}
    state = wm.state(recorded, alias="r")
    assert last.oldest["r"] == min(state["event_time"].to_pylist())
