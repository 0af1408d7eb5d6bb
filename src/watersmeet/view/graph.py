"""A plan as a drawing: what flows where, and the windows between aliases. SVG as text, from the facts of `explain().to_dict()`.

    orders o ──┐
               ├── join, 8 units ── result
    clicks c ──┘

Invariant: every name in the drawing is escaped; colours come from the page (`currentColor` and three CSS variables), so that it reads on light and dark.
"""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any

WIDTH, ROW, BOX_HEIGHT, GAP, MARGIN = 180, 64, 44, 90, 12
_STYLE = (
    "<style>.wm-box{fill:var(--wm-box,#80808018);stroke:var(--wm-line,#808080);stroke-width:1}"
    ".wm-edge{fill:none;stroke:var(--wm-line,#808080);stroke-width:1.4}"
    ".wm-name{font:600 13px system-ui,sans-serif;fill:currentColor}.wm-note{font:11px system-ui,sans-serif;fill:currentColor;opacity:.72}</style>"
)


def draw_dataflow(facts: Mapping[str, Any]) -> str:
    """Streams, the joins that they enter, and what leaves."""
    aliases, stages = facts["aliases"], facts["routing"]
    columns = len(stages) + 2
    height = max(len(aliases), 1) * ROW + 2 * MARGIN
    middle = height / 2 - BOX_HEIGHT / 2
    at = {alias: (MARGIN, MARGIN + n * ROW + (ROW - BOX_HEIGHT) / 2) for n, alias in enumerate(aliases)}
    parts, last = [], None
    for n, stage in enumerate(stages, start=1):
        place = (MARGIN + n * (WIDTH + GAP), middle)
        entering = [side for side in stage["sides"] if side in at]
        parts += [_edge(at[side], place) for side in entering]
        if last is not None:
            parts.append(_edge(last, place))
        parts.append(_box(place, "join", f"{stage['kind']}, {stage['units']} unit{'s' if stage['units'] != 1 else ''}"))
        last = place
    end = (MARGIN + (columns - 1) * (WIDTH + GAP), middle)
    if last is not None:
        parts.append(_edge(last, end))
    parts.append(_box(end, "result", f"kernel {facts['kernel']}" if "kernel" in facts else ""))
    for alias, place in at.items():
        about = aliases[alias]
        name = alias if alias == about["stream"] else f"{about['stream']} {alias}"
        parts.append(_box(place, name, f"time {about['time']}, lateness {_span(about['lateness_us'])}"))
    return _svg(2 * MARGIN + columns * WIDTH + (columns - 1) * GAP, height, parts, "dataflow")


def draw_windows(facts: Mapping[str, Any]) -> str:
    """Aliases side by side, with a line where a window bounds two of them."""
    names, windows = (
        list(facts["aliases"]),
        [w for w in facts["windows"] if w["least_us"] is not None or w["most_us"] is not None],
    )
    step, height = WIDTH + 120, 2 * MARGIN + BOX_HEIGHT + 34 * max(len(windows), 1)
    at = {name: (MARGIN + n * step, MARGIN) for n, name in enumerate(names)}
    parts = [_box(place, name, facts["aliases"][name]["stream"]) for name, place in at.items()]
    for n, window in enumerate(windows):
        y = MARGIN + BOX_HEIGHT + 30 + 34 * n
        (x1, _), (x2, _) = at[window["first"]], at[window["second"]]
        a, b = x1 + WIDTH / 2, x2 + WIDTH / 2
        down = MARGIN + BOX_HEIGHT
        parts.append(f'<path class="wm-edge" d="M{a:.0f} {down:.0f}V{y:.0f}H{b:.0f}V{down:.0f}"/>')
        text = show_window(window)
        # at the line's left end: in its middle a line that comes down from a box between may cross it
        parts.append(f'<text class="wm-note" x="{min(a, b) + 8:.0f}" y="{y - 5:.0f}">{escape(text)}</text>')
    if not windows:
        parts.append(
            f'<text class="wm-note" x="{MARGIN}" y="{MARGIN + BOX_HEIGHT + 24}">no window: full history is kept</text>'
        )
    return _svg(2 * MARGIN + (len(names) - 1) * step + WIDTH, height, parts, "window graph")


def show_window(window: Mapping[str, Any]) -> str:
    """A window in words.

    >>> show_window({"first": "a", "second": "b", "least_us": -10_000_000, "most_us": 10_000_000, "written": True})
    '-10 s <= b - a <= 10 s'
    """
    low = "" if window["least_us"] is None else f"{_span(window['least_us'])} <= "
    high = "" if window["most_us"] is None else f" <= {_span(window['most_us'])}"
    return f"{low}{window['second']} - {window['first']}{high}"


def _span(us: int) -> str:
    for unit, size in (
        ("d", 86_400_000_000),
        ("h", 3_600_000_000),
        ("min", 60_000_000),
        ("s", 1_000_000),
        ("ms", 1000),
    ):
        if us and us % size == 0:
            return f"{us // size} {unit}"
    return f"{us} us" if us else "0 s"


def _box(at: tuple[float, float], name: str, note: str) -> str:
    x, y = at
    return (
        f'<rect class="wm-box" x="{x:.0f}" y="{y:.0f}" width="{WIDTH}" height="{BOX_HEIGHT}" rx="6"/>'
        f'<text class="wm-name" x="{x + 10:.0f}" y="{y + 18:.0f}">{escape(_short(name, 24))}</text>'
        f'<text class="wm-note" x="{x + 10:.0f}" y="{y + 35:.0f}">{escape(_short(note, 30))}</text>'
    )


def _edge(start: tuple[float, float], end: tuple[float, float]) -> str:
    x1, y1, x2, y2 = start[0] + WIDTH, start[1] + BOX_HEIGHT / 2, end[0], end[1] + BOX_HEIGHT / 2
    bend = (x1 + x2) / 2
    return f'<path class="wm-edge" d="M{x1:.0f} {y1:.0f}C{bend:.0f} {y1:.0f} {bend:.0f} {y2:.0f} {x2:.0f} {y2:.0f}"/>'


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def _svg(width: float, height: float, parts: list[str], title: str) -> str:
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" role="img" aria-label="{title}" viewBox="0 0 {width:.0f} {height:.0f}" '
        f'style="max-width:{width:.0f}px;width:100%">{_STYLE}{"".join(parts)}</svg>'
    )
