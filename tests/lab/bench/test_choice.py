"""Shapes that are drawn: every kind comes, and what is drawn can be run."""

from __future__ import annotations

from dataclasses import replace

import pytest

import watersmeet as wm
from watersmeet_lab.bench import choice
from watersmeet_lab.bench.drawn_shapes import draw_shapes


def test_shapes_differ_in_all_that_a_choice_depends_on() -> None:
    shapes = list(draw_shapes(60, 3))
    assert {len(s.rates) for s in shapes} == {2, 3, 4, 5, 6}
    assert len({s.name.split(": ")[1].split(",")[0] for s in shapes}) == 8
    assert {s.units > 1 for s in shapes} == {True, False}
    assert any(s.theta for s in shapes)
    assert any(s.hot for s in shapes)


def test_drawn_queries_can_be_asked() -> None:
    for shape in draw_shapes(12, 5):
        small = replace(shape, rows=40)
        wm.local.run(small.sql(), small.tables(1), units=small.units)


def test_auto_is_compared_with_every_choice_that_can_run_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(choice, "LONG_ENOUGH", 0.0)
    shape = next(s for s in draw_shapes(60, 3) if s.units == 1 and "a key and a band" in s.name)
    found = choice.measure(replace(shape, rows=50, batch_rows=50), 1, 1, lambda line: None)
    assert set(found.seconds) == {"auto", "hw", "sorted", "nlw", "mw", "lca"}
    assert found.ratio >= 1
