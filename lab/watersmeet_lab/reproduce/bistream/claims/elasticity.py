"""Sections 5 and 6.4, figure 12, equation 7: units come and go as the input rate changes.

Q7 over a 5-minute window with JB8 at first. Once a minute the resource manager (`routing.scaling.decide`) looks at the units'
bytes, with the paper's thresholds; what it decides holds from the next batch on. Nothing is migrated: removed units are
probed until what they hold has expired (`routing.epochs`).

Section 6.4 does not give the rates of its figure. So curves are drawn by chance: phases of 11 to 15 minutes, each at a rate between 0.4 and 1.7 of the first, in which the window fills again, and bursts of a minute and a half
at three times the rate, once in every other phase. What the paper says of figure 12 is held against all of them.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

import numpy as np
import pyarrow as pa

from watersmeet.query.scaling import Scaling
from watersmeet.routing.biclique import Biclique
from watersmeet.routing.epochs import Epochs
from watersmeet.routing.scaling import ScalingMemory, decide
from watersmeet_lab.reproduce.bistream.answer import verify
from watersmeet_lab.reproduce.bistream.cluster import Cluster, Outcome
from watersmeet_lab.reproduce.bistream.equations import units_to_add
from watersmeet_lab.reproduce.bistream.lab import Lab
from watersmeet_lab.reproduce.bistream.models import Model
from watersmeet_lab.reproduce.bistream.queries import START_US, Feed
from watersmeet_lab.reproduce.plot import Plot
from watersmeet_lab.reproduce.report import Claim, verdict

MINUTES = 50
WINDOW_S = 300
PER_MINUTE = 4
"""Batches a minute."""
BASE_LOAD = 0.6
"""Of the first units, in the steady state at a relative rate of 1."""
LEAST, MOST, TARGET = 0.3, 0.8, 0.6
"""The paper's thresholds, and the load that is aimed at."""
BURST_MINUTES = 1.5
FILLED = 0.7
"""A new unit holds its share of the rows if it holds so much of the mean."""

Curve = tuple[tuple[float, float], ...]
"""(minute, relative input rate), straight in between."""


@dataclass
class Minute:
    """What the resource manager saw and did at the end of a minute."""

    rate: float
    units: int
    loads: tuple[float, float]
    """Of each side, over its capacity."""
    requests: int
    said: tuple[str, ...]
    rows: dict[int, int]
    """By unit of the present routing what it holds, and of those that were removed."""
    present: tuple[int, ...]
    """The units of the present routing."""


@dataclass
class ElasticOutcome:
    """A run with scaling."""

    outcome: Outcome
    minutes: list[Minute] = field(default_factory=list)


class ElasticCluster(Cluster):
    """A biclique whose routing may change after every minute."""

    def __init__(self, feed: Feed, model: Model, scaling: Scaling) -> None:
        super().__init__(feed, model)
        planned = self.plan.stages[0].routing
        assert isinstance(planned, Biclique)
        self.epochs, self.scaling, self.memory = Epochs((planned,)), scaling, ScalingMemory()

    def run_elastic(self, batches: int, per_check: int) -> ElasticOutcome:
        """The whole feed; the manager looks after every `per_check` batches."""
        found = ElasticOutcome(Outcome(self.feed, self.model))
        volume = 0
        for number, slices in enumerate(self.slices(batches)):
            batch, tables = self.step(slices, self.epochs)
            found.outcome.batches.append(batch)
            found.outcome.tables.extend((number, unit, self._pick_columns(t)) for unit, t in tables)
            if (number + 1) % per_check == 0:
                found.minutes.append(self._check(batch.volume - volume))
                volume = batch.volume
        return found

    def _check(self, arrived: int) -> Minute:
        loads = {u: m.bytes() for u, m in enumerate(self.manifests)}
        sides = self.epochs.current.members
        capacity = self.scaling.unit_bytes
        assert isinstance(capacity, int)
        shares = tuple(sum(loads[u] for u in units) / (len(units) * capacity) for units in sides)
        decision = decide(self.scaling, self.epochs.current, loads, self.memory)
        requests = sum(times for _, times in self.memory.asked.values())
        self.change(decision.routing)
        rows = {u: sum(m.rows().values()) for u, m in enumerate(self.manifests)}
        present = tuple(u for units in sides for u in units)
        return Minute(arrived / 60, len(present), (shares[0], shares[1]), requests, decision.changes, rows, present)

    def change(self, routing: Biclique) -> None:
        """Route by another biclique from the next batch on; units that it names and that are not there yet begin empty."""
        empty = {u for u, m in enumerate(self.manifests) if not any(m.rows().values())}
        self.epochs = self.epochs.then(routing).prune(empty)
        self.grow(max(self.epochs.units) + 1)


