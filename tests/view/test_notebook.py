"""What objects show in a notebook: the words of the terminal, drawings beside them, and nothing that could run."""

from __future__ import annotations

import re
import sys
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.view.batches import batches, query
from watersmeet.runtime.rounds.handle import Handle
from watersmeet.view import notebook


def words_of(html: str) -> str:
    """The text of HTML, which must be well formed."""
    return " ".join("".join(ElementTree.fromstring(html).itertext()).split())


def handle() -> Handle:
    told = [SimpleNamespace(progress=lambda: batches(3, 1)[-1])]
    spark = SimpleNamespace(name="<orders>", isActive=True, exception=lambda: None)
    run: Any = SimpleNamespace(told=told, error=None)
    return Handle(spark, run, run)


@pytest.mark.parametrize("shown", [query(), query().explain(), query().explain("full"), batches(3, 1)[-1], handle()])
def test_the_words_are_those_of_the_terminal(shown: Any) -> None:
    found = words_of(shown._repr_html_())
    for line in repr(shown).splitlines()[1:]:
        for word in line.split():
            assert word in found


@pytest.mark.parametrize("shown", [query(), query().explain()])
def test_queries_and_plans_are_drawn(shown: Any) -> None:
    html = shown._repr_html_()
    assert html.count("<svg") == 2
    assert {"orders o", "clicks c", "payments p"} <= set(re.findall(r'class="wm-name"[^>]*>([^<]+)<', html))


def test_names_are_escaped() -> None:
    assert "<orders>" not in handle()._repr_html_()


class Shell:
    """As much of IPython as a handle asks for; what is displayed, and drawn anew."""

    def __init__(self, kernel: object | None) -> None:
        self.drawn: list[str] = []
        self.get_ipython = lambda: SimpleNamespace(kernel=kernel)
        self.display = SimpleNamespace(HTML=str, display=self._display)

    def _display(self, html: str, *, display_id: bool) -> Any:
        assert display_id
        self.drawn.append(html)
        return SimpleNamespace(update=self.drawn.append)


def test_in_a_notebook_a_handle_is_drawn_anew_in_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    shell, shown, count = Shell(object()), handle(), iter(range(1, 4))
    monkeypatch.setitem(sys.modules, "IPython", shell)
    monkeypatch.setattr(notebook, "REFRESH_S", 0.001)
    told = shown._run.told

    def is_active() -> bool:
        number = next(count)
        told.append(SimpleNamespace(progress=lambda: batches(3 + number, 1)[-1]))
        return number < 3

    follower = notebook.show_live(shown._repr_html_, shown.__repr__, is_active)
    assert follower is not None
    follower.join(10)
    assert not follower.is_alive()
    assert len(shell.drawn) == 4
    assert [f"batch {n}" in words_of(html) for n, html in zip(range(2, 6), shell.drawn, strict=True)] == [True] * 4


def test_in_a_terminal_it_prints_its_lines(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    shell, shown = Shell(None), handle()
    monkeypatch.setitem(sys.modules, "IPython", shell)
    shown._ipython_display_()
    assert shell.drawn == []
    assert capsys.readouterr().out == repr(shown) + "\n"
