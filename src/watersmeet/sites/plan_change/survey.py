"""What a site measures: its own streams, what its letters carry, and how long they take.

    units --measure--> streams     (`plan_change.measure`) tuples, their size in a letter, and how often the values of their keys come
    letters --count--> counts      bytes of every kind of item under the newest plan, once it has been under way for a window
    exchange --time--> lines       seconds for so many bytes

What is old fades: a tuple counts for half after two of the longest windows, or after eight batches if these are longer. Samples of keys are of the last one or two spans of that length, and
forget no tuple of these: how many values match depends on those that come once. When some spans have been sampled, one in a few is: streams change slowly, and measuring costs. A stream
that changes all the same, or of which something else is asked, is measured from the next batch on.

Invariant: a survey is JSON and bounded. It is a function of what the site's batches have measured, so a batch that is repeated has the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from math import log2
from typing import Any

from watersmeet.kernels.instants import FIRST
from watersmeet.sites.plan_change.measure import Measured
from watersmeet.sites.planning.values import TOLD, KeyShares, Sketch

WEIGHING = 8
"""Once in so many batches tuples are weighed, if their size is known."""
HALVING_WINDOWS, HALVING_BATCHES = 2, 8
SETTLING_BATCHES = 16
"""A plan is counted when it has been under way for the longest window, or for so many batches if that is longer."""
_TRANSFER_FADING, _LEAST_TRANSFERS, _LEAST_SPREAD = 0.98, 8, 0.2
"""Of sizes: what they differ by, over their mean, if a bandwidth is to follow from them."""
AWAKE, ASLEEP = 4, 3
"""The keys of a stream are measured for so many spans of time; after that in one span, not in so many, and again."""
LEAST_COUNTED = 4
"""Batches that are counted before anybody is told of them."""


@dataclass
class StreamSurvey:
    """One stream, older batches faded."""

    rows: float = 0.0
    seconds: float = 0.0
    """Of event time."""
    batches: float = 0.0
    each: float = 0.0
    item: float = 0.0
    codes: dict[str, float] = field(default_factory=dict)
    """By class of keys, the bytes of a code."""
    keys: dict[str, Sketch] = field(default_factory=dict)
    spanned: list[float] = field(default_factory=lambda: [0.0, 0.0])
    """Seconds and batches of the span of time that is under way."""
    awake: int = AWAKE
    """Spans of time in which keys are measured, this one included; 0: they are not."""
    asleep: int = 0
    """Spans in which they are not; 0: they are."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> StreamSurvey:
        return cls(**{**raw, "keys": {c: Sketch.of(s) for c, s in raw["keys"].items()}})

    def add(self, measures: Iterable[Mapping[str, Any]], seconds: float, longest_s: float) -> None:
        """A batch: what units have measured, and the event time that it covers."""
        factor = max(0.5 ** (seconds / max(HALVING_WINDOWS * longest_s, 1e-6)), 0.5 ** (1 / HALVING_BATCHES))
        self.rows, self.seconds, self.batches = (x * factor for x in (self.rows, self.seconds, self.batches))
        for sketch in () if self.asleep else self.keys.values():
            sketch.fade(factor)
        self.seconds, self.batches = self.seconds + seconds, self.batches + 1
        for seen in measures:
            self.rows += seen["rows"]
            weight = min(1.0, seen["rows"] / max(self.rows, 1.0))
            if "each" in seen:
                self.each += (seen["each"] - self.each) * (weight if self.each else 1.0)
                self.item += (seen["item"] - self.item) * (weight if self.item else 1.0)
            for c, key in seen["keys"].items():
                self.keys.setdefault(c, Sketch()).add(seen["rows"], key["sample"], key["heavy"])
                self.keys[c].watch(seen["rows"], key["watched"])
                self.codes[c] = min(self.codes.get(c, 8.0), key.get("code", 8.0))
        self._turn(seconds, longest_s)

    def _turn(self, seconds: float, longest_s: float) -> None:
        """A batch of so many seconds is over: see whether another span of time begins."""
        self.spanned = [self.spanned[0] + seconds, self.spanned[1] + 1]
        if self.spanned[0] >= HALVING_WINDOWS * longest_s and self.spanned[1] >= HALVING_BATCHES:
            self.spanned = [0.0, 0.0]
            if self.asleep:
                self.asleep -= 1
                self.awake = 0 if self.asleep else 1
            else:
                self.awake -= 1
                self.asleep = 0 if self.awake else ASLEEP
            if self.awake:
                self._sample()

    def wake(self) -> None:
        """See that keys are measured again, as in the beginning."""
        if self.asleep:
            self.spanned, self.awake, self.asleep = [0.0, 0.0], AWAKE, 0
            self._sample()

    def _sample(self) -> None:
        """A span begins whose values are sampled, whatever the bound was."""
        for sketch in self.keys.values():
            sketch.turn()

    @property
    def is_known(self) -> bool:
        return self.rows >= 1 and self.seconds > 0 and self.each > 0

    def tell(self, values: int) -> dict[str, Any]:
        """What the deciding site is told, with so many sampled values of each key."""
        rate, interval = self.rows / self.seconds, self.seconds / self.batches
        figures = {"rate": rate, "each": self.each, "item": self.item, "interval": interval}
        return {
            **{name: float(f"{value:.4g}") for name, value in figures.items()},
            "codes": {c: round(size, 1) for c, size in self.codes.items()},
            "keys": {c: vars(sketch.to_shares(values)) for c, sketch in self.keys.items()},
        }


