"""What a running query is doing, read from Spark's own progress events.

The units' reports travel with the results as observed metrics, so they stand in every `StreamingQueryProgress` under
`observedMetrics` and belong to exactly one micro-batch.

Invariant: figures are of one micro-batch, except state (after it) and watermarks (after it).
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any, NamedTuple

from watersmeet.dataflow.clock import NEVER
from watersmeet.dataflow.contract import stage_of
from watersmeet.dataflow.report import count_orders
from watersmeet.query.duration import show_bytes
from watersmeet.storage.document import FORMAT, Document
from watersmeet.view.notebook import show_lines

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_EARLIEST, _LATEST = (
    (d - _EPOCH) // timedelta(microseconds=1)
    for d in (datetime.min.replace(tzinfo=UTC), datetime.max.replace(tzinfo=UTC))
)
_CYCLE_US = 146_097 * 86_400_000_000
"""400 years, after which the calendar repeats itself."""
Moment = datetime | int | None
"""An event time: microseconds since 1970 where Python has no datetime for it, before the year 1 and from 10000 on."""
SKEWED, ENOUGH_ROWS = 1.5, 1000
"""A stage is uneven if its busiest unit has so many times the mean of rows, and the units together so many."""
OBSERVED = "watersmeet"
"""Prefix of the observed metrics' name."""


class QueryFigures(NamedTuple):
    """What a registered query did and took."""

    id: str
    cost_share: float
    """Its part of the CPU time that answering took: of the batch in `Progress.dearest`, since the job started in `list()`; at least so much."""
    answers: int
    """Since the job started."""
    batch_answers: int | None
    """In the batch; None in `list()`."""
    last_answer: Moment
    """The event time of its youngest answer; None without one since the job started."""
    lag_us: int | None
    """How far the slowest of its streams is behind the furthest stream, by watermarks; None while one has not been seen."""
    state_rows: int
    """Stored rows that its windows still reach, counted by segments; other queries may share them."""


