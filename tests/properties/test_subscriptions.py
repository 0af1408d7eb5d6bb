"""Registered queries against the oracle: random sets of queries that come and go between random batches."""

from __future__ import annotations

import json
import math
from collections import Counter
from dataclasses import dataclass, replace
from datetime import date
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests import oracle
from tests.cases import COLUMNS, SCHEMA, SECOND, Case, Col, Data
from tests.strategies import ERAS, ROWS_AT_MOST, cases, data, distinct_cases
from watersmeet.errors import UnsupportedError
from watersmeet.kernels.hash_window import Coded
from watersmeet.registry.shared.block import Block
from watersmeet.registry.shared.compiled import find_compiled

STREAMS = ("s0", "s1", "s2", "s3")


@dataclass(frozen=True)
class Plan:
    """Queries with the batches before which they are added and removed, and data with its batches."""

    queries: tuple[tuple[Case, int, int], ...]
    data: tuple[tuple[str, Data], ...]
    batch_rows: int
    units: int
    engine: str = "shared"

    @property
    def batches(self) -> int:
        return max(1, *(math.ceil(len(d.rows) / self.batch_rows) for _, d in self.data))

    def batch(self, stream: str, number: int) -> list[dict[str, Any]]:
        rows = dict(self.data)[stream].dicts()
        return rows[number * self.batch_rows : (number + 1) * self.batch_rows]


@st.composite
def plans(draw: Any) -> Plan:
    found = draw(st.lists(cases(equality=True) | distinct_cases(equality=True), min_size=1, max_size=4))
    if draw(st.booleans()):  # the same template, with another SELECT
        found += [replace(found[0], select=(Col(found[0].names[0], "id"),))]
    if draw(st.booleans()):  # the same template, with and without DISTINCT
        found += [replace(found[0], distinct=not found[0].distinct)]
    spans = st.sampled_from((8 * SECOND, 8 * SECOND, 8 * SECOND, SECOND))
    late, most = draw(st.booleans()), max(ROWS_AT_MOST[len(case.names)] for case in found)
    eras = draw(st.sampled_from([eras for eras in ERAS if late or len(eras) == 1]))
    streams = tuple(
        (s, replace(draw(data(most, null_ts=late, eras=eras)), lateness_us=draw(spans) if late else 8 * SECOND))
        for s in STREAMS
    )
    queries = [(case, draw(st.sampled_from((0, 0, 1, 2))), draw(st.sampled_from((9, 9, 1, 2, 4)))) for case in found]
    return Plan(tuple(queries), streams, draw(st.sampled_from((3, 5, 25, 2))), draw(st.sampled_from((1, 1, 3))))


def table(rows: list[dict[str, Any]]) -> pa.Table:
    return pa.table({f.name: pa.array([r[f.name] for r in rows], f.type) for f in SCHEMA}, schema=SCHEMA)


def answered(plan: Plan) -> tuple[dict[int, list[tuple[int, tuple[Any, ...]]]], Any, set[int]]:
    """(batch, values) by query, as the registry answers; the registry; and the queries that were refused."""
    streams = {n: wm.Stream(SCHEMA.empty_table(), time="ts", lateness=f"{d.lateness_us} us") for n, d in plan.data}
    subs = wm.local.subscriptions(streams, units=plan.units, engine=plan.engine)
    ids: dict[str, int] = {}
    refused: set[int] = set()
    found: dict[int, list[tuple[int, tuple[Any, ...]]]] = {n: [] for n in range(len(plan.queries))}
    for batch in range(plan.batches):
        for n, (case, added, removed) in enumerate(plan.queries):
            if batch == added:
                try:
                    ids[subs.add(case.sql())] = n
                except UnsupportedError:
                    refused.add(n)
            elif batch == removed > added and n in ids.values():
                subs.remove(next(i for i, m in ids.items() if m == n))
        out = subs.push({s: table(plan.batch(s, batch)) for s in STREAMS})
        for id, answer in zip(out.column("query").to_pylist(), out.column("answer").to_pylist(), strict=True):
            found[ids[id]].append((batch, tuple(json.loads(answer).values())))
    return found, subs, refused


