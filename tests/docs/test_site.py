"""What the site needs of the repository, without building it: `make docs` does that, and checks links and anchors."""

from __future__ import annotations

import re
from pathlib import Path
from pydoc import locate

import pytest

import watersmeet
from watersmeet.storage.document import FORMAT

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
NAVIGATION = re.findall(r"^ +- (?:[^:\n]+: )?(\S+\.md)$", (ROOT / "mkdocs.yml").read_text(), re.MULTILINE)
ABOVE = {"CHANGELOG.md", "CONTRIBUTING.md"}
"""Pages that `docs_site/pages.py` takes from the folder above."""
REFERENCE = sorted((DOCS / "reference").glob("*.md"))


def identifiers() -> list[str]:
    """What the reference shows, as mkdocstrings names it."""
    return [name for page in REFERENCE for name in re.findall(r"^::: (\S+)$", page.read_text(), re.MULTILINE)]


def test_every_page_is_in_the_navigation_once():
    pages = {p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*") if p.is_file() and p.suffix != ".png"}
    assert sorted(NAVIGATION) == sorted(pages | ABOVE)


def test_every_picture_is_shown_somewhere_and_is_small():
    shown = {found for p in DOCS.rglob("*.md") for found in re.findall(r"\]\(([^)]+\.png)\)", p.read_text())}
    pictures = {p.relative_to(DOCS).as_posix(): p.stat().st_size for p in DOCS.rglob("*.png")}
    assert shown == pictures.keys()
    assert max(pictures.values()) < 200_000


@pytest.mark.parametrize("name", watersmeet.__all__)
def test_every_public_name_is_in_the_reference(name):
    public = getattr(watersmeet, name)
    assert [i for i in identifiers() if locate(i) is public], f"{name} is on no page of docs/reference"


@pytest.mark.parametrize("identifier", identifiers())
def test_the_reference_shows_what_is_there(identifier):
    assert locate(identifier) is not None


def test_the_index_of_the_reference_lists_every_public_name():
    listed = set(re.findall(r"`(\w+)`", (DOCS / "reference" / "index.md").read_text()))
    assert {name for name in watersmeet.__all__ if not name.endswith("Error")} <= listed


def test_the_page_of_the_checkpoint_format_has_its_number():
    text = (DOCS / "checkpoint-format.md").read_text()
    assert re.findall(r"is format \*\*(\d+)\*\*", text) == [str(FORMAT)]
