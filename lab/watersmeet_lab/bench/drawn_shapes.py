"""Shapes that are drawn by chance, for `watersmeet bench choice --drawn`: on them nobody has tuned anything.

    streams      2 to 6, rates up to a thousand times apart         window      so that a tuple meets 0.1 to 3,000 of another stream
    conditions   keys, bands, comparisons, both, chains, none       keys        few to many, uniform, Zipf, or one of them hot
    batches      250 to 20,000 tuples                               units       one, or 2 to 8

Invariant: a shape follows from the seed and its number alone, and has at most MOST_RESULTS results, as far as uniform keys and values tell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from watersmeet_lab.bench.shapes import RATE, Shape

MOST_RESULTS = 2_000_000
_KINDS = ("key", "key", "key", "band", "less", "key and band", "two keys", "key or band", "none")
"""Of two streams; keys are what most queries have."""


def draw_shapes(number: int, seed: int) -> Iterator[Shape]:
    """So many shapes.

    >>> [shape.name for shape in draw_shapes(2, 1)] == [shape.name for shape in draw_shapes(3, 1)][:2]
    True
    """
    for n in range(number):
        yield _draw(n, np.random.default_rng([seed, n]))


def _draw(number: int, draw: np.random.Generator) -> Shape:
    streams = int(draw.choice([2, 2, 2, 3, 4, 5, 6]))
    rates = tuple(RATE / 10 ** float(draw.choice([0, 0, 0, draw.uniform(0, 3)])) for _ in range(streams))
    rates = tuple(rate * RATE / max(rates) for rate in rates)
    rows = int(draw.choice([4_000, 8_000, 32_000]))
    keys, values = round(10 ** draw.uniform(0.3, 5)), round(10 ** draw.uniform(2, 6))
    width = round(values * 10 ** draw.uniform(-4, -0.5))
    theta, hot = (float(x) for x in draw.choice([(0.0, 0.0), (0.0, 0.0), (0.8, 0.0), (0.0, 0.2)]))
    equal = _find_share(streams, keys, theta, hot)
    kind, condition, share = _draw_condition(streams, equal, 2 * width / values, width, draw)
    met = min(10 ** draw.uniform(-1, 3.5), (MOST_RESULTS / rows / streams) ** (1 / (streams - 1)) / share)
    window_us = met / 2 / RATE * 1e6
    units = int(draw.choice([1, 1, int(draw.integers(2, 9))]))
    batch_rows = min(rows, int(draw.choice([250, 1_000, 4_000, 20_000])))
    name = f"{number}: {kind}, {streams} streams, window {window_us / 1000:.2g} ms, batches of {batch_rows:,}, {units} units"
    return Shape(
        name, condition, f"{max(round(window_us), 1)} MICROSECONDS", rates, keys, theta, hot, values,
        int(draw.choice([1, 1, 1, 20])), rows, batch_rows, units,
    )  # fmt: skip


def _find_share(streams: int, keys: int, theta: float, hot: float) -> float:
    """The share of tuples of another stream that have a tuple's key, so that its power tells how many results there are.

    >>> round(_find_share(2, 10, 0.0, 0.0), 2), round(_find_share(2, 1000, 0.0, 0.5), 2)
    (0.1, 0.25)
    """
    weights = 1 / np.arange(1, keys + 1) ** theta
    weights *= (1 - hot) / weights.sum()
    weights[0] += hot
    return float(np.sum(weights**streams) ** (1 / (streams - 1)))


def _draw_condition(
    streams: int, equal: float, near: float, width: int, draw: np.random.Generator
) -> tuple[str, str, float]:
    """What it is called, its text, and the share of pairs that satisfy it, where `equal` have the same key and `near` are in the band."""
    if streams > 2:
        columns = [str(draw.choice(["k", "k", "j"])) for _ in range(streams - 1)]
        neighbours = zip("abcdef", "bcdef"[: streams - 1], columns, strict=False)
        kind = "a key" if len({*columns}) == 1 else "a chain"
        return kind, " AND ".join(f"{x}.{c} = {y}.{c}" for x, y, c in neighbours), equal
    return {
        "key": ("a key", "a.k = b.k", equal),
        "band": ("a band", f"abs(a.v - b.v) <= {width}", near),
        "less": ("less", "a.v < b.v", 0.5),
        "key and band": ("a key and a band", f"a.k = b.k AND abs(a.v - b.v) <= {width}", near * equal),
        "two keys": ("two keys", "a.k = b.k AND a.j = b.j", equal**2),
        "key or band": ("a key or a band", f"a.k = b.k OR abs(a.v - b.v) <= {width}", min(equal + near, 1.0)),
        "none": ("no condition", "", 1.0),
    }[str(draw.choice(_KINDS))]