def shown(value: Any, is_time: bool) -> Any:
    """A value as an answer shows it."""
    if is_time and value is not None:
        return f"{np.datetime64(value, 'us')}Z"
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def expected(plan: Plan, case: Case, added: int, removed: int) -> list[tuple[int, tuple[Any, ...]]]:
    arrivals = {s: oracle.Arrival([plan.batch(s, n) for n in range(plan.batches)], d.lateness_us) for s, d in plan.data}
    kept, _ = oracle.admitted(arrivals, plan.batches)
    seen = {s: [(at, row) for at, row in tuples if at >= added] for s, tuples in kept.items()}
    last = removed if removed > added else plan.batches
    times = [isinstance(e, Col) and e.name == "ts" for e in case.select]
    made = oracle.combinations(case.query(), seen)
    if case.distinct:
        made = oracle.once_per_bucket(case.query(), made)
    return [
        (batch, tuple(shown(v, t) for v, t in zip(row, times, strict=True))) for batch, _, row in made if batch < last
    ]


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(plan=plans())
def test_every_query_is_answered_as_if_it_were_alone(engine: str, plan: Plan) -> None:
    found, _, refused = answered(replace(plan, engine=engine))
    for n, (case, added, removed) in enumerate(plan.queries):
        if n not in refused and added < plan.batches:
            assert Counter(found[n]) == Counter(expected(plan, case, added, removed)), case.sql()


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@given(plan=plans(), asked=st.booleans())
def test_late_rows_are_counted_once(engine: str, plan: Plan, asked: bool) -> None:
    _, subs, _ = answered(replace(plan, engine=engine, queries=plan.queries if asked else ()))
    arrivals = {s: oracle.Arrival([plan.batch(s, n) for n in range(plan.batches)], d.lateness_us) for s, d in plan.data}
    _, late = oracle.admitted(arrivals, plan.batches)
    assert {s: n for s, n in subs.late.items() if n} == {s: len(rows) for s, rows in late.items() if rows}


def stream(*rows: tuple[int, int, int]) -> pa.Table:
    """(id, k, seconds)."""
    return table([dict.fromkeys(COLUMNS) | {"id": i, "k": k, "ts": s * 1_000_000} for i, k, s in rows])


def two(**options: Any) -> Any:
    return wm.local.subscriptions({s: SCHEMA.empty_table() for s in ("r", "s")}, **options)


PAIR = "SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS"


def test_state_follows_the_widest_window_of_the_living_queries_and_unused_streams_are_not_kept() -> None:
    subs = two()
    subs.push({"r": stream((1, 1, 0)), "s": stream((2, 1, 0))})
    assert subs.reports[0].retained == {"r": 0, "s": 0}, "no query, nothing stored"
    narrow = subs.add(PAIR)
    wide = subs.add(PAIR.replace("10 SECONDS", "100 SECONDS"))
    for n in range(1, 40):
        subs.push({"r": stream((n, 1, 5 * n)), "s": stream((n, 1, 5 * n))})
    assert subs.reports[0].retained["r"] == pytest.approx(21, abs=3)
    subs.remove(wide)
    subs.push({"r": stream((99, 1, 200)), "s": stream((99, 1, 200))})
    assert subs.reports[0].retained["r"] == 3, "195, 190 and 200 are inside 10 seconds"
    subs.remove(narrow)
    subs.push({"r": stream((100, 1, 201))})
    assert subs.reports[0].retained == {"r": 0, "s": 0}


def test_tuples_are_stored_once_whatever_the_number_of_queries() -> None:
    subs = two()
    for n in range(50):
        subs.add(PAIR.replace("10", f"{n % 7 + 5}").replace("WINDOW", f"AND r.id > {n} WINDOW"))
    subs.push({"r": stream(*((i, i % 3, 1) for i in range(100))), "s": stream(*((i, i % 3, 1) for i in range(100)))})
    assert subs.reports[0].retained == {"r": 100, "s": 100}


def test_queries_of_one_template_are_joined_once_and_constants_are_looked_up() -> None:
    subs = two()
    ids = subs.add_all(
        [f"SELECT r.id FROM s, r WHERE s.k = r.k AND r.id = {n} WINDOW = 10 SECONDS" for n in range(500)]
    )
    out = subs.push({"r": stream((7, 1, 0), (600, 1, 0)), "s": stream((1, 1, 0), (2, 1, 0))})
    assert Counter(out.column("query").to_pylist()) == {ids[7]: 2}
    (block,) = find_compiled(subs._view.name, 0).blocks
    assert len(block.trie.nodes) == 2, "one template, two drivers"
    assert len(block.index.classes) == 1


