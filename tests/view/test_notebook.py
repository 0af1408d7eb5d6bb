"""What objects show in a notebook: the words of the terminal, drawings beside them, and nothing that could run."""

from __future__ import annotations

import re
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.view.batches import batches, query
from watersmeet.runtime.rounds.handle import Handle


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
