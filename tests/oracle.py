"""The oracle: nested loops over complete inputs, a transcription of the semantics in docs/sql.md.

It shares no code with `src`, knows no SQL and is never fast. A query is a structured description, a tuple a dict whose
`ts` is whole microseconds or None, a condition a callable that answers True, False or None (SQL's three-valued logic).

Arrival is part of the input: each stream is a list of batches, and in batch n a tuple is late against the maxima of the
batches before n. A result belongs to the batch in which its last member arrives.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any

from tests.oracle_groups import Windows, batch_of, lags_in, leaving
from tests.oracle_tree import Evaluation, Tree, present_in

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
    """`windows` are (x, y, lo_us, hi_us), meaning lo <= y.ts - x.ts <= hi, None being no bound; `rows` is n of ROWS n, and of
    TUMBLING n ROWS for the aliases of `tumbling`.

    `paths` are (aliases, bound of each hop): one after the other in this order, or in the reverse.
    """

    aliases: Sequence[tuple[str, str]]
    predicates: Sequence[Predicate]
    windows: Sequence[tuple[str, str, int | None, int | None]]
    select: Callable[[Env], tuple[Any, ...]]
    rows: Mapping[str, int] = field(default_factory=dict)
    tumbling: frozenset[str] = frozenset()
    distinct: bool = False
    aggregates: Sequence[tuple[Any, ...]] | None = None
    """GROUP BY: (function, position of its argument in `select`, None for count(*)), and the position of what is first or last."""
    keys: int = 0
    """GROUP BY: so many columns of `select` are the group."""
    group_window: Windows | None = None
    """GROUP BY: the window among the keys; its groups leave once, if they satisfy `having`."""
    having: Callable[[tuple[Any, ...]], Truth] = lambda group: True
    paths: Sequence[tuple[Sequence[str], Sequence[int]]] = ()
    tree: Tree | None = None
    """Outer, semi, anti and as-of joins; then its nodes have the windows and the conditions of ON, and `predicates` are those of WHERE."""


@dataclass(frozen=True)
class Arrival:
    """One stream as it arrives: batches of rows, and how much disorder is tolerated (None: what is found)."""

    batches: Sequence[Sequence[Row]]
    lateness_us: int | None = None
    idle_us: int | None = None
    limit_us: int | None = None
    """The clock plus `max_ahead`: tuples of later times are too far ahead."""


@dataclass(frozen=True)
class Dropped:
    """A tuple that joins nothing: in which batch, why, and how far the watermark was past it."""

    batch: int
    reason: str
    lag_us: float | None
    row: Row


@dataclass(frozen=True)
class Outcome:
    """`results` are (batch of the last member, projected row); `retained` has the rows kept per alias after each batch.

    Under GROUP BY results are (batch, keys and current values) of every group that changed in the batch, and `final` has
    the last value of every group; with a window they are the groups that leave in the batch. `kept` has the rows that may be kept
    after each batch: under DISTINCT those that have left, with a window the groups that have not.
    """

    results: list[tuple[int, tuple[Any, ...]]]
    dropped: dict[str, list[Dropped]]
    retained: list[dict[str, int]]
    final: list[tuple[Any, ...]] = field(default_factory=list)
    kept: list[int] = field(default_factory=list)

    @property
    def late_rows(self) -> dict[str, list[Row]]:
        return {stream: [d.row for d in found] for stream, found in self.dropped.items()}

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


def travels(path: tuple[Sequence[str], Sequence[int]], env: Env) -> bool:
    """Whether those of a path's aliases that are bound can be visited in its order, or in the reverse.

    Hops between neighbours are tested; a hop to an alias that is not bound yet may still turn out either way.
    """
    stops, hops = path
    waits = [
        env[later]["ts"] - env[earlier]["ts"] if earlier in env and later in env else None
        for earlier, later in pairwise(stops)
    ]
    known = [(wait, hop) for wait, hop in zip(waits, hops, strict=True) if wait is not None]
    return all(0 <= wait <= hop for wait, hop in known) or all(-hop <= wait <= 0 for wait, hop in known)


def widest(query: OracleQuery) -> dict[tuple[str, str], float]:
    """The largest y.ts - x.ts for every ordered pair, over all directions of the paths that some combination can take."""
    aliases, found = [alias for alias, _ in query.aliases], []
    for signs in range(2 ** len(query.paths)):
        windows = list(query.windows)
        for n, (stops, hops) in enumerate(query.paths):
            for (x, y), hop in zip(pairwise(stops), hops, strict=True):
                windows.append((x, y, 0, hop) if signs >> n & 1 else (y, x, 0, hop))
        try:
            found.append(closure(aliases, windows))
        except Unsatisfiable as error:
            reason = error
    if not found:
        raise reason
    return {pair: max(bounds[pair] for bounds in found) for pair in found[0]}


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


def highest(batches: Sequence[Sequence[Row]], limit_us: int | None = None) -> float:
    """The highest event time, late tuples included: punctuations are taken before any filter. What is too far ahead moves nothing."""
    times = [row["ts"] for batch in batches for row in batch if row["ts"] is not None]
    return max((ts for ts in times if limit_us is None or ts <= limit_us), default=-math.inf)


def maxima_of(arrivals: Mapping[str, Arrival], count: int) -> dict[str, float]:
    """The highest event times of the first so many batches."""
    return {stream: highest(arrival.batches[:count], arrival.limit_us) for stream, arrival in arrivals.items()}


def why_dropped(arrival: Arrival, row: Row, mark: float) -> str | None:
    if row["ts"] is None:
        return "no time"
    if arrival.limit_us is not None and row["ts"] > arrival.limit_us:
        return "ahead"
    return "late" if row["ts"] < mark else None


def admitted(
    arrivals: Mapping[str, Arrival], count: int
) -> tuple[dict[str, list[tuple[int, Row]]], dict[str, list[Dropped]]]:
    """The tuples that are not late, each with its batch, and the others, per stream."""
    kept: dict[str, list[tuple[int, Row]]] = {stream: [] for stream in arrivals}
    late: dict[str, list[Dropped]] = {stream: [] for stream in arrivals}
    for batch in range(count):
        before = maxima_of(arrivals, batch)
        for stream, arrival in arrivals.items():
            mark = watermark(stream, arrivals, before)
            for row in arrival.batches[batch] if batch < len(arrival.batches) else ():
                reason = why_dropped(arrival, row, mark)
                if reason is None:
                    kept[stream].append((batch, row))
                else:
                    lag = None if row["ts"] is None or mark == -math.inf else mark - row["ts"]
                    late[stream].append(Dropped(batch, reason, lag, row))
    return kept, late


def retained(
    query: OracleQuery, arrivals: Mapping[str, Arrival], kept: Mapping[str, list[tuple[int, Row]]], batch: int
) -> dict[str, int]:
    """The rows that may be kept after a batch: x goes if for every other alias y watermark(y) > x.ts + hi(x, y)."""
    bounds = widest(query)
    maxima = maxima_of(arrivals, batch + 1)
    marks = {alias: watermark(stream, arrivals, maxima) for alias, stream in query.aliases}
    return {
        x: sum(
            at <= batch and not all(marks[y] > row["ts"] + bounds[x, y] for y, _ in query.aliases if y != x)
            for at, row in kept[stream]
        )
        for x, stream in query.aliases
    }  # fmt: skip


# ---------------------------------------------------------------- the join


def within_rows(n: int, tumbles: bool, member: Row, youngest: int, stream: Sequence[Row]) -> bool:
    """Whether the member is one of the stream's last n tuples up to the youngest member's time, or of the last of its blocks of n that has begun by then."""
    times = sorted(row["ts"] for row in stream)
    assert len(set(times)) == len(times), "the order of equal times is a content hash, which the oracle does not know"
    if not tumbles:
        return member["ts"] in [ts for ts in times if ts <= youngest][-n:]
    blocks = [times[start : start + n] for start in range(0, len(times), n)]
    begun = [block for block in blocks if block[0] <= youngest]
    return member["ts"] in begun[-1]


def combinations(
    query: OracleQuery, kept: Mapping[str, list[tuple[int, Row]]]
) -> list[tuple[int, int, tuple[Any, ...]]]:
    """(batch of the last member, the youngest member's time, projected row) of all combinations, one tuple from each
    alias, that satisfy every predicate, every window and every path."""
    streams = {stream: [row for _, row in tuples] for stream, tuples in kept.items()}
    results: list[tuple[int, int, tuple[Any, ...]]] = []

    def extend(env: dict[str, Row], batch: int) -> None:
        if len(env) == len(query.aliases):
            youngest = max(row["ts"] for row in env.values())
            if all(
                within_rows(n, alias in query.tumbling, env[alias], youngest, streams[dict(query.aliases)[alias]])
                for alias, n in query.rows.items()
            ):
                results.append((batch, youngest, query.select(env)))
            return
        alias, stream = query.aliases[len(env)]
        for at, row in kept[stream]:
            wider = env | {alias: row}
            known = [p for p in query.predicates if alias in p.aliases and p.aliases <= wider.keys()]
            allowed = satisfies(query.windows, wider) and all(travels(path, wider) for path in query.paths)
            if allowed and all(p.holds(wider) is True for p in known):
                extend(wider, max(batch, at))

    if all(p.holds({}) is True for p in query.predicates if not p.aliases):
        extend({}, 0)
    return results


def tree_rows(
    query: OracleQuery, arrivals: Mapping[str, Arrival], kept: Mapping[str, list[tuple[int, Row]]], *, ends: bool
) -> list[tuple[int, int, tuple[Any, ...]]]:
    """The same of a join tree: a row's batch is the one in which it leaves. What never leaves is left out."""
    assert query.tree is not None
    found = evaluate_tree(query, arrivals, kept, ends=ends)
    return [
        (int(batch), max(env[alias]["ts"] for alias in present_in(env)), query.select(env))
        for env, batch in found.rows(query.tree)
        if batch < math.inf and all(p.holds(env) is True for p in query.predicates)
    ]


def evaluate_tree(
    query: OracleQuery, arrivals: Mapping[str, Arrival], kept: Mapping[str, list[tuple[int, Row]]], *, ends: bool
) -> Evaluation:
    """A join tree over the tuples that were not late."""
    count, stream_of = _batches(arrivals), dict(query.aliases)

    def mark(alias: str, batch: int) -> float:
        return watermark(stream_of[alias], arrivals, maxima_of(arrivals, batch + 1))

    return Evaluation({alias: kept[stream] for alias, stream in query.aliases}, cache(mark), count, ends)


def _batches(arrivals: Mapping[str, Arrival]) -> int:
    return max((len(arrival.batches) for arrival in arrivals.values()), default=0)


def run(query: OracleQuery, arrivals: Mapping[str, Arrival], *, ends: bool = False) -> Outcome:
    """The join, made distinct or grouped if the query says so; if the input `ends`, what waits leaves in one batch more."""
    arrivals = {stream: arrivals[stream] for _, stream in query.aliases}
    count = _batches(arrivals)
    kept, late = admitted(arrivals, count)
    if query.tree is not None:
        found, remains = tree_rows(query, arrivals, kept, ends=ends), []
    else:
        found = combinations(query, kept)
        remains = [retained(query, arrivals, kept, batch) for batch in range(count)]
    if query.distinct:
        firsts = once_per_bucket(query, found)
        rows = [(batch, row) for batch, _, row in firsts]
        return Outcome(rows, late, remains, kept=[may_be_kept(query, arrivals, firsts, b) for b in range(count)])
    if query.group_window is not None:
        results, open_ = ended_groups(query, query.group_window, arrivals, found, ends=ends)
        return Outcome(results, late, remains, kept=open_)
    if query.aggregates is not None:
        updates = [(b, value) for b in range(count) for value in changed_groups(query, found, b)]
        return Outcome(updates, late, remains, final=groups(query, [row for _, _, row in found]))
    return Outcome([(batch, row) for batch, _, row in found], late, remains)


# ---------------------------------------------------------------- DISTINCT


def told_apart(row: tuple[Any, ...]) -> tuple[Any, ...]:
    """What makes two rows different: NULL is one value, NaN is one value, 0.0 is -0.0, a number is not a text."""
    return tuple(("NaN",) if isinstance(v, float) and math.isnan(v) else (type(v) is str, v) for v in row)


def horizon(query: OracleQuery) -> float | None:
    """The largest finite bound of the closed graph; None if there is none."""
    bounds = widest(query)
    finite = [hi for (x, y), hi in bounds.items() if x != y and hi < math.inf]
    return max(finite, default=None)


def bucket(query: OracleQuery, youngest: int) -> tuple[int, float]:
    """The bucket of a time, and its last instant: the time itself if the horizon is zero or less, one if there is none."""
    width = horizon(query)
    if width is None:
        return 0, math.inf
    if width <= 0:
        return youngest, youngest
    number = math.floor(youngest // int(width))
    return number, (number + 1) * int(width) - 1


def once_per_bucket(
    query: OracleQuery, found: Sequence[tuple[int, int, tuple[Any, ...]]]
) -> list[tuple[int, int, tuple[Any, ...]]]:
    """The first of every (row, bucket), by batch."""
    seen: dict[Any, tuple[int, int, tuple[Any, ...]]] = {}
    for batch, youngest, row in sorted(found, key=lambda result: result[0]):
        seen.setdefault((told_apart(row), bucket(query, youngest)[0]), (batch, youngest, row))
    return list(seen.values())


def may_be_kept(
    query: OracleQuery,
    arrivals: Mapping[str, Arrival],
    firsts: Sequence[tuple[int, int, tuple[Any, ...]]],
    batch: int,
) -> int:
    """The rows whose bucket a later result may fall into: the lowest watermark has not passed its last instant."""
    maxima = maxima_of(arrivals, batch + 1)
    lowest = min(watermark(stream, arrivals, maxima) for stream in arrivals)
    return sum(at <= batch and bucket(query, youngest)[1] >= lowest for at, youngest, _ in firsts)


# ---------------------------------------------------------------- GROUP BY


def aggregate(function: str, values: Sequence[Any]) -> Any:
    """SQL's aggregates over the values of one group; NULLs are skipped, NaN is the largest number."""
    known = [v for v in values if v is not None]
    if function in ("count", "count_distinct"):
        return len(known if function == "count" else {*known})
    if not known:
        return "[]" if function == "collect_set" else None
    if function in MORE:
        return MORE[function](known)
    if function in ("sum", "avg"):
        total = sum(known)
        return total if function == "sum" else float(total) / len(known)
    best = known[0]
    for value in known[1:]:
        if (less(value, best) if function == "min" else less(best, value)) is True:
            best = value
    return best


def _squares(known: Sequence[Any], less: int) -> float | None:
    mean = sum(known) / len(known)
    return None if len(known) <= less else round(sum((v - mean) ** 2 for v in known) / (len(known) - less), 6)


MORE: dict[str, Callable[[Sequence[Any]], Any]] = {
    "collect_set": lambda known: str(sorted({*known})),
    "var_pop": lambda known: _squares(known, 0),
    "var_samp": lambda known: _squares(known, 1),
}
"""Aggregates of whole numbers; variances are rounded, and sets are texts, as queries of tests have them."""


def ranked(function: str, pairs: Sequence[tuple[Any, Any]]) -> Any:
    """The value of the first or the last of (value, by); of several the smallest or the largest, NULL after all others."""
    known = [(by, value) for value, by in pairs if by is not None]
    if function == "collect_list":
        return str([value for _, value in sorted(p for p in known if p[1] is not None)])
    if not known:
        return None
    if function in ("first", "min_by"):
        return min(known, key=lambda p: (p[0], p[1] is None, p[1] or 0))[1]
    return max(known, key=lambda p: (p[0], p[1] is not None, p[1] or 0))[1]


def value_of(rows: Sequence[tuple[Any, ...]], function: str, at: int | None, by: int | None = None) -> Any:
    """An aggregate over the rows of one group."""
    if by is not None:
        return ranked(function, [(row[at], row[by]) for row in rows])  # type: ignore[index]
    return aggregate(function, [1 if at is None else row[at] for row in rows])


def groups(query: OracleQuery, rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    """Keys and values of every group; without keys there is always one."""
    assert query.aggregates is not None
    members: dict[Any, list[tuple[Any, ...]]] = {} if query.keys else {(): []}
    for row in rows:
        members.setdefault(told_apart(row[: query.keys]), []).append(row)
    return [
        (
            *(group[0][: query.keys] if group else ()),
            *(value_of(group, *wanted) for wanted in query.aggregates),
        )
        for group in members.values()
    ]


def changed_groups(
    query: OracleQuery, found: Sequence[tuple[int, int, tuple[Any, ...]]], batch: int
) -> list[tuple[Any, ...]]:
    """The groups that have got a result in a batch, as they are after it."""
    now = [row for at, _, row in found if at <= batch]
    touched = {told_apart(row[: query.keys]) for at, _, row in found if at == batch}
    return [g for g in groups(query, now) if told_apart(g[: query.keys]) in touched]


def ended_groups(
    query: OracleQuery,
    window: Windows,
    arrivals: Mapping[str, Arrival],
    found: Sequence[tuple[int, int, tuple[Any, ...]]],
    *,
    ends: bool,
) -> tuple[list[tuple[int, tuple[Any, ...]]], list[int]]:
    """The groups that leave, with their batches, and how many are open after every batch."""
    count, stream_of = _batches(arrivals), dict(query.aliases)
    bounds = widest(query) if query.tree is None else {}
    lags = {z: bounds[window.alias, z] for z in stream_of} if query.tree is None else lags_in(query.tree, window.alias)

    @cache
    def mark(alias: str, batch: int) -> float:
        maxima = {stream: highest(arrival.batches[: batch + 1]) for stream, arrival in arrivals.items()}
        return watermark(stream_of[alias], arrivals, maxima)

    def leaves(end: int) -> float:
        return batch_of(end, lags, mark, count, ends=ends)

    by_batch = leaving(window, found, leaves)
    results = [(b, g) for b, rows in sorted(by_batch.items()) for g in groups(query, rows) if query.having(g) is True]
    open_ = []
    for batch in range(count):
        rows = [r for at, _, row in found if at <= batch for r in window.assign(row)]
        alive = [r for r in rows if leaves(r[window.column] + window.size) > batch]
        open_.append(len({told_apart(row[: query.keys]) for row in alive}))
    return results, open_


# ---------------------------------------------------------------- batches


def batches_of(rows: Sequence[Row], size: int) -> list[Sequence[Row]]:
    """Batch i has the rows [i * size, (i + 1) * size)."""
    return [rows[start : start + size] for start in range(0, len(rows), size)]
