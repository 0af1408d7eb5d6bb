"""Spans of time as users write them, in microseconds; and how spans and sizes are shown.

Only units of fixed length are spans: a month is not.
"""

from __future__ import annotations

import re
from datetime import timedelta
from decimal import Decimal

from watersmeet.errors import WindowError

MICROSECONDS = {
    "us": 1, "microsecond": 1, "ms": 1_000, "millisecond": 1_000, "s": 1_000_000, "sec": 1_000_000, "second": 1_000_000,
    "m": 60_000_000, "min": 60_000_000, "minute": 60_000_000, "h": 3_600_000_000, "hr": 3_600_000_000,
    "hour": 3_600_000_000, "d": 86_400_000_000, "day": 86_400_000_000, "w": 604_800_000_000, "week": 604_800_000_000,
}  # fmt: skip
_PART = re.compile(r"\s*([+-]?\d+(?:\.\d+)?)\s*([A-Za-z]+)\s*,?")


def unit_us(name: str) -> int:
    """The length of a unit of time.

    >>> unit_us("MINUTES")
    60000000
    """
    low = name.lower()
    for candidate in (low, low.removesuffix("s")):
        if candidate in MICROSECONDS:
            return MICROSECONDS[candidate]
    raise WindowError(
        f"{name!r} is not a unit of fixed length; use microseconds, milliseconds, seconds, minutes, hours, days or weeks"
    )


def parse_us(span: str | timedelta) -> int:
    """A span such as '10 minutes', '1h 30m', '250ms' or a timedelta, in microseconds.

    >>> parse_us("1 hour 30 minutes"), parse_us("0.5s")
    (5400000000, 500000)
    """
    if isinstance(span, timedelta):
        return round(span / timedelta(microseconds=1))
    text = span.strip()
    if text[:8].lower() == "interval":
        text = text[8:]
    text, total, at = text.replace("'", " ").strip(), Decimal(0), 0
    while at < len(text):
        part = _PART.match(text, at)
        if part is None:
            break
        total += Decimal(part[1]) * unit_us(part[2])
        at = part.end()
    if not text or at < len(text):
        raise WindowError(
            f"cannot read {span!r} as a span of time; write it as '10 minutes', '250 ms' or '1 hour 30 minutes'"
        )
    return int(total)


def show_us(us: int) -> str:
    """A span in its largest whole unit.

    >>> show_us(90_000_000), show_us(7_200_000_000), show_us(0)
    ('90 s', '2 h', '0 s')
    """
    units = ("d", "h", "min", "s", "ms", "us") if us else ("s",)
    unit = next(unit for unit in units if us % MICROSECONDS[unit] == 0)
    return f"{us // MICROSECONDS[unit]} {unit}"


def show_about(us: int) -> str:
    """A span to one digit behind the point, in the unit that suits it.

    >>> show_about(5_196_401), show_about(75_000_000), show_about(7_200_000_000), show_about(900)
    ('5.2 s', '75 s', '2 h', '900 us')
    """
    unit = next((u for u in ("d", "h", "min", "s", "ms") if us >= 2 * MICROSECONDS[u]), "us")
    return f"{us / MICROSECONDS[unit]:.1f}".removesuffix(".0") + f" {unit}"


def show_bytes(count: float) -> str:
    """A size in the unit that suits it.

    >>> show_bytes(900), show_bytes(1_240_000)
    ('900 B', '1.2 MB')
    """
    for unit in ("B", "kB", "MB", "GB"):
        if count < 1000 or unit == "GB":
            break
        count /= 1000
    return f"{count:.0f} B" if unit == "B" else f"{count:.1f} {unit}"
