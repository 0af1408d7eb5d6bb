"""Gates spare work and nothing else: what satisfies a query passes, and answers are those without gates."""

from __future__ import annotations

from collections import Counter

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.expressions import evaluator
from watersmeet.registry.shared import block, gates
from watersmeet.registry.shared.gates import CodedGate, TextGate
from watersmeet.storage.segment import CodedCondition, Segment

SCHEMA = pa.schema(
    {
        "id": pa.int64(),
        "k": pa.int64(),
        "v": pa.float64(),
        "d": pa.decimal128(8, 2),
        "s": pa.string(),
        "ts": pa.timestamp("us", tz="UTC"),
    }
)
CONDITIONS = [
    "r.k = {n}", "r.v > {n}.5", "r.v BETWEEN {n} AND {n}.75", "r.d < {n}.25", "r.k IN ({n}, 5, 7)", "r.s = 't{n}'", "r.s LIKE 't{n}%'", "r.k % 3 = {n}", "r.s IN ('t1', 't{n}')",
    "r.k = {n} AND r.v < 4",
]  # fmt: skip
ROWS = st.lists(
    st.tuples(
        st.none() | st.integers(0, 9), st.none() | st.sampled_from([0.0, -0.0, 2.5, 3.0, 8.25, float("nan")]),
        st.none() | st.integers(0, 900), st.none() | st.sampled_from(["t1", "t2", "t23", "", "t1x"]),
    ),
    max_size=12,
)  # fmt: skip


def _table(rows: list[tuple[int | None, float | None, int | None, str | None]], at: int) -> pa.Table:
    columns = list(zip(*rows, strict=True)) if rows else [()] * 4
    return pa.table(
        [
            pa.array(range(100 * at, 100 * at + len(rows)), pa.int64()), pa.array(columns[0], pa.int64()), pa.array(columns[1], pa.float64()),
            pa.array([None if d is None else d * 100 for d in columns[2]], pa.int64()).cast(pa.decimal128(19, 0)).cast(pa.decimal128(19, 2)).cast(pa.decimal128(8, 2), safe=False),
            pa.array(columns[3], pa.string()), pa.array([(1_700_000_000 + at) * 1_000_000] * len(rows), pa.int64()).cast(SCHEMA.field("ts").type),
        ],
        schema=SCHEMA,
    )  # fmt: skip


def _answer(texts: list[str], batches: list[dict[str, pa.Table]]) -> list[Counter[tuple[str, str]]]:
    subs = wm.local.subscriptions({n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in "rs"})
    subs.add_all(texts)
    out = [subs.push(batch) for batch in batches]
    assert all(entry.state == "running" for entry in subs.list())
    return [Counter(zip(t["query"].to_pylist(), t["answer"].to_pylist(), strict=True)) for t in out]


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.sampled_from(CONDITIONS), st.integers(1, 3)), min_size=1, max_size=5),
    st.lists(st.tuples(ROWS, ROWS), min_size=1, max_size=3),
)
def test_answers_are_those_without_gates(asked: list[tuple[str, int]], drawn: list[tuple[list, list]]) -> None:  # type: ignore[type-arg]
    texts = [
        f"SELECT r.id AS x, s.id AS y FROM r, s WHERE r.k = s.k AND {text.format(n=n)} WINDOW = 2 SECONDS"
        for text, n in asked
    ]
    batches = [{"r": _table(r, at), "s": _table(s, at)} for at, (r, s) in enumerate(drawn)]
    found = _answer(texts, batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(block, "gates", lambda queries: (None,) * len(queries[0].template.streams))
        assert found == _answer(texts, batches)


def _gates_of(*conditions: str) -> tuple[gates.Gate | None, ...]:
    subs = wm.local.subscriptions({n: wm.Stream(SCHEMA.empty_table(), time="ts") for n in "rs"})
    subs.add_all([f"SELECT r.id FROM r, s WHERE r.k = s.k AND {text} WINDOW = 2 SECONDS" for text in conditions])
    known = subs._registry._state.queries.values()
    return gates.gates([one.query for one in known])


def test_what_is_compared_by_codes_is_a_gate_of_codes() -> None:
    made, other = _gates_of("r.k = 5 AND r.v * 2 > 7", "r.v > 2.5", "r.s IN ('a', 'b')")
    assert isinstance(made, CodedGate)
    assert sorted({column for way in made.ways for column, _, _ in way}) == ["k", "s", "v"]
    assert other is None


def test_what_only_the_evaluator_decides_is_a_gate_of_text() -> None:
    made, _ = _gates_of("r.k = 5", "r.k % 3 = 2")
    assert isinstance(made, TextGate)
    assert made.columns == ("k",)


def test_many_queries_have_no_gate() -> None:
    assert _gates_of(*(f"r.k = {n}" for n in range(2, 60)))[0] is None


def test_nobody_is_asked_about_a_gate_of_codes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(evaluator, "connection", None)
    rows = Segment.of(pa.table({"k": pa.array([1, None, 3, 4]), "_ts": pa.array([0, 0, 0, 0])}))
    gate = CodedCondition(
        ((("k", "integer", ((1, 1), (4, 9))),), (("k", "integer", ((3, 3),)), ("k", "integer", ((2, 8),))))
    )
    assert rows._test_gate(gate).tolist() == [True, False, True, True]
