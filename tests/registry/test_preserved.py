"""Registered outer, semi, anti and as-of joins and aggregates against the oracle: each query is answered, batch by batch, as if it were alone and its streams began
when it was added; also by a registry that starts again."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from typing import Any

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests import oracle
from tests.trees import KINDS, SCHEMA, TreeCase, arrival, generate
from watersmeet.errors import UnsupportedError, WindowError

PLAIN = pa.schema([f for f in SCHEMA if f.name != "xs"])
PAIRS = ("left", "left", "right", "anti", "anti", "semi", "inner")
""" Mostly joins that are shared."""
_LIST = re.compile(r", \w+\.xs AS \w+_xs")


def register(subs: Any, case: TreeCase) -> str | None:
    """The id of a case's query; None if it is refused."""
    try:
        return str(subs.add(_LIST.sub("", case.sql)))
    except (UnsupportedError, WindowError):
        return None


def expected(case: TreeCase, arrivals: dict[str, oracle.Arrival], added: int, removed: int) -> Counter[Any]:
    count, lists = max(len(a.batches) for a in arrivals.values()), len(_LIST.findall(case.sql))
    kept, _ = oracle.admitted(arrivals, count)
    seen = {s: [(at, row) for at, row in tuples if at >= added] for s, tuples in kept.items()}
    made = oracle.tree_rows(case.query, arrivals, seen, ends=False)
    last = removed if removed > added else count
    if case.query.group_window is not None:
        groups, _ = oracle.ended_groups(case.query, case.query.group_window, arrivals, made, ends=False)
        return Counter((batch, row) for batch, row in groups if added <= batch < last)
    return Counter((batch, row[: len(row) - lists]) for batch, _, row in made if added <= batch < last)


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({f.name: pa.array([r[f.name] for r in rows], f.type) for f in PLAIN}, schema=PLAIN)


@given(st.randoms(use_true_random=False), st.integers(1, 4), st.sampled_from((1, 1, 2)))
def test_joins_that_preserve_are_answered_as_if_alone(chance: random.Random, many: int, units: int) -> None:
    compare(chance, [generate(chance, PAIRS, 2) for _ in range(many)], units)


@settings(max_examples=max(settings().max_examples // 3, 10))
@given(st.randoms(use_true_random=False), st.booleans())
def test_queries_that_share_nothing_are_answered_as_if_alone(chance: random.Random, grouped: bool) -> None:
    kinds = KINDS if grouped or chance.random() < 0.7 else ("asof", "asof left", *KINDS)
    compare(chance, [generate(chance, kinds, 3, grouped=grouped) for _ in range(2)], 2)


def compare(chance: random.Random, cases: list[TreeCase], units: int) -> None:
    """Queries that come and go against the oracle."""
    arrivals = {f"s{n}": arrival(chance, 8, apart=1) for n in range(3)}
    count = max(len(a.batches) for a in arrivals.values())
    streams = {
        s: wm.Stream(PLAIN.empty_table(), time="ts", lateness=f"{a.lateness_us} us") for s, a in arrivals.items()
    }
    subs = wm.local.subscriptions(streams, units=units)
    spans = [(chance.choice((0, 0, 1)), chance.choice((9, 9, 2))) for _ in cases]
    ids: dict[str, int] = {}
    found: dict[int, Counter[Any]] = {}
    for batch in range(count):
        for n, (case, (added, removed)) in enumerate(zip(cases, spans, strict=True)):
            if batch == added and (id := register(subs, case)) is not None:
                ids[id], found[n] = n, Counter()
            if batch == removed and n in ids.values():
                subs.remove(next(i for i, m in ids.items() if m == n))
        rows = {s: table(list(a.batches[batch])) for s, a in arrivals.items() if batch < len(a.batches)}
        out = subs.push(rows)
        for id, answer in zip(out["query"].to_pylist(), out["answer"].to_pylist(), strict=True):
            found[ids[id]][batch, tuple(json.loads(answer).values())] += 1
    assert not [e for e in subs.list() if e.state == "failed"]
    for n, answers in found.items():
        assert answers == expected(cases[n], arrivals, *spans[n]), (cases[n].sql, spans[n])