def check_elasticity(lab: Lab) -> list[Claim]:
    """Figure 12 and equation 7."""
    runs = []
    for seed in range(1, 1 + lab.size.curves):
        curve, bursts = draw_curve(seed)
        feed, found = run(lab, curve)
        verify(found.outcome, lab.ask_duckdb(feed))
        runs.append(Elastic(curve, bursts, found))
    return [claim_load(runs), claim_bursts(runs), claim_without_migration(runs)]


@dataclass
class Elastic:
    """A run over one curve."""

    curve: Curve
    bursts: list[tuple[float, float]]
    """From minute to minute."""
    found: ElasticOutcome

    @property
    def changes(self) -> dict[int, int]:
        """By minute how many units came or went."""
        units = [m.units for m in self.found.minutes]
        return {n + 1: b - a for n, (a, b) in enumerate(pairwise(units)) if a != b}

    @property
    def settled(self) -> list[float]:
        """Loads at the ends of phases: the window has been full of the phase's rate for some minutes."""
        ends = [b[0] for a, b in pairwise(self.curve) if a[1] == b[1] and b[0] - a[0] > WINDOW_S / 60 + 3]
        return [float(np.mean(self.found.minutes[round(end) - 1].loads)) for end in ends]


def draw_curve(seed: int) -> tuple[Curve, list[tuple[float, float]]]:
    """Phases of chance rates, and bursts.

    >>> curve, bursts = draw_curve(1)
    >>> curve[0], curve[-1][0], len(bursts) > 0
    ((0.0, 1.0), 50.0, True)
    """
    draw = np.random.default_rng(seed)
    points, bursts, minute, rate = list[tuple[float, float]](), list[tuple[float, float]](), 0.0, 1.0
    while minute < MINUTES:
        end = min(float(MINUTES), minute + float(draw.integers(11, 16)))
        points += [(minute, rate)]
        if len(bursts) * 2 < len(points) - 1 and end - minute > 4:
            begin = minute + 2.0
            points += [
                (begin, rate),
                (begin + 0.01, 3 * rate),
                (begin + BURST_MINUTES, 3 * rate),
                (begin + BURST_MINUTES + 0.01, rate),
            ]
            bursts.append((begin, begin + BURST_MINUTES))
        points += [(end, rate)]
        minute, rate = end + 0.01, float(draw.uniform(0.4, 1.7))
    return tuple(points), bursts


def run(lab: Lab, curve: Curve) -> tuple[Feed, ElasticOutcome]:
    """A run of figure 12."""
    lab.say("Q7, JB8 with scaling, 50 minutes")
    feed = follow_curve(lab.feed("Q7"), curve, MINUTES * 60, WINDOW_S)
    model = Model.of("JB8")
    sizes = Cluster(feed, model).tuple_bytes
    mean = np.trapezoid([r for _, r in curve], [m for m, _ in curve]) / MINUTES
    side = max(t.num_rows * b for t, b in zip(feed.tables, sizes, strict=True)) / (MINUTES * 60) / mean * WINDOW_S
    scaling = Scaling(int(side / (model.units / 2) / BASE_LOAD), hot_keys=False)
    return feed, ElasticCluster(feed, model, scaling).run_elastic(MINUTES * PER_MINUTE, PER_MINUTE)


def follow_curve(feed: Feed, curve: Curve, seconds: float, window_s: int) -> Feed:
    """A feed whose rate follows a curve."""
    minutes = np.linspace(0, seconds / 60, 10_001)
    rates = np.interp(minutes, [m for m, _ in curve], [r for _, r in curve])
    arrived = np.concatenate([[0], np.cumsum((rates[1:] + rates[:-1]) / 2)])
    tables = []
    for table in feed.tables:
        share = np.arange(table.num_rows) / table.num_rows * arrived[-1]
        at = START_US + (np.interp(share, arrived, minutes) * 60e6).astype(np.int64)
        tables.append(table.drop_columns(["ts"]).append_column("ts", pa.array(at, pa.timestamp("us", tz="UTC"))))
    return Feed(feed.query, (tables[0], tables[1]), feed.rows / seconds, window_s)


