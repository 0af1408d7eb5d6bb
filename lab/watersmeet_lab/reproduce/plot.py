"""Plots of a reproduction: plain descriptions that a claim carries, and PNG files made of them.

matplotlib is imported when something is drawn: only --plots needs it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from watersmeet.errors import OptionError

_MARKERS = "os^Dv*PX"


@dataclass(frozen=True)
class Plot:
    """One figure.

    lines: series name to (xs, ys). bars: series name to one height for each of `groups`. boxes: series name to
    (least, first quartile, median, third quartile, most) for each of `groups`.
    """

    name: str
    title: str
    x: str
    y: str
    series: Mapping[str, Sequence[Any]]
    kind: Literal["lines", "bars", "boxes"] = "lines"
    groups: tuple[str, ...] = ()
    log: bool = False
    marks: bool = True


def draw(plots: Iterable[Plot], folder: Path) -> list[Path]:
    """Write every plot as NAME.png below a folder."""
    pyplot = _pyplot()
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for plot in plots:
        figure, axes = pyplot.subplots(figsize=(7, 4.4), layout="constrained")
        {"lines": _lines, "bars": _bars, "boxes": _boxes}[plot.kind](axes, plot)
        axes.set(title=plot.title, xlabel=plot.x, ylabel=plot.y)
        if plot.log:
            axes.set_yscale("log")
        else:
            axes.set_ylim(bottom=0)
        axes.grid(axis="y", alpha=0.3)
        columns = len(plot.series) if sum(map(len, plot.series)) < 70 else 3
        figure.legend(loc="outside lower center", frameon=False, fontsize=8, ncols=columns)
        written.append(folder / f"{plot.name}.png")
        figure.savefig(written[-1], dpi=120)
        pyplot.close(figure)
    return written


def _pyplot() -> Any:
    try:
        import matplotlib
    except ImportError as error:
        raise OptionError("--plots draws with matplotlib: pip install matplotlib") from error
    matplotlib.use("Agg")
    from matplotlib import pyplot

    return pyplot


def _lines(axes: Any, plot: Plot) -> None:
    for number, (name, (xs, ys)) in enumerate(plot.series.items()):
        marker = _MARKERS[number % len(_MARKERS)] if plot.marks else None
        axes.plot(xs, ys, label=name, marker=marker, markersize=5, linewidth=1.4)


def _bars(axes: Any, plot: Plot) -> None:
    width = 0.8 / len(plot.series)
    for number, (name, heights) in enumerate(plot.series.items()):
        at = [(n + (number - (len(plot.series) - 1) / 2) * width, h) for n, h in enumerate(heights) if h is not None]
        axes.bar([x for x, _ in at], [h for _, h in at], width, label=name)
    axes.set_xticks(range(len(plot.groups)), plot.groups)


def _boxes(axes: Any, plot: Plot) -> None:
    width = 0.8 / len(plot.series)
    for number, (name, boxes) in enumerate(plot.series.items()):
        if not any(boxes):
            continue
        stats = [dict(zip(("whislo", "q1", "med", "q3", "whishi"), b, strict=True)) for b in boxes if b is not None]
        places = [n + (number - (len(plot.series) - 1) / 2) * width for n, b in enumerate(boxes) if b is not None]
        colour = f"C{number}"
        axes.bxp(
            stats, positions=places, widths=width * 0.8, showfliers=False, patch_artist=True,
            boxprops={"facecolor": colour, "alpha": 0.5}, medianprops={"color": "black"}, label=name,
        )  # fmt: skip
    axes.set_xticks(range(len(plot.groups)), plot.groups)
