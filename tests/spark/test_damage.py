"""A real checkpoint, damaged: a named error from `start()`, or exact results. The cases without Spark are in tests/rounds/test_damage.py."""

from __future__ import annotations

import re
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from tests.spark.streams import run, stream
from tests.spark.test_rounds import PAIR, pair, rising
from watersmeet.errors import CheckpointError

pytestmark = pytest.mark.spark


def test_what_start_can_know_it_says_before_spark_runs(spark: Any, tmp_path: Path) -> None:
    batches, checkpoint, out = rising(4), tmp_path / "ck", tmp_path / "out"
    query = pair(spark, tmp_path, batches[:3])
    run(query, checkpoint, out, runtime="rounds")

    def refused(query: Any, said: str, at: Path = checkpoint, sink: Path = out) -> None:
        with pytest.raises(CheckpointError, match=said):
            query.start(sink=str(sink), checkpoint=at, trigger="availableNow")

    refused(query, "another checkpoint than", at=tmp_path / "new")
    refused(query, "is not where", sink=tmp_path / "elsewhere")
    streams = {n: stream(spark, str(tmp_path / n), lateness="5 seconds") for n in "st"}
    refused(wm.sql(PAIR.replace("10", "20"), **streams), "what differs: windows")
    refused(wm.sql(PAIR.replace("WINDOW", "AND a.v > 1 WINDOW"), **streams), "what differs: .*filters")
    refused(wm.sql(PAIR, **streams, units=3), "what differs: units= or routing=")
    segment = next(p.name for p in (checkpoint / "watersmeet" / "segments").iterdir() if p.name.startswith("2-"))
    for name in ("offsets/2", "offsets/1", "sources/0/2", "metadata", "watersmeet/manifests/2.json"):
        whole = (checkpoint / name).read_bytes()
        for damaged in (whole[:-3], re.sub(rb"\d", lambda d: b"%d" % (9 - int(d[0])), whole, count=1), None):
            (checkpoint / name).unlink() if damaged is None else (checkpoint / name).write_bytes(damaged)
            refused(query, name)
        (checkpoint / name).write_bytes(whole)
    (checkpoint / "watersmeet" / "segments" / segment).rename(tmp_path / segment)
    refused(query, f"{segment}.*is missing")
    (tmp_path / segment).rename(checkpoint / "watersmeet" / "segments" / segment)
    (checkpoint / "commits" / "2").unlink()
    shutil.rmtree(checkpoint / "watersmeet" / "mail")
    found, _ = run(pair(spark, tmp_path, [batches[3]], first=3), checkpoint, out, runtime="rounds")
    whole_run, _ = run(pair(spark, tmp_path, batches), tmp_path / "twin", tmp_path / "twin out", runtime="rounds")
    assert found == whole_run
    assert isinstance(found, Counter)
    assert found


def test_subscriptions_and_their_feed_know_their_files(spark: Any, tmp_path: Path) -> None:
    pair(spark, tmp_path, rising(2))
    requests = tmp_path / "requests"
    requests.mkdir()
    (requests / "0.json").write_text(
        '{"id": "q", "action": "add", "sql": "SELECT s.v AS x FROM s, t WHERE s.k = t.k WINDOW = 9 SECONDS"}'
    )

    def made(**options: Any) -> Any:
        feed = spark.readStream.schema("id string, action string, sql string").json(str(requests))
        streams = {n: stream(spark, str(tmp_path / n)) for n in "st"}
        given = {"checkpoint": tmp_path / "ck", "sink": str(tmp_path / "out"), "trigger": "availableNow", "feed": feed}
        return wm.subscriptions(streams, **{**given, **options})

    made().start().await_termination()
    with pytest.raises(CheckpointError, match="another checkpoint than"):
        made(checkpoint=tmp_path / "new").start()
    for name in (
        "watersmeet/registry/1.json",
        "watersmeet/snapshots/identity.json",
        "watersmeet/manifests/1.json",
        "feed/offsets/0",
    ):
        whole = (tmp_path / "ck" / name).read_bytes()
        for damaged in (whole[: len(whole) // 2], None):
            (tmp_path / "ck" / name).unlink() if damaged is None else (tmp_path / "ck" / name).write_bytes(damaged)
            with pytest.raises(CheckpointError, match=name):
                made().start()
        (tmp_path / "ck" / name).write_bytes(whole)
    again = made()
    again.start().await_termination()
    assert [e.id for e in again.list()] == ["q"]
