"""What a benchmark found: a table for people, JSON for everything else.

Ratios are watersmeet's median over a peer's median in the same case, from alternating trials. A system whose answer
differs from DuckDB's is marked, and no ratio is formed from it.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet.bench.measure import Case, Outcome, growth
from watersmeet.bench.systems import System


@dataclass
class Report:
    """All outcomes of one invocation, with what is needed to repeat it."""

    seed: int
    machine: Mapping[str, Any]
    growth: bool = False
    outcomes: list[Outcome] = field(default_factory=list)

    @property
    def right(self) -> bool:
        """Whether every count and checksum equals DuckDB's."""
        return all(outcome.right for outcome in self.outcomes)

    def cases(self) -> list[Case]:
        """The cases, in the order they ran."""
        return list(dict.fromkeys(outcome.case for outcome in self.outcomes))

    def of(self, case: Case) -> dict[System, list[Outcome]]:
        """A case's outcomes by system."""
        found: dict[System, list[Outcome]] = {}
        for outcome in self.outcomes:
            if outcome.case == case:
                found.setdefault(outcome.system, []).append(outcome)
        return found

    def ratios(self) -> list[dict[str, Any]]:
        """watersmeet over each peer, per case: steady state and total."""
        return [
            {
                "case": case.title,
                "peer": peer,
                "steady": ratio(ours, theirs, "steady"),
                "total": ratio(ours, theirs, "total"),
            }
            for case in self.cases()
            for ours in [self.of(case).get("watersmeet", [])]
            for peer, theirs in self.of(case).items()
            if peer != "watersmeet" and all_right(ours) and all_right(theirs)
        ]

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        raw = {
            "seed": self.seed,
            "machine": dict(self.machine),
            "ratios": self.ratios(),
            "growth": [{"case": o.case.title, "system": o.system, **growth_figures(o)} for o in self.outcomes]
            if self.growth
            else [],
            "outcomes": [
                {
                    **asdict(outcome),
                    "right": outcome.right,
                    "state_rows": outcome.state_rows,
                    "retained_ratio": outcome.retained_ratio,
                }
                for outcome in self.outcomes
            ],
        }
        path.write_text(json.dumps(raw, indent=1))

    def render(self) -> RenderableType:
        """One table per case, and what was run where."""
        machine = self.machine
        where = f"{machine['cores']} cores, {machine['processor']}, {machine['memory']}; commit {machine['commit']}; seed {self.seed}"
        return Group(*(self._table(case) for case in self.cases()), Text(where, style="dim"))

    def _table(self, case: Case) -> Table:
        table = Table(title=case.title, title_justify="left", title_style="bold")
        table.add_column("system", no_wrap=True)
        heads = [
            "rows/s steady",
            "rows/s total",
            "ours / it",
            "results",
            "state rows",
            "/ window",
            "workers MB",
            "JVM MB",
        ]
        if self.growth:
            heads += ["rows/s early", "rows/s late", "late / early"]
        for head in heads:
            table.add_column(head, justify="right")
        ours = self.of(case).get("watersmeet", [])
        for system, outcomes in self.of(case).items():
            table.add_row(system, *self._cells(outcomes, ours))
        return table

    def _cells(self, outcomes: list[Outcome], ours: list[Outcome]) -> list[str]:
        last = outcomes[-1]
        compare = all_right(ours) and all_right(outcomes) and ours is not outcomes and last.system != "watersmeet"
        cells = [
            f"{middle(outcomes, 'steady'):,.0f}",
            f"{middle(outcomes, 'total'):,.0f}",
            f"{ratio(ours, outcomes, 'steady'):.1f}" if compare else "",
            f"{last.answer.count:,}"
            if all_right(outcomes)
            else f"[red]{last.answer.count:,}, not {last.expected.count:,}[/]",
            "-" if last.state_rows is None else f"{last.state_rows:,}",
            "-" if last.retained_ratio is None else f"{last.retained_ratio:.2f}",
            f"{max(o.workers_peak for o in outcomes) / 2**20:,.0f}",
            f"{max(o.jvm_peak for o in outcomes) / 2**20:,.0f}",
        ]
        if self.growth:
            figures = growth_figures(last)
            cells += [f"{figures['early']:,.0f}", f"{figures['late']:,.0f}", f"{figures['ratio']:.2f}"]
        return cells


def all_right(outcomes: list[Outcome]) -> bool:
    """Whether there are outcomes, all with the right answer."""
    return bool(outcomes) and all(outcome.right for outcome in outcomes)


def middle(outcomes: list[Outcome], figure: str) -> float:
    """The median of a figure over repetitions."""
    return float(statistics.median(getattr(outcome, figure) for outcome in outcomes))


def ratio(ours: list[Outcome], theirs: list[Outcome], figure: str) -> float:
    """Our median over theirs."""
    return middle(ours, figure) / middle(theirs, figure)


def growth_figures(outcome: Outcome) -> dict[str, Any]:
    """Rows/s and retained rows early and late in a long run."""
    early, late = growth(outcome.batches)
    retained = [batch.state_rows for batch in outcome.batches]
    return {
        "early": early,
        "late": late,
        "ratio": late / early,
        "retained_early": retained[len(retained) // 10],
        "retained_late": retained[-1],
    }
