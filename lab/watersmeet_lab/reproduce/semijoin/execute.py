"""Plans of the paper, run by the engine of sites over simulated lines: what they ship in every interval, counted as the paper counts.

    letter    rows 0 0    40 rows of a    ->  a shipment of 40 * 1,250 bytes
              ask  0 1    12 keys         ->  a shipment of 12 * 5 bytes

A *shipment* is what one one-way join sends the other site in an interval: an item of a letter. A row counts with the sizes that the paper's generator gives its tuples, a key with those
of the join attribute. A filter counts with its own bytes. Frontiers ride along and are no shipments: the paper's sites go by a bound on delays instead.

A *sequence* is run by itself: the query is told that its head is the youngest tuple, so no other head has a way, and nothing is shared. A *plan* is run as a whole: there sites share copies.

What cannot be had from the engine: v_C, the counts of values that algorithms 5 and 6 send in every interval (values end at a time here), and an answer of SM-S1 that is empty (a frontier says so).

Invariant: all that is counted was shipped by the engine, and the results of every run are those of DuckDB.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from time import process_time
from typing import Any, NamedTuple

import pyarrow as pa

from watersmeet.plan.model import Plan
from watersmeet.plan.options import Options
from watersmeet.query.sites import Sites
from watersmeet.query.stream import StreamSpec
from watersmeet.runtime.local import LocalRun
from watersmeet.sites.letter import Letter
from watersmeet.sites.planning.cost import Cost, Setting
from watersmeet.sites.planning.model import LinearPlan, SiteQuery
from watersmeet.sites.planning.trees import TreePlan
from watersmeet.sites.tree_paths import paths_of
from watersmeet.sql.parse import parse
from watersmeet_lab.reproduce.semijoin.answer import Answer, answer_of
from watersmeet_lab.simulate.network import Network
from watersmeet_lab.simulate.sites.lines import OverLines, SimulatedSites
from watersmeet_lab.simulate.sites.samples import Streams

Carrier = Callable[[Plan, Network, int], OverLines]


class Shipment(NamedTuple):
    """An item of a letter."""

    interval: int
    sender: str
    receiver: str
    kind: str
    rows: int
    nbytes: float


@dataclass
class Execution:
    """One run: what was shipped when, the seconds that batches took, and the results."""

    query: SiteQuery
    plan: LinearPlan | TreePlan
    interval_us: int
    shipments: list[Shipment] = field(default_factory=list)
    processing_s: dict[int, float] = field(default_factory=dict)
    """By interval, of all sites together."""
    results: list[pa.Table] = field(default_factory=list)
    counts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def answer(self) -> Answer:
        return answer_of(self.results)

    def cost(self, span: range, wanted: Callable[[Shipment], bool] = lambda shipment: True) -> Cost:
        """Per second of some intervals, of some of the shipments; `back` is what a stream's home sends of it."""
        seconds = len(span) * self.interval_us / 1e6
        found = [s for s in self.shipments if s.interval in span and wanted(s)]
        back = [s for s in found if _is_back(s.kind)]
        out = [s for s in found if not _is_back(s.kind)]
        processing_s = sum(self.processing_s.get(n, 0.0) for n in span)
        sums = (len(out), sum(s.nbytes for s in out), len(back), sum(s.nbytes for s in back), processing_s)
        return Cost(*(n / seconds for n in sums))

    def seconds(self, span: range, setting: Setting) -> float:
        """Latency * shipments + bytes / bandwidth, per second of some intervals."""
        total = 0.0
        for s in (s for s in self.shipments if s.interval in span):
            line = setting.line(s.sender, s.receiver)
            total += line.latency_s + s.nbytes / line.bytes_per_s
        return total / (len(span) * self.interval_us / 1e6)


