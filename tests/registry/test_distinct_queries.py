"""DISTINCT among registered queries: what the stage between fan-out and answers keeps, forgets and tells apart."""

from __future__ import annotations

import itertools
import json
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import watersmeet as wm
from watersmeet.operators.finish import distinct as deduplicator
from watersmeet.registry.shared import distinct, flow
from watersmeet.registry.shared.block import FOR_EVER, UNTIL
from watersmeet.registry.shared.compiled import find_compiled

SCHEMA = pa.schema(
    [
        ("id", pa.int64()),
        ("k", pa.int64()),
        ("f", pa.float64()),
        ("name", pa.string()),
        ("ts", pa.timestamp("us", tz="UTC")),
    ]
)
BASE = 1_704_067_200  # a multiple of 10, 60, 100 seconds
ROWS = "SELECT DISTINCT r.name FROM r, s WHERE r.k = s.k"
TEN = f"{ROWS} WINDOW = 10 SECONDS"


def table(*rows: tuple[Any, ...]) -> pa.Table:
    """(id, k, f, name, seconds)."""
    shifted = [(*row[:-1], int((BASE + row[-1]) * 1_000_000)) for row in rows]
    columns = list(zip(*shifted, strict=True)) if rows else [()] * 5
    return pa.table([pa.array(c, f.type) for c, f in zip(columns, SCHEMA, strict=True)], schema=SCHEMA)


def at(*seconds: float, name: str | None = "x", k: int = 1) -> pa.Table:
    return table(*((n, k, 0.0, name, s) for n, s in enumerate(seconds)))


def registry(lateness: str = "0 seconds", units: int = 1) -> Any:
    empty = wm.Stream(SCHEMA.empty_table(), time="ts", lateness=lateness)
    return wm.local.subscriptions(dict.fromkeys("rst", empty), units=units)


def rows(answers: pa.Table, id: str = "q") -> list[tuple[float, Any]]:
    """(seconds, values) of a query's answers, in order."""
    found = [
        (ts.timestamp() - BASE, *json.loads(answer).values())
        for query, ts, answer in zip(*(answers.column(c).to_pylist() for c in ("query", "ts", "answer")), strict=True)
        if query == id
    ]
    return sorted(found, key=repr)


def kept(subs: Any, unit: int = 0) -> dict[str, int]:
    """Kept rows by kind."""
    return {k: n for k, n in subs._units.states[unit].rows().items() if k.startswith((UNTIL, FOR_EVER))}


def test_a_row_is_answered_once_per_bucket_and_in_full_history_once() -> None:
    subs = registry()
    subs.add(TEN, id="q")
    subs.add(ROWS, id="ever")
    subs.add(TEN.replace("DISTINCT ", ""), id="plain")
    first = subs.push({"r": at(1, 2), "s": at(2, 3)})
    assert rows(first) == [(2, "x")], "of one batch the earliest"
    assert len(rows(first, "plain")) == 4
    assert rows(subs.push({"r": at(9), "s": at(9)})) == [], "the same bucket"
    later = subs.push({"r": at(10), "s": at(11)})
    assert rows(later) == [(10, "x")], "the youngest members are at 10 and 11: a new bucket"
    assert rows(first, "ever") == [(2, "x")]
    assert rows(later, "ever") == []
    assert {e.id: e.distinct for e in subs.list()} == {
        "q": "once per 10 s of its youngest member's event time",
        "ever": "once: full history",
        "plain": None,
    }
    assert len(find_compiled(subs._view.name, 0).blocks[0].template_streams) == 2, (
        "with and without DISTINCT share a template"
    )


def test_rows_are_told_apart_by_values_and_zeros_are_written_alike() -> None:
    subs = registry()
    subs.add("SELECT DISTINCT r.f, r.name, r.f * -1 AS g FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS", id="q")
    nan = float("nan")
    values = [(0.0, None), (-0.0, None), (nan, "a"), (nan, "a"), (0.0, "null"), (-0.0, "null"), (1.5, "A"), (1.5, "a")]
    given = table(*((n, 1, f, name, 1) for n, (f, name) in enumerate(values)))
    found = [*subs.push({"r": given, "s": at(1)}).column("answer").to_pylist()]
    assert sorted(found) == [
        '{"f":"NaN","name":"a","g":"NaN"}',
        '{"f":0.0,"name":"null","g":0.0}',
        '{"f":0.0,"name":null,"g":0.0}',
        '{"f":1.5,"name":"A","g":-1.5}',
        '{"f":1.5,"name":"a","g":-1.5}',
    ]
    assert rows(subs.push({"r": given, "s": at(1)})) == []


