"""What objects show in a notebook: their aligned lines as a table, and drawings below it.

Invariant: the words are those of the terminal; every one of them is escaped. The style is inside the element, so that a notebook's own is not touched, and colours follow it.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from html import escape
from typing import Any

from watersmeet.view.graph import draw_dataflow, draw_windows

_CELL = "padding:1px 12px 1px 0;text-align:left;vertical-align:top;border:0"


def show_lines(title: str, lines: Iterable[tuple[str, str]], *drawings: str) -> str:
    """Titled lines as HTML.

    >>> "<td" in show_lines("Query", [("windows", "|b - a| <= 10 s")]) and "&lt;= 10 s" in show_lines("Query", [("windows", "|b - a| <= 10 s")])
    True
    """
    rows = "".join(
        f'<tr style="background:none"><th style="{_CELL};font-weight:500;opacity:.7">{escape(name)}</th><td style="{_CELL};white-space:pre-wrap">{escape(text)}</td></tr>'
        for name, text in lines
    )
    pictures = "".join(f'<div style="overflow-x:auto;margin-top:6px">{drawing}</div>' for drawing in drawings)
    return f'<div style="font-size:13px"><b>{escape(title)}</b><table style="border-collapse:collapse;margin:4px 0;border:0">{rows}</table>{pictures}</div>'


def show_text(title: str, text: str, *drawings: str) -> str:
    """A text of several lines, as it stands."""
    pictures = "".join(f'<div style="overflow-x:auto;margin-top:6px">{drawing}</div>' for drawing in drawings)
    pre = f'<pre style="white-space:pre-wrap;margin:4px 0">{escape(text)}</pre>'
    return f'<div style="font-size:13px"><b>{escape(title)}</b>{pre}{pictures}</div>'


REFRESH_S = 1.0
"""How often what is shown of a running query is looked at again."""


def show_live(
    draw: Callable[[], str], text: Callable[[], str], is_active: Callable[[], bool]
) -> threading.Thread | None:
    """Show something in IPython: in a notebook as HTML that is drawn anew, in its place, as long as it is active and changes; in a terminal as text, once."""
    ipython = sys.modules["IPython"]
    if getattr(ipython.get_ipython(), "kernel", None) is None:
        print(text())
        return None
    html = draw()
    shown = ipython.display.display(ipython.display.HTML(html), display_id=True)
    follower = threading.Thread(
        target=_follow, args=(shown, html, draw, is_active), name="watersmeet notebook", daemon=True
    )
    follower.start()
    return follower


def _follow(shown: Any, html: str, draw: Callable[[], str], is_active: Callable[[], bool]) -> None:
    goes_on, pause = True, threading.Event()
    while goes_on:
        pause.wait(REFRESH_S)
        try:
            goes_on, now = is_active(), draw()
        except Exception:  # the session is gone, and what is shown is the last that was known
            return
        if now != html:
            html = now
            shown.update(sys.modules["IPython"].display.HTML(html))


def draw_plan(facts: Mapping[str, Any]) -> tuple[str, str]:
    """The dataflow and the window graph of a plan."""
    return draw_dataflow(facts), draw_windows(facts)
