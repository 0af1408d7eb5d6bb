"""What a reproduction found: one row per claim, as a table for people, Markdown for the guide, JSON for everything else.

Invariant: a claim says where it stands in the paper and what the paper says, apart from what was counted and timed here.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet.reproduce.plot import Plot

Verdict = Literal["yes", "partly", "no"]
_STYLES: Mapping[Verdict, str] = {"yes": "green", "partly": "yellow", "no": "bold red"}


@dataclass(frozen=True)
class Claim:
    """One claim of a paper against what was measured here."""

    claim: str
    where: str
    paper: str
    counts: str
    holds: Verdict
    times: str = ""
    raw: Mapping[str, Any] = field(default_factory=dict)
    """The numbers behind the words."""
    plots: tuple[Plot, ...] = ()


def verdict(parts: Sequence[bool]) -> Verdict:
    """One word for several conditions.

    >>> verdict([True, True]), verdict([True, False]), verdict([False])
    ('yes', 'partly', 'no')
    """
    if all(parts):
        return "yes"
    return "partly" if any(parts) else "no"


@dataclass
class Reproduction:
    """All claims of one invocation, with what is needed to repeat it."""

    paper: str
    setting: Sequence[str]
    """What was scaled down or done otherwise than in the paper, a sentence each."""
    machine: Mapping[str, Any]
    claims: list[Claim] = field(default_factory=list)

    def render(self) -> RenderableType:
        """The table, and under it what was run where."""
        table = Table(title=self.paper, title_justify="left", title_style="bold", show_lines=True, expand=True)
        for name, ratio in (("claim", 4), ("where", 2), ("paper says", 5), ("counted here", 7), ("timed here", 5)):
            table.add_column(name, ratio=ratio)
        table.add_column("holds?", no_wrap=True)
        for c in self.claims:
            table.add_row(c.claim, c.where, c.paper, c.counts, c.times, Text(c.holds, style=_STYLES[c.holds]))
        return Group(table, *(Text(line, style="dim") for line in (*self.setting, self._where())))

    def markdown(self) -> str:
        """The table as Markdown.

        >>> print(Reproduction("P", (), {}, [Claim("c", "fig 1", "a", "b", "yes")]).markdown())
        | claim | where | paper says | counted here | timed here | holds? |
        | --- | --- | --- | --- | --- | --- |
        | c | fig 1 | a | b |  | yes |
        """
        head = ["| claim | where | paper says | counted here | timed here | holds? |", "| --- " * 6 + "|"]
        rows = [f"| {c.claim} | {c.where} | {c.paper} | {c.counts} | {c.times} | {c.holds} |" for c in self.claims]
        return "\n".join(head + rows)

    def write(self, path: Path) -> None:
        """Write everything as JSON."""
        raw = {
            "paper": self.paper,
            "setting": list(self.setting),
            "machine": dict(self.machine),
            "claims": [asdict(c) for c in self.claims],
        }
        path.write_text(json.dumps(raw, indent=1, default=_plain))

    def _where(self) -> str:
        m = self.machine
        return f"{m.get('cores')} cores, {m.get('processor')}, {m.get('memory')}; commit {m.get('commit')}"


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist()
