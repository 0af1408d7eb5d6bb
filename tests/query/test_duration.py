"""Spans of time: what is read, what is refused, and that showing and reading agree."""

from __future__ import annotations

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from watersmeet.errors import WindowError
from watersmeet.query.duration import parse_us, show_us, unit_us

SECOND = 1_000_000


@pytest.mark.parametrize(
    ("text", "us"),
    [
        ("10 minutes", 600 * SECOND),
        ("10 MINUTES", 600 * SECOND),
        ("1 minute", 60 * SECOND),
        ("250ms", 250_000),
        ("250 milliseconds", 250_000),
        ("7us", 7),
        ("1h 30m", 5400 * SECOND),
        ("1 hour, 30 minutes", 5400 * SECOND),
        ("0.5s", 500_000),
        ("0.000001 seconds", 1),
        ("0.1 s", 100_000),
        ("0 seconds", 0),
        ("-3 seconds", -3 * SECOND),
        ("2 weeks", 14 * 86_400 * SECOND),
        ("INTERVAL 5 SECONDS", 5 * SECOND),
        ("interval '5' second", 5 * SECOND),
        ("  3 days ", 3 * 86_400 * SECOND),
    ],
)
def test_reads(text, us):
    assert parse_us(text) == us


@pytest.mark.parametrize(
    "text",
    [
        "",
        " ",
        "10",
        "minutes",
        "10 parsecs",
        "1 month",
        "1 year",
        "5 seconds and more",
        "1e3 s",
        "1h;",
        "abc 5s",
        "interval",
    ],
)
def test_refuses(text):
    with pytest.raises(WindowError):
        parse_us(text)


def test_names_the_unit_and_the_remedy():
    with pytest.raises(WindowError, match=r"'month'.*days or weeks"):
        parse_us("1 month")


@given(st.timedeltas(min_value=timedelta(days=-10_000), max_value=timedelta(days=10_000)))
def test_timedelta_is_exact(span):
    assert parse_us(span) == span // timedelta(microseconds=1)


@given(st.integers(0, 10**15))
def test_what_is_shown_can_be_read(us):
    assert parse_us(show_us(us)) == us


@pytest.mark.parametrize(
    ("us", "text"),
    [(0, "0 s"), (1, "1 us"), (1500, "1500 us"), (2000, "2 ms"), (90 * SECOND, "90 s"), (3600 * SECOND, "1 h")],
)
def test_shows_the_largest_whole_unit(us, text):
    assert show_us(us) == text


def test_unit_us():
    assert unit_us("s") == unit_us("SECS") == unit_us("Seconds") == SECOND
    with pytest.raises(WindowError):
        unit_us("")
