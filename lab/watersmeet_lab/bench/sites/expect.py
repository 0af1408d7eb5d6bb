"""What a plan says it ships for a workload: its price under what the workload's tuples are.

A running query measures its streams by sketches. Here all values of keys are counted: a sketch of some hundred values hardly sees that one in a hundred is shared.

Invariant: nothing that was shipped is known here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

import watersmeet as wm
from watersmeet.operators.enter import take_kept
from watersmeet.plan.model import Plan
from watersmeet.runtime.wires import WireReader
from watersmeet.sites.letter import write_item
from watersmeet.sites.planning.carriers import CarrierKind
from watersmeet.sites.planning.letters import Facts, Letters, StreamFacts
from watersmeet.sites.planning.model import LinearPlan
from watersmeet.sites.planning.search import PlanSearch
from watersmeet.sites.planning.values import Values
from watersmeet.storage.segment import Segment, key_columns
from watersmeet_lab.bench.sites.workload import Workload

_WEIGHED = 256


def expect_bytes(workload: Workload, plan: Any, letters: int, carrier: CarrierKind = "object store") -> float:
    """Bytes on the lines for all of a workload, in so many letters, with what carriers add to them."""
    first = {name: next(iter(workload.tables(name))) for name in workload.names}
    streams = {n: wm.Stream(table, time="ts", site=workload.site_of[n]) for n, table in first.items()}
    query = wm.sql(workload.query, streams, sites=wm.Sites(plan=plan)).plan
    placed, seconds = query.sites, workload.tuples / workload.tuples_per_s
    assert placed is not None
    assert isinstance(placed.plan, LinearPlan)
    search = PlanSearch(placed.query, Letters(placed.placement, count_facts(workload, query)), placed.line)
    return search.price(placed.plan).on_wire(letters / seconds, carrier) * seconds


def count_facts(workload: Workload, query: Plan) -> Facts:
    """What sites would measure of the streams, counted."""
    streams: dict[str, StreamFacts] = {}
    codes: dict[int, dict[str, np.ndarray]] = {}
    for source in query.inputs:
        own: dict[int, list[np.ndarray]] = {}
        for segment in _segments(workload, query, source.position):
            for c in source.keys:
                own.setdefault(c, []).append(segment.key(key_columns(query, source.keys, [c])))
            streams[source.alias] = _weigh(workload, segment.table)
        for c, parts in own.items():
            codes.setdefault(c, {})[source.alias] = np.concatenate(parts)
    per_code = {c: max(_weigh_codes(of) for of in by_alias.values()) for c, by_alias in codes.items()}
    return Facts(streams, {c: _count_values(by_alias) for c, by_alias in codes.items()}, per_code)


def _segments(workload: Workload, query: Plan, position: int) -> Iterator[Segment]:
    """The files of a stream, as a site keeps their tuples."""
    source, reader = query.inputs[position], WireReader(query, {})
    for n, table in enumerate(workload.tables(source.stream)):
        if n < workload.files:  # behind them is the tuple that ends the stream
            rows, _ = take_kept(source, reader.read({source.stream: table})[source.alias])
            yield Segment.of(rows.select([column.name for column in source.columns]))


def _weigh(workload: Workload, table: pa.Table) -> StreamFacts:
    one, some = (len(write_item(table.slice(0, n))) for n in (1, _WEIGHED))
    each = (some - one) / (min(_WEIGHED, table.num_rows) - 1)
    interval = workload.tuples / workload.files / workload.tuples_per_s
    return StreamFacts(workload.tuples_per_s, each, max(0.0, one - each), interval)


def _weigh_codes(codes: np.ndarray) -> float:
    """Bytes of a code among those of a letter."""
    one, some = (len(write_item(pa.table({"_code": np.unique(codes[:n])}))) for n in (1, 2000))
    return (some - one) / (len(np.unique(codes[:2000])) - 1)


def _count_values(codes: Mapping[str, np.ndarray]) -> Values:
    """All values of a key, each with its share of the tuples of every stream."""
    every = np.unique(np.concatenate(list(codes.values())))
    counts = {alias: np.bincount(np.searchsorted(every, of), minlength=len(every)) for alias, of in codes.items()}
    return Values(np.ones(len(every)), {alias: found / len(codes[alias]) for alias, found in counts.items()})