def claim_load(runs: list[Elastic]) -> Claim:
    """Units follow the load."""
    settled = [load for r in runs for load in r.settled]
    changes = [c for r in runs for c in r.changes.values()]
    first = runs[0].found.minutes
    minutes, top = list(range(1, len(first) + 1)), max(m.rate for m in first)
    series = {
        "units": (minutes, [m.units for m in first]),
        "load of a unit x 10": (minutes, [10 * float(np.mean(m.loads)) for m in first]),
        "input rate (scaled)": (minutes, [8 * m.rate / top for m in first]),
    }
    within = [LEAST <= load <= MOST for load in settled]
    return Claim(
        "Units are added and released with the load, which stays between the thresholds",
        "5 and 6.4, figure 12, equation 7",
        "JB8, thresholds 0.8 and 0.3, target 0.6, 3 confirmations: 4 units added, then 6 removed",
        f"{len(runs)} curves drawn by chance: {sum(c > 0 for c in changes)} times units were added, {sum(c < 0 for c in changes)} times removed; loads at the ends of"
        f" {len(settled)} steady phases: {', '.join(f'{load:.2f}' for load in settled)}, {sum(within)} of them between the thresholds;"
        f" equation 7: load 0.9 on 8 units {units_to_add([0.9] * 8, 1, TARGET):+.0f}, 0.3 on 12 units {units_to_add([0.3] * 12, 1, TARGET):+.0f}",
        verdict([any(c > 0 for c in changes), any(c < 0 for c in changes)], main=bool(within) and all(within)),
        raw={"changes": [r.changes for r in runs], "settled": settled, "curves": [r.curve for r in runs]},
        plots=(Plot("figure-12-elasticity", "Figure 12: Q7, 5-minute window, scaling", "minutes", "", series, marks=False),),
    )  # fmt: skip


def claim_bursts(runs: list[Elastic]) -> Claim:
    """A burst that is shorter than the confirmations changes nothing."""
    seen = [(r, burst) for r in runs for burst in r.bursts]
    changed = [n for r, (begin, end) in seen for n in r.changes if begin <= n <= end + 1]
    asked = sum(m.requests > 0 for r, (begin, end) in seen for m in r.found.minutes[int(begin) : int(end) + 2])
    return Claim(
        "A short burst changes nothing",
        "5 and 6.4, figure 12",
        "no unit is added or removed in minutes 22 to 31, though the load passes the thresholds",
        f"{len(seen)} bursts of {BURST_MINUTES} minutes at three times the rate: {len(changed)} changes of units until a minute after them; {asked} minutes with a request",
        verdict([asked > 0], main=not changed),
        raw={"changed": changed, "asked": asked},
    )


def claim_without_migration(runs: list[Elastic]) -> Claim:
    """What makes migration superfluous: within a window new units are full and removed ones empty."""
    filled, emptied = list[float](), list[bool]()
    wait = WINDOW_S // 60 + 1
    for r in runs:
        minutes = r.found.minutes
        for n, (before, after) in enumerate(pairwise(minutes)):
            if n + 1 + wait >= len(minutes):
                continue
            later = minutes[n + 1 + wait]
            new, gone = set(after.present) - set(before.present), set(before.present) - set(after.present)
            mean = np.mean([later.rows[u] for u in later.present])
            filled += [later.rows[u] / float(mean) for u in new if u in later.present]
            emptied += [later.rows[u] == 0 for u in gone if u not in later.present]
    return Claim(
        "A window join is scaled without migration: new units fill, removed ones empty, within a window",
        "5, 6.4, figure 12",
        "data migration is avoided: expired tuples go, new ones are balanced",
        f"{wait} minutes after a change, window of {WINDOW_S // 60}: {len(filled)} new units hold {min(filled, default=0):.2f} to {max(filled, default=0):.2f} of the mean,"
        f" {sum(emptied)} of {len(emptied)} removed ones hold nothing. (No code moves rows between units, so that none is moved is not counted.)",
        verdict([bool(filled), bool(emptied)], main=all(f >= FILLED for f in filled) and all(emptied)),
        raw={"filled": filled, "emptied": emptied},
    )
