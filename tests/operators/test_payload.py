"""Payloads split off and gathered again; units' segments turned from whole to narrow and back."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from tests.blocks import blocks_of
from watersmeet.operators.payload import gather, number_of, reship, split
from watersmeet.plan.model import Plan
from watersmeet.plan.rules.ship import IN, ROW, defer_payloads, offers
from watersmeet.storage.manifest import Identity, Manifest
from watersmeet.storage.segment import Segment
from watersmeet.storage.stores import MemoryStore

TEXT = "SELECT a.v AS v, a.w AS w, b.v AS u FROM s a, t b WHERE a.k = b.k WINDOW = 2 SECONDS"


def plan() -> Plan:
    table = pa.table(
        {
            "k": pa.array([], pa.int64()),
            "v": pa.array([], pa.string()),
            "w": pa.array([], pa.int32()),
            "ts": pa.array([], pa.timestamp("us", tz="UTC")),
        }
    )
    return wm.sql(TEXT, s=wm.Stream(table, time="ts"), t=wm.Stream(table, time="ts")).plan


def wire(whole: Plan, alias: str, values: list[tuple[int, str | None]]) -> pa.Table:
    """Tuples of an alias as they travel: times from 0 on, `v` a payload, everything else an integer."""
    columns: dict[str, Any] = {}
    for column in whole.by_alias[alias].columns:
        if column.name == "_ts":
            columns[column.name] = pa.array(np.arange(len(values)), pa.timestamp("us", tz="UTC"))
        elif column.type == "string":
            columns[column.name] = pa.array([v for _, v in values], pa.string())
        else:
            columns[column.name] = pa.array([k for k, _ in values], pa.int64())
    return pa.table(columns)


values = st.lists(st.tuples(st.integers(0, 5), st.none() | st.text(max_size=3)), min_size=1, max_size=8)


@given(st.lists(values, min_size=1, max_size=3), st.randoms(use_true_random=False))
def test_references_lead_to_their_payloads(tables: list[list[tuple[int, str | None]]], random: Any) -> None:
    whole = defer_payloads(plan(), ("a",))
    source, store, held, narrow = whole.by_alias["a"], MemoryStore(), {}, []
    for rows in tables:
        number, payload, slim = split(source, wire(whole, "a", rows))
        held[number] = store.write(payload)
        assert number_of(held[number]) == number
        assert not {*source.payload} & {*slim.column_names}
        narrow.append(slim)
    asked = pa.concat_tables(narrow)
    asked = asked.take(random.choices(range(asked.num_rows), k=12))
    references = asked.column(IN).to_numpy(), asked.column(ROW).to_numpy()
    with blocks_of(random.choice([1, 100, 10_000])):
        blocks = list(gather(store, held, *references, list(source.payload)))
    order = np.concatenate([o for o, _ in blocks])
    found = pa.concat_tables([t for _, t in blocks])
    rows_of = dict(zip(held, tables, strict=True))
    wanted = [
        rows_of[n][r][1] for n, r in zip(asked.column(IN).to_pylist(), asked.column(ROW).to_pylist(), strict=True)
    ]
    name = next(c.name for c in source.columns if c.type == "string")
    assert found.column(name).to_pylist() == [wanted[i] for i in order.tolist()]


@given(st.lists(values, min_size=1, max_size=3), values)
def test_turned_there_and_back_a_unit_holds_what_it_held(
    of_a: list[list[tuple[int, str | None]]], of_b: list[tuple[int, str | None]]
) -> None:
    whole = defer_payloads(plan(), ())
    assert offers(whole) == ("a", "b")
    apart = defer_payloads(whole, ("a",))
    store, manifest = MemoryStore(), Manifest.fresh(Identity.of(whole))
    manifest.segments = {
        "a": [store.write(Segment.of(wire(whole, "a", rows))) for rows in of_a],
        "b": [store.write(Segment.of(wire(whole, "b", of_b)))],
    }
    before = {alias: contents(store, manifest, alias) for alias in "ab"}
    b_ids = [i.id for i in manifest.segments["b"]]

    made = reship(whole, apart, manifest, store, {})
    assert {alias for _, alias, _ in made} == {"a"}
    assert all(unit >= whole.units for unit, _, _ in made)
    assert all(IN in store.read(i).table.column_names for i in manifest.segments["a"])

    held = {"a": {number_of(info): info for _, _, info in made}}
    assert reship(apart, whole, manifest, store, held) == []
    assert {alias: contents(store, manifest, alias) for alias in "ab"} == before
    assert [i.id for i in manifest.segments["b"]] == b_ids, "what does not change is not written again"


def contents(store: MemoryStore, manifest: Manifest, alias: str) -> list[Any]:
    tables = [store.read(i).table for i in manifest.segments[alias]]
    return sorted((sorted(row.items()) for t in tables for row in t.to_pylist()), key=repr)
