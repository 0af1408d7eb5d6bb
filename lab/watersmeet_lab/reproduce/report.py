"""What a reproduction found, one row per claim: a table for the terminal, Markdown for the guide, JSON for programs; and how its command shows it.

Invariant: a claim says where it stands in the paper and what the paper says, apart from what was counted and timed here.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

import typer
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text

from watersmeet.cli.failure import report_errors
from watersmeet_lab.reproduce.plot import Plot, draw

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


def verdict(parts: Sequence[bool], main: bool = True) -> Verdict:
    """One word for several conditions of equal weight, under one without which nothing holds.

    >>> verdict([True, True]), verdict([True, False]), verdict([False])
    ('yes', 'partly', 'no')
    >>> verdict([True], main=False)
    'no'
    """
    if not main:
        return "no"
    if all(parts):
        return "yes"
    return "partly" if any(parts) else "no"


@dataclass
class Reproduction:
    """All claims of one invocation, with what is needed to repeat it."""

    COLUMNS: ClassVar = ("claim", "where", "paper", "counts", "times", "holds")
    """The fields of a claim that tables show."""

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
        return Group(table, *(Text(line, style="dim") for line in (*self.setting, self.describe_run())))

    def markdown(self) -> str:
        """The table as Markdown.

        >>> print(Reproduction("P", (), {}, [Claim("c", "fig 1", "a", "b", "yes")]).markdown())
        | claim | where | paper says | counted here | timed here | holds? |
        | --- | --- | --- | --- | --- | --- |
        | c | fig 1 | a | b |  | yes |
        """
        head = ["| claim | where | paper says | counted here | timed here | holds? |", "| --- " * 6 + "|"]
        rows = [f"| {' | '.join(_escape(getattr(c, column)) for column in self.COLUMNS)} |" for c in self.claims]
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

    @classmethod
    def read(cls, path: Path) -> Self:
        """What `write` wrote, without raw numbers and plots."""
        raw = json.loads(path.read_text())
        claims = [Claim(**{column: claim[column] for column in cls.COLUMNS}) for claim in raw["claims"]]
        return cls(raw["paper"], raw.get("setting", ()), raw["machine"], claims)

    def describe_run(self) -> str:
        """Machine and commit, as far as they were recorded.

        >>> Reproduction("P", (), {"cores": 2, "processor": "Xeon"}).describe_run()
        'Cores: 2; processor: Xeon; commit: not recorded.'
        """
        known = [f"{part}: {self.machine[part]}" for part in ("processor", "memory") if self.machine.get(part)]
        commit = self.machine.get("commit") or "not recorded"
        return "; ".join([f"Cores: {self.machine.get('cores')}", *known, f"commit: {commit}."])


def _escape(text: str) -> str:
    """A cell's text: a bar in it would end the cell.

    >>> print(_escape("W = |R| + |S|"))
    W = \\|R\\| + \\|S\\|
    """
    return text.replace("|", "\\|")


def _plain(value: Any) -> Any:
    """NumPy's numbers and arrays as Python's."""
    return value.tolist()


# ---------------------------------------------------------------- the command

Json = Annotated[Path | None, typer.Option(help="Write everything to this file.")]
Plots = Annotated[Path | None, typer.Option(help="Draw the figures into this folder (needs matplotlib).")]


def show(reproduce: Callable[[Callable[[str], None]], Reproduction], json: Path | None, plots: Path | None) -> None:
    """Run a reproduction with a line of progress, write its JSON file, print its table and draw its plots.

    The file is written before anything is printed or drawn, so a plot that fails loses no figures.
    """
    console = Console()
    with report_errors():
        with console.status("starting") as status:
            found = reproduce(status.update)
        if json:
            found.write(json)
        console.print(found.render())
        if plots:
            for path in draw((p for c in found.claims for p in c.plots), plots):
                console.print(f"drew {path}", highlight=False, soft_wrap=True)


# ---------------------------------------------------------------- numbers as tables show them


def short(value: float) -> str:
    """Three digits and a unit.

    >>> short(1234567), short(37164), short(430), short(2.347)
    ('1.23M', '37.2k', '430', '2.35')
    """
    for limit, unit in ((1e9, "G"), (1e6, "M"), (1e4, "k")):
        if abs(value) >= limit:
            scaled = value / (limit if unit != "k" else 1e3)
            return f"{scaled:.3g}{unit}"
    return f"{value:.3g}" if abs(value) < 100 else f"{value:,.0f}"


def each(values: Mapping[str, float], form: str = "{:.2f}") -> str:
    """Named values in a row.

    >>> each({"Q5": 4.0, "Q7": 3.98})
    'Q5 4.00, Q7 3.98'
    """
    return ", ".join(f"{name} {form.format(value)}" for name, value in values.items())


def shorts(values: Mapping[str, float]) -> str:
    """Named values in a row, shortened."""
    return ", ".join(f"{name} {short(value)}" for name, value in values.items())


def furthest(deviations: Iterable[float]) -> str:
    """The largest relative deviation, in percent.

    >>> furthest([0.001, -0.004])
    '0.40%'
    """
    return f"{max(abs(d) for d in deviations):.2%}"
