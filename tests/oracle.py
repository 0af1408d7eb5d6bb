"""The oracle: nested loops over complete inputs, a transcription of DESIGN.md section 2.

It shares no code with `src`, knows no SQL and is never fast. A query is a structured description, a tuple a dict whose
`ts` is whole microseconds or None, a condition a callable that answers True, False or None (SQL's three-valued logic).

Arrival is part of the input: each stream is a list of batches, and in batch n a tuple is late against the maxima of the
batches before n. A result belongs to the batch in which its last member arrives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

Row = Mapping[str, Any]
Env = Mapping[str, Row]
Truth = bool | None
Bounds = Mapping[tuple[str, str], float]


class Unsatisfiable(Exception):
    """The windows contain a negative cycle: no combination can satisfy them."""


@dataclass(frozen=True)
class Predicate:
    """A condition and the aliases that it reads."""

    aliases: frozenset[str]
    holds: Callable[[Env], Truth]


@dataclass(frozen=True)
class OracleQuery:
    """`windows` are (x, y, lo_us, hi_us), meaning lo <= y.ts - x.ts <= hi, None being no bound; `rows` is n of ROWS n."""

    aliases: Sequence[tuple[str, str]]
    predicates: Sequence[Predicate]
    windows: Sequence[tuple[str, str, int | None, int | None]]
    select: Callable[[Env], tuple[Any, ...]]
    rows: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class Arrival:
    """One stream as it arrives: batches of rows, and how much disorder is tolerated (None: what is found)."""

    batches: Sequence[Sequence[Row]]
    lateness_us: int | None = None
    idle_us: int | None = None


@dataclass(frozen=True)
class Outcome:
    """`results` are (batch of the last member, projected row); `retained` has the rows kept per alias after each batch."""

    results: list[tuple[int, tuple[Any, ...]]]
    late_rows: dict[str, list[Row]]
    retained: list[dict[str, int]]

    @property
    def late(self) -> dict[str, int]:
        """All late tuples per stream, also those that nobody would have stored."""
        return {stream: len(rows) for stream, rows in self.late_rows.items()}

    @property
    def rows(self) -> list[tuple[Any, ...]]:
        return [row for _, row in self.results]

    def in_batch(self, batch: int) -> list[tuple[Any, ...]]:
        return [row for at, row in self.results if at == batch]

    def most_retained(self) -> dict[str, int]:
        """Per alias, the largest number of rows kept after any batch."""
        return {
            alias: max(kept[alias] for kept in self.retained) for alias in (self.retained[0] if self.retained else ())
        }


# ---------------------------------------------------------------- values, as Spark compares them


def same(x: Any, y: Any) -> Truth:
    """x = y: NULL matches nothing, NaN equals NaN, 0.0 equals -0.0, an integer meets a double as a double."""
    if x is None or y is None:
        return None
    if isinstance(x, float) or isinstance(y, float):
        x, y = float(x), float(y)
        return x == y or (math.isnan(x) and math.isnan(y))
    return bool(x == y)


def less(x: Any, y: Any) -> Truth:
    """x < y: NaN is larger than every other number."""
    if x is None or y is None:
        return None
    if isinstance(x, float) or isinstance(y, float):
        x, y = float(x), float(y)
        if math.isnan(x) or math.isnan(y):
            return not math.isnan(x) and math.isnan(y)
    return bool(x < y)


def negated(x: Truth) -> Truth:
    return None if x is None else not x


def both(x: Truth, y: Truth) -> Truth:
    if x is False or y is False:
        return False
    return None if x is None or y is None else True


def either(x: Truth, y: Truth) -> Truth:
    return negated(both(negated(x), negated(y)))


# ---------------------------------------------------------------- the window graph


def satisfies(windows: Sequence[tuple[str, str, int | None, int | None]], env: Env) -> bool:
    """Whether every window whose two aliases are bound holds; both ends are inclusive."""
    for x, y, lo, hi in windows:
        if x in env and y in env:
            difference = env[y]["ts"] - env[x]["ts"]
            if (lo is not None and difference < lo) or (hi is not None and difference > hi):
                return False
    return True


def closure(
    aliases: Sequence[str], windows: Sequence[tuple[str, str, int | None, int | None]]
) -> dict[tuple[str, str], float]:
    """The largest y.ts - x.ts for every ordered pair, by Bellman and Ford from every alias; infinite where nothing says."""
    edges = [(x, y, hi) for x, y, _, hi in windows if hi is not None]
    edges += [(y, x, -lo) for x, y, lo, _ in windows if lo is not None]
    bounds: dict[tuple[str, str], float] = {}
    for source in aliases:
        distance: dict[str, float] = dict.fromkeys(aliases, math.inf) | {source: 0}
        for _ in aliases:
            for x, y, hi in edges:
                distance[y] = min(distance[y], distance[x] + hi)
        if any(distance[x] + hi < distance[y] for x, y, hi in edges):
            raise Unsatisfiable(f"a negative cycle is reachable from {source}")
        bounds |= {(source, alias): distance[alias] for alias in aliases}
    return bounds


# ---------------------------------------------------------------- watermarks and lateness


def disorder(batches: Sequence[Sequence[Row]]) -> int:
    """How far a row is behind the highest event time before it, at most."""
    highest, worst = -math.inf, 0
    for row in (row for batch in batches for row in batch):
        if row["ts"] is not None:
            worst = max(worst, 0 if highest == -math.inf else int(highest) - row["ts"])
            highest = max(highest, row["ts"])
    return worst


def watermark(stream: str, arrivals: Mapping[str, Arrival], maxima: Mapping[str, float]) -> float:
    """Own maximum minus lateness; with `idle`, at least the others' highest event time minus that span."""
    arrival = arrivals[stream]
    lateness = disorder(arrival.batches) if arrival.lateness_us is None else arrival.lateness_us
    own = maxima[stream] - lateness
    if arrival.idle_us is None:
        return own
    others = max((high for other, high in maxima.items() if other != stream), default=-math.inf)
    return max(own, others - arrival.idle_us)


