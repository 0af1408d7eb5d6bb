"""A query of `local.run` across sites: its streams arrive at sites, and are joined by shipping keys first where that pays.

    SQL  ->  plan (keys, filters, conditions)  ->  streams at sites  ->  one-way joins over a network  ->  windows and conditions  ->  SELECT

A stream's window at its site is the longest that the closed window graph lets a tuple wait for others; a result that these windows let
pass is tested against the graph, and against the conditions that are no equalities, where it arises.

Invariant: results are those of `local.run` without sites on the same tables, whatever the plan and, within delta or under heartbeats,
whatever the network.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Literal

import numpy as np
import pyarrow as pa

from watersmeet.columns.arrow import codes, integers
from watersmeet.columns.row_hash import content_hash
from watersmeet.errors import OptionError, StreamError, UnknownNameError, WindowError
from watersmeet.operators.enter import CONTENT, rows_kept
from watersmeet.operators.join import build_tables
from watersmeet.operators.probing.multiway import CHUNK, FanoutStats, Multiway
from watersmeet.operators.probing.side import VisibleSide
from watersmeet.plan import model
from watersmeet.plan.model import SEQUENCE, TIME, InputPlan, Plan
from watersmeet.plan.source_sql import PASS
from watersmeet.query.duration import parse_us
from watersmeet.query.window import UNBOUNDED
from watersmeet.sites.calibrate import calibrate
from watersmeet.sites.planning.cost import LineCost, PerTuple, Setting
from watersmeet.sites.planning.model import PAPER, Algorithm, KeyPair, LinearPlan, SiteQuery, SiteStream
from watersmeet.sites.planning.optimize import Found, Optimizer
from watersmeet.sites.planning.statistics import Statistics
from watersmeet.storage.segment import Segment
from watersmeet_lab.simulate.network import Link, Network
from watersmeet_lab.simulate.sites.model import Counts, SiteProtocol
from watersmeet_lab.simulate.sites.run import SiteRun
from watersmeet_lab.simulate.sites.streams import Sample, Streams, measure
from watersmeet_lab.simulate.sites.trees import FoundTree, TreeOptimizer, TreePlan, explain_found

MOST_INTERVALS = 100_000


@dataclass(frozen=True)
class Sites:
    """Where streams arrive, and how they are joined.

    `of` is the site of every alias. `plan` is "auto", "greedy" or "exhaustive" (linear plans), "tree", sequences by head (`{"a": "b SM-S1, c SP-D", ...}`), or
    a tree as text (`"a, b SP-S/SM-D1, c SM-D2/SM-S1"`). `bloom` lets the optimizer choose Bloom variants. `processing` is what it reckons
    with per tuple: "typical" costs, so that the same tables have the same plan everywhere, or costs "measured" here and now.
    """

    of: Mapping[str, str] = field(hash=False)
    interval: str = "100 milliseconds"
    plan: str | Mapping[str, str] = field(default="auto", hash=False)
    bloom: bool = False
    bound: Literal["delta", "heartbeats"] = "delta"
    delta_us: int | Literal["auto"] = "auto"
    processing: Literal["typical", "measured"] = "typical"

    def __post_init__(self) -> None:
        if self.processing not in ("typical", "measured"):
            raise OptionError(f"processing={self.processing!r}: there are 'typical' and 'measured'")

    @cached_property
    def protocol(self) -> SiteProtocol:
        return SiteProtocol(parse_us(self.interval), self.bound, self.delta_us)


class AcrossSites:
    """One query over wire tables, by alias, with its plan."""

    def __init__(self, plan: Plan, wires: Mapping[str, pa.Table], sites: Sites, network: Network | None) -> None:
        # Windows of rows are the sites' matter; elsewhere they are comparisons of a sequencer's numbers.
        kept = tuple(r for r in plan.residuals if r.right[1] != SEQUENCE)
        self.plan, self.sites = replace(plan, residuals=kept), sites
        self.network = network or Network()
        self.late = dict.fromkeys(plan.join.streams, 0)
        tables = {i.alias: self._admit(i, wires[i.alias]) for i in plan.inputs}
        self.tables = {alias: table for alias, (table, _) in tables.items()}
        self.query = _query(plan, sites)
        self.streams = Streams(self.query, _samples(plan, tables))
        self.setting = Setting(
            sites.protocol.interval_us,
            LineCost() if network is None else lambda s, r: _line(network.link(s, r)),
            0,
            calibrate() if sites.processing == "measured" else PerTuple(),
        )
        self._check_intervals()

    @cached_property
    def found(self) -> Found | FoundTree:
        """The plan that runs, priced."""
        given, query = self.sites.plan, self.query
        every = Optimizer(query, self._statistics, self.setting, tuple(Algorithm))
        if isinstance(given, Mapping):
            return every.price(LinearPlan.of(query, given))
        if "," in given:
            return TreeOptimizer(every).price(TreePlan.of(query, given))
        return self._tree() if given == "tree" else self._optimizer.find(given)  # type: ignore[arg-type]

    @cached_property
    def _statistics(self) -> Statistics:
        return measure(self.query, self.streams.samples)

    @cached_property
    def _optimizer(self) -> Optimizer:
        return Optimizer(self.query, self._statistics, self.setting, tuple(Algorithm) if self.sites.bloom else PAPER)

    def _tree(self) -> FoundTree:
        return TreeOptimizer(self._optimizer).find()

    def explain(self) -> str:
        """The plan as text; if a tree is expected to be cheaper, that too."""
        lines = [f"key        K{n}: {key}" for n, key in enumerate(self.plan.classes)]
        lines.append(explain_found(self.found, self.setting))
        timed = all(s.window_rows is None for s in self.query.streams) and self.sites.bound == "delta"
        if isinstance(self.found, Found) and timed and (tree := self._tree()).seconds < self.found.seconds:
            lines.append(
                f"note       a tree is expected to take {tree.seconds:.3f} s, but keeps joined tuples: plan='tree' is {tree.plan}"
            )
        return "\n".join(lines)

    def run(self) -> tuple[list[pa.Table], dict[str, Any]]:
        """Tables of the plan's output, and counts."""
        empty = [a for a, t in self.tables.items() if t.num_rows == 0]
        if empty:
            return [], {"late": self.late, "plan": f"nothing arrives on {', '.join(empty)}"}
        found = self.found
        outcome = SiteRun(found.plan, self.streams, self.network, self.sites.protocol).run()
        counts = {
            "late": self.late,
            **_json(outcome.counts),
            "plan": str(found.plan),
            "expected_bytes_per_s": found.bytes,
        }
        return list(self._results(outcome.results.members)), counts

    def _results(self, members: dict[str, np.ndarray]) -> Iterator[pa.Table]:
        sides = [
            VisibleSide(model.Side((a,), a, self.plan.by_alias[a].keys), [], Segment.of(self.tables[a]))
            for a in self.plan.aliases
        ]
        join = Multiway(self.plan, sides, FanoutStats({}))
        for begin in range(0, len(members[self.plan.aliases[0]]), CHUNK):
            bound = join.keep_matching({a: m[begin : begin + CHUNK] for a, m in members.items()})
            if len(bound[self.plan.aliases[0]]):
                yield from build_tables(self.plan, join, bound, None)

    def _admit(self, source: InputPlan, wire: pa.Table) -> tuple[pa.Table, np.ndarray]:
        """The rows that a site sees, in their order, and which of them may join; rows without a time are late."""
        wire = wire.combine_chunks()
        kept, seen = rows_kept(source, wire)
        self.late[source.stream] += seen.aside.get(source.stream, 0)
        timed = np.flatnonzero(np.asarray(wire.column(TIME).is_valid().to_numpy(), bool))
        rows = kept if source.rows is None else timed
        ts = integers(wire.column(TIME).take(pa.array(rows)).combine_chunks())
        if np.any(ts[1:] < ts[:-1]):
            raise StreamError(
                f"stream {source.stream}: across sites tuples must come in the order of their times; sort the table"
            )
        content = [c for c in wire.column_names if c.startswith(CONTENT)]
        if source.rows is not None:
            # Rows of one time are numbered by their content, as everywhere.
            rows = rows[np.lexsort((content_hash(wire.select(content).take(pa.array(rows))), ts))]
        joins = np.zeros(wire.num_rows, bool)
        joins[kept] = True
        return wire.drop_columns([c for c in (PASS, *content) if c in wire.column_names]).take(pa.array(rows)), joins[
            rows
        ]

    def _check_intervals(self) -> None:
        first, last = self.streams.span_us
        if last >= first and (last - first) // self.sites.protocol.interval_us >= MOST_INTERVALS:
            raise OptionError(
                f"interval={self.sites.interval!r}: the streams span more than {MOST_INTERVALS:,} intervals; give a longer one"
            )