def is_news(told: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether what was told of a stream has changed so that a plan may depend on it."""
    if has_moved(told, now) or now["keys"].keys() != told["keys"].keys():
        return True
    return any(KeyShares(**now["keys"][c]).differs(KeyShares(**told["keys"][c])) for c in now["keys"])


def has_moved(told: Mapping[str, Any], now: Mapping[str, Any]) -> bool:
    """Whether tuples come more or less often, in other batches or in other sizes. That is known of a stream whose keys are not measured, too."""
    return any(not 0.85 < now[f] / max(told[f], 1e-12) < 1.18 for f in ("rate", "each", "interval"))


def _without_samples(told: Mapping[str, Any]) -> dict[str, Any]:
    """What was told of a stream, but for the sampled values themselves: the next telling is compared with it."""
    return {
        **told,
        "keys": {c: {**shares, "sample": [*shares["sample"][:2], ""]} for c, shares in told["keys"].items()},
    }


@dataclass
class Counts:
    """What letters have carried under one plan."""

    epoch: int = -1
    begins: int = 0
    """The event time from which on it is counted."""
    seconds: float = 0.0
    batches: int = 0
    kinds: dict[str, dict[str, float]] = field(default_factory=dict)
    """By receiver and kind, bytes."""
    letters: dict[str, list[float]] = field(default_factory=dict)
    """By receiver, letters and their bytes, all kinds and what they say."""

    def advance(self, seconds: float, longest_s: float) -> None:
        """A batch is over that covers so much event time."""
        factor = max(0.5 ** (seconds / max(2 * HALVING_WINDOWS * longest_s, 1e-6)), 0.5 ** (1 / (2 * HALVING_BATCHES)))
        self.seconds, self.batches = self.seconds * factor + seconds, self.batches + 1
        self.kinds = {to: {k: v * factor for k, v in kinds.items()} for to, kinds in self.kinds.items()}
        self.letters = {to: [v * factor for v in sums] for to, sums in self.letters.items()}

    def add(self, to: str, sizes: Mapping[str, int], total: int, prefix: str) -> None:
        """A letter."""
        kinds = self.kinds.setdefault(to, {})
        for kind, size in sizes.items():
            if kind.startswith(prefix):
                name = kind.removeprefix(prefix)
                kinds[name] = kinds.get(name, 0.0) + size
        letters, sum_bytes = self.letters.get(to, (0.0, 0.0))
        self.letters[to] = [letters + 1, sum_bytes + total]

    @property
    def is_known(self) -> bool:
        return self.batches >= LEAST_COUNTED and self.seconds > 0

    def tell(self) -> dict[str, Any]:
        """Per second, as the deciding site is told."""
        return {
            "epoch": self.epoch,
            "batches": self.batches,
            "kinds": {to: {k: _per(v, self.seconds) for k, v in kinds.items()} for to, kinds in self.kinds.items()},
            "letters": {to: [_per(v, self.seconds) for v in sums] for to, sums in self.letters.items()},
        }


@dataclass
class Transfers:
    """How long letters of different sizes take on the way to the exchange, or from there; older ones faded."""

    weight: float = 0.0
    bytes: float = 0.0
    seconds: float = 0.0
    squares: float = 0.0
    products: float = 0.0

    def add(self, size: int, seconds: float) -> None:
        for name, more in zip(
            ("weight", "bytes", "seconds", "squares", "products"),
            (1, size, seconds, size * size, size * seconds),
            strict=True,
        ):
            setattr(self, name, getattr(self, name) * _TRANSFER_FADING + more)

    def fit(self) -> list[float] | None:
        """Seconds of latency, and per byte, by least squares; both in steps of a factor of two, so that chance changes nothing. None: too little is known.

        >>> seen = Transfers()
        >>> for size in (1_000, 50_000, 200_000, 100_000) * 3:
        ...     seen.add(size, 0.06 + size / 1e6)
        >>> seen.fit()
        [0.0625, 9.5367431640625e-07]
        """
        if self.weight < _LEAST_TRANSFERS:
            return None
        mean, spread = self.bytes / self.weight, self.squares / self.weight - (self.bytes / self.weight) ** 2
        slope = 0.0
        if spread > (_LEAST_SPREAD * mean) ** 2:
            slope = (self.products / self.weight - mean * self.seconds / self.weight) / spread
        return [_halve(max(self.seconds / self.weight - slope * mean, 1e-6)), _halve(slope) if slope > 0 else 0.0]


def _halve(value: float) -> float:
    """The nearest power of two."""
    return 2.0 ** round(log2(value))


def _per(amount: float, seconds: float) -> float:
    return float(f"{amount / max(seconds, 1e-9):.4g}")


@dataclass
class Survey:
    """All that a site has measured; JSON."""

    streams: dict[str, StreamSurvey] = field(default_factory=dict)
    """By alias."""
    counts: Counts = field(default_factory=Counts)
    watched: dict[str, list[int]] = field(default_factory=dict)
    """By class of keys, hashes of values that are frequent in some stream: units count them."""
    wanted: int = TOLD
    """Sampled values of a key that the deciding site is told."""
    lines: dict[str, Transfers] = field(default_factory=dict)
    """By 'sender>receiver', as far as this site sees it: what it sends until the exchange has it, what it gets from the exchange."""
    told_lines: dict[str, list[float]] = field(default_factory=dict)
    told: dict[str, dict[str, Any]] = field(default_factory=dict)
    """By alias, what the deciding site was told last."""
    begins: dict[str, int] = field(default_factory=dict)
    """By alias, the oldest time of its first batch."""
    marks: dict[str, int] = field(default_factory=dict)
    """By alias, the watermark up to which it was measured."""
    batches: int = 0
    tells_at: int = 2
    """The number of batches after which streams are told of again, changed or not: the more is known, the less often."""
    counted_at: int = LEAST_COUNTED
    """The number of counted batches after which counts are told of."""

    @classmethod
    def of(cls, raw: Mapping[str, Any]) -> Survey:
        streams = {alias: StreamSurvey.of(seen) for alias, seen in raw["streams"].items()}
        lines = {pair: Transfers(**sums) for pair, sums in raw["lines"].items()}
        return cls(**{**raw, "streams": streams, "lines": lines, "counts": Counts(**raw["counts"])})

    def find_measured(self) -> Measured:
        """What units should measure in the next batch. Sizes are known, and change slowly; sampled is what is below the bound of the sample so far."""
        known = {a for a, seen in self.streams.items() if seen.each > 0} if self.batches % WEIGHING else set()
        limits = {a: {c: sketch.limit for c, sketch in seen.keys.items()} for a, seen in self.streams.items()}
        asleep = {a for a, seen in self.streams.items() if seen.asleep}
        return Measured(self.watched, known, limits, asleep)

    def note(self, measures: Iterable[Mapping[str, Any]], arrived: Mapping[str, int], longest_s: float) -> None:
        """A batch: what units have measured of streams by alias, and the watermark that each stream has come to, whether or not its tuples have set out."""
        by_alias: dict[str, list[Mapping[str, Any]]] = {}
        for seen in measures:
            for alias, one in seen.items():
                by_alias.setdefault(alias, []).append(one)
        known = {alias: mark for alias, mark in arrived.items() if mark > FIRST}
        for alias, mark in known.items():
            us = mark - self.marks.get(alias, mark)
            if alias in by_alias and alias not in self.begins:  # the first tuples: the batch spans them
                self.begins[alias] = min(one["low"] for one in by_alias[alias])
                us = max(one["high"] for one in by_alias[alias]) - self.begins[alias]
            if us > 0 or alias in by_alias:
                self.streams.setdefault(alias, StreamSurvey()).add(by_alias.get(alias, ()), us / 1e6, longest_s)
        self.marks |= known
        self.batches += 1

    def follow(self, epoch: int, since: int, reached: int, advanced_us: int, longest_us: float) -> None:
        """Count under the newest plan, which holds since a time, when the site's streams have reached another."""
        if epoch != self.counts.epoch:
            interval = max((s.seconds / s.batches for s in self.streams.values() if s.batches), default=0.0) * 1e6
            settling = min(longest_us, SETTLING_BATCHES * interval)
            self.counts, self.counted_at = Counts(epoch, max(since, reached) + round(settling)), LEAST_COUNTED
        elif reached >= self.counts.begins and advanced_us > 0:
            self.counts.advance(advanced_us / 1e6, longest_us / 1e6)

    def count(self, to: str, sizes: Mapping[str, int], total: int) -> None:
        """A letter of this batch."""
        if self.counts.batches:
            self.counts.add(to, sizes, total, f"{self.counts.epoch}/")

    def watch(self, watched: Mapping[str, list[int]], wanted: int) -> None:
        """Have values watched, and so many sampled ones told; that is done as soon as it is known."""
        soon = self.batches + (2 if watched != self.watched else 0)
        self.watched, self.wanted = dict(watched), wanted
        self.tells_at, self.told = min(self.tells_at, soon), {}
        for seen in self.streams.values():
            seen.wake()

    def time(self, sender: str, receiver: str, size: int, seconds: float) -> None:
        """A letter has taken so long, to the exchange or from there."""
        self.lines.setdefault(f"{sender}>{receiver}", Transfers()).add(size, seconds)

    def fit_lines(self) -> dict[str, list[float]]:
        """What is known of lines, by 'sender>receiver'."""
        return {pair: fit for pair, seen in self.lines.items() if (fit := seen.fit()) is not None}

    def tell(self) -> dict[str, Any]:
        """What the deciding site does not know yet; nothing where it would not matter."""
        out: dict[str, Any] = {}
        if (lines := self.fit_lines()) != self.told_lines and self.batches >= self.tells_at:
            out["lines"] = self.told_lines = lines
        is_due = self.batches >= self.tells_at
        now = {alias: seen.tell(self.wanted) for alias, seen in self.streams.items() if is_due and seen.is_known}
        news = {
            a: said
            for a, said in now.items()
            if a not in self.told or self.tells_at <= 64 or is_news(self.told[a], said)
        }
        if is_due:
            self.tells_at = 2 * self.tells_at if self.tells_at <= 64 else self.batches + HALVING_BATCHES
        for alias in (a for a, said in news.items() if a in self.told and has_moved(self.told[a], said)):
            self.streams[alias].wake()
        if news:
            self.told |= {alias: _without_samples(said) for alias, said in news.items()}
            out["streams"] = news
        if self.counts.is_known and self.counts.batches >= self.counted_at:
            self.counted_at = min(2 * self.counts.batches, self.counts.batches + 64)
            out["counts"] = self.counts.tell()
        return out