@dataclass(frozen=True, repr=False)
class Progress:
    """One micro-batch of a watersmeet query; shown in short, all figures are its fields.

    >>> Progress(7, 0.5, 1000, 321, {"s": 2}, {"s": None}, {"a": 1500}, 48_200, {})
    batch 7: 1,000 rows in 0.50 s, 2,000 rows/s, 321 results, 2 late (s 2)
    watermarks s -
    state      1,500 rows (a 1,500), 48.2 kB
    """

    batch_id: int
    seconds: float
    input_rows: int
    results: int
    late: dict[str, int]
    """Late rows dropped in this batch, by stream."""
    watermarks: dict[str, Moment]
    """By stream; None while it has not been seen."""
    state_rows: dict[str, int]
    """Retained rows by alias, copies included."""
    state_bytes: int
    unit_rows: dict[int, int]
    """Rows that each unit received."""
    rounds: int = 1
    """Supersteps of the batch."""
    mail_bytes: int = 0
    """What was sent to units: tuples, where source tasks post them, and what units sent each other."""
    fetched_bytes: int = 0
    """State that hosts had to fetch because other hosts have written it, or none of them lives: 0 as long as hosts stay the same."""
    kernels: dict[str, int] = field(default_factory=dict)
    """New tuples that units gave to each kernel, copies included."""
    pruned: int = 0
    """New tuples that units dropped before a probe: they had no window partner in some stream."""

    drivers: dict[str, int] = field(default_factory=dict)
    """In which order drivers ran ('b, a, c'; 'a | b | c' if tuple by tuple), and at how many units."""

    scaled: tuple[str, ...] = ()
    """What will change from the next batch on, routing or shipping, in words."""
    shipping: str = ""
    """How tuples were sent, in words; between sites, the plan of the batch."""
    shipped: dict[tuple[str, str], tuple[int, int, int]] = field(default_factory=dict)
    """Shipments, rows and bytes by (sending site, receiving site)."""
    expected: dict[tuple[str, str], float] = field(default_factory=dict)
    """Bytes that the plan was expected to ship in the batch, by (sending site, receiving site); none before a plan was chosen by measurements."""
    queries: int = 0
    """Registered queries that the batch answered; 0 for a query by itself."""
    units: int = 0
    """Units that shared them in the batch; 0 for a query by itself."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """What the feed of a registry was refused lately: reasons by id."""
    failed: Mapping[str, str] = field(default_factory=dict)
    """Registered queries that have broken a batch lately and are not answered any more: reasons by id."""
    suspended: Mapping[str, str] = field(default_factory=dict)
    """Registered queries that took more than their quota lately and are not answered any more: reasons by id."""
    dearest: tuple[QueryFigures, ...] = ()
    """The registered queries that took the most CPU time in the batch, ten at most, the dearest first."""
    rewritten: int = 0
    """Rewritten queries that wait after the batch, under RJoin."""
    phases: dict[str, float] = field(default_factory=dict)
    """Seconds of the batch by what they went to; under `dataframe()` as Spark names them."""
    fanout: dict[str, float] = field(default_factory=dict)
    """Partners that a tuple has found lately, by 'from>to' of aliases; under `start()` only."""
    oldest: dict[str, Moment] = field(default_factory=dict)
    """Event time of the oldest stored tuple, by alias; under `start()` only."""
    late_sample: tuple[Mapping[str, Any], ...] = ()
    """A few of the rows that were dropped, with the columns of `Query.late`, instants in microseconds; under `start(late=...)` only."""
    set_aside: dict[str, int] = field(default_factory=dict)
    """Rows of this batch that break an expression, by stream, and combinations of them, by streams, under `on_error="set aside"`."""
    unit_seconds: dict[int, float] = field(default_factory=dict)
    """CPU seconds of each unit; under `start()` only."""
    advice: tuple[str, ...] = ()
    """What to set so that the units are busy alike, where they are not; under `dataframe()` only: `start()` sees to it itself."""

    @property
    def skew(self) -> float:
        """The rows of the busiest unit over the mean, in the stage where that is most; 1.0 if all are alike.

        >>> Progress(7, 0.5, 1000, 0, {}, {}, {}, 0, {0: 700, 1: 100, 2: 100, 3: 100}).skew
        2.8
        """
        return max((most for _, most in _find_skew(self.unit_rows)), default=1.0)

    @property
    def rows_per_second(self) -> float:
        return self.input_rows / self.seconds if self.seconds else 0.0

    def __repr__(self) -> str:
        (_, first), *rest = self.lines()
        return "\n".join([first, *(f"{title:<11}{text}" for title, text in rest)])

    def _repr_html_(self) -> str:
        return show_lines("Progress", self.lines())

    def lines(self) -> Iterator[tuple[str, str]]:
        """What is shown of it, in titled lines."""
        late = sum(self.late.values())
        dropped = f", {late:,} late ({list_counts(self.late)})" if late else ""
        broken = sum(self.set_aside.values())
        dropped += f", {broken:,} set aside ({list_counts(self.set_aside)})" if broken else ""
        marks = ", ".join(f"{s} {show_moment(m)}" for s, m in self.watermarks.items())
        held = (
            f"{sum(self.state_rows.values()):,} rows ({list_counts(self.state_rows)}), {show_bytes(self.state_bytes)}"
        )
        rates = f"{self.input_rows:,} rows in {self.seconds:.2f} s, {self.rows_per_second:,.0f} rows/s"
        yield "", f"batch {self.batch_id}: {rates}, {self.results:,} results{dropped}"
        yield "watermarks", marks
        yield "state", held
        if self.units:
            yield "queries", f"{self.queries:,} over {self.units:,} unit{'s' if self.units > 1 else ''}"
        yield from (("next", change) for change in self.scaled)
        yield from (("skew", text) for text in self.advice)
        if self.dearest:
            yield "dearest", ", ".join(f"{q.id} {q.cost_share:.0%}" for q in self.dearest)


@dataclass(frozen=True)
class Figures(Document):
    """A micro-batch of `start()` as JSON has it: the fields of its Progress, event times in microseconds, shipments as rows."""

    figures: dict[str, Any]

    def to_json(self) -> str:
        """As text; numbers of NumPy's among what was counted become Python's.

        >>> import numpy as np
        >>> Figures({"results": np.int64(3)}).to_json().endswith('{"results": 3}}')
        True
        """
        return json.dumps({"format": FORMAT, "figures": self.figures}, default=lambda number: number.item())

    def progress(self) -> Progress:
        """The same for users.

        >>> told = dict(batch_id=7, seconds=0.5, input_rows=1000, results=321, late={}, state_rows={"a": 1}, state_bytes=8)
        >>> told |= {"watermarks": {"s": 0}, "unit_rows": {"3": 9}, "scaled": [], "shipped": [["x", "y", 1, 2, 3]]}
        >>> shown = Figures(told).progress()
        >>> shown.watermarks["s"].year, shown.unit_rows, shown.shipped
        (1970, {3: 9}, {('x', 'y'): (1, 2, 3)})
        """
        own = dict(self.figures)
        own["watermarks"] = {s: moment(m) for s, m in own["watermarks"].items()}
        own["oldest"] = {alias: moment(ts) for alias, ts in own.get("oldest", {}).items()}
        for name in ("unit_rows", "unit_seconds"):
            own[name] = {int(unit): number for unit, number in own.get(name, {}).items()}
        for name in ("scaled", "advice", "late_sample"):
            own[name] = tuple(own.get(name, ()))
        rows = (QueryFigures(*row) for row in own.get("dearest", ()))
        own["dearest"] = tuple(q._replace(last_answer=_read_moment(q.last_answer)) for q in rows)
        own["shipped"] = {(a, b): tuple(sums) for a, b, *sums in own.get("shipped", ())}
        own["expected"] = {(a, b): size for a, b, size in own.get("expected", ())}
        return Progress(**own)


def read(progress: Any) -> Progress | None:
    """A progress event's watersmeet figures: a StreamingQueryProgress, its JSON, or the dict of it; None if it has none.

    >>> report = {"unit": 0, "rows_in": {"a": 3}, "late": {"s": 1}, "results": 2, "watermarks": {"s": 5}, "retained": {"a": 3}, "bytes": 9}
    >>> event = {"batchId": 7, "numInputRows": 4, "durationMs": {"triggerExecution": 500}, "observedMetrics": {"watersmeet-x": {"units": [json.dumps(report)]}}}
    >>> p = read(event)
    >>> p.results, p.late, p.rows_per_second, p.unit_rows, p.skew
    (2, {'s': 1}, 8.0, {0: 3}, 1.0)
    """
    event = _as_dict(progress)
    reports = [json.loads(text) for text in _unit_texts(event)]
    if not reports:
        return None
    unit_rows = {r["unit"]: sum(r["rows_in"].values()) for r in sorted(reports, key=lambda r: r["unit"])}
    marks = {s: min(r["watermarks"].get(s, NEVER) for r in reports) for s in reports[0]["watermarks"]}
    return Progress(
        batch_id=event["batchId"],
        seconds=event["durationMs"].get("triggerExecution", 0) / 1000,
        input_rows=event["numInputRows"],
        results=sum(r["results"] for r in reports),
        late=_total(reports, "late"),
        set_aside=_total(reports, "broken"),
        watermarks={s: moment(m) for s, m in marks.items()},
        state_rows=_total(reports, "retained"),
        state_bytes=sum(r["bytes"] for r in reports),
        unit_rows=unit_rows,
        kernels=_total(reports, "kernels"),
        pruned=sum(r.get("pruned", 0) for r in reports),
        drivers=count_orders(r.get("drivers", ()) for r in reports),
        phases={name: ms / 1000 for name, ms in event["durationMs"].items() if name != "triggerExecution"},
        advice=tuple(_advise(reports, unit_rows)),
    )


def _find_skew(unit_rows: Mapping[int, int]) -> Iterator[tuple[int, float]]:
    """By stage the rows of the busiest unit over the mean."""
    by_stage: dict[int, list[int]] = {}
    for unit, rows in unit_rows.items():
        by_stage.setdefault(stage_of(unit), []).append(rows)
    for stage, rows_of_each in by_stage.items():
        if sum(rows_of_each):
            yield stage, max(rows_of_each) * len(rows_of_each) / sum(rows_of_each)


def _advise(reports: list[dict[str, Any]], unit_rows: Mapping[int, int]) -> Iterator[str]:
    """What is uneven, and the option to set: under `dataframe()` a checkpoint fixes where rows go."""
    for stage, skew in _find_skew(unit_rows):
        mine = [r for r in reports if stage_of(r["unit"]) == stage]
        if skew < SKEWED or sum(unit_rows[r["unit"]] for r in mine) < ENOUGH_ROWS:
            continue
        yield f"the busiest of {len(mine)} units got {skew:.1f} times the mean{_name_hottest(mine)}"
        sides = {side for r in mine for side in r["rows_in"]}
        by_hand = "; or routing='contrand' with a new checkpoint" if len(sides) == 2 else ""
        yield f"a checkpoint of dataframe() fixes where rows go: use start(), which spreads hot keys{by_hand}"


def _name_hottest(reports: list[dict[str, Any]]) -> str:
    """The share that the most frequent key has of a side's rows, if one is known."""
    shares = []
    for side in sorted({side for r in reports for side in r["rows_in"]}):
        rows = sum(r["rows_in"].get(side, 0) for r in reports)
        keys: dict[int, int] = {}
        for key, number in (k for r in reports for k in r.get("frequent", {}).get(side, {}).get("0", ())):
            keys[key] = keys.get(key, 0) + number
        shares += [(number / rows, side) for number in keys.values() if rows]
    share, side = max(shares, default=(0.0, ""))
    return f": one key has {share:.0%} of the rows of {side}" if share >= 1 / len(reports) else ""


