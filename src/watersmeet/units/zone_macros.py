"""Local times and instants of a connection's time zone, in DuckDB, with Java's answers where the clock is set.

    overlap   01:30 comes twice      Java: the earlier, or the one with the offset at hand     ICU: the later
    gap       02:30 never comes      Java: 02:30 by the offset before, that is 03:30           ICU: the same

    wm_instant(l)            the instant of a local time: CAST(timestamp_ntz AS timestamp)
    wm_resolve(l, near)      the same; where there are two, the one whose offset is that of the instant `near`
    wm_shift(t, days, us)    t + INTERVAL: days in local time, then microseconds
    wm_trunc(unit, t)        date_trunc by minutes, hours and days in local time
    wm_start(unit, t)        date_trunc by weeks and more
    wm_apart(y, x)           y - x in microseconds, of their local times

Expressions name these macros whatever the zone; with a fixed offset they are plain arithmetic.
"""

from __future__ import annotations

_DAY_US = 86_400_000_000

_FIXED = (
    "wm_instant(l) AS CAST(l AS TIMESTAMPTZ)",
    f"wm_shift(t, days, us) AS t + to_microseconds(days * {_DAY_US} + us)",
    "wm_trunc(unit, t) AS date_trunc(unit, t)",
    "wm_start(unit, t) AS date_trunc(unit, t)",
    "wm_apart(y, x) AS epoch_us(y) - epoch_us(x)",
)
_CHANGING = (
    "wm_by_offset(l, near) AS make_timestamptz(epoch_us(l) - epoch_us(CAST(near AS TIMESTAMP)) + epoch_us(near))",
    # By the offset of a day before it is the earlier of two, if that is what the clock shows. Otherwise ICU answers as Java does.
    f"""wm_instant(l) AS CASE
        WHEN CAST(wm_by_offset(l, CAST(l AS TIMESTAMPTZ) - to_microseconds({_DAY_US})) AS TIMESTAMP) = l
        THEN wm_by_offset(l, CAST(l AS TIMESTAMPTZ) - to_microseconds({_DAY_US}))
        ELSE CAST(l AS TIMESTAMPTZ) END""",
    """wm_resolve(l, near) AS CASE
        WHEN CAST(wm_by_offset(l, near) AS TIMESTAMP) = l THEN wm_by_offset(l, near) ELSE wm_instant(l) END""",
    f"wm_shift(t, days, us) AS wm_resolve(CAST(t AS TIMESTAMP) + to_microseconds(days * {_DAY_US}), t) + to_microseconds(us)",
    "wm_trunc(unit, t) AS wm_resolve(date_trunc(unit, CAST(t AS TIMESTAMP)), t)",
    "wm_start(unit, t) AS wm_instant(date_trunc(unit, CAST(t AS TIMESTAMP)))",
    "wm_apart(y, x) AS epoch_us(CAST(y AS TIMESTAMP)) - epoch_us(CAST(x AS TIMESTAMP))",
)


def macros(*, fixed: bool) -> list[str]:
    """The statements that make the macros, for a zone whose offset is fixed or changes."""
    return [f"CREATE MACRO {macro}" for macro in (_FIXED if fixed else _CHANGING)]
