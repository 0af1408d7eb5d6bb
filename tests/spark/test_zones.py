"""Time zones on Spark: what Spark's own SQL answers around changes of clocks, every runtime answers, too."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

import watersmeet as wm
from tests.clocks import CHANGES, table
from tests.spark.streams import run, stream, write
from tests.sql.test_zones import CONDITIONS
from watersmeet.errors import OptionError
from watersmeet.runtime.spark import plan as spark_plan
from watersmeet.runtime.subscriptions import handle

pytestmark = pytest.mark.spark

ZONE, ANSI = "spark.sql.session.timeZone", "spark.sql.ansi.enabled"
NEW_YORK = "America/New_York"
SELECT = (
    "SELECT a.id AS x, b.id AS y, hour(a.ts) + hour(b.ts) AS h, CAST(a.ts AS date) AS day, unix_micros(date_trunc('hour', b.ts)) AS hour, "
    "unix_micros(date_trunc('week', a.ts)) AS week, unix_micros(b.ts + INTERVAL 1 DAY) AS later, unix_micros(b.ts - INTERVAL 25 HOURS) AS sooner, "
    "dayofweek(a.ts) AS w, b.ts = CAST(CAST(b.ts AS timestamp_ntz) AS timestamp) AS same, a.ts < CAST(b.ts AS date) AS past"
)
MORE = {
    **dict.fromkeys(CONDITIONS),
    "a.ts < TIMESTAMP'2024-03-10 02:30:00' OR b.ts > TIMESTAMP'2024-11-03 01:30:00'": None,
    "a.ts < CAST(b.ts AS timestamp_ntz) AND CAST(a.ts AS timestamp_ntz) <= b.ts": None,
    "dayofweek(a.ts) + weekday(b.ts) > 6 AND minute(a.ts) <= minute(b.ts)": None,
    "date_trunc('hour', a.ts) = date_trunc('hour', b.ts) AND year(a.ts) = 2024": None,
}
"""Conditions across two streams."""


@contextmanager
def session(spark: Any, **settings: str) -> Iterator[Any]:
    """The session under other settings, for a while."""
    names = {"zone": ZONE, "ansi": ANSI}
    before = {names[key]: spark.conf.get(names[key]) for key in settings}
    for key, value in settings.items():
        spark.conf.set(names[key], value)
    try:
        yield spark
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)


def view(spark: Any, zone: str) -> Any:
    frame = spark.createDataFrame(table(zone))
    frame.createOrReplaceTempView("s")
    return frame


def bag(found: Any) -> Counter[Any]:
    return Counter(zip(*(c.to_pylist() for c in found.columns), strict=True))


@pytest.mark.parametrize("zone", CHANGES)
def test_in_process_as_in_spark(spark: Any, zone: str) -> None:
    with session(spark, zone=zone):
        view(spark, zone)
        parts = [
            f"SELECT {n} AS c, a.id AS x, b.id AS y FROM s a JOIN s b ON a.k = b.k WHERE {c}"
            for n, c in enumerate(MORE)
        ]
        want = Counter(map(tuple, spark.sql(" UNION ALL ".join(parts)).collect()))
        rows = spark.sql(f"{SELECT} FROM s a JOIN s b ON a.k = b.k WHERE a.ts <= b.ts").collect()
    for n, condition in enumerate(MORE):
        text = f"SELECT a.id AS x, b.id AS y FROM s a, s b WHERE a.k = b.k AND ({condition})"
        found = bag(wm.local.run(text, {"s": table(zone)}, timezone=zone))
        assert found == Counter({(x, y): k for (c, x, y), k in want.items() if c == n}), condition
    found = bag(
        wm.local.run(f"{SELECT} FROM s a, s b WHERE a.k = b.k AND a.ts <= b.ts", {"s": table(zone)}, timezone=zone)
    )
    assert found == Counter(map(tuple, rows))
    assert len(found) > 100


JOIN = f"{SELECT} FROM s a JOIN t b ON a.k = b.k AND b.ts BETWEEN a.ts AND a.ts + INTERVAL 24 HOURS AND b.ts - a.ts <= INTERVAL 23 HOURS AND hour(a.ts) + hour(b.ts) > 4"
GROUPED = "SELECT CAST(a.ts AS date) AS day, hour(b.ts) AS h, count(*) AS n FROM s a JOIN t b ON a.k = b.k AND b.ts - a.ts BETWEEN INTERVAL '0' HOUR AND INTERVAL 1 HOUR GROUP BY CAST(a.ts AS date), hour(b.ts)"


def test_every_runtime_obeys_the_zone(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "s", [table(NEW_YORK).slice(at, 20) for at in (0, 20)])
    with session(spark, zone=NEW_YORK):
        for name in "st":
            spark.read.parquet(path).createOrReplaceTempView(name)
        want = {text: Counter(map(tuple, spark.sql(text).collect())) for text in (JOIN, GROUPED)}
        assert all(len(rows) > 10 for rows in want.values())
        static = {name: wm.Stream(spark.read.parquet(path), time="ts") for name in "st"}
        for text, rows in want.items():
            assert Counter(map(tuple, wm.sql(text, **static).dataframe().collect())) == rows
        streams = {name: stream(spark, path) for name in "st"}
        for runtime in ("stream", "rounds"):
            assert run(wm.sql(JOIN, **streams), tmp_path / runtime, runtime=runtime)[0] == want[JOIN]  # type: ignore[arg-type]
    write(tmp_path, "s", [table(NEW_YORK)], first=2)
    with session(spark, zone="Europe/Berlin"), pytest.raises(Exception, match=f"(?s){NEW_YORK}.*Europe/Berlin"):
        run(wm.sql(JOIN, **streams), tmp_path / "rounds", runtime="rounds")


def test_a_zone_that_does_not_matter_may_change(spark: Any, tmp_path: Path) -> None:
    text = "SELECT a.id AS x, b.id AS y, b.ts FROM s a JOIN s b ON a.k = b.k WINDOW = 2 HOURS"
    want = bag(wm.local.run(text, {"s": table(NEW_YORK)}))
    for runtime in ("stream", "rounds"):
        folder = tmp_path / runtime
        found: Counter[Any] = Counter()
        for n, zone in enumerate((NEW_YORK, "Europe/Berlin")):
            path = write(folder, "s", [table(NEW_YORK).slice(10 * n, 10 + 20 * n)], first=n)
            with session(spark, zone=zone):
                query = wm.sql(text, s=stream(spark, path))
                found += run(query, folder / "ck", runtime=runtime)[0]  # type: ignore[arg-type]
        assert Counter((x, y) for x, y, _ in found.elements()) == Counter((x, y) for x, y, _ in want.elements()), (
            runtime
        )


def test_subscriptions_obey_the_zone(spark: Any, tmp_path: Path) -> None:
    path = write(tmp_path, "s", [table(NEW_YORK)])
    text = "SELECT a.id AS x, hour(b.ts) AS h FROM s a, s b WHERE a.k = b.k AND b.ts - a.ts BETWEEN INTERVAL '0' HOUR AND INTERVAL 1 HOUR AND hour(a.ts) = 1"
    with session(spark, zone=NEW_YORK):
        spark.read.parquet(path).createOrReplaceTempView("s")
        want = Counter(map(tuple, spark.sql(text).collect()))
        running = wm.subscriptions(
            s=stream(spark, path), checkpoint=tmp_path / "ck", sink="memory", trigger="availableNow", units=1
        )
        running.add(text, "q")
        running.start().await_termination()
        found = running.answers(spark.createDataFrame(running.table()), "q").drop("ts").collect()
    assert Counter(map(tuple, found)) == want
    assert want


def test_a_zone_that_only_spark_knows_is_left_to_spark(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spark_plan, "knows", lambda _: False)
    monkeypatch.setattr(handle, "knows", lambda _: False)
    text = "SELECT DISTINCT hour(a.ts) + hour(b.ts) AS h FROM s a JOIN s b ON a.k = b.k AND hour(a.ts) + hour(b.ts) > 4"
    with session(spark, zone=NEW_YORK):
        query = wm.sql(text, s=wm.Stream(view(spark, NEW_YORK), time="ts"))
        assert query.plan.after
        assert sorted(query.dataframe().collect()) == sorted(spark.sql(text).collect())
        path = write(tmp_path, "s", [table(NEW_YORK)])
        with pytest.raises(OptionError, match=f"{NEW_YORK}, for which the evaluator"):
            wm.subscriptions(s=stream(spark, path), checkpoint=tmp_path / "ck", sink="memory")


def test_a_query_is_of_the_session_in_which_it_was_made(spark: Any) -> None:
    query = wm.sql(
        "SELECT a.id FROM s a, s b WHERE a.id = b.id WINDOW = 1 HOUR", s=wm.Stream(view(spark, NEW_YORK), time="ts")
    )
    with (
        session(spark, zone=NEW_YORK),
        pytest.raises(OptionError, match=f"was UTC when the query was made, and is {NEW_YORK}"),
    ):
        query.dataframe()
    with session(spark, ansi="false"), pytest.raises(OptionError, match=ANSI):
        query.dataframe()


BAND = "SELECT a.id AS x, b.id AS y FROM s a JOIN s b ON a.k = b.k AND a.t - b.t BETWEEN -1 AND 1"


def test_a_band_does_not_overflow_and_wraps_around_where_spark_lets_it(spark: Any) -> None:
    frame = spark.sql(
        "SELECT id, 1L AS k, CAST(if(id < 2, 127 - id, id - 130) AS tinyint) AS t, timestamp_seconds(id) AS ts FROM range(4)"
    )
    frame.createOrReplaceTempView("s")
    query = wm.sql(BAND, s=wm.Stream(frame, time="ts"))
    near = {(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3)}
    assert set(map(tuple, query.dataframe().collect())) == near
    with pytest.raises(Exception, match="OVERFLOW"):
        spark.sql(BAND).collect()
    with session(spark, ansi="false"):
        wrapped = set(map(tuple, spark.sql(BAND).collect()))
        assert set(map(tuple, wm.sql(BAND, s=wm.Stream(frame, time="ts")).dataframe().collect())) == wrapped
        assert wrapped > near