def _query(plan: Plan, sites: Sites) -> SiteQuery:
    """Every pair of a key class is an edge: equality is transitive."""
    if unknown := set(sites.of) - set(plan.aliases):
        raise UnknownNameError(f"sites: no alias {', '.join(sorted(unknown))} in FROM")
    if missing := [a for a in plan.aliases if a not in sites.of]:
        raise OptionError(f"sites: where does {missing[0]} arrive? give every alias a site")
    edges = []
    for number in range(len(plan.classes)):
        having = [i.alias for i in plan.inputs if number in i.keys]
        edges += [KeyPair((x, f"K{number}"), (y, f"K{number}")) for n, x in enumerate(having) for y in having[n + 1 :]]
    return SiteQuery(tuple(_stream(plan, i, sites.of[i.alias]) for i in plan.inputs), tuple(edges))


def _stream(plan: Plan, source: InputPlan, site: str) -> SiteStream:
    if source.rows is not None:
        return SiteStream(source.alias, site, window_rows=source.rows)
    retention_us = plan.join.windows.retention_us(source.alias)
    if retention_us >= UNBOUNDED:
        raise WindowError(
            f"alias {source.alias}: across sites every stream needs a window, or its site would keep all tuples; add one"
        )
    return SiteStream(source.alias, site, window_us=max(retention_us, 0))


