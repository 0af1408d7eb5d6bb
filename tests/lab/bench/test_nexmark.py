"""Nexmark without cargo and, but for one test, without Spark: every query's answer is DuckDB's, and the command believes no other."""

from __future__ import annotations

import json
from pathlib import Path
from textwrap import dedent
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

import watersmeet as wm
from tests.lab.bench import auction_house
from watersmeet.cli import app
from watersmeet.errors import OptionError
from watersmeet_lab.bench.memory import Peak
from watersmeet_lab.bench.nexmark import events as event_files
from watersmeet_lab.bench.nexmark import generator, run
from watersmeet_lab.bench.nexmark.answers import answer, compare, connect
from watersmeet_lab.bench.nexmark.events import CLOSINGS, START, STREAMS, Events, generate
from watersmeet_lab.bench.nexmark.queries import ALL, LATENESS, QUERIES, NexmarkQuery
from watersmeet_lab.bench.nexmark.trial import ROWS, Trial, run_query

PRINTED = Path(__file__).parents[2] / "fixtures" / "nexmark" / "events.json"
"""The first events of the crate itself."""
HIGHEST = """
    SELECT max(price) AS price, time_bucket(INTERVAL 10 SECONDS, date_time) + INTERVAL 10 SECONDS AS date_time
    FROM bid GROUP BY 2 ORDER BY 2
"""


def install(root: Path, printed: Path) -> None:
    """A generator that prints the first lines of a file."""
    program = root / f"nexmark-{generator.VERSION}" / "bin" / "nexmark"
    program.parent.mkdir(parents=True)
    program.write_text(f"#!/bin/sh\nhead -n $2 {printed}\n")
    program.chmod(0o755)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The auction house's events, in four files of each stream."""
    root = tmp_path_factory.mktemp("nexmark")
    auction_house.print_events(root / "printed.json")
    install(root, root / "printed.json")
    return generate(Events(auction_house.EVENTS, 4), root)


def sources(folder: Path, query: NexmarkQuery, *, shuffled: bool) -> dict[str, Any]:
    """What a query reads; streams in order of time or out of order by up to two seconds."""
    with connect(folder) as con:
        tables = {name: con.sql(f"SELECT * FROM {name}").to_arrow_table() for name in query.reads}
        named = {name: wm.Stream(shuffle(t) if shuffled else t, time="date_time", lateness=LATENESS) for name, t in tables.items()}  # fmt: skip
        highest = con.sql(HIGHEST).to_arrow_table()
    derived = {name: wm.Stream(highest, time="date_time") for name in query.derived}
    return {**named, **derived, **{name: wm.Table(event_files.side_input()) for name in query.tables}}


def shuffle(table: pa.Table) -> pa.Table:
    """In every two seconds, by the text that differs for each event."""
    pieces = pc.divide(pc.cast(table["date_time"], pa.int64()), 2_000_000)
    return table.append_column("piece", pieces).sort_by([("piece", "ascending"), ("extra", "ascending")]).drop("piece")


@pytest.mark.parametrize("shuffled", [False, True], ids=["in order", "out of order"])
@pytest.mark.parametrize("query", ALL, ids=lambda query: query.name)
def test_answers_are_those_of_duckdb(folder: Path, tmp_path: Path, query: NexmarkQuery, shuffled: bool) -> None:
    found = wm.local.run(query.text, sources(folder, query, shuffled=shuffled), batch_rows=400, units=2)
    pq.write_table(found, tmp_path / "found.parquet")
    compared = compare(tmp_path, answer(query, folder))
    assert compared.right, compared
    assert compared.count > (2 if query.groups or query.derived else 20)
    assert not any(wm.local.counts(found).late.values())


def test_ties_are_broken_by_time_and_text(folder: Path) -> None:
    """Where no bid is the only highest one, the query must still find one winner."""
    with connect(folder) as con:
        texts = [
            QUERIES["q9"].duckdb.replace("row_number()", "rank()").replace(", b.date_time, b.extra) = 1", order)
            for order in (") = 1", ", b.date_time) = 1", ", b.date_time, b.extra) = 1")
        ]
        by_price, by_time, by_text = (con.sql(f"SELECT count(*) FROM ({text})").fetchall()[0][0] for text in texts)
    assert by_price > by_time > by_text


