"""Sessions: one spelling for every time zone."""

from __future__ import annotations

import pytest

from watersmeet.errors import OptionError
from watersmeet.query.session import Session


@pytest.mark.parametrize(
    ("given", "timezone", "fixed"),
    [
        *((z, "UTC", True) for z in ("UTC", "Z", "GMT", "Etc/UTC", "+00:00", "GMT+0", "Zulu", "UT", "Etc/GMT-0")),
        *(
            (z, "GMT+02:00", True)
            for z in ("GMT+2", "+02:00", "UTC+2", "+2:00", "+02", "Etc/GMT-2", "UT+02:00", "+0200")
        ),
        ("-5", "GMT-05:00", True),
        ("+5:3", "GMT+05:03", True),
        ("+01:02:03", "GMT+01:02:03", True),
        ("EST", "GMT-05:00", True),
        ("PST", "America/Los_Angeles", False),
        ("America/New_York", "America/New_York", False),
        ("EST5EDT", "EST5EDT", False),
    ],
)
def test_a_zone_has_one_spelling(given: str, timezone: str, fixed: bool) -> None:
    session = Session(given)
    assert (session.timezone, session.is_fixed) == (timezone, fixed)
    assert Session(session.timezone) == session


@pytest.mark.parametrize("given", ["", "+19:00", "+18:01", "GMT+2:60", "UTC'; DROP", None, 3, "Europe/Berlin'"])
def test_what_cannot_be_a_zone_is_named(given: object) -> None:
    with pytest.raises(OptionError, match="zone"):
        Session(given)  # type: ignore[arg-type]
