"""One-way joins executed on streams, and plans made of them: what they ship, per second, after windows have filled.

The cost of a plan is the sum over its one-way joins (equation 1), and each of those depends on the head, the streams joined before it
and its algorithm, not on how these were joined. So every one-way join is executed once, and plans are summed.

Invariant: nothing is estimated here: rows, shipments and bytes are those of executed joins.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import numpy as np

from watersmeet.sites.planning.cost import Cost, Setting
from watersmeet.sites.planning.model import Algorithm, LinearPlan
from watersmeet_lab.simulate.sites import lockstep
from watersmeet_lab.simulate.sites.streams import Keys, Streams, joint
from watersmeet_lab.simulate.sites.window import Arrival, Rows, Window


class Counter:
    """Executes one-way joins of a query, each once."""

    def __init__(self, streams: Streams, setting: Setting, warm_s: float, results: bool = False) -> None:
        self.streams, self.setting, self.results = streams, setting, results
        first, last = streams.span_us
        tau = setting.interval_us
        # The last interval may be cut short.
        self.spans = [(begin, begin + tau) for begin in range(first, last - tau, tau)]
        self.warm = int(warm_s * 1e6 / tau)
        self._flows: dict[tuple[str, frozenset[str]], Rows] = {}
        self._costs: dict[tuple[str, frozenset[str], str, Algorithm], Cost] = {}
        self._arrivals: dict[tuple[str, Keys], list[Arrival]] = {}

    def cost(self, head: str, done: frozenset[str], to: str, algorithm: Algorithm) -> Cost:
        """What a head, joined with streams (itself among them), ships to be joined with another."""
        key = head, done, to, algorithm
        if key not in self._costs:
            shipped = self.run(*key)
            seconds = (len(self.spans) - self.warm) * self.setting.interval_us / 1e6
            columns = (
                shipped.out_shipments, shipped.out_bytes, shipped.back_shipments, shipped.back_bytes, shipped.processing_s,
            )  # fmt: skip
            self._costs[key] = Cost(*(float(c[self.warm :].sum()) / seconds for c in columns))
        return self._costs[key]

    def run(self, head: str, done: frozenset[str], to: str, algorithm: Algorithm) -> lockstep.Shipped:
        """Execute a one-way join."""
        base, m = self.streams.base[to], self.streams.width
        made, keys = joint(self.streams, done, frozenset({to}), base)
        lows = [(span[0] - self.setting.delay_us) * m for span in self.spans]
        if (to, keys) not in self._arrivals:
            self._arrivals[to, keys] = [base.arrival(span, keys) for span in self.spans]
        arrivals = self._arrivals[to, keys]
        return lockstep.run(
            algorithm, replace(made, joining=self.results), self._by_interval(head, done), arrivals, lows
        )

    def plan(self, plan: LinearPlan) -> Cost:
        """All one-way joins of a plan together."""
        total = Cost(0, 0, 0, 0, 0)
        for cost, _, _ in self._steps(plan):
            total = Cost(*(x + y for x, y in zip(total, cost, strict=True)))
        return total

    def seconds(self, plan: LinearPlan, *, processing: bool = False) -> float:
        """Latency * shipments + bytes / bandwidth, and measured processing if it is asked for."""
        line = self.setting.line
        return sum(
            (c if processing else c._replace(processing_s=0.0)).seconds(line(at, to), line(to, at))
            for c, at, to in self._steps(plan)
        )

    def _steps(self, plan: LinearPlan) -> list[tuple[Cost, str, str]]:
        out = []
        for head, steps in plan.sequences.items():
            done = frozenset({head})
            for step, at in zip(steps, plan.places(head), strict=False):
                out.append((self.cost(head, done, step.to, step.algorithm), at, plan.query.stream(step.to).site))
                done |= {step.to}
        return out

    def _by_interval(self, head: str, done: frozenset[str]) -> list[Rows]:
        rows, m = self.flow(head, done), self.streams.width
        ends = np.searchsorted(rows.at, [span[0] * m for span in self.spans] + [self.spans[-1][1] * m])
        return [rows.take(np.arange(b, e)) for b, e in pairwise(ends)]

    def flow(self, head: str, done: frozenset[str]) -> Rows:
        """What a head's tuples have become, all of them, in their order."""
        key = head, done
        if key not in self._flows:
            whole = self.spans[0][0], self.spans[-1][1]
            if len(done) == 1:
                self._flows[key] = self.streams.base[head].head(whole)
            else:
                last = next(a for a in sorted(done - {head}) if self._reaches(head, done - {a}, a))
                before = done - {last}
                made, keys = joint(self.streams, before, frozenset({last}), self.streams.base[last])
                self._flows[key] = made.join(
                    self.flow(head, before), Window(self.streams.base[last].arrival(whole, keys).tuples)
                )
        return self._flows[key]

    def _reaches(self, head: str, done: frozenset[str], last: str) -> bool:
        """Whether streams are connected without the last, and the last with them."""
        query, reached = self.streams.query, {head}
        while grown := {n for a in reached for n in query.neighbours(a) if n in done} - reached:
            reached |= grown
        return reached == done and bool(query.between(done, last))
