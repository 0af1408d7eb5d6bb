"""Bloom variants of the semijoins: a filter of values travels in place of the values.

    SMB-S1    the keys that the source asks for are a filter
    SMB-S2    a filter of V_2 is at the source; keys that pass it are asked for, by another filter
    SMB-D1    a filter of V_2 is at the source; rows that pass it are shipped
    SMB-D2    the keys that the source offers are a filter, and so are those that the destination wants

Invariant: a filter passes every value that is in it, so that what is shipped contains what the exact semijoin ships; results come of
exact joins. A false positive costs bytes, never correctness.
Implements: the Bloomjoin that Tran and Lee (2010), section 7, name as future work.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from watersmeet.kernels import bloom
from watersmeet.sites.planning.cost import HASHES, filter_bytes
from watersmeet_lab.simulate.sites.halves import NUMBER_BYTES, Joint, Out, Sent, Source
from watersmeet_lab.simulate.sites.semijoin_d import OfferingSource, WantingDestination
from watersmeet_lab.simulate.sites.semijoin_s1 import AnsweringDestination, AskingSource
from watersmeet_lab.simulate.sites.simple import JoiningDestination
from watersmeet_lab.simulate.sites.window import NONE, Arrival, Rows, Window


def _build(keys: np.ndarray) -> np.ndarray:
    distinct = np.unique(keys)
    return bloom.build(distinct, filter_bytes(len(distinct)), HASHES)


def _test(bits: np.ndarray, codes: np.ndarray) -> np.ndarray:
    return bloom.find_passing(bits, codes, HASHES)


def _filter(kind: str, tick: int, keys: np.ndarray) -> Sent:
    bits = _build(keys)
    return Sent(kind, tick, bits, 0, len(bits))


class FilteringAsker(AskingSource):
    """SMB-S1 at the source."""

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        self.waiting[tick] = rows
        yield _filter("keys", tick, self.joint.codes(rows))


class FilteredAnswerer(AnsweringDestination):
    """SMB-S1 at the destination."""

    def receive(self, message: Sent) -> Out:
        yield self.joint.tuples(
            "tuples", message.tick, self.window.unsent(_test(message.payload, self.window.tuples.code))
        )


class Mirror(NamedTuple):
    """V_2 as a filter; and of SMB-S2 how many sent tuples have gone, and when sent ones leave a window of rows."""

    bits: np.ndarray
    gone: int
    times: np.ndarray


class FilterMixed(FilteringAsker):
    """SMB-S2 at the source."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.bits = _build(NONE)

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        passed = np.flatnonzero(_test(self.bits, self.joint.codes(rows)))
        if len(passed):
            yield from super().probe(tick, rows.take(passed), low)

    def receive(self, message: Sent, low: int) -> Out:
        if message.kind == "update":
            mirror: Mirror = message.payload
            self.bits = mirror.bits
            self.window.expire_next(mirror.times)
            self.window.remove_first(mirror.gone)
            return
        yield from super().receive(message, low)


class FilterMirror(FilteredAnswerer):
    """SMB-S2 at the destination."""

    def arrive(self, tick: int, arrival: Arrival, low: int) -> Out:
        gone, sent, times = self._update(arrival, low)
        if len(arrival.tuples) or len(gone) or len(times):
            mirror = Mirror(_build(self.window.tuples.code), int(np.count_nonzero(sent)), times)
            yield Sent("update", tick, mirror, 0, len(mirror.bits) + NUMBER_BYTES * (1 + len(times)))


class FilterReducer(Source):
    """SMB-D1 at the source."""

    def __init__(self, joint: Joint) -> None:
        super().__init__(joint)
        self.bits = _build(NONE)

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        passed = np.flatnonzero(_test(self.bits, self.joint.codes(rows)))
        if len(passed):
            yield self.joint.rows("rows", tick, rows.take(passed))

    def receive(self, message: Sent, low: int) -> Out:
        self.bits = message.payload
        yield from ()


class FilterCounter(JoiningDestination):
    """SMB-D1 at the destination."""

    def arrive(self, tick: int, arrival: Arrival, low: int) -> Out:
        gone, _, _ = self._update(arrival, low)
        if len(arrival.tuples) or len(gone):
            yield _filter("update", tick, self.window.tuples.code)


class FilterOfferer(OfferingSource):
    """SMB-D2 at the source; if only false positives are wanted it ships no rows, but says so: Temp waits for them."""

    def probe(self, tick: int, rows: Rows, low: int) -> Out:
        for message in super().probe(tick, rows, low):
            assert isinstance(message, Sent)
            yield _filter("keys", tick, message.payload)

    def _select_wanted(self, message: Sent, rows: Rows) -> np.ndarray:
        return _test(message.payload, self.joint.codes(rows))


class FilterWanter(WantingDestination):
    """SMB-D2 at the destination."""

    def receive(self, message: Sent) -> Out:
        if message.kind != "keys":
            yield from super().receive(message)
            return
        window = self.window.tuples
        matching = window.take(np.flatnonzero(_test(message.payload, window.code)))
        if len(matching):
            self.temp[message.tick] = Window(matching)
            yield _filter("wanted", message.tick, matching.code)
