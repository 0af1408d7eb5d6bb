"""The tables of the documentation are those of the saved results."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from tests.lab.reproduce.test_report import found
from watersmeet.errors import OptionError
from watersmeet_lab.commands import _REPRODUCTIONS
from watersmeet_lab.reproduce import tables

ROOT = Path(__file__).parents[3]
RESULTS = ROOT / "lab" / "results"


@pytest.mark.parametrize("page", tables.list_pages(ROOT / "docs"), ids=lambda page: page.stem)
def test_pages_are_what_the_saved_results_make_of_them(page):
    text = page.read_text()
    assert text.count("<!-- results ") == text.count("<!-- end of results -->") == 1
    assert tables.fill_page(text, tables.read_results(RESULTS)) == text


@pytest.mark.parametrize("name", tables.PAPERS)
def test_a_changed_figure_changes_the_page_of_its_paper(name):
    results = dict(tables.read_results(RESULTS))
    first, *others = results[name].claims
    results[name] = replace(results[name], claims=[replace(first, counts="another figure"), *others])
    changed = [p for p in tables.list_pages(ROOT / "docs") if tables.fill_page(p.read_text(), results) != p.read_text()]
    assert [page.stem for page in changed] == [name]


def test_a_changed_verdict_changes_the_summary():
    results = dict(tables.read_results(RESULTS))
    first, *others = results["wjoin"].claims
    results["wjoin"] = replace(results["wjoin"], claims=[replace(first, holds="no"), *others])
    page = ROOT / "docs" / "reproductions.md"
    assert tables.fill_page(page.read_text(), results) != page.read_text()


def test_every_reproduction_has_saved_results():
    assert set(tables.PAPERS) == set(_REPRODUCTIONS) == {path.stem for path in RESULTS.glob("*.json")}


def test_what_a_run_wrote_is_saved_without_raw_numbers_and_shown(tmp_path):
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    shutil.copytree(RESULTS, tmp_path / "results")
    found().write(tmp_path / "found.json")
    tables.main("rjoin", tmp_path / "found.json", tmp_path / "docs", tmp_path / "results")
    saved = json.loads((tmp_path / "results" / "rjoin.json").read_text())
    assert saved["machine"]["commit"] == "abc"
    assert not {"raw", "plots"} & saved["claims"][0].keys()
    text = (tmp_path / "docs" / "reproductions" / "rjoin.md").read_text()
    assert "Cores: 2; commit: abc." in text
    assert "| it does not | figure 2 | more | less | 3 s | no |" in text
    assert (
        "| [A paper](reproductions/rjoin.md) | 2 | 1 | 0 | 1 |" in (tmp_path / "docs" / "reproductions.md").read_text()
    )


def test_a_paper_that_is_not_there(tmp_path):
    with pytest.raises(OptionError, match="there is no reproduction 'xjoin'; there are: bistream"):
        tables.save_result("xjoin", tmp_path / "found.json", tmp_path)


def test_a_paper_without_a_file():
    app = typer.Typer()
    app.command()(tables.main)
    assert "which file has the results of rjoin?" in CliRunner().invoke(app, ["rjoin"]).output
