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

from watersmeet_lab.bench.trials.measure import Case, Outcome, growth
from watersmeet_lab.bench.trials.systems import System

_SIZES = {
    "workers_rss": "Python workers, RSS in MB",
    "workers_pss": "Python workers, PSS in MB",
    "driver_worker_rss": "Python at the driver, MB",
    "jvm_rss": "JVM, RSS in MB",
}


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
        table.add_column()
        columns = []
        by_system = self.of(case)
        for system, outcomes in by_system.items():
            table.add_column(system, justify="right", no_wrap=True)
            columns.append(_cells(outcomes, by_system, self.growth))
        for name in columns[0]:
            table.add_row(name, *(cells[name] for cells in columns))
        return table


def _cells(outcomes: list[Outcome], by_system: Mapping[System, list[Outcome]], long: bool) -> dict[str, str]:
    """One system's figures in one case; medians over repetitions, memory at its worst."""
    last = outcomes[-1]

    def over(system: System, figure: str) -> str:
        ours = by_system.get(system, [])
        comparable = outcomes is not ours and all_right(ours) and all_right(outcomes)
        return f"{ratio(ours, outcomes, figure):.1f}" if comparable else ""

    cells = {
        "rows/s, steady": f"{middle(outcomes, 'steady'):,.0f}",
        "rows/s, total": f"{middle(outcomes, 'total'):,.0f}",
        "watersmeet / it, steady": over("watersmeet", "steady"),
        "watersmeet / it, total": over("watersmeet", "total"),
        "rounds / it, steady": over("rounds", "steady"),
        "rounds / it, total": over("rounds", "total"),
        "results": f"{last.answer.count:,}" if all_right(outcomes) else f"[red]{last.answer.count:,}[/]",
        "DuckDB's results": f"{last.expected.count:,}",
        "state rows": "-" if last.state_rows is None else f"{last.state_rows:,}",
        "rows of an alias / window's": "-" if last.retained_ratio is None else f"{last.retained_ratio:.2f}",
        **{name: f"{max(getattr(o.peak, size) for o in outcomes) / 2**20:,.0f}" for size, name in _SIZES.items()},
    }
    if long:
        figures = growth_figures(last)
        cells["rows/s, early and late"] = f"{figures['early']:,.0f} {figures['late']:,.0f}"
        cells["late / early"] = f"{figures['ratio']:.2f}"
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
