"""The session in which a query is bound: what Spark's settings say about the meaning of its expressions.

A time zone has one spelling here, whatever Spark's setting says:

    UTC                      every spelling of an offset of zero
    GMT+05:30, GMT-08:00     fixed offsets: +05:30, GMT-8, UTC+5:30, Etc/GMT+8, EST
    America/New_York         regions: offsets that change; short names (PST, CTT) stand for regions, as in Java

Invariant: equal sessions give equal results; the session belongs to a plan's fingerprint.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from watersmeet.errors import OptionError

UTC = "UTC"
_ZERO = {
    "UTC", "UCT", "GMT", "UT", "Z", "Zulu", "Universal", "Greenwich", "GMT0",
    "Etc/UTC", "Etc/UCT", "Etc/GMT", "Etc/Zulu", "Etc/Universal", "Etc/Greenwich", "Etc/GMT0", "Etc/GMT+0", "Etc/GMT-0",
}  # fmt: skip
_SHORT = {
    "EST": "-05:00", "MST": "-07:00", "HST": "-10:00", "ACT": "Australia/Darwin", "AET": "Australia/Sydney",
    "AGT": "America/Argentina/Buenos_Aires", "ART": "Africa/Cairo", "AST": "America/Anchorage", "BET": "America/Sao_Paulo",
    "BST": "Asia/Dhaka", "CAT": "Africa/Harare", "CNT": "America/St_Johns", "CST": "America/Chicago", "CTT": "Asia/Shanghai",
    "EAT": "Africa/Addis_Ababa", "ECT": "Europe/Paris", "IET": "America/Indiana/Indianapolis", "IST": "Asia/Kolkata",
    "JST": "Asia/Tokyo", "MIT": "Pacific/Apia", "NET": "Asia/Yerevan", "NST": "Pacific/Auckland", "PLT": "Asia/Karachi",
    "PNT": "America/Phoenix", "PRT": "America/Puerto_Rico", "PST": "America/Los_Angeles", "SST": "Pacific/Guadalcanal",
    "VST": "Asia/Ho_Chi_Minh",
}  # fmt: skip
"""Java's names of three letters."""
_OFFSET = re.compile(r"(?:UTC|GMT|UT)?([+-])(\d{1,2})(?::?(\d{1,2})(?::?(\d{2}))?)?")
_ETC = re.compile(r"Etc/GMT([+-])(\d{1,2})")
_REGION = re.compile(r"[A-Za-z][A-Za-z0-9_+\-/]*")
_LARGEST_S = 18 * 3600


@dataclass(frozen=True)
class Session:
    """Time zone and ANSI mode.

    >>> Session("+5:30"), Session("Etc/GMT+8").timezone, Session("PST").timezone
    (Session(timezone='GMT+05:30', ansi=True), 'GMT-08:00', 'America/Los_Angeles')
    """

    timezone: str = UTC
    ansi: bool = True

    def __post_init__(self) -> None:
        object.__setattr__(self, "timezone", canonical(self.timezone))

    @property
    def is_fixed(self) -> bool:
        """Whether the offset from UTC never changes: then every day has 24 hours, and no local time comes twice."""
        return self.timezone == UTC or self.timezone.startswith("GMT")


def canonical(timezone: str) -> str:
    """The one spelling of a time zone; whether a region exists, the evaluator knows.

    >>> [canonical(z) for z in ("Z", "GMT+2", "-03:30", "EST", "Asia/Kolkata")]
    ['UTC', 'GMT+02:00', 'GMT-03:30', 'GMT-05:00', 'Asia/Kolkata']
    """
    if not isinstance(timezone, str):
        raise OptionError(f"timezone={timezone!r}: give the name of a time zone, such as 'Europe/Berlin' or '+02:00'")
    name = _SHORT.get(timezone.strip(), timezone.strip())
    if name in _ZERO:
        return UTC
    etc, offset = _ETC.fullmatch(name), _OFFSET.fullmatch(name)
    if etc is not None:
        return _show_offset("-" if etc[1] == "+" else "+", int(etc[2]), 0, 0)
    if offset is not None and _in_range(*offset.groups()):
        return _show_offset(offset[1], int(offset[2]), int(offset[3] or 0), int(offset[4] or 0))
    if offset is not None or _REGION.fullmatch(name) is None:
        raise OptionError(
            f"unknown time zone {timezone!r}: give a name such as 'Europe/Berlin', or an offset as '+02:00'"
        )
    return name


def _in_range(_: str, hours: str, minutes: str | None, seconds: str | None) -> bool:
    m, s = int(minutes or 0), int(seconds or 0)
    return m < 60 and s < 60 and int(hours) * 3600 + m * 60 + s <= _LARGEST_S


def _show_offset(sign: str, hours: int, minutes: int, seconds: int) -> str:
    """An offset as Java and ICU both write it."""
    if not (hours or minutes or seconds):
        return UTC
    return f"GMT{sign}{hours:02d}:{minutes:02d}" + (f":{seconds:02d}" if seconds else "")


IN_UTC = Session()
"""Spark's own defaults, but for the zone: UTC."""
