"""The README's and the guides' code runs, and so do the examples, and their links lead somewhere."""

from __future__ import annotations

import ast
import re
import runpy
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

ROOT = Path(__file__).parents[2]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\]\(([^)#\s]*)(?:#([^)\s]*))?\)")


def blocks() -> list[tuple[str, str]]:
    """(where, code) of every Python block."""
    return [
        (f"{page.relative_to(ROOT)}:{page.read_text()[: found.start()].count(chr(10)) + 2}", found[1])
        for page in PAGES
        for found in _FENCE.finditer(page.read_text())
    ]


def needs_spark(code: str) -> bool:
    """A block that takes DataFrames calls them `..._df`."""
    return "_df" in code


WITHOUT_SPARK = [b for b in blocks() if not needs_spark(b[1])]
WITH_SPARK = [b for b in blocks() if needs_spark(b[1])]


def test_there_is_code_of_both_kinds():
    assert any(where.startswith("README") for where, _ in WITHOUT_SPARK)
    assert any(where.startswith("README") for where, _ in WITH_SPARK)


@pytest.mark.parametrize(("where", "code"), WITHOUT_SPARK, ids=[where for where, _ in WITHOUT_SPARK])
def test_code_in_process(where, code):
    exec(compile(code, where, "exec"), {"__name__": where})


FRAMES = {
    "clicks_df": "SELECT 7 AS user, '/sale' AS page, timestamp '2026-01-01 12:00:00' AS ts",
    "orders_df": "SELECT 1 AS id, 7 AS user, 50.0D AS total, timestamp '2026-01-01 12:00:03' AS ordered_at",
    "refunds_df": "SELECT 1 AS order_id, 40.0D AS amount, timestamp '2026-01-01 13:00:00' AS ts",
}


@pytest.mark.spark
@pytest.mark.parametrize(("where", "code"), WITH_SPARK, ids=[where for where, _ in WITH_SPARK])
def test_code_on_dataframes(spark, where, code):
    names = {"__name__": where, **{name: spark.sql(text) for name, text in FRAMES.items()}}
    exec(compile(code, where, "exec"), names)
    [row] = names["results"].collect()
    assert row["id"] == 1
    assert row["page"] == "/sale"


def example(name: str, capsys: pytest.CaptureFixture[str]) -> str:
    runpy.run_path(str(ROOT / "examples" / name), run_name="__main__")
    return capsys.readouterr().out


def test_band_join_example(capsys):
    assert re.match(r"[1-9]\d* pairs agree", example("band_join.py", capsys))


@pytest.mark.spark
def test_three_streams_example(spark, capsys):
    out = example("three_streams.py", capsys)
    assert re.findall(r"\| *(\d+)\| *(\S+)\| *([\d.]+)\|", out) == [("10", "/a", "40.0"), ("10", "/b", "40.0")]


RECORDS = {
    "clicks": ['{"user": 7, "page": "/sale", "ts": "2026-01-01T12:00:00Z"}', "no JSON"],
    "orders": ['{"id": 1, "user": 7, "total": 50.0, "ts": "2026-01-01T12:03:00Z"}'],
}


@pytest.mark.spark
def test_kafka_to_delta_example_without_a_broker(spark, tmp_path):
    """Records are parsed and joined, and the batch is in the table under its number."""
    example = runpy.run_path(str(ROOT / "examples" / "kafka_to_delta.py"))
    topics = {}
    for name, values in RECORDS.items():
        (tmp_path / name).mkdir()
        pq.write_table(pa.table({"value": [v.encode() for v in values]}), tmp_path / name / "0.parquet")
        records = spark.readStream.schema("value binary").parquet(str(tmp_path / name))
        topics[name] = example["parse"](records, example["TOPICS"][name])
    query = example["join"](topics, "1 minute")
    handle = query.start(sink=f"delta:{tmp_path / 'table'}", checkpoint=tmp_path / "checkpoint", trigger="availableNow")
    handle.await_termination()
    table = DeltaTable(tmp_path / "table")
    assert [row["page"] for row in table.to_pyarrow_table().to_pylist()] == ["/sale"]
    assert table.transaction_version(str(handle.query.id)) == 0


def anchors(page: Path) -> set[str]:
    """Headings as GitHub links to them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


@pytest.mark.parametrize("page", PAGES, ids=[str(page.relative_to(ROOT)) for page in PAGES])
def test_links_lead_somewhere(page):
    for path, anchor in _LINK.findall(page.read_text()):
        if path.startswith("http"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name}: {path}"
        assert not anchor or anchor in anchors(target), f"{page.name}: {path}#{anchor}"


PYTHON_FILES = [
    p.relative_to(ROOT).as_posix() for d in ("src", "lab", "tests", "examples") for p in (ROOT / d).rglob("*.py")
]


@pytest.mark.parametrize(
    "page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda p: p.relative_to(ROOT).as_posix()
)
def test_modules_that_pages_name_are_there(page):
    named = re.findall(r"`([\w/]+\.py)[^`]*`", page.read_text())
    assert [n for n in named if not any(f"/{path}".endswith(f"/{n}") for path in PYTHON_FILES)] == []


def homes() -> list[tuple[str, str, list[str]]]:
    """Of the table of behaviours: what it is, the module, and the names there that stand before any other module."""
    text = (ROOT / "docs" / "architecture.md").read_text()
    section = text.split("## Where is ...?")[1].split("\n## ")[0]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in section.splitlines() if "`" in line]
    return [(what, home.strip("`"), re.findall(r"`(\w+)`", names.split(";")[0])) for what, home, names in rows]


@pytest.mark.parametrize(("what", "home", "names"), homes(), ids=[what for what, _, _ in homes()])
def test_a_behaviour_is_where_the_table_says(what, home, names):
    tree = ast.parse((ROOT / "src" / "watersmeet" / home).read_text())
    defined = {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    assert names[0] in defined
    assert len([h for w, h, _ in homes() if w == what]) == 1


def test_the_table_has_what_strangers_ask_for():
    asked = {"late counting", "expiry", "window closure", "segment compaction", "hot keys", "manifest commit"}
    asked |= {"Bloom semijoin", "placement fingerprint", "explain text", "driver policy", "DISTINCT per horizon"}
    asked |= {"idle streams", "range probe", "the command's progress line", "the error for unsatisfiable windows"}
    assert asked <= {what for what, _, _ in homes()}


def test_every_decision_is_listed():
    folder = ROOT / "docs" / "decisions"
    listed = set(re.findall(r"\(([^)]+\.md)\)", (folder / "README.md").read_text()))
    assert listed == {p.name for p in folder.glob("0*.md")}