def test_a_wrong_bag_is_told_from_a_right_one(folder: Path, tmp_path: Path) -> None:
    right = answer(QUERIES["q3"], folder)
    table = pq.read_table(right)
    for found, apart in ((table, 0), (table.slice(1), 1), (pa.concat_tables([table, table.slice(0, 2)]), 2)):
        pq.write_table(found, tmp_path / "found.parquet")
        assert compare(tmp_path, right).apart == apart
    (tmp_path / "found.parquet").unlink()
    assert compare(tmp_path, right).apart == table.num_rows, "no file at all"


def test_the_crates_events_become_streams(tmp_path: Path) -> None:
    install(tmp_path, PRINTED)
    made = generate(Events(100, 2), tmp_path)
    rows = {name: [pq.read_table(file) for file in sorted((made / name).glob("*.parquet"))] for name in STREAMS}
    assert {name: [t.num_rows for t in tables] for name, tables in rows.items()} == {
        "person": [1, 1, 1, 1],
        "auction": [3, 3, 1, 1],
        "bid": [46, 46, 1, 1],
    }
    [first] = rows["person"][0].to_pylist()
    assert (first["name"], first["state"], first["date_time"]) == ("vicky noris", "az", START)
    for name, tables in rows.items():
        assert {t.schema for t in tables} == {tables[0].schema}
        assert tables[0].schema.names == list(STREAMS[name])
        times = pa.concat_tables(tables)["date_time"].to_pylist()
        assert times == sorted(times)
    modified = [file.stat().st_mtime for file in sorted((made / "bid").glob("*.parquet"))]
    assert modified == sorted(set(modified)), "Spark reads files in the order of their modification"


def test_the_same_events_twice(tmp_path: Path) -> None:
    """The generator's clock does not matter, and a folder that is complete is not made again."""
    later = PRINTED.read_text().replace('"date_time":1', '"date_time":2').replace('"expires":1', '"expires":2')
    (tmp_path / "later.json").write_text(later)
    made = []
    for name, printed in (("one", PRINTED), ("two", tmp_path / "later.json")):
        install(tmp_path / name, printed)
        made.append(generate(Events(100, 2), tmp_path / name))
    for file in sorted(made[0].rglob("*.parquet")):
        assert pq.read_table(file).equals(pq.read_table(made[1] / file.relative_to(made[0])))
    (tmp_path / "one" / f"nexmark-{generator.VERSION}" / "bin" / "nexmark").unlink()
    assert generate(Events(100, 2), tmp_path / "one") == made[0]


def test_a_generator_that_prints_something_else_is_refused(tmp_path: Path) -> None:
    install(tmp_path, PRINTED)
    with pytest.raises(
        OptionError, match=r"printed 100 lines with 100 events, not 200: is it the crate nexmark 0\.2\.0"
    ):
        generate(Events(200, 2), tmp_path)
    assert not list(tmp_path.rglob("_done"))


def test_without_cargo_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    with pytest.raises(OptionError, match=r"no cargo to build it with: install Rust \(https://rustup\.rs\), or put"):
        generate(Events(100, 2), tmp_path)


def test_a_build_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "cargo").write_text("#!/bin/sh\necho no network >&2\nexit 1\n")
    (tmp_path / "cargo").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    with pytest.raises(OptionError, match=r"cargo could not build the crate nexmark 0\.2\.0: no network"):
        generator.locate(tmp_path / "root")
    assert not list((tmp_path / "root").iterdir())


