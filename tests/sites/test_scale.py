"""What letters weigh that nobody writes."""

from __future__ import annotations

import numpy as np
import pyarrow as pa

from watersmeet.sites.letter import Item, Letter
from watersmeet.sites.scale import Scale

CHANCE = np.random.default_rng(7)


def letter(number: int, rows: int) -> Letter:
    codes = np.sort(CHANCE.integers(0, 2**40, rows))
    items = [Item.of("ask 0 0", pa.table({"_code": codes})), Item.of("ask 0 0", pa.table({"_code": codes[:5]}))]
    return Letter("paris", "tokyo", number, streams={"a": number}, items=items)


def test_an_exact_scale_says_what_is_written():
    scale = Scale(exact=True)
    for n in range(5):
        sent = letter(n, 3000)
        assert scale.weigh(sent) == (sent.sizes, len(sent.to_bytes()))


def test_most_items_are_not_written_and_weigh_about_the_same():
    scale, sent = Scale(), [letter(n, 3000 + 10 * n) for n in range(40)]
    weights = [scale.weigh(one).total for one in sent]
    written = sum("body" in vars(one.items[0]) for one in sent)
    assert written < 8
    assert abs(sum(weights) / sum(len(one.to_bytes()) for one in sent) - 1) < 0.1


def test_small_items_are_all_weighed():
    scale = Scale()
    for n in range(20):
        sent = letter(n, 20)
        assert scale.weigh(sent).total == len(sent.to_bytes())