def _samples(plan: Plan, tables: Mapping[str, tuple[pa.Table, np.ndarray]]) -> dict[str, Sample]:
    """Times, keys as dense numbers (NULL where a row may not join), and sizes as Arrow has them."""
    coded: dict[str, dict[str, np.ndarray]] = {a: {} for a in tables}
    for number, key in enumerate(plan.classes):
        having = [i for i in plan.inputs if number in i.keys]
        columns = [tables[i.alias][0].column(i.keys[number]).combine_chunks() for i in having]
        lengths = np.cumsum([0, *(len(c) for c in columns)])
        together = _dense(pa.concat_arrays([c.cast(columns[0].type) for c in columns]), key.kind)
        for n, i in enumerate(having):
            part = together[lengths[n] : lengths[n + 1]]
            coded[i.alias][f"K{number}"] = np.where(tables[i.alias][1], part, -1)
    out = {}
    for i in plan.inputs:
        table, _ = tables[i.alias]
        rows = max(table.num_rows, 1)
        sizes = {f"K{c}": table.column(name).nbytes / rows for c, name in i.keys.items()}
        out[i.alias] = Sample(integers(table.column(TIME).combine_chunks()), coded[i.alias], table.nbytes / rows, sizes)
    return out


def _dense(column: pa.Array, kind: Any) -> np.ndarray:
    """Numbers from 0, equal where values are; NULL is -1."""
    out = np.full(len(column), -1, np.int64)
    valid = np.asarray(column.is_valid().to_numpy(zero_copy_only=False), bool)
    known = column.drop_null()
    if kind == "bytes":
        out[valid] = np.asarray(known.dictionary_encode().indices.to_numpy(), np.int64)
    else:
        out[valid] = np.unique(codes(known, kind), return_inverse=True)[1]
    return out


def _line(link: Link) -> LineCost:
    bandwidth = float("inf") if link.bytes_per_s is None else link.bytes_per_s
    return LineCost((link.latency_us + link.jitter_us / 2) / 1e6, bandwidth)


def _json(counts: Counts) -> dict[str, Any]:
    pairs = {f"{s} > {r}": list(n) for (s, r), n in counts.pairs.items()}
    names = ("shipments", "rows", "bytes", "heartbeats", "intervals", "delta_us", "latest_us")
    return {"pairs": pairs, **{name: getattr(counts, name) for name in names}}
