"""What one site sends another after a batch: one numbered letter, with how far everything is, and tables by kind.

    {"from": "paris", "to": "tokyo", "number": 17, ...}   how far streams and channels are, what has been taken: the heartbeat
    @0 copy      tuples        rows 0 1    rows        ask 0 1    keys      ...

Invariant: a letter is whole or an error that names it. What it says of frontiers holds for what it and the letters before it bring.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import pyarrow as pa

from watersmeet.errors import CheckpointError

FORMAT = 1
_MAGIC = b"WMSITE"
_CODEC = "zstd"


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
    items: dict[str, pa.Table] = field(default_factory=dict)

    @property
    def says(self) -> dict[str, Any]:
        """What it says besides its items. What has been taken is no news: it rides along."""
        return {"streams": dict(self.streams), "channels": dict(self.channels), "more": dict(self.more)}

    def to_bytes(self) -> bytes:
        """As it travels."""
        bodies = [_write(table) for table in self.items.values()]
        kinds = [[kind, len(body)] for kind, body in zip(self.items, bodies, strict=True)]
        said = {k: v for k, v in asdict(self).items() if k != "items"} | {"items": kinds}
        head = zlib.compress(json.dumps(said).encode())
        whole = b"".join([_MAGIC, bytes([FORMAT]), len(head).to_bytes(4, "big"), head, *bodies])
        return whole + zlib.crc32(whole).to_bytes(4, "big")

    @classmethod
    def from_bytes(cls, blob: bytes, where: str) -> Letter:
        """What was written; `where` it lies is for the error."""
        begin = len(_MAGIC) + 5
        if blob[: len(_MAGIC)] != _MAGIC or len(blob) < begin + 4:
            raise CheckpointError(f"{where} is no letter of a site, or it was cut; put the one back that was sent")
        if blob[len(_MAGIC)] != FORMAT:
            raise CheckpointError(
                f"{where} is a letter in format {blob[len(_MAGIC)]}, and this is {FORMAT}: run the same watersmeet at all sites"
            )
        if zlib.crc32(blob[:-4]).to_bytes(4, "big") != blob[-4:]:
            raise CheckpointError(f"{where} is damaged: its checksum differs; put the one back that was sent")
        end = begin + int.from_bytes(blob[begin - 4 : begin], "big")
        said = json.loads(zlib.decompress(blob[begin:end]))
        items: dict[str, pa.Table] = {}
        for kind, size in said.pop("items"):
            items[kind] = _read(blob[end : end + size])
            end += size
        return cls(**said, items=items)


def _write(table: pa.Table) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression=_CODEC)) as writer:
        writer.write_table(table.combine_chunks())
    return sink.getvalue().to_pybytes()  # type: ignore[no-any-return]


def _read(blob: bytes) -> pa.Table:
    return pa.ipc.open_stream(pa.py_buffer(blob)).read_all().combine_chunks()
