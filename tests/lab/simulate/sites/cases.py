"""Small queries across sites with data and networks; and what the oracle says of them.

Data favours equal times, window edges, NULL keys, empty streams and skew. Under a window of rows times are unique, since the oracle
does not know the order of equal ones.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st

from tests import oracle
from watersmeet.sites.planning.model import KeyPair, SiteQuery, SiteStream
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites.model import Outcome
from watersmeet_lab.simulate.sites.streams import Sample, Streams

COLUMNS = ("k", "x")
NULL = -1


@dataclass(frozen=True)
class SiteCase:
    query: SiteQuery
    rows: dict[str, list[tuple[int, int, int]]]
    """By alias (ts, k, x), in the order of time; -1 is NULL."""

    @property
    def streams(self) -> Streams:
        samples = {}
        for alias, rows in self.rows.items():
            ts, k, x = np.array(rows, np.int64).reshape(-1, 3).T
            samples[alias] = Sample(ts, {"k": k.copy(), "x": x.copy()}, 100.0, {"k": 5.0, "x": 7.0})
        return Streams(self.query, samples)

    def expected(self) -> list[tuple[int, ...]]:
        """Numbers of the tuples of every result."""
        aliases = self.query.aliases
        predicates = [_equal(edge) for edge in self.query.edges]
        windows = [
            (
                x,
                y,
                None if (older := self.query.stream(y).window_us) is None else -older,
                self.query.stream(x).window_us,
            )
            for x in aliases
            for y in aliases
            if x != y
        ]
        query = oracle.OracleQuery(
            [(a, a) for a in aliases],
            predicates,
            windows,
            lambda env: tuple(env[a]["id"] for a in aliases),
            {s.alias: s.window_rows for s in self.query.streams if s.window_rows is not None},
        )
        arrivals = {a: oracle.Arrival([[_row(i, *r) for i, r in enumerate(self.rows[a])]]) for a in aliases}
        return sorted(oracle.run(query, arrivals).rows)


def _row(number: int, ts: int, k: int, x: int) -> dict[str, Any]:
    return {"id": number, "ts": ts, "k": None if k == NULL else k, "x": None if x == NULL else x}


def _equal(edge: KeyPair) -> oracle.Predicate:
    (a, x), (b, y) = edge.left, edge.right
    return oracle.Predicate(frozenset({a, b}), lambda env: oracle.same(env[a][x], env[b][y]))


def found(case: SiteCase, outcome: Outcome) -> list[tuple[int, ...]]:
    members = outcome.results.members
    return sorted(zip(*(members[a].tolist() for a in case.query.aliases), strict=True))


@st.composite
def cases(draw: Any, most: int = 3, *, rows: bool | None = None, least: int = 2) -> SiteCase:
    m = draw(st.integers(least, most))
    aliases = "abcd"[:m]
    edges = []
    for n in range(1, m):
        near = aliases[draw(st.integers(0, n - 1))]
        edges.append(_edge(draw, near, aliases[n]))
    for _ in range(draw(st.integers(0, 2)) if m > 2 else 0):
        near, far = draw(st.permutations(aliases))[:2]
        edges.append(_edge(draw, near, far))
    by_rows = draw(st.booleans()) if rows is None else rows
    streams = []
    for n, alias in enumerate(aliases):
        site = draw(st.sampled_from(("A", f"S{n}", f"S{n}", f"S{n}")))
        if by_rows:
            streams.append(SiteStream(alias, site, window_rows=draw(st.sampled_from((1, 2, 4, 9)))))
        else:
            streams.append(SiteStream(alias, site, window_us=draw(st.sampled_from((0, 3, 10, 25)))))
    size = {2: 20, 3: 12, 4: 7}[m]
    value = st.sampled_from((0, 0, 0, 1, 1, 2, 3, NULL))
    row = st.tuples(st.integers(0, 40), value, value)
    unique = {"unique_by": lambda r: r[0]} if by_rows else {}
    data = {a: sorted(draw(st.lists(row, max_size=size, **unique))) for a in aliases}
    return SiteCase(SiteQuery(tuple(streams), tuple(edges)), data)


def _edge(draw: Any, near: str, far: str) -> KeyPair:
    return KeyPair((near, draw(st.sampled_from(COLUMNS))), (far, draw(st.sampled_from(COLUMNS))))


def bounded_networks() -> st.SearchStrategy[Network]:
    links = st.sampled_from((Link(), Link(latency_us=7), Link(latency_us=3, jitter_us=20, arrival="in order")))
    return st.builds(Network, links, st.integers(0, 99))


def wild_networks() -> st.SearchStrategy[Network]:
    """Delays of many windows, different from line to line, and a bandwidth that makes messages queue."""

    def line(sender: str, receiver: str) -> Link:
        far = "S1" in (sender, receiver)
        return Link(latency_us=90 * far, jitter_us=60, bytes_per_s=2e7 if far else 1e6, arrival="in order")

    return st.builds(lambda seed: Network(line, seed), st.integers(0, 99))
