"""Continuous queries over a ring against the oracle: generated templates, tuples and delays, and what must come out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests import oracle
from watersmeet.kernels.registered.rewriting import NULL
from watersmeet.query.window import UNBOUNDED, Edge
from watersmeet_lab.simulate.ring.coded_join import CodedJoin, close_bounds, within
from watersmeet_lab.simulate.ring.simulation import Tuples

STREAMS = {"r": ("a", "b", "c"), "s": ("a", "b", "c"), "p": ("a", "b")}
NAMES = tuple(STREAMS)
FOREVER = 10**9


@dataclass(frozen=True)
class Query:
    """A template, when it takes effect, and when it is removed; one-time queries see what was before `until`."""

    template: CodedJoin
    since: int
    until: int = FOREVER


def expected(query: Query, tuples: Tuples) -> Counter[tuple[Any, ...]]:
    """The oracle's results."""
    t = query.template
    names = [str(n) for n in range(len(t.streams))]
    kept: dict[str, list[tuple[int, Any]]] = {s: [] for s in STREAMS}
    everything: dict[str, list[Any]] = {s: [] for s in STREAMS}
    number = dict.fromkeys(STREAMS, 0)
    for i in np.argsort(tuples.ts, kind="stable"):
        stream = NAMES[tuples.stream[i]]
        number[stream] += 1
        row = {c: None if v == NULL else int(v) for c, v in zip(STREAMS[stream], tuples.values[i], strict=False)}
        row |= {"ts": int(tuples.ts[i]), "number": number[stream]}
        everything[stream].append(row)
        if query.since <= tuples.published[i] <= query.until:
            kept[stream].append((int(tuples.published[i]), row))

    def equal(x: tuple[int, str], y: tuple[int, str]) -> oracle.Predicate:
        (a, c), (b, d) = x, y
        return oracle.Predicate(frozenset({str(a), str(b)}), lambda env: oracle.same(env[str(a)][c], env[str(b)][d]))

    def constant(x: tuple[int, str], value: int) -> oracle.Predicate:
        return oracle.Predicate(frozenset({str(x[0])}), lambda env: oracle.same(env[str(x[0])][x[1]], value))

    def block(env: oracle.Env) -> int:
        """A tumbling window by tuples is a bucket of DISTINCT of its own."""
        return (env["0"]["number"] - 1) // t.tumbling_rows if t.tumbling_rows else 0

    def counted(env: oracle.Env) -> bool:
        youngest = max(row["ts"] for row in env.values())
        blocks = {(row["number"] - 1) // t.tumbling_rows for row in env.values()} if t.tumbling_rows else {0}
        rows = t.rows or (0,) * len(names)
        return len(blocks) == 1 and all(
            n == 0 or oracle.within_rows(n, False, env[a], youngest, everything[s])
            for a, s, n in zip(names, t.streams, rows, strict=True)
        )

    predicates = [equal(x, y) for x, y in t.equalities] + [constant(p, v) for p, v in t.constants]
    if t.tumbling:
        predicates.append(
            oracle.Predicate(frozenset(names), lambda env: len({r["ts"] // t.tumbling for r in env.values()}) == 1)
        )
    predicates.append(oracle.Predicate(frozenset(names), counted))
    windows = [
        (x, y, None, t.bounds[i][j])
        for i, x in enumerate(names)
        for j, y in enumerate(names)
        if t.bounds and i != j and t.bounds[i][j] < UNBOUNDED
    ]
    asked = oracle.OracleQuery(
        list(zip(names, t.streams, strict=True)), predicates, windows,
        lambda env: (*(env[str(a)][c] for a, c in t.select), block(env)), distinct=t.distinct,
    )  # fmt: skip
    found = oracle.combinations(asked, kept)
    if t.distinct and t.tumbling:
        return Counter(row[:-1] for row, _ in {(row, youngest // t.tumbling) for _, youngest, row in found})
    if t.distinct:
        found = oracle.once_per_bucket(asked, found)
    return Counter(row[:-1] for _, _, row in found)


def rows_of(results: np.ndarray | None) -> Counter[tuple[Any, ...]]:
    """What a simulation delivered, as the oracle writes it."""
    if results is None:
        return Counter()
    return Counter(tuple(None if v == NULL else v for v in row) for row in results.tolist())


# ---------------------------------------------------------------- strategies


@st.composite
def places(draw: Any, streams: Sequence[str], alias: int) -> tuple[int, str]:
    return alias, draw(st.sampled_from(STREAMS[streams[alias]]))


@st.composite
def templates(draw: Any, *, windows: bool = True, distinct: bool | None = None) -> CodedJoin:
    """Trees and cycles of equalities over two to four aliases, some of the same stream."""
    streams = tuple(draw(st.lists(st.sampled_from(NAMES), min_size=2, max_size=4)))
    n = len(streams)
    links = [(draw(st.integers(0, y - 1)), y) for y in range(1, n)]
    links += [(0, n - 1)] * draw(st.integers(0, 1))
    equalities = tuple((draw(places(streams, x)), draw(places(streams, y))) for x, y in links)
    anywhere = st.integers(0, n - 1).flatmap(lambda a: places(streams, a))
    constant = ((draw(anywhere), draw(st.integers(0, 2))),) if draw(st.integers(0, 3)) == 0 else ()
    given: dict[str, Any] = draw(some_windows(streams)) if windows and draw(st.booleans()) else {}
    if distinct is None:
        distinct = draw(st.booleans())
    select = tuple(draw(st.lists(anywhere, min_size=1, max_size=3)))
    return CodedJoin(streams, equalities, select, constant, distinct=distinct, **given)


@st.composite
def some_windows(draw: Any, streams: Sequence[str]) -> dict[str, Any]:
    n, width = len(streams), draw(st.sampled_from((0, 5, 15, 25, 40)))
    kind = draw(st.sampled_from(("within", "graph", "tumbling", "rows", "tumbling_rows", "rows and time")))
    rows = tuple(draw(st.lists(st.integers(0, 3), min_size=n, max_size=n)))
    if kind == "within":
        return {"bounds": within(n, width)}
    if kind == "graph":
        edge = st.tuples(st.integers(0, n - 1), st.integers(0, n - 1), st.integers(0, 30)).filter(
            lambda e: e[0] != e[1]
        )
        drawn = draw(st.lists(edge, min_size=1, max_size=4))
        return {"bounds": close_bounds(n, [Edge(str(x), str(y), hi, "") for x, y, hi in drawn])}
    if kind == "tumbling":
        return {"tumbling": width + 1}
    if kind == "tumbling_rows":
        return {"tumbling_rows": 1 + width // 4}
    return {"rows": rows, "bounds": within(n, width) if kind == "rows and time" else ()}


@st.composite
def tuples(draw: Any, *, least: int = 8, most: int = 24, lateness: int = 5) -> Tuples:
    """Few values, so that much joins; some NULLs; event times differ, as ROWS needs it. Drawn from a seed: dense cases
    matter more here than small ones."""
    count = draw(st.integers(least, most))
    random = np.random.default_rng(draw(st.integers(0, 10**6)))
    ts = np.sort(random.choice(61, count, replace=False)).astype(np.int64)
    published = ts + random.integers(0, draw(st.integers(0, lateness)) + 1, count)
    order = np.argsort(published, kind="stable")
    values = random.integers(0, draw(st.integers(1, 3)), (count, 3))
    values[random.random((count, 3)) < draw(st.sampled_from((0.0, 0.1)))] = NULL
    stream = random.integers(0, len(NAMES), count)
    return Tuples(stream[order], ts[order], published[order], values[order])


@st.composite
def queries(draw: Any, **options: Any) -> list[Query]:
    """Several at different times, some with the same template, some removed again."""
    known = draw(st.lists(templates(**options), min_size=1, max_size=3))
    chosen = draw(st.lists(st.sampled_from(known), min_size=1, max_size=5))
    since = sorted(draw(st.lists(st.integers(0, 30), min_size=len(chosen), max_size=len(chosen))))
    life = st.one_of(st.just(FOREVER), st.just(FOREVER), st.integers(10, 50))
    spans = draw(st.lists(life, min_size=len(chosen), max_size=len(chosen)))
    return [Query(t, s, FOREVER if d == FOREVER else s + d) for t, s, d in zip(chosen, since, spans, strict=True)]
