"""What a line carries besides the items of letters: heads of letters, requests of the exchange, and frames.

    bytes on a site's link, sent  =  FRAMED * items  +  letters * (HEAD_BYTES + requests of the carrier)

All constants are derived, none is fitted to a run:

    HEAD_BYTES      what a letter says besides its items, compressed: two streams, some channels, numbers, and now and then what was measured
    FRAMED          an Ethernet frame of 1,514 bytes has 66 of headers (Ethernet 14, IP 20, TCP 32 with times) and 1,448 of payload
    PACKETS         a request sends three packets at least: itself, and acknowledgements of the answer's head and body

    object store    one PUT by the sender (530 bytes of head), one LIST (520) and one GET (480) by the receiver, one POST that deletes (660 + 130), as obstore 0.12 signs them
                    for names of some fifty letters
    topics          Kafka's produce request (70, with 61 of a record batch and 10 of a record), a fetch (110) and a DeleteRecords (80), from the layout of the protocol; not counted
    folder          a network's file system looks up, creates, writes, lists, reads and deletes: about the calls of an object store; not counted

What the exchange sends to sites (answers, and letters once more) is on the exchange's link.

Invariant: the same for every plan that sends as many letters, so no choice depends on it.
"""

from __future__ import annotations

from typing import Literal

CarrierKind = Literal["object store", "topics", "folder"]
HEAD_BYTES = 250.0
FRAME_BYTES, PAYLOAD_BYTES = 66, 1448
FRAMED = 1 + FRAME_BYTES / PAYLOAD_BYTES
PACKETS = 3
_REQUESTS: dict[CarrierKind, tuple[int, ...]] = {
    "object store": (530, 520, 480, 790),
    "topics": (70 + 61 + 10, 110, 80),
    "folder": (530, 520, 480, 790),
}
"""Bytes of the requests for one letter, by all sites together."""


def request_bytes(carrier: CarrierKind) -> float:
    """What the requests for a letter take on the links of sites, with their frames.

    >>> request_bytes("object store"), request_bytes("topics")
    (3112.0, 925.0)
    """
    return float(sum(size + PACKETS * FRAME_BYTES for size in _REQUESTS[carrier]))


def bytes_on_wire(items: float, letters: float, carrier: CarrierKind) -> float:
    """Bytes that sites send, for items of so many bytes in so many letters."""
    return items * FRAMED + letters * (HEAD_BYTES * FRAMED + request_bytes(carrier))
