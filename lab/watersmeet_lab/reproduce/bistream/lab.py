"""The laboratory: every run is made once, verified, and shared by the claims that need it.

Invariant: nothing is counted or timed of a run whose answer is not DuckDB's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

import numpy as np

from watersmeet_lab.reproduce.bistream.answer import Answer, ask_duckdb, verify
from watersmeet_lab.reproduce.bistream.cluster import Cluster, Outcome
from watersmeet_lab.reproduce.bistream.data import Dataset
from watersmeet_lab.reproduce.bistream.models import Model
from watersmeet_lab.reproduce.bistream.queries import QUERIES, Feed, read_feed


@dataclass(frozen=True)
class Size:
    """How large the experiments are."""

    dataset: Dataset
    batch_rows: int
    """Tuples of both streams in a batch of a full-history run, the same for all queries."""
    repeats: int
    """Of a run that is timed; the least time of each step counts."""
    window_batches: int
    """Of a run over a window."""
    latency_batches: int
    latency_queries: tuple[str, ...]
    curves: int
    """Of input rates, for figure 12."""


FULL = Size(Dataset(100, 125), 15_000, 3, 480, 60, ("Q5", "Q7", "Band"), 3)
QUICK = Size(Dataset(10, 100), 3_000, 1, 360, 30, ("Q5",), 1)
RATE = 1000.0
"""Tuples per second where the rate does not matter: over the full history it only names the time."""
LATENCY_ROWS = 500
"""Tuples of both streams in a batch of the latency runs."""


@dataclass
class Lab:
    """Feeds, clusters and verified outcomes, by query and model."""

    folder: Path
    size: Size
    say: Callable[[str], None] = lambda line: None
    verified: dict[tuple[str, str, str], Answer] = field(default_factory=dict)
    """(query, model, window or prefix) to the answer on which both agree."""
    _feeds: dict[tuple[str, float, int | None, int | None], Feed] = field(default_factory=dict)
    _answers: dict[tuple[object, ...], Answer] = field(default_factory=dict)
    _outcomes: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    _timed: dict[tuple[str, str], Outcome] = field(default_factory=dict)
    _clusters: dict[tuple[str, str], Cluster] = field(default_factory=dict)

    @cached_property
    def queries(self) -> tuple[str, ...]:
        return tuple(QUERIES)

    def feed(self, query: str, rate: float = RATE, window_s: int | None = None, most: int | None = None) -> Feed:
        key = (query, rate, window_s, most)
        if key not in self._feeds:
            self._feeds[key] = read_feed(QUERIES[query], self.folder, rate, window_s, most)
        return self._feeds[key]

    def outcome(self, query: str, model: str) -> Outcome:
        """A full-history run."""
        if (query, model) not in self._outcomes:
            feed = self.feed(query)
            self._outcomes[query, model] = self.run(feed, model, max(round(feed.rows / self.size.batch_rows), 4))
        return self._outcomes[query, model]

    def run_repeatedly(self, query: str, model: str) -> Outcome:
        """A full-history run, repeated."""
        if (query, model) not in self._timed:
            self._timed[query, model] = self.repeat(self.outcome(query, model))
        return self._timed[query, model]

    def repeat(self, outcome: Outcome) -> Outcome:
        """The same outcome with every step's least seconds over repetitions."""
        for n in range(1, self.size.repeats):
            again = self.run(outcome.feed, outcome.model.name, len(outcome.batches), f", again {n}")
            for batch, other in zip(outcome.batches, again.batches, strict=True):
                batch.service_s = np.minimum(batch.service_s, other.service_s)
                batch.route_s = min(batch.route_s, other.route_s)
        return outcome

    def run(self, feed: Feed, model: str, batches: int, said: str = "") -> Outcome:
        """One run, its answer verified."""
        span = "full history" if feed.window_s is None else f"window {feed.window_s} s"
        self.say(f"{feed.query.name}, {model}, {span}{said}")
        outcome = Cluster(feed, Model.of(model)).run(batches)
        verify(outcome, self.ask_duckdb(feed))
        self.verified[feed.query.name, model, f"{span}, {feed.rows} rows"] = self.ask_duckdb(feed)
        return outcome

    def ask_duckdb(self, feed: Feed) -> Answer:
        """DuckDB's answer, asked once."""
        if feed.key not in self._answers:
            self._answers[feed.key] = ask_duckdb(feed)
        return self._answers[feed.key]

    def cluster(self, query: str, model: str) -> Cluster:
        """A cluster that nothing runs on: for its router."""
        if (query, model) not in self._clusters:
            self._clusters[query, model] = Cluster(self.feed(query), Model.of(model))
        return self._clusters[query, model]
