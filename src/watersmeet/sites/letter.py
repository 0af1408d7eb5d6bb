"""What one site sends another after a batch: one numbered letter, with how far everything is, and tables by kind.

    {"from": "paris", "to": "tokyo", "number": 17, ...}   how far streams and channels are, what has been taken: the heartbeat
    @0 copy      tuples        rows 0 1    rows        ask 0 1    keys      ...

An item is written when somebody wants its bytes, and read when somebody wants its rows, each once: between sites of one process it stays a table. A table is compressed as a whole, with what it says of its columns: most are small. Columns of numbers travel byte by byte: first the highest byte of every number, and so on.
Codes that are sorted, and times that are near each other, have equal high bytes: a key with its times takes 9 to 12 bytes of 24.

Invariant: a letter is whole or an error that names it. What it says of frontiers holds for what it and the letters before it bring.
"""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa

from watersmeet.errors import CheckpointError

FORMAT = 4
CHECKSUM_BYTES = 4
_MAGIC = b"WMSITE"
_CODEC = pa.Codec("zstd", compression_level=3)


class Item:
    """A table, as a unit has left it or as it travels."""

    def __init__(self, kind: str, rows: int, body: bytes) -> None:
        self.kind, self.rows = kind, rows
        self.__dict__["body"] = body

    @classmethod
    def of(cls, kind: str, table: pa.Table) -> Item:
        """A table that has not been written."""
        out = cls.__new__(cls)
        out.kind, out.rows = kind, table.num_rows
        out.__dict__["table"] = table
        return out

    @cached_property
    def body(self) -> bytes:
        return write_item(self.table)

    @cached_property
    def table(self) -> pa.Table:
        return _read(self.body)


@dataclass
class Letter:
    """From one site to another."""

    sender: str
    to: str
    number: int
    run: str = ""
    """Of the sender: a site that begins with an empty checkpoint is another run."""
    streams: Mapping[str, int] = field(default_factory=dict)
    """By alias how far the sender's streams are."""
    channels: Mapping[str, int] = field(default_factory=dict)
    """By channel how far it is."""
    taken: int = 0
    """The last letter of the receiver's that the sender has taken for good."""
    more: Mapping[str, Any] = field(default_factory=dict)
    """What else sites tell each other: who they are, what they have measured, how they join."""
    news: Mapping[str, Any] = field(default_factory=dict)
    """What is said once, to the site that chooses plans."""
    items: Sequence[Item] = ()

    @property
    def says(self) -> dict[str, Any]:
        """What it says besides its items. What has been taken is no news: it rides along."""
        return {"streams": dict(self.streams), "channels": dict(self.channels), "more": dict(self.more)}

    @property
    def rows(self) -> int:
        """Of all items together."""
        return sum(item.rows for item in self.items)

    def tables(self) -> dict[str, pa.Table]:
        """What it brings, by kind."""
        found: dict[str, list[pa.Table]] = {}
        for item in self.items:
            found.setdefault(item.kind, []).append(item.table)
        return {kind: pa.concat_tables(tables).combine_chunks() for kind, tables in found.items()}

    def to_bytes(self) -> bytes:
        """As it travels."""
        whole = b"".join([self.write_head([len(item.body) for item in self.items]), *(i.body for i in self.items)])
        return whole + zlib.crc32(whole).to_bytes(CHECKSUM_BYTES, "big")

    def write_head(self, sizes: Sequence[int]) -> bytes:
        """What stands before items of these sizes."""
        items = [[item.kind, item.rows, size] for item, size in zip(self.items, sizes, strict=True)]
        head = zlib.compress(json.dumps({**vars(self), "items": items}, separators=(",", ":")).encode())
        return b"".join([_MAGIC, bytes([FORMAT]), len(head).to_bytes(4, "big"), head])

    @property
    def sizes(self) -> dict[str, int]:
        """The bytes of its items, by kind."""
        sizes = Counter[str]()
        for item in self.items:
            sizes[item.kind] += len(item.body)
        return dict(sizes)

    def check_address(self, sender: str, to: str, number: int, where: str) -> Letter:
        """This letter; refuse another one in its place."""
        if (self.sender, self.to, self.number) != (sender, to, number):
            raise CheckpointError(
                f"{where} is letter {self.number} from {self.sender} to {self.to}, and not letter {number} from {sender} to {to}; put the one back that was sent"
            )
        return self

    @classmethod
    def from_bytes(cls, blob: bytes, where: str) -> Letter:
        """What was written; `where` it lies is for the error."""
        begin = len(_MAGIC) + 5
        if blob[: len(_MAGIC)] != _MAGIC or len(blob) < begin + CHECKSUM_BYTES:
            raise CheckpointError(f"{where} is no letter of a site, or it was cut; put the one back that was sent")
        if blob[len(_MAGIC)] != FORMAT:
            raise CheckpointError(
                f"{where} is a letter in format {blob[len(_MAGIC)]}, and this is {FORMAT}: run the same watersmeet at all sites"
            )
        if zlib.crc32(blob[:-CHECKSUM_BYTES]).to_bytes(CHECKSUM_BYTES, "big") != blob[-CHECKSUM_BYTES:]:
            raise CheckpointError(f"{where} is damaged: its checksum differs; put the one back that was sent")
        end = begin + int.from_bytes(blob[begin - 4 : begin], "big")
        said = json.loads(zlib.decompress(blob[begin:end]))
        items = []
        for kind, rows, size in said.pop("items"):
            items.append(Item(kind, rows, blob[end : end + size]))
            end += size
        return cls(**said, items=items)


def write_item(table: pa.Table) -> bytes:
    """A table as it travels."""
    sink, whole = pa.BufferOutputStream(), _turn(table.combine_chunks(), apart=True)
    with pa.ipc.new_stream(sink, whole.schema) as writer:
        writer.write_table(whole)
    stream = sink.getvalue()
    return len(stream).to_bytes(8, "big") + _CODEC.compress(stream, asbytes=True)  # type: ignore[no-any-return]


def _read(blob: bytes) -> pa.Table:
    stream = _CODEC.decompress(blob[8:], int.from_bytes(blob[:8], "big"))
    return _turn(pa.ipc.open_stream(stream).read_all().combine_chunks(), apart=False)


def _turn(table: pa.Table, *, apart: bool) -> pa.Table:
    """Columns of numbers byte by byte, or again as numbers; both are of one type and length."""
    for n, field_ in enumerate(table.schema):
        column = table.column(n)
        if field_.type == pa.int64() and column.null_count == 0 and len(column):
            values = column.to_numpy().view(np.uint8)
            turned = values.reshape(-1, 8).T if apart else values.reshape(8, -1).T
            numbers = np.ascontiguousarray(turned).reshape(-1).view(np.int64)
            table = table.set_column(n, field_, pa.array(numbers, pa.int64()))
    return table
