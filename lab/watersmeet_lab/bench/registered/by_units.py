"""The shared plan and RJoin over ever more units, in process: from how many units and queries on does RJoin win?

    shared   every unit gets and stores all tuples; probing is shared out
    rjoin    every unit stores the tuples whose values belong to it; rows travel, round by round

Units take their turns one after the other, each timed by its CPU time. A batch takes as long as the busiest unit of each of its rounds: that is what machines with a core for every
unit would need at least, if mail cost nothing and rounds began at once. RJoin has more rounds, so this favours it.

Invariant: both engines give the same answers, row by row, or nothing is shown. Where there are none, that is said: then it is tuples alone whose cost is shown.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import process_time
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from rich.box import SIMPLE
from rich.table import Table

import watersmeet as wm
from watersmeet.dataflow.clock import Clock
from watersmeet.dataflow.contract import Dataflow, Flows, FlowStage, Operator, Turn, Yielded
from watersmeet.errors import WatersmeetError
from watersmeet_lab.bench.registered.workload import RELATIONS, queries

ENGINES = ("shared", "rjoin")


@dataclass
class Taken:
    """What units took, in all batches that count."""

    seconds: float = 0.0
    """Of all units."""
    path_seconds: float = 0.0
    """Of the busiest unit of every round, added up."""
    rounds: int = 0
    received: Counter[int] = field(default_factory=Counter)
    """Bytes that each unit got: tuples that entered, and mail."""
    _round: dict[tuple[int, int], dict[int, float]] = field(default_factory=dict)

    def add(self, turn: Turn, seconds: float) -> None:
        self.seconds += seconds
        units = self._round.setdefault((turn.batch, turn.round), {})
        units[turn.unit] = units.get(turn.unit, 0.0) + seconds

    def close(self) -> None:
        self.rounds = len(self._round)
        self.path_seconds = sum(max(units.values()) for units in self._round.values())


@dataclass(frozen=True)
class TimedOperator:
    """An operator whose turns are timed."""

    inner: Operator
    taken: Taken

    def step(self, turn: Turn) -> Iterator[Yielded]:
        self.taken.received[turn.unit] += sum(t.nbytes for tables in turn.inbox.values() for t in tables)
        items, spent = self.inner.step(turn), 0.0
        while True:
            began = process_time()
            item = next(items, None)
            spent += process_time() - began
            if item is None:
                break
            yield item
        self.taken.add(turn, spent)

    def cuts(self, clock: Clock) -> Mapping[str, int]:
        return self.inner.cuts(clock)


class TimedFlows(Flows):
    """The dataflows of a registry, whose turns are timed."""

    def __init__(self, inner: Flows, taken: Taken) -> None:
        self.inner, self.taken, self.plan = inner, taken, inner.plan

    def assemble(self, decisions: Mapping[str, Any]) -> Dataflow:
        flow = self.inner.assemble(decisions)
        timed: tuple[FlowStage, ...] = tuple(
            replace(stage, operator=TimedOperator(stage.operator, self.taken)) for stage in flow.stages
        )
        return replace(flow, stages=timed)


@dataclass(frozen=True)
class UnitsOutcome:
    """One engine with so many units and queries."""

    engine: str
    units: int
    queries: int
    path_ms: float
    """CPU of the busiest unit, round by round, for a batch."""
    cpu_ms: float
    """CPU of all units for a batch."""
    rounds: float
    """Of a batch."""
    most_rows: int
    """Stored by the unit that stores most; rewritten queries among them."""
    all_rows: int
    most_bytes: float
    """That the unit which got most got in a batch."""
    answers: int
    rows: Counter[tuple[str, str]] = field(repr=False, default_factory=Counter)


def run_units(
    folder: Path, engine: str, units: int, texts: Sequence[str], batches: int, warm_up: int = 1
) -> UnitsOutcome:
    """A registry in process over the files of a workload; the first batches compile, and do not count."""
    tables = [{f"r{r}": pq.read_table(folder / f"r{r}" / f"{n:05d}.parquet") for r in range(RELATIONS)} for n in range(batches)]  # fmt: skip
    made = {name: wm.Stream(table.slice(0, 0), time="ts") for name, table in tables[0].items()}
    subs = wm.local.subscriptions(made, units=units, engine=engine)
    subs.add_all(list(texts))
    taken, rows = Taken(), Counter[tuple[str, str]]()
    inner = subs._flows
    for n, batch in enumerate(tables):
        subs._flows = TimedFlows(inner, taken) if n >= warm_up else inner
        rows.update(_count_rows(subs.push(batch)))
    taken.close()
    counted = batches - warm_up
    stored = [sum(report.retained.values()) for report in subs.reports]
    return UnitsOutcome(
        engine, units, len(texts), 1000 * taken.path_seconds / counted, 1000 * taken.seconds / counted, taken.rounds / counted,
        max(stored), sum(stored), max(taken.received.values()) / counted, sum(rows.values()), rows,
    )  # fmt: skip


def _count_rows(answers: pa.Table) -> Counter[tuple[str, str]]:
    return Counter(zip(answers["query"].to_pylist(), answers["answer"].to_pylist(), strict=True))


def compare(folder: Path, units: Sequence[int], sizes: Sequence[int], batches: int, window: int, seed: int) -> Iterator[UnitsOutcome]:  # fmt: skip
    """Both engines side by side; an error if their answers differ."""
    for size in sizes:
        texts = queries(size, window, seed)
        for many in units:
            shared, rjoin = (run_units(folder, engine, many, texts, batches) for engine in ENGINES)
            if shared.rows != rjoin.rows:
                raise WatersmeetError(f"{size} queries, {many} units: RJoin's answers are not those of the shared plan")
            yield from (replace(shared, rows=Counter()), replace(rjoin, rows=Counter()))


def show_units(found: Sequence[UnitsOutcome]) -> Table:
    table = Table(
        "queries", "units", "", "busiest unit, CPU ms", "all units, CPU ms", "rounds", "most rows stored", "rows stored", "most MB received",
        title=f"Registered queries by units, for a batch; {describe_answers(found)}",
        title_justify="left", box=SIMPLE, pad_edge=False, padding=(0, 1, 0, 0),
    )  # fmt: skip
    for column in table.columns[3:]:
        column.justify = "right"
    for o in found:
        table.add_row(
            f"{o.queries:,}", f"{o.units}", o.engine, f"{o.path_ms:,.0f}", f"{o.cpu_ms:,.0f}", f"{o.rounds:.1f}",
            f"{o.most_rows:,}", f"{o.all_rows:,}", f"{o.most_bytes / 1e6:.2f}",
        )  # fmt: skip
    return table


def describe_answers(found: Sequence[UnitsOutcome]) -> str:
    """What was compared, in words.

    >>> describe_answers([UnitsOutcome("shared", 8, 20, 50.0, 400.0, 1, 10, 80, 1.0, 0)])
    'of 20 queries none had an answer: that shows what tuples alone cost'
    """
    empty = [f"{size:,}" for size in dict.fromkeys(o.queries for o in found if not o.answers)]
    if empty:
        return f"of {', '.join(empty)} queries none had an answer: that shows what tuples alone cost"
    return "the answers of both engines were equal, row by row"


def find_winner(found: Sequence[UnitsOutcome]) -> str:
    """From how many units on RJoin's busiest unit takes less than the shared plan's, by number of queries, in words.

    >>> one = UnitsOutcome("shared", 8, 20, 50.0, 400.0, 1, 10, 80, 1.0, 7)
    >>> find_winner([one, replace(one, engine="rjoin", path_ms=90.0)])
    '20 queries: the shared plan wins up to 8 units'
    """
    said = []
    for size in dict.fromkeys(o.queries for o in found):
        by = {(o.engine, o.units): o.path_ms for o in found if o.queries == size}
        units = [u for engine, u in by if engine == "shared"]
        won = [u for u in units if by["rjoin", u] < by["shared", u]]
        first = next((u for u in units if all(v in won for v in units if v >= u)), None)
        said.append(f"{size:,} queries: " + (f"the shared plan wins up to {max(units)} units" if first is None else f"RJoin wins from {first} units on"))  # fmt: skip
    return "; ".join(said)
