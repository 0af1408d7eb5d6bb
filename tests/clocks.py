"""Instants around changes of clocks, in zones of different habits, and what Spark's expressions mean there, by Python's own rules."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pyarrow as pa

CHANGES = {
    "America/New_York": ("2024-03-10T07:00", "2024-11-03T06:00"),
    "Europe/Berlin": ("2024-03-31T01:00", "2024-10-27T01:00"),
    "Australia/Lord_Howe": ("2024-04-06T15:00", "2024-10-05T15:30"),
    "Asia/Kolkata": ("2024-03-31T01:00", "2024-11-03T06:00"),
}
"""Zones, and when their clocks are set; in Kolkata they are not."""
_MINUTES = (-1530, -1500, -1440, -1380, -90, -60, -45, -30, -1, 0, 15, 30, 59, 60, 90, 1379, 1380, 1440, 1470, 1500)


def instants(zone: str) -> list[datetime]:
    """Instants before, between and after the changes of a zone's clock."""
    changes = [datetime.fromisoformat(text).replace(tzinfo=UTC) for text in CHANGES[zone]]
    return [change + timedelta(minutes=m) for change in changes for m in _MINUTES]


def table(zone: str) -> pa.Table:
    """The instants as a stream: id, k (one for each change), ts."""
    times = instants(zone)
    keys = [n // len(_MINUTES) for n in range(len(times))]
    return pa.table({"id": range(len(times)), "k": keys, "ts": pa.array(times, pa.timestamp("us", "UTC"))})


def local(at: datetime, zone: str) -> datetime:
    """What the clock shows."""
    return at.astimezone(ZoneInfo(zone)).replace(tzinfo=None)


def instant(shown: datetime, zone: str) -> datetime:
    """When the clock shows it first; what it never shows, by the offset before."""
    return shown.replace(tzinfo=ZoneInfo(zone), fold=0).astimezone(UTC)


def plus(at: datetime, span: timedelta, zone: str) -> datetime:
    """Whole days on the clock, keeping the offset if that is possible; then the rest."""
    days = timedelta(days=int(span / timedelta(days=1)))
    shown = local(at, zone) + days
    kept = at + days
    return (kept if local(kept, zone) == shown else instant(shown, zone)) + (span - days)
