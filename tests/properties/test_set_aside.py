"""Rows that break an expression, under on_error="set aside": the results are those of the oracle without these rows, and combinations are set aside once.

What breaks a condition across streams is compared with nested loops here: a combination leaves, is set aside, or does neither.
"""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import dataclass, replace
from itertools import pairwise, product
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

import watersmeet as wm
from tests.cases import Case, bag, rows_of
from tests.properties.test_local import local
from tests.strategies import BATCHES, cases
from watersmeet.errors import DataError, OptionError
from watersmeet.runtime.in_process import LocalRun

FEW = max(1, settings.default.max_examples // 2)
POISON = -77
"""The id of rows that break the condition which is put before all others."""


def poison(case: Case, stream: str, places: list[int]) -> Case:
    """A case with more rows of a stream, which are like others but for their ids."""
    data = dict(case.data)
    rows = list(data[stream].rows)
    for place in places:
        rows.insert(place % (len(rows) + 1), (POISON, *rows[place % len(rows)][1:]))
    data[stream] = replace(data[stream], rows=tuple(rows))
    return replace(case, data=tuple(data.items()))


@given(st.data(), cases(null_ts=True), BATCHES, st.sampled_from((1, 3)))
@settings(max_examples=FEW)
def test_a_row_that_is_set_aside_is_as_if_it_had_never_come(data, case, batch_rows, units):
    alias, stream = data.draw(st.sampled_from(case.aliases))
    assume(len(dict(case.data)[stream].rows) > 0)
    places = data.draw(st.lists(st.integers(0, 9), max_size=3))
    given_ = poison(case, stream, places)
    text = case.sql()
    assume(" WHERE " in text)
    condition = f"coalesce(100 % ({alias}.id - ({POISON})), 0) IS NOT NULL"
    asked = text.replace(" WHERE ", f" WHERE {condition} AND ", 1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Case, "sql", lambda self: asked)
        got = local(given_, batch_rows=batch_rows, units=units, late=True, on_error="set aside")
    marked = got.column("_late").combine_chunks()
    told = pa.Table.from_struct_array(marked.filter(marked.is_valid())).select(["stream", "reason", "row"])
    lost = [row for row in told.to_pylist() if row["reason"].startswith("error")]
    results = got.filter(got.column("_late").is_null()).drop_columns(["_late"])
    if not (case.aggregates or case.distinct):
        assert bag(rows_of(results)) == bag(case.expected(batch_rows).rows), asked
    assert {(row["stream"], json.loads(row["row"])["id"]) for row in lost} <= {(stream, POISON)}
    assert wm.local.counts(got).set_aside == ({stream: len(lost)} if lost else {})
    assert len(lost) <= len(places)
    if not any(len(p.aliases) == 1 for p in case.predicates):
        assert len(lost) == len(places), asked


SCHEMA = pa.schema([("id", pa.int64()), ("k", pa.int64()), ("x", pa.int64()), ("ts", pa.timestamp("us", tz="UTC"))])
BIG = 2**62
ROW = st.tuples(st.integers(0, 1), st.sampled_from((None, 0, 1, 2, BIG, -BIG)), st.integers(0, 6))


@dataclass(frozen=True)
class Shape:
    """A query over r, s and t, and what it says of a combination."""

    text: str
    aliases: str = "rs"
    left: bool = False


def holds(*conditions: Any) -> bool | None:
    """True, False (or NULL), or None: all others are true, and one has no value."""
    found = [condition() for condition in conditions]
    return False if False in found else None if None in found else True


def more(x: int | None, y: int | None) -> bool | None:
    """x * y > 0, as Spark answers it."""
    if x is None or y is None:
        return False
    return x * y > 0 if -(2**63) <= x * y < 2**63 else None


WINDOW = "WINDOW = 3 SECONDS"
INNER = Shape(f"SELECT r.id AS r, s.id AS s FROM r, s WHERE r.k = s.k AND r.x * s.x > 0 {WINDOW}")
THETA = Shape(f"SELECT r.id AS r, s.id AS s FROM r, s WHERE r.x * s.x > 0 AND r.k <= s.k {WINDOW}")
LEFT = Shape(f"SELECT r.id AS r, s.id AS s FROM r LEFT JOIN s ON r.k = s.k AND r.x * s.x > 0 {WINDOW}", left=True)
THREE = Shape(
    f"SELECT r.id AS r, s.id AS s, t.id AS t FROM r, s, t WHERE r.k = s.k AND s.k = t.k AND r.x * s.x > 0 AND s.x * t.x > 0 {WINDOW}",
    "rst",
)


def judge(shape: Shape, members: tuple[dict[str, Any], ...]) -> bool | None:
    times = [m["ts"] for m in members]
    keys = [m["k"] for m in members]
    same = keys == sorted(keys) if shape is THETA else len(set(keys)) == 1
    pairs = [(a["x"], b["x"]) for a, b in pairwise(members)]
    return holds(lambda: max(times) - min(times) <= 3, lambda: same, *(lambda x=x, y=y: more(x, y) for x, y in pairs))


def batch_of(rows: list[dict[str, Any]]) -> pa.Table:
    made = [{**row, "ts": row["ts"] * 1_000_000} for row in rows]
    return pa.Table.from_pylist(made, pa.schema([*list(SCHEMA)[:3], ("ts", pa.int64())])).cast(SCHEMA)


def prepare(shape: Shape, **options: Any) -> LocalRun:
    streams = {a: wm.Stream(SCHEMA.empty_table(), time="ts", lateness="20 seconds") for a in shape.aliases}
    return wm.sql(shape.text, streams, on_error="set aside", **options)._in_process("UTC", late=True)


@given(
    st.sampled_from((INNER, THETA, LEFT, THREE)),
    st.lists(st.tuples(st.sampled_from("rst"), ROW, st.integers(0, 2)), max_size=14),
    st.sampled_from((1, 3)),
    st.integers(0, 3),
)
@example(LEFT, [("r", (0, BIG, 0), 0), ("s", (0, BIG, 0), 1), ("s", (0, 1, 0), 2)], 1, 1)
@example(THREE, [("r", (0, BIG, 0), 0), ("s", (0, 2, 0), 0), ("t", (0, 1, 0), 2), ("t", (0, -1, 0), 1)], 3, 2)
@settings(max_examples=FEW)
def test_a_combination_is_set_aside_once_if_all_else_is_true(shape, arrivals, units, restarts_after):
    """In whichever batches its members come, also over a restart from the saved state."""
    rows: dict[str, list[dict[str, Any]]] = {a: [] for a in shape.aliases}
    batches: list[dict[str, list[dict[str, Any]]]] = [{a: [] for a in shape.aliases} for _ in range(3)]
    for n, (alias, (k, x, ts), batch) in enumerate(arrivals):
        if alias in rows:
            row = {"id": n, "k": k, "x": x, "ts": ts}
            rows[alias].append(row)
            batches[batch][alias].append(row)
    run, results, lost = prepare(shape, units=units), [], []
    for number, batch in enumerate(batches):
        if number == restarts_after:
            saved, run = run.save(), prepare(shape, units=units)
            run.resume(saved)
        wires = run.read({a: batch_of(some) for a, some in batch.items()})
        results.append(run.push(wires, ended=number == 2))
        lost += [row for table in run.lost for row in table.to_pylist()]
        run.lost.clear()
    found = Counter(tuple(row.values()) for some in results for row in run.rows_of(some).to_pylist())
    judged = {key: judge(shape, dict_of(key)) for key in combine(rows, shape)}
    wanted = Counter(tuple(m["id"] for m in dict_of(key)) for key, answer in judged.items() if answer)
    if shape.left:
        wanted += Counter(
            (row["id"], None) for row in rows["r"] if not any((row["id"], s) in wanted for s in range(99))
        )
    assert found == wanted
    aside = Counter(tuple(m["id"] for m in dict_of(key)) for key, answer in judged.items() if answer is None)
    told = Counter(tuple(json.loads(row["row"]).get(f"{a}.id") for a in shape.aliases) for row in lost)
    if len(shape.aliases) == 2:
        assert told == aside
    assert sum(told.values()) == sum(aside.values()) == sum(run.units.broken.values())


def combine(rows: dict[str, list[dict[str, Any]]], shape: Shape) -> list[Any]:
    every = product(*(rows[a] for a in shape.aliases))
    return [tuple(tuple(m.items()) for m in members) for members in every]


def dict_of(members: Any) -> tuple[dict[str, Any], ...]:
    return tuple(map(dict, members))


TABLE = pa.table({"k": [1, 1], "x": [1, 0], "s": ["1", "x"], "ts": pa.array([0, 1], pa.timestamp("s", tz="UTC"))})
PAIR = "SELECT a.k{} FROM s a, t b WHERE a.k = b.k{} WINDOW = 5 SECONDS"


def test_by_default_the_query_ends() -> None:
    with pytest.raises(DataError, match="a condition or key of a cannot be evaluated"):
        wm.local.run(PAIR.format("", " AND 1 / a.x > 0"), s=TABLE, t=TABLE)


def test_a_row_that_another_filter_rules_out_is_not_broken() -> None:
    text = PAIR.format("", " AND 1 / a.x > 0 AND a.s = '1'")
    got = wm.local.run(text, s=TABLE, t=TABLE, on_error="set aside", late=True)
    assert got.num_rows == 2
    assert wm.local.counts(got).set_aside == {}


@pytest.mark.parametrize(
    ("text", "options", "why"),
    [
        (PAIR.format("", ""), {}, r"nobody asks for these: run\(late=True\)"),
        (PAIR.format("", ""), {"late": True, "sites": {"a": "x", "b": "y"}}, "sites send letters"),
        (
            "SELECT a.k FROM s a, t b, d WHERE a.k = b.k AND d.k = a.k WINDOW = 1 SECOND",
            {"late": True},
            "not with wm.Table",
        ),
    ],
)
def test_what_cannot_be_set_aside_is_refused(text: str, options: dict[str, Any], why: str) -> None:
    tables = {"s": TABLE, "t": TABLE} | ({"d": wm.Table(TABLE.select(["k"]))} if " d " in text else {})
    with pytest.raises(OptionError, match=f"on_error='set aside'.*{why}"):
        wm.local.run(text, tables, on_error="set aside", **options)


def test_another_answer_is_refused() -> None:
    with pytest.raises(OptionError, match="on_error='skip': this release has 'raise', 'set aside'"):
        wm.local.run(PAIR.format("", ""), s=TABLE, t=TABLE, on_error="skip")
