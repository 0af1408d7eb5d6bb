"""Local times and instants in zones whose clocks are set: Java's answers, looked up in Spark."""

from __future__ import annotations

from datetime import UTC, datetime

import pyarrow as pa
import pytest

from watersmeet.errors import OptionError
from watersmeet.expressions.evaluator import connection, evaluate, knows

NEW_YORK, BERLIN, LORD_HOWE, KOLKATA = "America/New_York", "Europe/Berlin", "Australia/Lord_Howe", "Asia/Kolkata"


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def value(expression: str, timezone: str) -> object:
    return evaluate(pa.table({"x": [0]}), [expression], "a test", timezone).column(0)[0].as_py()


@pytest.mark.parametrize(
    ("timezone", "local", "utc"),
    [
        (NEW_YORK, "2024-07-01 12:00:00", "2024-07-01T16:00"),
        (NEW_YORK, "2024-03-10 02:30:00", "2024-03-10T07:30"),  # never on the clock: by the offset before
        (NEW_YORK, "2024-11-03 01:30:00", "2024-11-03T05:30"),  # twice on the clock: the earlier
        (NEW_YORK, "2024-11-03 02:00:00", "2024-11-03T07:00"),
        (NEW_YORK, "1883-11-18 12:01:00", "1883-11-18T16:57:02"),  # when standard time came
        (BERLIN, "2024-10-27 02:59:59", "2024-10-27T00:59:59"),
        (LORD_HOWE, "2024-04-07 01:45:00", "2024-04-06T14:45"),  # half an hour comes twice
        (LORD_HOWE, "2024-10-06 02:15:00", "2024-10-05T15:45"),
        (KOLKATA, "2024-04-07 01:45:00", "2024-04-06T20:15"),
        ("Pacific/Apia", "2011-12-30 12:00:00", "2011-12-30T22:00"),  # a day that never was
        ("GMT+02:30", "2024-11-03 01:30:00", "2024-11-02T23:00"),
        ("UTC", "2024-11-03 01:30:00", "2024-11-03T01:30"),
    ],
)
def test_an_instant_of_a_local_time(timezone: str, local: str, utc: str) -> None:
    assert value(f"wm_instant(TIMESTAMP '{local}')", timezone) == instant(utc)


@pytest.mark.parametrize(
    ("timezone", "start", "days", "utc"),
    [
        (NEW_YORK, "2024-03-09T17:00", 1, "2024-03-10T16:00"),
        (NEW_YORK, "2024-11-02T16:00", 1, "2024-11-03T17:00"),
        (NEW_YORK, "2024-11-02T05:30", 1, "2024-11-03T05:30"),
        (NEW_YORK, "2024-11-04T06:30", -1, "2024-11-03T06:30"),  # 01:30 comes twice: the offset at hand is kept
        (NEW_YORK, "2024-03-09T07:30", 1, "2024-03-10T07:30"),
        (KOLKATA, "2024-03-09T07:30", 1, "2024-03-10T07:30"),
        ("UTC", "2024-03-09T07:30", -2, "2024-03-07T07:30"),
    ],
)
def test_days_are_added_in_local_time(timezone: str, start: str, days: int, utc: str) -> None:
    found = value(f"wm_shift(TIMESTAMPTZ '{instant(start)}', {days}, 0)", timezone)
    assert found == instant(utc)


@pytest.mark.parametrize(
    ("timezone", "unit", "start", "utc"),
    [
        (NEW_YORK, "day", "2024-11-03T06:45", "2024-11-03T04:00"),
        (NEW_YORK, "hour", "2024-11-03T06:45", "2024-11-03T06:00"),
        (NEW_YORK, "hour", "2024-11-03T05:45", "2024-11-03T05:00"),
        (LORD_HOWE, "hour", "2024-04-06T15:15", "2024-04-06T14:00"),  # 01:45 for the second time; 01:00 was once
        (KOLKATA, "hour", "2024-04-06T15:15", "2024-04-06T14:30"),
        ("UTC", "day", "2024-11-03T06:45", "2024-11-03T00:00"),
    ],
)
def test_truncation_is_local(timezone: str, unit: str, start: str, utc: str) -> None:
    assert value(f"wm_trunc('{unit}', TIMESTAMPTZ '{instant(start)}')", timezone) == instant(utc)


def test_weeks_begin_at_local_midnight() -> None:
    assert value("wm_start('week', TIMESTAMPTZ '2024-11-05 12:00:00+00')", NEW_YORK) == instant("2024-11-04T05:00")
    assert value("wm_start('month', TIMESTAMPTZ '2024-11-05 12:00:00+00')", NEW_YORK) == instant("2024-11-01T04:00")


def test_the_difference_of_two_instants_is_that_of_the_clock() -> None:
    pair = "TIMESTAMPTZ '2024-03-10 16:00:00+00', TIMESTAMPTZ '2024-03-09 17:00:00+00'"
    assert value(f"wm_apart({pair})", NEW_YORK) == 86_400_000_000
    assert value(f"wm_apart({pair})", "UTC") == 82_800_000_000


def test_the_zone_of_one_evaluation_does_not_reach_another() -> None:
    table = pa.table({"t": pa.array([0], pa.timestamp("us", "UTC"))})
    hours = [evaluate(table, ["hour(t)"], "x", z).column(0)[0].as_py() for z in (NEW_YORK, "UTC", KOLKATA, NEW_YORK)]
    assert hours == [19, 0, 5, 19]


def test_instants_come_back_in_utc() -> None:
    table = pa.table({"t": pa.array([0], pa.timestamp("us", "UTC"))})
    assert evaluate(table, ["t"], "x", NEW_YORK).schema.field(0).type == pa.timestamp("us", "UTC")


def test_an_unknown_zone_is_named() -> None:
    with pytest.raises(OptionError, match="Mars/Olympus"):
        connection("Mars/Olympus")
    assert not knows("Mars/Olympus")
    assert knows("GMT+05:30")


def test_many_zones_leave_few_databases() -> None:
    zones = [f"GMT+{h:02d}:00" for h in range(1, 14)]
    assert [value("hour(to_timestamp(0))", z) for z in zones] == list(range(1, 14))
    assert value("hour(to_timestamp(0))", zones[0]) == 1