def bench(monkeypatch: pytest.MonkeyPatch, folder: Path, *options: str, wrong: bool = False) -> tuple[int, str]:
    """The command, with trials that copy DuckDB's answer, or a part of it."""

    def run_apart(module: str, trial: dict[str, Any], title: str, scratch: Path) -> tuple[dict[str, Any], Peak]:
        assert Path(trial["events"]).name == folder.name
        right = pq.read_table(answer(QUERIES[trial["query"]], folder))
        (scratch / "measured" / ROWS).mkdir(parents=True)
        pq.write_table(right.slice(int(wrong)), scratch / "measured" / ROWS / "part.parquet")
        batches = [{"numInputRows": rows, "durationMs": {"triggerExecution": 100}} for rows in (900, 900, 900, 900, 3)]
        return {"wall_s": 2.0, "progress": batches}, Peak()

    monkeypatch.setattr(run, "run_apart", run_apart)
    monkeypatch.setattr(run, "_WARMUP", Events(100, 2))
    given = ("--events", str(auction_house.EVENTS), "--files", "4", "--data", str(folder.parent), *options)
    result = CliRunner().invoke(app, ["bench", "nexmark", *given], env={"COLUMNS": "200"})
    return result.exit_code, result.output


def test_the_command_shows_figures_of_right_answers(
    monkeypatch: pytest.MonkeyPatch, folder: Path, tmp_path: Path
) -> None:
    raw = tmp_path / "raw.json"
    code, said = bench(monkeypatch, folder, "--query", "q3", "--query", "q4", "--repeat", "2", "--json", str(raw))
    assert code == 0, said
    outcomes = json.loads(raw.read_text())["outcomes"]
    systems = ["watersmeet", "rounds", "spark-rocksdb", "spark-default"]
    assert [(o["query"], o["system"]) for o in outcomes] == [
        *(("q3", name) for name in (*systems, *systems[1:], systems[0])),
        *(("q4", name) for name in ("watersmeet", "rounds", "rounds", "watersmeet")),
    ]
    assert all(o["right"] and o["steady"] == 600 for o in outcomes if o["query"] == "q3"), (
        "240 rows in 4 batches of 0.1 s"
    )
    assert all(o["total"] == 120 for o in outcomes if o["query"] == "q3")
    assert "q4: Spark has no such query: an average of maxima is two aggregations" in said.replace("\n", "")


def test_the_command_fails_on_a_wrong_answer(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    code, said = bench(monkeypatch, folder, "--query", "q20", "--system", "rounds", wrong=True)
    assert code == 1
    assert "NO" in said
    code, said = bench(monkeypatch, folder, "--query", "q2")
    assert code == 2
    assert "q2: not among q3, q4" in said.replace("\n", "")


def test_the_page_shows_the_queries_as_they_run() -> None:
    page = (Path(__file__).parents[3] / "docs" / "nexmark.md").read_text()
    for query in ALL:
        assert dedent(query.text).strip() in page, query.name


@pytest.mark.spark
@pytest.mark.parametrize(
    ("name", "system"),
    [
        pytest.param("q9", "watersmeet", marks=pytest.mark.thorough),
        ("q7", "rounds"),
        pytest.param("q8", "spark-default", marks=pytest.mark.thorough),
    ],
)
def test_on_spark(spark: Any, folder: Path, tmp_path: Path, name: str, system: Any) -> None:
    """Closing events let everything leave that waits for the end of a window."""
    run_query(spark, Trial(system, name, "", ""), folder, tmp_path)
    compared = compare(tmp_path / ROWS, answer(QUERIES[name], folder))
    assert compared.right, compared


def test_closing_events_join_with_nothing(folder: Path, tmp_path: Path) -> None:
    """So a query over all files has the same answer, but for windows that they open themselves."""
    everything = tmp_path / "everything"
    for name in STREAMS:
        (everything / name).mkdir(parents=True)
        files = sorted((folder / name).glob("*.parquet"))
        assert len(files) == 4 + CLOSINGS
        for number, file in enumerate([*files, *files[-CLOSINGS:]]):
            (everything / name / f"part-{number:05d}.parquet").symlink_to(file)
    event_files._write_stream(everything / "side_input", [event_files.side_input()])
    for query in ALL:
        if not query.derived:
            assert compare_files(answer(query, everything), answer(query, folder)), query.name


def compare_files(one: Path, other: Path) -> bool:
    keys = [(name, "ascending") for name in pq.read_schema(one).names]
    return bool(pq.read_table(one).sort_by(keys).equals(pq.read_table(other).sort_by(keys)))