def highest(batches: Sequence[Sequence[Row]]) -> float:
    """The highest event time, late tuples included: punctuations are taken before any filter."""
    return max((row["ts"] for batch in batches for row in batch if row["ts"] is not None), default=-math.inf)


def admitted(
    arrivals: Mapping[str, Arrival], count: int
) -> tuple[dict[str, list[tuple[int, Row]]], dict[str, list[Row]]]:
    """The tuples that are not late, each with its batch, and the late ones, per stream."""
    kept: dict[str, list[tuple[int, Row]]] = {stream: [] for stream in arrivals}
    late: dict[str, list[Row]] = {stream: [] for stream in arrivals}
    for batch in range(count):
        before = {stream: highest(arrival.batches[:batch]) for stream, arrival in arrivals.items()}
        for stream, arrival in arrivals.items():
            mark = watermark(stream, arrivals, before)
            for row in arrival.batches[batch] if batch < len(arrival.batches) else ():
                if row["ts"] is None or row["ts"] < mark:
                    late[stream].append(row)
                else:
                    kept[stream].append((batch, row))
    return kept, late


def retained(
    query: OracleQuery, arrivals: Mapping[str, Arrival], kept: Mapping[str, list[tuple[int, Row]]], batch: int
) -> dict[str, int]:
    """The rows that may be kept after a batch: x goes if for every other alias y watermark(y) > x.ts + hi(x, y)."""
    bounds = closure([alias for alias, _ in query.aliases], query.windows)
    maxima = {stream: highest(arrival.batches[: batch + 1]) for stream, arrival in arrivals.items()}
    marks = {alias: watermark(stream, arrivals, maxima) for alias, stream in query.aliases}
    return {
        x: sum(
            at <= batch and not all(marks[y] > row["ts"] + bounds[x, y] for y, _ in query.aliases if y != x)
            for at, row in kept[stream]
        )
        for x, stream in query.aliases
    }  # fmt: skip


# ---------------------------------------------------------------- the join


def among_last(n: int, member: Row, youngest: int, stream: Sequence[Row]) -> bool:
    """Whether the member is one of the stream's last n tuples up to the youngest member's time."""
    times = sorted(row["ts"] for row in stream)
    assert len(set(times)) == len(times), "the order of equal times is a content hash, which the oracle does not know"
    return member["ts"] in [ts for ts in times if ts <= youngest][-n:]


def run(query: OracleQuery, arrivals: Mapping[str, Arrival]) -> Outcome:
    """All combinations, one tuple from each alias, that satisfy every predicate and every window."""
    arrivals = {stream: arrivals[stream] for _, stream in query.aliases}
    count = max((len(arrival.batches) for arrival in arrivals.values()), default=0)
    kept, late = admitted(arrivals, count)
    streams = {stream: [row for _, row in tuples] for stream, tuples in kept.items()}
    results: list[tuple[int, tuple[Any, ...]]] = []

    def extend(env: dict[str, Row], batch: int) -> None:
        if len(env) == len(query.aliases):
            youngest = max(row["ts"] for row in env.values())
            if all(
                among_last(n, env[alias], youngest, streams[dict(query.aliases)[alias]])
                for alias, n in query.rows.items()
            ):
                results.append((batch, query.select(env)))
            return
        alias, stream = query.aliases[len(env)]
        for at, row in kept[stream]:
            wider = env | {alias: row}
            known = [p for p in query.predicates if alias in p.aliases and p.aliases <= wider.keys()]
            if satisfies(query.windows, wider) and all(p.holds(wider) is True for p in known):
                extend(wider, max(batch, at))

    if all(p.holds({}) is True for p in query.predicates if not p.aliases):
        extend({}, 0)
    return Outcome(results, late, [retained(query, arrivals, kept, batch) for batch in range(count)])


def batches_of(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    """Batch i has the rows [i * size, (i + 1) * size)."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
