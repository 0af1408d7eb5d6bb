"""Queries in time zones whose clocks are set: windows that cover what the clock says, and conditions that decide it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.clocks import CHANGES, instants, local, plus, table
from watersmeet.errors import OptionError, StreamError
from watersmeet.query.predicate import Comparison, Condition, Equality
from watersmeet.query.session import Session
from watersmeet.query.stream import StreamSpec
from watersmeet.registry.plan import RegistryPlan
from watersmeet.runtime.sources import source_of
from watersmeet.sql.parse import parse

H = 3_600_000_000
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
NEW_YORK = "America/New_York"
SPECS = {"s": StreamSpec("s", {"id": "bigint", "k": "bigint", "ts": "timestamp", "n": "timestamp_ntz"}, time="ts")}


def bound(where: str, zone: str = NEW_YORK, specs: dict[str, StreamSpec] = SPECS):  # type: ignore[no-untyped-def]
    return parse(f"SELECT a.id FROM s a, s b WHERE a.k = b.k AND {where}", specs, Session(zone))


@pytest.mark.parametrize(
    ("condition", "zone", "hi", "remains"),
    [
        ("b.ts <= a.ts + INTERVAL 1 DAY", "UTC", 24 * H, None),
        ("b.ts <= a.ts + INTERVAL 1 DAY", "GMT+2", 24 * H, None),
        ("b.ts <= a.ts + INTERVAL 1 DAY", NEW_YORK, 25 * H, Comparison),
        ("b.ts <= a.ts + INTERVAL 24 HOURS", NEW_YORK, 25 * H, Comparison),
        ("b.ts - INTERVAL 1 WEEK <= a.ts", NEW_YORK, 169 * H, Comparison),
        ("b.ts <= a.ts + INTERVAL 23 HOURS", NEW_YORK, 23 * H, None),
        ("b.ts <= a.ts + INTERVAL 20 HOURS + INTERVAL 20 HOURS", NEW_YORK, 40 * H, None),
        ("b.ts <= a.ts + INTERVAL 1 DAY + INTERVAL 1 DAY", NEW_YORK, 50 * H, Comparison),
        ("b.ts - a.ts <= INTERVAL 1 HOUR", "UTC", H, None),
        ("b.ts - a.ts <= INTERVAL 1 HOUR", NEW_YORK, 2 * H, Condition),
        ("b.ts - a.ts <= INTERVAL 1 HOUR", "Pacific/Apia", 25 * H, Condition),
        ("b.ts = a.ts + INTERVAL 1 DAY", NEW_YORK, 25 * H, Equality),
        ("b.ts <= a.ts", NEW_YORK, 0, None),
    ],
)
def test_a_window_covers_what_the_clock_says(condition: str, zone: str, hi: int, remains: type | None) -> None:
    join = bound(condition, zone)
    assert join.windows.hi("a", "b") == hi
    assert [type(p) for p in join.predicates[1:]] == ([] if remains is None else [remains])
    assert bool(join.widened) == (hi not in (23 * H, 40 * H, 24 * H, H, 0))


def test_windows_of_our_own_are_spans_of_time() -> None:
    join = bound("a.id <> b.id WINDOW (a, b) = 2 DAYS")
    assert join.windows.hi("a", "b") == 48 * H
    assert not join.widened


def test_times_without_a_zone_have_no_clock_that_is_set() -> None:
    specs = {"s": StreamSpec("s", {"id": "bigint", "k": "bigint", "ts": "timestamp_ntz"}, time="ts")}
    join = bound("b.ts - a.ts <= INTERVAL 1 DAY", specs=specs)
    assert join.windows.hi("a", "b") == 24 * H
    assert len(join.predicates) == 1


def test_event_times_of_two_kinds_meet_in_utc_only() -> None:
    specs = {"s": SPECS["s"], "t": StreamSpec("t", {"k": "bigint", "ts": "timestamp_ntz"}, time="ts")}
    text = "SELECT a.k FROM s a, t b WHERE a.k = b.k WINDOW = 1 HOUR"
    assert parse(text, specs).windows.hi("a", "b") == H
    with pytest.raises(StreamError, match="'b' a timestamp_ntz: windows in time zone Europe/Berlin"):
        parse(text, specs, Session("Europe/Berlin"))


def test_explain_says_what_is_wider() -> None:
    text = "SELECT a.id FROM s a, s b WHERE a.k = b.k AND b.ts <= a.ts + INTERVAL 1 DAY"
    said = wm.local.explain(text, {"s": table(NEW_YORK)}, timezone=NEW_YORK)
    assert "wider by 1 h than b.ts <= a.ts + INTERVAL '1' DAY: clocks change in America/New_York" in said
    assert "session    time zone America/New_York" in wm.local.explain(
        text, {"s": table(NEW_YORK)}, timezone=NEW_YORK, detail="full"
    )
    assert "clocks" not in wm.local.explain(text, {"s": table(NEW_YORK)})


CONDITIONS: dict[str, Callable[[datetime, datetime, str], bool]] = {
    "b.ts BETWEEN a.ts AND a.ts + INTERVAL 1 DAY": lambda a, b, z: a <= b <= plus(a, DAY, z),
    "b.ts <= a.ts + INTERVAL 24 HOURS AND b.ts > a.ts - INTERVAL '1 01:30' DAY TO MINUTE": lambda a, b, z: (
        plus(a, -DAY - 1.5 * HOUR, z) < b <= plus(a, DAY, z)
    ),
    "b.ts - a.ts BETWEEN INTERVAL '-1' HOUR AND INTERVAL 1 HOUR": lambda a, b, z: (
        -HOUR <= local(b, z) - local(a, z) <= HOUR
    ),
    "b.ts - a.ts < INTERVAL 1 DAY AND a.ts <= b.ts": lambda a, b, z: local(b, z) - local(a, z) < DAY and a <= b,
    "b.ts = a.ts + INTERVAL 1 DAY": lambda a, b, z: b == plus(a, DAY, z),
    "b.ts BETWEEN a.ts AND a.ts + INTERVAL 90 MINUTES": lambda a, b, z: a <= b <= a + 1.5 * HOUR,
    "hour(a.ts) + hour(b.ts) > 4 AND b.ts >= a.ts": lambda a, b, z: local(a, z).hour + local(b, z).hour > 4 and b >= a,
    "CAST(a.ts AS date) = CAST(b.ts AS date)": lambda a, b, z: local(a, z).date() == local(b, z).date(),
    "date_trunc('day', a.ts) < date_trunc('day', b.ts)": lambda a, b, z: local(a, z).date() < local(b, z).date(),
}


@pytest.mark.parametrize("zone", CHANGES)
@pytest.mark.parametrize("condition", CONDITIONS)
def test_conditions_on_the_clock(zone: str, condition: str) -> None:
    times = instants(zone)
    keys = table(zone)["k"].to_pylist()
    want = {
        (x, y)
        for x, a in enumerate(times)
        for y, b in enumerate(times)
        if keys[x] == keys[y] and CONDITIONS[condition](a, b, zone)
    }
    text = f"SELECT a.id AS x, b.id AS y FROM s a, s b WHERE a.k = b.k AND {condition}"
    for rows in (1000, 7):
        found = wm.local.run(text, {"s": table(zone)}, batch_rows=rows, timezone=zone)
        assert set(zip(found["x"].to_pylist(), found["y"].to_pylist(), strict=True)) == want
        assert found.num_rows == len(want) > 0


@given(zone=st.sampled_from(sorted(CHANGES)), minutes=st.lists(st.integers(-3000, 3000), min_size=2, max_size=6),
       days=st.integers(-3, 3), rest=st.integers(-1439, 1439))  # fmt: skip
def test_any_span_is_added_as_on_the_clock(zone: str, minutes: list[int], days: int, rest: int) -> None:
    change = datetime.fromisoformat(CHANGES[zone][0]).replace(tzinfo=UTC)
    times = sorted(change + timedelta(minutes=m) for m in minutes)
    given_rows = pa.table({"k": [1] * len(times), "ts": pa.array(times, pa.timestamp("us", "UTC"))})
    span = timedelta(days=days, minutes=rest)
    written = f"INTERVAL '{days * 1440 + rest}' MINUTES"
    found = wm.local.run(
        f"SELECT a.ts AS at, a.ts + {written} AS moved FROM s a, s b WHERE a.k = b.k AND b.ts = a.ts", {"s": given_rows},
        timezone=zone,
    )  # fmt: skip
    for at, moved in zip(found["at"].to_pylist(), found["moved"].to_pylist(), strict=True):
        assert moved == plus(at, span, zone)


def test_groups_and_distinct_rows_are_of_the_zone() -> None:
    streams = {"s": table(NEW_YORK)}
    days = wm.local.run(
        "SELECT CAST(a.ts AS date) AS day, count(*) AS n FROM s a, s b WHERE a.id = b.id WINDOW = 1 SECOND GROUP BY CAST(a.ts AS date)",
        streams, timezone=NEW_YORK,
    )  # fmt: skip
    want = [local(at, NEW_YORK) for at in instants(NEW_YORK)]
    assert set(days["day"].to_pylist()) == {at.date() for at in want}
    hours = wm.local.run("SELECT DISTINCT hour(a.ts) AS h FROM s a, s b WHERE a.id = b.id", streams, timezone=NEW_YORK)
    assert sorted(hours["h"].to_pylist()) == sorted({at.hour for at in want})


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_subscriptions_are_of_the_zone(engine: str) -> None:
    subscriptions = wm.local.subscriptions(
        {"s": table(NEW_YORK).slice(0, 0)}, timezone=NEW_YORK, engine=engine, units=2
    )
    subscriptions.add("SELECT a.id AS x FROM s a, s b WHERE a.id = b.id AND hour(a.ts) = 1 WINDOW = 1 SECOND", "q")
    subscriptions.add(
        "SELECT a.id AS x, b.id AS y FROM s a, s b WHERE a.k = b.k AND b.ts - a.ts BETWEEN INTERVAL '-1' HOUR AND INTERVAL 1 HOUR", "r"
    )  # fmt: skip
    answers = subscriptions.push({"s": table(NEW_YORK)})
    found = answers["query"].to_pylist()
    times = instants(NEW_YORK)
    assert found.count("q") == sum(local(at, NEW_YORK).hour == 1 for at in times)
    near = CONDITIONS["b.ts - a.ts BETWEEN INTERVAL '-1' HOUR AND INTERVAL 1 HOUR"]
    keys = table(NEW_YORK)["k"].to_pylist()
    pairs = [(x, y) for x in range(len(times)) for y in range(len(times)) if keys[x] == keys[y]]
    assert found.count("r") == sum(near(times[x], times[y], NEW_YORK) for x, y in pairs)
    asked = subscriptions.ask("SELECT DISTINCT hour(a.ts) AS h FROM s a, s b WHERE a.id = b.id")
    assert set(asked["h"].to_pylist()) <= {local(at, NEW_YORK).hour for at in times}


def plan_of(text: str, zone: str = "UTC", ansi: bool = True):  # type: ignore[no-untyped-def]
    from watersmeet.plan.options import Options
    from watersmeet.runtime.local import LocalRun

    given_rows, spec = source_of("s", table(NEW_YORK))
    return LocalRun(parse(text, {"s": spec}, Session(zone, ansi)), {"s": given_rows}, Options(units=1)).plan


ZONED = "SELECT a.id FROM s a, s b WHERE a.k = b.k AND hour(a.ts) = 1 WINDOW = 1 HOUR"
PLAIN = "SELECT a.id, b.ts FROM s a, s b WHERE a.k = b.k AND a.ts < b.ts AND a.id + 1 > b.id WINDOW = 1 HOUR"


def test_the_zone_belongs_to_the_fingerprint_where_it_matters() -> None:
    prints = {plan_of(ZONED, zone).fingerprint() for zone in ("UTC", NEW_YORK, "Europe/Berlin")}
    assert len(prints) == 3
    assert plan_of(ZONED, "Etc/UTC").fingerprint() == plan_of(ZONED).fingerprint()
    assert plan_of(PLAIN, NEW_YORK).fingerprint() == plan_of(PLAIN).fingerprint()
    assert plan_of(PLAIN, ansi=False).fingerprint() != plan_of(PLAIN).fingerprint()
    assert RegistryPlan(SPECS, 1, session=Session(NEW_YORK)).fingerprint() != RegistryPlan(SPECS, 1).fingerprint()


def test_a_checkpoint_of_another_zone_is_refused_with_both_names() -> None:
    from watersmeet.errors import CheckpointError
    from watersmeet.storage.manifest import Identity, Manifest

    written = Manifest.fresh(Identity.of(plan_of(ZONED, NEW_YORK))).to_json()
    with pytest.raises(CheckpointError, match=r"(?s)time zone America/New_York.*time zone Europe/Berlin"):
        Manifest.from_json(written, Identity.of(plan_of(ZONED, "Europe/Berlin")))
    Manifest.from_json(
        Manifest.fresh(Identity.of(plan_of(PLAIN, NEW_YORK))).to_json(), Identity.of(plan_of(PLAIN, "Europe/Berlin"))
    )


@pytest.mark.parametrize(
    ("where", "zone", "ansi"),
    [
        ("a.id > 3", False, True),
        ("a.ts < b.ts", False, False),
        ("a.n = b.ts", True, True),
        ("a.ts < '2024-01-01'", True, True),
        ("reverse(CAST(a.id AS string)) = 'X'", True, True),
        ("a.n < b.n", False, False),
    ],
)
def test_what_a_query_depends_on(where: str, zone: bool, ansi: bool) -> None:
    join = bound(where)
    assert (join.depends_on_zone, join.depends_on_ansi) == (zone, ansi)


@pytest.mark.parametrize("zone", ["Mars/Olympus", "america/new_york", "+25:00"])
def test_an_unknown_zone_is_named(zone: str) -> None:
    text = "SELECT a.id FROM s a, s b WHERE a.id = b.id WINDOW = 1 HOUR"
    for call in (
        lambda: wm.local.run(text, {"s": table(NEW_YORK)}, timezone=zone),
        lambda: wm.local.explain(text, {"s": table(NEW_YORK)}, timezone=zone),
        lambda: wm.local.subscriptions({"s": table(NEW_YORK)}, timezone=zone),
    ):
        with pytest.raises(OptionError, match=zone.replace("+", r"\+")):
            call()


def test_a_band_does_not_overflow() -> None:
    times = pa.array([0, 1, 2, 3], pa.timestamp("us", "UTC"))
    given_rows = pa.table({"id": range(4), "k": [1] * 4, "t": pa.array([127, 126, -128, -127], pa.int8()), "ts": times})
    for condition in ("a.t - b.t BETWEEN -1 AND 1", "abs(a.t - b.t) <= 1"):
        text = f"SELECT a.id AS x, b.id AS y FROM s a, s b WHERE a.k = b.k AND {condition}"
        found = wm.local.run(text, {"s": given_rows})
        near = {(0, 0), (0, 1), (1, 0), (1, 1), (2, 2), (2, 3), (3, 2), (3, 3)}
        assert set(zip(found["x"].to_pylist(), found["y"].to_pylist(), strict=True)) == near