def test_tuples_that_no_query_of_a_template_wants_are_not_joined() -> None:
    subs = two()
    subs.add(
        "SELECT r.id FROM r, s WHERE r.k = s.k AND (r.id = 3 OR r.name = '{0}{') AND s.id > -1 WINDOW = 10 SECONDS"
    )
    subs.add("SELECT r.id FROM r, s WHERE r.k = s.k AND r.id = 5 AND s.name IS NULL WINDOW = 10 SECONDS")
    out = subs.push({s: stream(*((i, 1, 0) for i in range(100))) for s in ("r", "s")})
    assert Counter(out.column("answer").to_pylist()) == {'{"id":3}': 100, '{"id":5}': 100}
    (block,) = find_compiled(subs._view.name, 0).blocks
    stored = subs._units.store.segments.values()
    coded = [c for segment in stored for c in segment.derived.values() if isinstance(c, Coded)]
    indexed = [c.index.rows.tolist() for c in coded if c.index is not None]
    assert sorted(indexed, key=len)[0] == [3, 5], "of r two rows can matter"
    assert {gate is None for stream_, _, _, gate in block.columns if stream_ == "r"} == {False, True}, (
        "constants are looked up ungated"
    )


def test_adding_a_query_compiles_that_query_only(monkeypatch: pytest.MonkeyPatch) -> None:
    subs = two()
    subs.add_all([PAIR.replace("10", str(n + 1)) for n in range(100)])
    subs.push({})
    made: list[int] = []
    whole = Block.__init__
    monkeypatch.setattr(Block, "__init__", lambda self, queries: (made.append(len(queries)), whole(self, queries))[1])
    for n in range(12):
        added = subs.add(PAIR.replace("10", str(n + 200)))
        subs.push({})
        if n == 3:
            subs.remove(added)
    assert max(made) <= 24
    assert sum(b.alive for b in find_compiled(subs._view.name, 0).blocks) == 111


@pytest.mark.parametrize(
    ("sql", "said"),
    [
        ("SELECT r.id FROM r, s", "joined to nothing"),
        ("SELECT r.id FROM r LEFT JOIN s ON r.k = s.k", "window"),
        ("SELECT r.id FROM r ANTI JOIN s ON r.k < s.k", "window"),
        ("SELECT r.k, count(*) AS n FROM r GROUP BY r.k HAVING count(*) > 3", "HAVING"),
        ("SELECT collect_list(r.k) AS n FROM r GROUP BY window(r.ts, '1 minute')", "plain types"),
        ("SELECT reverse(r.name) AS x, count(*) AS n FROM r GROUP BY r.name", "list of functions"),
        (
            "SELECT r.id FROM r LEFT JOIN s ON r.k = s.k AND reverse(r.name) = 'a' WINDOW = 10 SECONDS",
            "list of functions",
        ),
        (
            "SELECT r.id FROM r FULL JOIN s ON r.k = s.k WHERE reverse(s.name) IS NULL WINDOW = 10 SECONDS",
            "list of functions",
        ),
        ("SELECT r.id FROM r WHERE r.name RLIKE r.name", "list of functions"),
        ("SELECT reverse(r.name) AS x FROM r, s WHERE r.k = s.k", "list of functions"),
        ("SELECT r.id FROM r, s WHERE r.k = s.k AND r.k IN (SELECT k FROM s)", "subquery"),
        ("SELECT r.id, s.id FROM r, s WHERE r.k = s.k", "called 'id'"),
        ("SELECT r.nope FROM r, s WHERE r.k = s.k", "no column 'nope'"),
        ("SELECT r.id FROM r, t WHERE r.k = t.k", "'t' is not supplied"),
        ("DROP TABLE r", "expected a SELECT"),
    ],
)
def test_a_bad_query_is_refused_with_the_reason_and_touches_no_other(sql: str, said: str) -> None:
    subs = two()
    good = subs.add(PAIR)
    with pytest.raises(wm.WatersmeetError, match=said):
        subs.add(sql)
    with pytest.raises(wm.WatersmeetError, match=said):
        subs.add_all([PAIR, sql])
    assert [e.id for e in subs.list()] == [good], "all or none"
    assert subs.push({"r": stream((1, 1, 0)), "s": stream((2, 1, 0))}).num_rows == 1


def test_an_error_in_the_data_is_null_and_stops_nobody() -> None:
    subs = two()
    subs.add("SELECT r.id / (r.k - s.k) AS x FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS", id="divides")
    subs.add(
        "SELECT r.id FROM r, s WHERE r.k = s.k AND r.id * 9223372036854775807 > 0 WINDOW = 10 SECONDS", id="overflows"
    )
    subs.add(PAIR, id="good")
    out = subs.push({"r": stream((5, 1, 0)), "s": stream((2, 1, 0))})
    assert dict(zip(out.column("query").to_pylist(), out.column("answer").to_pylist(), strict=True)) == {
        "good": '{"x":5,"y":2}',
        "divides": '{"x":null}',
    }


