"""A reproduction's table, JSON and plots."""

from __future__ import annotations

import io
import json
import sys

import numpy as np
import pytest
from rich.console import Console

from watersmeet.errors import OptionError
from watersmeet_lab.reproduce.plot import Plot, draw
from watersmeet_lab.reproduce.report import Claim, Reproduction

LINES = Plot("lines", "t", "x", "y", {"a": ([1, 2], [3, 4]), "b": ([1, 2], [1, 1])})
BARS = Plot("bars", "t", "", "y", {"a": [1, None], "b": [2, 3]}, "bars", ("Q5", "Q7"), log=True)
BOXES = Plot("boxes", "t", "", "ms", {"a": [(0, 1, 2, 3, 4)], "b": [None]}, "boxes", ("Q5",))


def found() -> Reproduction:
    claims = [
        Claim(
            "it holds", "figure 1", "twice", "2.00", "yes", raw={"x": np.int64(2), "y": np.arange(2)}, plots=(LINES,)
        ),
        Claim("it does not", "figure 2", "more", "less", "no", times="3 s"),
    ]
    return Reproduction("A paper", ("Scaled down.",), {"cores": 2, "commit": "abc"}, claims)


def test_the_table_has_a_row_for_every_claim():
    out = io.StringIO()
    Console(width=160, file=out).print(found().render())
    text = out.getvalue()
    for word in ("A paper", "figure 1", "twice", "2.00", "figure 2", "3 s", "Scaled down.", "commit: abc"):
        assert word in text


def test_json_has_plain_numbers(tmp_path):
    found().write(tmp_path / "found.json")
    raw = json.loads((tmp_path / "found.json").read_text())
    assert [c["holds"] for c in raw["claims"]] == ["yes", "no"]
    assert raw["claims"][0]["raw"] == {"x": 2, "y": [0, 1]}


def test_plots_of_all_kinds(tmp_path):
    pytest.importorskip("matplotlib")
    written = draw([LINES, BARS, BOXES], tmp_path / "plots")
    assert [p.name for p in written] == ["lines.png", "bars.png", "boxes.png"]
    assert all(p.read_bytes().startswith(b"\x89PNG") for p in written)


def test_plots_without_matplotlib(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(OptionError, match="pip install matplotlib"):
        draw([LINES], tmp_path)
