"""The laboratory: every run is made once, verified, and shared by the claims that need it.

Invariant: of a run that came to its end the rows of every query are compared with DuckDB's; one that was stopped because it
stored too much has counted less than it would have. Looking at a run changes nothing of it: expired rows are counted until nodes drop them.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from watersmeet.kernels.registered.rewriting import KEY, TUPLE_KEY
from watersmeet_lab.reproduce.rjoin.answer import AnswerBag, Compared, Expected
from watersmeet_lab.reproduce.rjoin.workload import STREAMS, TICKS, WARM_UP, Workload
from watersmeet_lab.simulate.ring.circle import Ring
from watersmeet_lab.simulate.ring.id_movement import balance
from watersmeet_lab.simulate.ring.simulation import RingSimulation
from watersmeet_lab.simulate.ring.unit import ANSWERING, ASKING, INDEXING, QUERIES, Choice, Load, RingOptions

MOVE_EVERY = 100
"""Tuples between two rounds of id movement."""
MEETINGS = 2
"""Of every node, in a round of id movement."""


@dataclass(frozen=True)
class Size:
    """How large the experiments are."""

    nodes: int
    queries: int
    tuples: int
    choice_tuples: tuple[int, ...]
    """Figure 2."""
    many_tuples: tuple[int, ...]
    """Figure 3."""
    query_counts: tuple[int, ...]
    """Figure 4."""
    thetas: tuple[float, ...]
    joins: tuple[int, ...]
    windows: tuple[int, ...]
    most_rows: int
    """A run is stopped when it stores more."""


FULL = Size(
    1000, 20_000, 1000, (50, 100, 200, 400), (250, 500, 1000, 1500, 2000, 2500), (2000, 4000, 8000, 16_000, 32_000),
    (0.3, 0.5, 0.7, 0.9), (4, 6, 8), (50, 100, 200, 400, 800), 30_000_000,
)  # fmt: skip
QUICK = Size(
    200, 1500, 200, (25, 50, 100), (50, 100, 200, 400), (250, 500, 1000, 2000),
    (0.3, 0.5, 0.7, 0.9), (4, 6, 8), (25, 50, 100), 500_000,
)  # fmt: skip


@dataclass(frozen=True)
class Sample:
    """What had been counted after so many tuples; the warm-up is not in it."""

    tuples: int
    load: Load
    stored_rows: np.ndarray
    stored_tuples: np.ndarray
    groups: int
    answers: int

    @property
    def messages(self) -> int:
        return int(self.load.sent.sum())

    @property
    def asking(self) -> int:
        return int(self.load.sent[ASKING].sum())

    @property
    def queries(self) -> int:
        return int(self.load.sent[QUERIES].sum())

    @property
    def other(self) -> dict[str, int]:
        return {"tuples": int(self.load.sent[INDEXING].sum()), "answers": int(self.load.sent[ANSWERING].sum())}

    @property
    def processing(self) -> np.ndarray:
        """Query processing load by node."""
        return self.load.rows + self.load.tuples

    @property
    def storage(self) -> np.ndarray:
        """Storage load by node."""
        return self.stored_rows + self.stored_tuples


@dataclass
class Course:
    """A run: samples by number of tuples, and after every tuple the totals."""

    workload: Workload
    samples: dict[int, Sample] = field(default_factory=dict)
    processing: list[int] = field(default_factory=list)
    """Of all nodes, after every tuple, cumulative; so are rows."""
    rows: list[int] = field(default_factory=list)
    live: dict[int, int] = field(default_factory=dict)
    """Rewritten queries that are stored, expired ones that nobody has dropped yet among them, by number of tuples."""
    ended: bool = True
    reached: int = 0
    seconds: float = 0.0
    moved: int = 0

    @property
    def last(self) -> Sample:
        return self.samples[max(self.samples)]


@dataclass
class Lab:
    """Courses by workload, choice and whatever else differs."""

    size: Size
    say: Callable[[str], None] = lambda line: None
    compared: dict[str, Compared] = field(default_factory=dict)
    """Run to its rows against DuckDB's."""
    _courses: dict[tuple[object, ...], Course] = field(default_factory=dict)
    _expected: dict[Workload, Expected] = field(default_factory=dict)
    """Of the latest workload: runs of one follow each other."""

    @property
    def courses(self) -> list[Course]:
        return list(self._courses.values())

    def workload(self, **changes: object) -> Workload:
        return replace(Workload(self.size.queries, self.size.tuples), **changes)  # type: ignore[arg-type]

    def course(
        self, workload: Workload, at: tuple[int, ...], choice: Choice = "ric", levels: Literal["both", "value"] = "both",
        *, moving: bool = False, expires: bool = True,
    ) -> Course:  # fmt: skip
        """One run with samples after so many tuples each."""
        key = (workload, at, choice, levels, moving, expires)
        if key not in self._courses:
            self._courses[key] = self._run(*key)
        return self._courses[key]

    def _run(
        self, workload: Workload, at: tuple[int, ...], choice: Choice, levels: Literal["both", "value"], moving: bool, expires: bool,
    ) -> Course:  # fmt: skip
        name = f"{workload}, {choice}, {levels}{', moving' if moving else ''}{'' if expires else ', without expiry'}"
        self.say(name)
        course, begun = Course(workload), time.perf_counter()
        options = RingOptions(choice, delay=1, rate_period=WARM_UP * TICKS, rate_valid=WARM_UP * TICKS, levels=levels)
        run = RingSimulation(
            Ring.of(self.size.nodes), STREAMS, workload.templates, options, keep=False, expires=expires
        )
        bag = AnswerBag(run.registry)
        run.on_answers = bag.take
        run.publish(workload.data)
        base: list[Load] = []
        run.at(workload.begin, lambda: base.append(run.unit.load.copy()))
        run.pose(workload.templates, workload.begin)
        for n in range(1, workload.tuples + 1):
            run.at(workload.after(n), lambda n=n: self._look(run, course, base[0], n, n in at))  # type: ignore[misc]
            if moving and n % MOVE_EVERY == 0:
                run.at(workload.after(n), lambda n=n: _move(run, n))  # type: ignore[misc]
        course.ended = run.run(self.size.most_rows)
        course.reached, course.moved = run.published - WARM_UP, run.moved
        if not course.ended:
            self._look(run, course, base[0], course.reached, True)
        course.seconds = time.perf_counter() - begun
        if course.ended:
            self.compared[name] = self._expect(workload).compare(bag.table(), run.registry.templates)
        return course

    def _expect(self, workload: Workload) -> Expected:
        if workload not in self._expected:
            self._expected = {workload: Expected(workload, workload.tuples)}
        return self._expected[workload]

    def _look(self, run: RingSimulation, course: Course, base: Load, tuples: int, closely: bool) -> None:
        load = run.unit.load
        course.processing.append(int((load.rows - base.rows).sum() + (load.tuples - base.tuples).sum()))
        course.rows.append(int((load.rows - base.rows).sum()))
        windowed = course.workload.window is not None
        if closely or (windowed and tuples % 25 == 0):
            course.live[tuples] = len(run.unit.state.rows) - course.workload.queries
        if closely:
            since = Load(load.sent - base.sent, load.rows - base.rows, load.tuples - base.tuples)
            course.samples[tuples] = Sample(tuples, since, *run.unit.count_stored(), run.groups, run.answered)


def _move(run: RingSimulation, round: int) -> None:
    """A round of id movement by what nodes store."""
    state, ring = run.unit.state, run.unit.ring
    keys, weights = np.unique(np.concatenate([state.rows[:, KEY], state.tuples[:, TUPLE_KEY]]), return_counts=True)
    run.change(balance(ring, keys, weights, MEETINGS * len(ring), round))