def execute(
    streams: Streams,
    plan: LinearPlan | TreePlan,
    network: Network,
    *,
    head: str | None = None,
    carrier: Carrier = OverLines,
) -> Execution:
    """Run a plan, or the sequence of one head."""
    run = _prepare(streams, head)
    placed = run.plan.sites
    assert placed is not None
    fixed = replace(run.plan, sites=replace(placed, plan=plan, search=None))
    out = Execution(streams.query, plan, network.interval_us)
    sizes = _Sizes(fixed, streams)

    def carry(plan: Plan, network: Network, units: int) -> OverLines:
        made = carrier(plan, network, units)
        _listen(made, out, sizes)
        return made

    out.results, out.counts = SimulatedSites(fixed, run.wires, network, carry).run()
    return out


def _listen(across: OverLines, out: Execution, sizes: _Sizes) -> None:
    """Note what is carried, and the time that batches take."""
    carry, push = across.carry, across.push

    def find_interval() -> int:
        return across.simulation.now_us // out.interval_us - 1

    def note(letter: Letter, size: int, *, matters: bool) -> None:
        for item in letter.items:
            kind = item.kind.partition("/")[2]
            nbytes = sizes.of(kind) * item.rows if " filter " not in f"{kind} " else float(len(item.body))
            out.shipments.append(Shipment(find_interval(), letter.sender, letter.to, kind, item.rows, nbytes))
        carry(letter, size, matters=matters)

    def time_batches(wires: Mapping[str, pa.Table], **how: Any) -> list[pa.Table]:
        began, interval = process_time(), find_interval()
        found = push(wires, **how)
        out.processing_s[interval] = out.processing_s.get(interval, 0.0) + process_time() - began
        return found

    across.carry, across.push = note, time_batches  # type: ignore[method-assign,assignment]


class _Sizes:
    """What a row of an item counts with."""

    def __init__(self, plan: Plan, streams: Streams) -> None:
        self.paths, self.samples = paths_of(plan), streams.samples
        self.key_bytes = round(max(b for s in streams.samples.values() for b in s.partial_bytes.values()))

    def of(self, kind: str) -> float:
        verb, *numbers = kind.split()
        if verb == "rows":
            return self._row_bytes(self.paths.legs[int(numbers[0])][int(numbers[1])].flow.aliases)
        if kind.endswith(" copy"):
            return self._row_bytes(self.paths.sides[int(verb[1:])].aliases)
        return self.key_bytes

    def _row_bytes(self, aliases: Iterable[str]) -> float:
        return round(sum(self.samples[a].full_bytes for a in aliases))


def _is_back(kind: str) -> bool:
    return kind.startswith(("@", "want "))


def _prepare(streams: Streams, head: str | None) -> LocalRun:
    """The query and its tables as wire rows, under any plan."""
    query = streams.query
    columns = {
        a: dict.fromkeys(["id", *streams.samples[a].codes], "bigint") | {"ts": "timestamp"} for a in query.aliases
    }
    specs = {a: StreamSpec(a, columns[a], "ts", 0) for a in query.aliases}
    options = Options(units=1, sites=Sites({s.alias: s.site for s in query.streams}))
    return LocalRun(parse(write_query(query, head), specs), {a: s.table for a, s in streams.samples.items()}, options)


def write_query(query: SiteQuery, head: str | None = None) -> str:
    """As SQL; with a head, of the results whose youngest tuple is the head's.

    >>> write_query(SiteQuery.of({"a": "A", "b": "B"}, ["a.k = b.k"], window_us=5000), "a")
    'SELECT a.id AS a, b.id AS b FROM a a [RANGE 5000 MICROSECONDS], b b [RANGE 5000 MICROSECONDS] WHERE a.k = b.k AND b.ts < a.ts'
    """
    streams = ", ".join(f"{s.alias} {s.alias} [RANGE {s.window_us} MICROSECONDS]" for s in query.streams)
    where = [str(edge) for edge in query.edges]
    for other in (a for a in query.aliases if head is not None and a != head):
        where.append(f"{other}.ts {'<=' if query.position[other] < query.position[str(head)] else '<'} {head}.ts")
    columns = ", ".join(f"{a}.id AS {a}" for a in query.aliases)
    return f"SELECT {columns} FROM {streams} WHERE {' AND '.join(where)}"
