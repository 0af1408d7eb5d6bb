"""Functions are named by verbs, what they return by nouns; none is called `said`, `told` or `found`."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
MODULES = sorted(p for folder in ("src/watersmeet", "lab/watersmeet_lab") for p in (ROOT / folder).rglob("*.py"))
PARTICIPLES = frozenset(
    [
        "bound",
        "brought",
        "built",
        "chosen",
        "dealt",
        "done",
        "drawn",
        "fed",
        "found",
        "given",
        "gone",
        "heard",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "led",
        "left",
        "lost",
        "made",
        "met",
        "said",
        "seen",
        "sent",
        "shown",
        "struck",
        "taken",
        "told",
        "written",
    ]
)
OTHER_WORDS = {"feed", "having", "left", "routing", "scaling", "shipping", "spread", "substring"}
"""Verbs, nouns, and words of SQL that look like participles."""


def participles(source: str) -> Iterator[str]:
    """The functions and methods whose whole name is a participle; properties are values."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef) and not any("property" in ast.unparse(d) for d in node.decorator_list):
            word = node.name.strip("_")
            if word not in OTHER_WORDS and (word in PARTICIPLES or (word.isalpha() and word.endswith(("ed", "ing")))):
                yield node.name


def test_participles_are_told_from_verbs_and_values():
    source = "def _told(): ...\ndef tell(): ...\nclass A:\n    @property\n    def kept(self): ...\n    def leaving(self): ...\n"
    assert list(participles(source)) == ["_told", "leaving"]


@pytest.mark.parametrize("path", MODULES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_no_function_is_named_by_a_participle(path):
    assert not list(participles(path.read_text()))
