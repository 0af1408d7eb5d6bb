"""Spark equals the oracle: a fixed list of diverse queries, static and streaming, on one session.

Every stream is a folder of Parquet files in the order of arrival, one file per micro-batch. The data is random but
seeded; lateness is wide, so only NULL times are late.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from hypothesis import settings

import watersmeet as wm
from tests.cases import SECOND, All, Case, Col, Data, Interval, Pair, Range, bag, op
from tests.cases import Path as Stops
from tests.spark.streams import run
from tests.strategies import FLOATS, KEYS, NAMES, SMALL, VALUES

pytestmark = pytest.mark.spark

BATCH_ROWS = 20 if settings.default.max_examples >= 1000 else 30
"""Two micro-batches, or three in `make test-all`."""


def random_data(seed: int, count: int) -> Data:
    """Rows that advance by a second every other row, with steps back, ties, duplicates and a NULL time."""
    draw = random.Random(seed)
    rows: list[tuple[Any, ...]] = []
    for i in range(count):
        ts = (
            None
            if draw.random() < 0.02
            else (i // 2 - draw.choice((0, 0, 0, 1, 3))) * SECOND + draw.choice((0, 0, 0, 1))
        )
        rows.append((draw.choice((0, i)), *map(draw.choice, (KEYS, SMALL, FLOATS, VALUES, NAMES)), ts))
    return Data(tuple(rows))


def equal(x: str, y: str, left: str, right: str | None = None) -> Any:
    return op("=", Col(x, left), Col(y, right or left))


def case(
    aliases: dict[str, str],
    predicates: list[Any],
    windows: list[Any],
    *extra: Any,
    rows: int = 60,
    style: str = "comma",
) -> Case:
    select = (*(Col(alias, "id") for alias in aliases), *extra)
    data = tuple((stream, random_data(int(stream[1:]), rows)) for stream in dict.fromkeys(aliases.values()))
    return Case(tuple(aliases.items()), tuple(predicates), tuple(windows), select, data, style=style)


AB, ABC = {"a": "s0", "b": "s1"}, {"a": "s0", "b": "s1", "c": "s2"}
QUERIES = {
    "one key, one window, a residual": case(AB, [equal("a", "b", "k"), op("<", Col("a", "v"), Col("b", "v"))], [All("WINDOW", 3 * SECOND)], Col("b", "ts")),
    "an integer meets a double": case(AB, [equal("a", "b", "k", "f")], [Interval("a", "b", -SECOND, 4 * SECOND)], Col("b", "f"), style="join"),
    "floats and strings, a composite key": case(AB, [equal("a", "b", "f"), equal("a", "b", "name")], [Range("a", 5 * SECOND), Range("b", SECOND)], Col("a", "name")),
    "three streams, two keys, a missing pair": case(
        ABC, [equal("a", "b", "k"), equal("b", "c", "n"), op(">", op("+", Col("a", "n"), Col("c", "n")), 0)],
        [Pair("WINDOW", "a", "b", SECOND), Pair("DWINDOW", "b", "c", 2 * SECOND)], op("-", Col("a", "v"), Col("c", "v")),
    ),
    "a self-join in a shared key": case({"a": "s0", "b": "s0", "c": "s1"}, [equal("a", "b", "n"), equal("b", "c", "n")], [All("WITHIN", SECOND)], style="first"),
    "full history with a computed key": case(
        AB, [op("=", op("+", Col("a", "n"), 1), Col("b", "n")), op("is not null", Col("a", "v")), equal("a", "b", "k")], [], op("coalesce", Col("b", "name"), "none")
    ),
    "a band": case(AB, [op("<=", op("abs", op("-", Col("a", "v"), Col("b", "v"))), 1)], [All("WINDOW", 2 * SECOND)]),
    "a key in subgroups": case(AB, [equal("a", "b", "k"), op(">", Col("a", "n"), Col("b", "n"))], [All("WINDOW", 3 * SECOND)]),
    "three streams, no key": case(
        ABC, [op("<=", op("abs", op("-", Col("a", "n"), Col("b", "n"))), 1), op("<", Col("b", "v"), Col("c", "v"))],
        [Pair("WINDOW", "a", "b", SECOND), Pair("DWINDOW", "b", "c", SECOND)], Col("c", "ts"), rows=40,
    ),
    "three streams in a grid": case(ABC, [equal("a", "b", "k"), op("<", Col("b", "v"), Col("c", "v"))], [All("WINDOW", SECOND)], rows=40),
    "a path in a grid": case(ABC, [equal("a", "b", "k"), equal("b", "c", "n")], [Stops(("a", "b", "c"), (3 * SECOND, SECOND))], Col("b", "ts")),
    "a path in a pipeline": case(ABC, [equal("a", "b", "n"), equal("b", "c", "n")], [Stops(("b", "c", "a"), (SECOND, SECOND)), All("WITHIN", 1_500_000)], rows=40),
}  # fmt: skip
OPTIONS: dict[str, dict[str, Any]] = {
    "one key, one window, a residual": {"driver": "timestamp"},
    "an integer meets a double": {"kernel": "xjoin"},
    "floats and strings, a composite key": {"driver": "output_rate"},
    "three streams, two keys, a missing pair": {"kernel": "lca", "driver": "initial_output_size"},
    "a self-join in a shared key": {"kernel": "gca(hw)", "driver": "round_robin"},
    "a band": {"units": 5},
    "a key in subgroups": {"routing": "contrand(2, 1)", "units": 5, "kernel": "mw"},
    "three streams, no key": {"routing": "pipeline", "units": 4, "kernel": "gca(mw)"},
    "three streams in a grid": {"routing": "hypercube", "units": 6, "driver": "consumption_rate"},
    "a path in a grid": {"routing": "hypercube", "units": 4, "driver": "initial_output_size"},
    "a path in a pipeline": {"routing": "pipeline", "units": 4},
}


def write(query: Case, folder: Path) -> dict[str, str]:
    """One folder per stream, one file per batch."""
    paths = {}
    for name, table in query.tables().items():
        (folder / name).mkdir()
        paths[name] = str(folder / name)
        for start in range(0, table.num_rows, BATCH_ROWS):
            pq.write_table(table.slice(start, BATCH_ROWS), folder / name / f"{start:05d}.parquet")
    return paths


def found(frame: Any) -> dict[tuple[Any, ...], int]:
    """The rows of a Spark result, its times as whole microseconds."""
    times = [name for name, kind in frame.dtypes if kind.startswith("timestamp")]
    columns = [f"unix_micros({name}) AS {name}" if name in times else name for name in frame.columns]
    return bag(tuple(row) for row in frame.selectExpr(*columns).collect())


@pytest.mark.parametrize("title", QUERIES)
def test_static(spark, tmp_path, title):
    query = QUERIES[title]
    streams = {
        name: wm.Stream(spark.read.parquet(path), time="ts", lateness="1 hour")
        for name, path in write(query, tmp_path).items()
    }
    want = bag(query.expected().rows)
    assert want, "a query without results tests little"
    assert found(wm.sql(query.sql(), **streams, **OPTIONS.get(title, {})).dataframe()) == want


RUNS = [
    (runtime, title)
    if (n % 3 == 0) == (runtime == "stream")
    else pytest.param(runtime, title, marks=pytest.mark.thorough)
    for runtime in ("stream", "rounds")
    for n, title in enumerate(QUERIES)
]
"""`make test` runs a third of them on `dataframe()`, and the others on `start()`."""


@pytest.mark.parametrize(("runtime", "title"), RUNS)
def test_streaming(spark, tmp_path, title, runtime):
    query = QUERIES[title]
    streams = {}
    for name, path in write(query, tmp_path).items():
        schema = spark.read.parquet(path).schema
        source = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).parquet(path)
        streams[name] = wm.Stream(source, time="ts", lateness="1 hour")
    bound = wm.sql(query.sql(), **streams, **OPTIONS.get(title, {}))
    if runtime == "rounds" and list(QUERIES).index(title) % 2:
        runtime = "shuffled"
    _, progress = run(bound, tmp_path / "checkpoint", tmp_path / "sink", runtime)
    assert len(progress) > 1, "the input came in one batch"
    ran, forced = {kernel for p in progress for kernel in p.kernels}, OPTIONS.get(title, {}).get("kernel")
    assert ran == {forced} if forced else ran
    assert found(spark.read.parquet(str(tmp_path / "sink"))) == bag(query.expected().rows)
