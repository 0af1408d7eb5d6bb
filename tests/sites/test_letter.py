"""Letters as they travel: whatever tables they bring arrive as they were, and what is no whole letter is named."""

from __future__ import annotations

import pyarrow as pa
import pytest

from watersmeet.errors import CheckpointError
from watersmeet.sites.letter import Item, Letter

WIDE = pa.table(
    {
        "n": [1, -5, 3 << 40],
        "some": [None, 2, 3],
        "text": ["x", None, "z" * 50],
        "small": pa.array([1, 2, 3], pa.int32()),
        "nested": [[1], [], [2, 3]],
    }
)
ITEMS = {
    "wide": WIDE,
    "empty": WIDE.slice(0, 0),
    "in chunks": pa.concat_tables([WIDE, WIDE]),
    "cut": WIDE.slice(1, 2),
    "one": WIDE.select(["n"]).slice(2),
}


def test_tables_arrive_as_they_were() -> None:
    sent = Letter(
        "paris", "tokyo", 7, "run", {"a": 5}, {"0/ask 0 0": -3}, 4, items=[Item.of(*item) for item in ITEMS.items()]
    )
    found = Letter.from_bytes(sent.to_bytes(), "here")
    assert (found.sender, found.to, found.number, found.taken) == ("paris", "tokyo", 7, 4)
    assert (found.streams, found.channels) == ({"a": 5}, {"0/ask 0 0": -3})
    assert [item.rows for item in found.items] == [table.num_rows for table in ITEMS.values()]
    tables = found.tables()
    assert list(tables) == list(ITEMS)
    for kind, table in ITEMS.items():
        assert tables[kind].equals(table.combine_chunks()), kind


def test_what_several_units_send_arrives_together() -> None:
    sent = Letter("paris", "tokyo", 7, items=[Item.of("wide", WIDE), Item.of("wide", WIDE)])
    found = Letter.from_bytes(sent.to_bytes(), "here")
    assert found.rows == 2 * WIDE.num_rows
    assert found.tables()["wide"].equals(pa.concat_tables([WIDE, WIDE]).combine_chunks())
    assert found.sizes == {"wide": 2 * len(sent.items[0].body)}


def test_sizes_are_those_of_the_items() -> None:
    sizes = Letter("paris", "tokyo", 1, items=[Item.of(*item) for item in ITEMS.items()]).sizes
    assert list(sizes) == list(ITEMS)
    assert sizes["one"] < sizes["wide"] <= sizes["in chunks"]


def test_keys_in_order_take_less_than_their_bytes() -> None:
    codes = [n * 1_000_003 for n in range(4000)]
    whole = Letter(
        "paris", "tokyo", 1, items=[Item.of("ask", pa.table({"code": codes, "first": codes, "last": codes}))]
    )
    assert len(whole.to_bytes()) < 4000 * 24 / 4


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda b: b[:10], "no letter of a site, or it was cut"),
        (lambda b: b[:-5], "is damaged"),
        (lambda b: b[:6] + b"\1" + b[7:], "is a letter in format 1, and this is 4"),
        (lambda b: b[:40] + bytes([b[40] ^ 8]) + b[41:], "is damaged"),
    ],
)
def test_what_is_no_whole_letter_is_named(change: object, said: str) -> None:
    blob = Letter("paris", "tokyo", 1, items=[Item.of(*item) for item in ITEMS.items()]).to_bytes()
    with pytest.raises(CheckpointError, match=f"there/1 .*{said}"):
        Letter.from_bytes(change(blob), "there/1")  # type: ignore[operator]