def test_equal_hashes_do_not_make_rows_equal(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (deduplicator, distinct):
        monkeypatch.setattr(module, "row_hash", lambda table: np.zeros(table.num_rows, np.int64))
    subs = registry()
    subs.add(TEN, id="q")
    subs.add(TEN, id="p")
    for names, new in (("abcabc", [*"abc"]), ("adbe", [*"de"])):
        out = subs.push({"r": table(*((n, 1, 0.0, c, 1) for n, c in enumerate(names))), "s": at(1)})
        assert [v for _, v in rows(out)] == [v for _, v in rows(out, "p")] == new


def test_the_order_of_arrival_in_a_batch_changes_neither_rows_nor_times() -> None:
    given = [(n, n % 2, 0.0, "xy"[n % 3 == 0], s) for n, s in enumerate((3, 1, 2, 5, 4, 11))]
    outcomes = set()
    for order in itertools.permutations(given, 6):
        subs = registry()
        subs.add(TEN, id="q")
        outcomes.add(tuple(rows(subs.push({"r": table(*order), "s": table(*order[::-1])}))))
        if len(outcomes) > 1 or order[0][0] > 1:
            break
    assert len(outcomes) == 1


def test_rows_of_many_chunks_are_one_set(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = flow.fan_out
    monkeypatch.setattr(flow, "fan_out", lambda *args: whole(*args, limit=3))
    monkeypatch.setattr(flow, "LIMIT", 4)
    subs = registry()
    subs.add("SELECT DISTINCT r.k AS k, s.name AS n FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS", id="q")
    subs.add("SELECT DISTINCT s.ts AS at, r.f FROM r, s, t WHERE r.k = s.k AND t.k = s.k WINDOW = 10 SECONDS", id="p")
    given = [(n, n % 3, 0.5, "ab"[n % 2], 8 - n / 5) for n in range(21)]
    out = subs.push(dict.fromkeys("rst", table(*given)))
    earliest: dict[tuple[int, str], float] = {}
    for (_, k, _, _, s), (_, j, _, name, t) in itertools.product(given, given):
        if k == j:
            earliest[k, name] = min(max(s, t), earliest.get((k, name), 99))
    assert {(k, name): s for s, k, name in rows(out)} == pytest.approx(earliest)
    assert len(rows(out)) == 6
    assert len(rows(out, "p")) == 21


def test_buckets_that_are_over_are_dropped_by_the_watermarks_of_the_querys_own_streams() -> None:
    subs = registry()
    subs.add("SELECT DISTINCT r.ts AS at, r.id FROM r, s WHERE r.k = s.k WINDOW = 10 SECONDS", id="q")
    subs.add("SELECT DISTINCT r.ts AS at, t.id FROM r, t WHERE r.k = t.k WINDOW = 10 SECONDS", id="silent")
    counts = []
    for n in range(1, 60):
        subs.push({"r": at(2 * n), "s": at(2 * n), **({"t": at(1)} if n == 1 else {})})
        counts.append(kept(subs)[f"{UNTIL}timestamp|bigint"])
    assert max(counts[20:]) <= 40
    assert min(counts[20:]) > 5
    subs.push({"r": at(500), "s": at(500)})
    assert kept(subs) == {f"{UNTIL}timestamp|bigint": 6}, "one row of q; those of r and t wait for t"
    subs.push({"t": at(500)})
    assert kept(subs)[f"{UNTIL}timestamp|bigint"] <= 3


def test_what_is_over_when_it_is_answered_is_not_kept() -> None:
    subs = registry()
    subs.add(TEN, id="q")
    out = subs.push({"r": at(*range(0, 1000, 10)), "s": at(*range(0, 1000, 10))})
    assert len(rows(out)) == 100
    assert kept(subs) == {f"{UNTIL}string": 1}


def test_a_removed_query_is_forgotten_and_starts_anew_under_its_id() -> None:
    subs = registry()
    subs.add(ROWS, id="q")
    subs.add(ROWS, id="other")
    for name in "ab":
        assert len(rows(subs.push({"r": at(1, name=name), "s": at(1)}))) == 1
    assert rows(subs.push({"r": at(1, name="a"), "s": at(1)})) == []
    assert kept(subs) == {f"{FOR_EVER}string": 4}
    subs.remove("q")
    subs.push({"r": at(1, k=99)})
    assert kept(subs) == {f"{FOR_EVER}string": 2}
    subs.add(ROWS, id="q")
    again = subs.push({"r": at(1, name="a"), "s": at(1)})
    assert [v for _, v in rows(again)] == ["a"], "x came before it was added"
    assert rows(again, "other") == []
    subs.remove("q")
    subs.add(ROWS, id="q")
    at_once = subs.push({"r": at(1, name="a"), "s": at(1)})
    assert [v for _, v in rows(at_once)] == ["a"], "removed and added between two batches"
    subs.remove("q")
    subs.remove("other")
    subs.push({"r": at(1, k=99)})
    assert kept(subs) == {}
    assert subs._units.states[0].extra == {}


def test_rows_of_different_types_and_constants_live_side_by_side() -> None:
    subs = registry("1 hour", units=3)
    texts = [
        "r.id, s.id AS b", "r.id + 0 AS i", "r.f", "r.name", "7 AS seven", "r.ts, s.name", "r.id > 1 AS big", "s.name, r.id",
        "coalesce(r.name, 'no') AS u, r.id", "r.id, coalesce(s.name, 'no') AS u",
    ]  # fmt: skip
    sql = {text: f"SELECT DISTINCT {text} FROM r, s WHERE r.k = s.k WINDOW = 60 SECONDS" for text in texts}
    subs.add_all(sql)
    given = table(*((n % 3, 1, n % 2 / 2, "ab"[n % 2], n % 4) for n in range(12)))
    found = [subs.push({"r": given.slice(n, 4), "s": given.slice(n, 4)}) for n in (0, 4, 8)]
    for text in texts:
        alone = wm.local.run(sql[text], dict.fromkeys("rs", wm.Stream(given, time="ts", lateness="1 hour")))
        assert sum(len(rows(f, text)) for f in found) == alone.num_rows, text
