"""Samples of keys show what streams have in common, also where little of it is shared; and they stay small."""

from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import watersmeet as wm
from watersmeet.plan.options import Options
from watersmeet.query.stream import StreamSpec
from watersmeet.runtime.across import AcrossSites
from watersmeet.runtime.local import LocalRun
from watersmeet.sites.planning.key_sample import ALL, SAMPLE, TOLD_BYTES, KeySample
from watersmeet.sites.planning.model import LinearPlan
from watersmeet.sites.planning.values import Sketch, Values, want_values
from watersmeet.sql.parse import parse
from watersmeet_lab.bench.sites.workload import Workload

Hashes = st.lists(st.integers(0, 60), max_size=40)


def sample(hashes: list[int] | np.ndarray, most: int = SAMPLE) -> KeySample:
    values, counts = np.unique(np.array(hashes, np.int64), return_counts=True)
    return KeySample.of(values, counts, ALL, most)


@given(st.lists(Hashes, min_size=1, max_size=4), st.integers(1, 12))
def test_parts_joined_are_a_sample_of_the_whole(parts: list[list[int]], most: int) -> None:
    joined = KeySample.join([sample(part, most) for part in parts], most)
    whole = sample([h for part in parts for h in part])
    kept = whole.hashes < joined.below
    assert joined.hashes.tolist() == whole.hashes[kept].tolist()
    assert joined.counts.tolist() == whole.counts[kept].tolist()
    assert len(joined.hashes) == min(most, len(whole.hashes))
    read = KeySample.read(json.loads(json.dumps(joined.write())))
    assert (read.below, read.hashes.tolist()) == (joined.below, joined.hashes.tolist())


@pytest.mark.parametrize("tuples", [8_000, 200_000])
def test_a_value_takes_as_many_bytes_as_is_said(tuples: int) -> None:
    _, values, text = sample(np.random.default_rng(3).integers(0, ALL, tuples)).write()
    assert values == SAMPLE
    assert (
        0.75 < 0.75 * len(text) / (TOLD_BYTES * values) < 1.25
    )  # a letter is compressed: it has the bytes, not their text


def draw(seed: int, stream: int, rows: int, shared_values: int) -> np.ndarray:
    """One tuple in a hundred has one of the values that streams share."""
    chance = np.random.default_rng([seed, stream])
    shared = np.random.default_rng(seed).integers(0, ALL, shared_values)
    return np.where(chance.random(rows) < 0.01, chance.choice(shared, rows), chance.integers(0, ALL, rows))


def estimate_matching(seed: int) -> float:
    """The share of one stream's tuples that have a value of the other's, by as many sampled values as are wanted."""
    told = {alias: Sketch() for alias in "ab"}
    for n, sketch in enumerate(told.values()):
        for batch in draw(seed, n, 60_000, 300).reshape(20, -1):
            sketch.add(len(batch), sample(batch).write(), [])
    wanted = want_values({a: sketch.to_shares(128) for a, sketch in told.items()})
    assert wanted > 1000
    values = Values.of({a: sketch.to_shares(wanted) for a, sketch in told.items()})
    return float((values.count * values.share["a"])[values.share["b"] > 0].sum())


def test_one_in_a_hundred_is_seen() -> None:
    """Some 15 of 4,096 sampled values are shared, so one estimate is known to a quarter; 128 would show none. A shared value comes twice, so of seven tuples one has a value that has not come in
    the other stream."""
    found = [estimate_matching(seed) for seed in range(8)]
    assert all(0.005 < one < 0.02 for one in found)
    assert 0.0086 / 1.2 < np.mean(found) < 0.0086 * 1.2


def test_what_a_plan_says_it_ships_is_what_it_ships_where_one_in_a_hundred_matches() -> None:
    """The counted bytes are at most 1.3 times those that sketches promise, after eight batches and later."""
    work = Workload(2, 12_000, 1000, 100, 2.0, 1000.0, 24, seed=4)
    tables = {name: pa.concat_tables([*work.tables(name)][:-1]) for name in work.names}
    columns = {"id": "bigint", "k0": "bigint", "text": "binary", "ts": "timestamp"}
    text = "SELECT a.id, b.id AS bid, a.text, b.text AS other FROM a, b WHERE a.k0 = b.k0 WINDOW = 2 SECONDS"
    sites = wm.Sites(work.site_of, latency="25 ms", bandwidth=128e3)
    run = LocalRun(
        parse(text, {n: StreamSpec(n, columns, "ts", 0) for n in work.names}), tables, Options(units=1, sites=sites)
    )
    assert run.plan.sites is not None
    linear = LinearPlan.of(run.plan.sites.query, {"a": "b SM-S1", "b": "a SM-D2"})
    across = AcrossSites(replace(run.plan, sites=replace(run.plan.sites, plan=linear)), exact=True)
    for site in across.sites.values():
        site.state.choice.waits = 1e9  # measure, and do not change
    decider, promised = across.sites[run.plan.site_names[0]], []
    for batch in range(24):
        for name, site in across.sites.items():
            across.play(name, {a: run.wires[a].slice(batch * 500, 500) for a in site.aliases}, most=1)
        if batch >= 8:
            outlook = decider.station.look(decider.state)
            facts = outlook.facts()
            assert facts is not None
            promised.append(outlook.search(facts, corrected=False).price(linear).bytes)
    kinds = [kinds for counts in outlook.counts().values() for kinds in counts["kinds"].values()]
    counted = sum(sum(of.values()) for of in kinds)
    assert max(counted / said for said in promised) < 1.3
    assert min(counted / said for said in promised) > 0.6