def _read_moment(written: Any) -> Moment:
    return moment(written) if isinstance(written, int) else written


def write_moment(moment: Moment) -> int | None:
    """A moment in microseconds.

    >>> write_moment(moment(7)), write_moment(None)
    (7, None)
    """
    return (moment - _EPOCH) // timedelta(microseconds=1) if isinstance(moment, datetime) else moment


def write_figures(queries: Iterable[QueryFigures]) -> list[QueryFigures]:
    """The figures of registered queries, with moments in microseconds."""
    return [q._replace(last_answer=write_moment(q.last_answer)) for q in queries]


def moment(ts: int) -> Moment:
    """An event time in microseconds as a moment; None before all time.

    >>> moment(0), moment(2**60)
    (datetime.datetime(1970, 1, 1, 0, 0, tzinfo=datetime.timezone.utc), 1152921504606846976)
    """
    if ts <= NEVER:
        return None
    return _EPOCH + timedelta(microseconds=ts) if _EARLIEST <= ts <= _LATEST else ts


def show_moment(moment: Moment) -> str:
    """A moment to the second, in UTC, of any year; a dash before a stream's first row.

    >>> show_moment(moment(0)), show_moment(moment(2**60)), show_moment(moment(-(2**60))), show_moment(None)
    ('1970-01-01 00:00:00', '+38504-08-17 21:30:06', '-34565-05-17 02:29:53', '-')
    """
    if moment is None:
        return "-"
    cycles = 0
    if isinstance(moment, int):
        cycles, rest = divmod(moment, _CYCLE_US)
        moment = _EPOCH + timedelta(microseconds=rest)
    year = moment.year + 400 * cycles
    return f"{f'{year:04}' if 0 <= year <= 9999 else f'{year:+05}'}-{moment:%m-%d %H:%M:%S}"


def list_counts(counts: Mapping[str, int]) -> str:
    """Counts by name, in one line.

    >>> list_counts({"a": 1500, "b": 3})
    'a 1,500, b 3'
    """
    return ", ".join(f"{name} {count:,}" for name, count in counts.items())


def _as_dict(progress: Any) -> dict[str, Any]:
    if isinstance(progress, dict):
        return progress
    text = progress if isinstance(progress, str) else progress.json
    return json.loads(text() if callable(text) else text)


def _unit_texts(event: dict[str, Any]) -> list[str]:
    for name, row in (event.get("observedMetrics") or {}).items():
        if name.startswith(OBSERVED) and "units" in row:
            return list(row["units"])
    return []


def _total(reports: list[dict[str, Any]], name: str) -> dict[str, int]:
    names = dict.fromkeys(n for r in reports for n in r.get(name, {}))
    return {n: sum(r.get(name, {}).get(n, 0) for r in reports) for n in names}
