"""Numbers as the table shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def short(value: float) -> str:
    """Three digits and a unit.

    >>> short(1234567), short(37164), short(430), short(2.347)
    ('1.23M', '37.2k', '430', '2.35')
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (limit if unit != "k" else 1e3)
            return f"{scaled:.3g}{unit}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def each(values: Mapping[str, float], form: str = "{:.2f}") -> str:
    """Named values in a row.

    >>> each({"Q5": 4.0, "Q7": 3.98})
    'Q5 4.00, Q7 3.98'
    """
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def shorts(values: Mapping[str, float]) -> str:
    """Named values in a row, shortened."""
    return ", ".join(f"{name} {short(value)}" for name, value in values.items())


def furthest(deviations: Iterable[float]) -> str:
    """The largest relative deviation, in percent.

    >>> furthest([0.001, -0.004])
    '0.40%'
    """
    return f"{max(abs(d) for d in deviations):.2%}"