def test_values_of_all_plain_types_are_written_so_that_they_read_back() -> None:
    values = {
        "i8": pa.array([-5], pa.int8()),
        "i64": pa.array([2**63 - 1]),
        "f32": pa.array([0.1], pa.float32()),
        "f64": pa.array([1e300]),
        "nan": pa.array([math.nan]),
        "inf": pa.array([-math.inf]),
        "dec": pa.array([Decimal("12.50")], pa.decimal128(10, 2)),
        "yes": pa.array([True]),
        "text": pa.array(['a"\\ \n{é}']),
        "raw": pa.array([b"\x00\xff"]),
        "day": pa.array([date(2024, 2, 29)]),
        "eon": pa.array([365_000_000], pa.int32()).cast(pa.date32()),
        "wall": pa.array([1_704_067_200_000_001], pa.timestamp("us")),
        "none": pa.array([None], pa.string()),
    }
    one = pa.table({"k": [1], **values, "ts": pa.array([1_704_067_200_000_001], pa.timestamp("us", tz="UTC"))})
    subs = wm.local.subscriptions({"r": wm.Stream(one.slice(0, 0), time="ts")})
    columns = ", ".join(f"a.{name}" for name in (*values, "ts"))
    constants = "7 AS seven, 'CAST(3 AS INT) {0}' AS quoted, a.i64 > 5 AS big, a.dec * 2 AS twice"
    subs.add(f"SELECT {columns}, {constants} FROM r a, r b WHERE a.k = b.k AND a.raw = b.raw WINDOW = 1 SECOND")
    (answer,) = subs.push({"r": one}).column("answer").to_pylist()
    assert json.loads(answer, parse_float=str) == {
        "i8": -5, "i64": 2**63 - 1, "f32": "0.1", "f64": "1e+300", "nan": "NaN", "inf": "-Infinity", "dec": "12.50", "yes": True,
        "text": 'a"\\ \n{é}', "raw": "AP8=", "day": "2024-02-29", "eon": "1001306-01-22", "wall": "2024-01-01T00:00:00.000001", "none": None,
        "ts": "2024-01-01T00:00:00.000001Z", "seven": 7, "quoted": "CAST(3 AS INT) {0}", "big": True, "twice": "25.00",
    }  # fmt: skip


@pytest.mark.parametrize("zone", ["UTC", None])
@pytest.mark.parametrize("us", [-(2**63), -(2**63) + 1, -(2**63) + 2, -(2**63) + 20 * SECOND, 0, 2**63 - 2, 2**63 - 1])
def test_any_instant_of_64_bits_has_a_text(us: int, zone: str | None) -> None:
    one = pa.table({"k": [1], "ts": pa.array([us]).cast(pa.timestamp("us", tz=zone))})
    subs = wm.local.subscriptions({"r": wm.Stream(one.slice(0, 0), time="ts")})
    subs.add("SELECT a.ts FROM r a, r b WHERE a.k = b.k WINDOW = 1 SECOND")
    (answer,) = subs.push({"r": one}).column("answer").to_pylist()
    since = us - np.iinfo(np.int64).min  # numpy keeps one value for "no time"
    text = "-290308-12-21T19:59:05.224192" if since == 0 else str(np.datetime64(us, "us"))
    assert json.loads(answer) == {"ts": text + ("Z" if zone else "")}


def test_a_query_may_select_nothing_but_expressions() -> None:
    subs = two()
    subs.add("SELECT r.id + 1 AS x FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS")
    assert subs.push({"r": stream((5, 1, 0)), "s": stream((2, 1, 0))}).column("answer").to_pylist() == ['{"x":6}']


def test_ids_and_the_list() -> None:
    subs = two()
    first = subs.add(PAIR)
    named = subs.add(PAIR, id="mine")
    assert named == "mine"
    with pytest.raises(wm.WatersmeetError, match="registered already"):
        subs.add(PAIR, id="mine")
    with pytest.raises(wm.WatersmeetError, match="no query 'gone'"):
        subs.remove("gone")
    subs.push({})
    later = subs.add("SELECT r.id FROM r, s WHERE r.k = s.k")
    assert [(e.id, e.state, e.since, e.unbounded) for e in subs.list()] == [
        (first, "running", 0, False),
        ("mine", "running", 0, False),
        (later, "waiting", None, True),
    ]
    subs.remove(first)
    assert first not in subs.add_all({"x": PAIR, "y": PAIR})
    with pytest.raises(wm.WatersmeetError, match="no stream 'q'"):
        subs.push({"q": stream()})
