"""What the killed subscribers have registered, and what the sink must hold in the end; read without the registry's code.

    versions    what each version of the registry changed: the files that are there, and those that the journal has kept
    answered    the version that each batch answered, and which of its queries not: the intents of the journal, of all attempts
    spans       from them: the batches that answered an id, one half-open span for each time that it was added
    contents    the batch of each file: one for each batch, but two where a life died between Spark's logs of files and of batches

Invariant: an answer belongs to the batch of its last member, and all its members lie within the span of its query.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import duckdb

from tests.crash.state import state_folder
from tests.crash.streams import Bag
from tests.crash.subscriber import CONSTANTS

Versions = dict[int, dict[str, Any]]
Spans = dict[str, list[tuple[int, int]]]
Batches = list[tuple[int, set[str]]]
"""By batch its version, and the queries of that version that were struck out."""

NEVER = 1_000_000
"""After the last batch."""
PAIR = "{x}.k = {y}.k AND epoch_us({y}.ts) - epoch_us({x}.ts) BETWEEN {lo} * 1000000 AND {hi} * 1000000"
WANTED = (
    ("a.id, b.id", "a, b", f"{PAIR.format(x='a', y='b', lo=-1, hi=1)} AND a.id >= {{n}}"),
    (
        "a.id, b.id, c.id",
        "a, b, c",
        f"{PAIR.format(x='a', y='b', lo=-2, hi=2)} AND {PAIR.format(x='b', y='c', lo=0, hi=3)} AND b.id + {{n}} <= c.id + 200",
    ),
    ("s.id, t.id", "a s, a t", f"{PAIR.format(x='s', y='t', lo=-2, hi=2)} AND s.id + {{n}} < t.id"),
    ("b.id, c.id", "b, c", f"{PAIR.format(x='b', y='c', lo=0, hi=3)} AND b.k = {{n}}"),
)
"""What the subscriber's texts mean: SELECT, FROM, WHERE."""


def versions(work: Path) -> Versions:
    """All versions there have been; one that is in both places is the same in both."""
    found: Versions = {}
    for folder in (work / "journal" / "registry", state_folder(work) / "registry"):
        for file in folder.glob("[0-9]*.json"):
            raw = json.loads(file.read_text())
            assert found.setdefault(int(file.stem), raw) == raw, f"version {file.stem} has changed"
    assert sorted(found) == list(range(1, len(found) + 1)), "a version is missing"
    return found


def answered(work: Path) -> tuple[Batches, int]:
    """What each batch answered, and how many batches were tried more than once."""
    tries: dict[int, list[tuple[int, set[str]]]] = {}
    for file in (work / "journal").glob("*-*.json"):
        raw = json.loads(file.read_text())
        tries.setdefault(int(file.stem.partition("-")[0]), []).append((raw["version"], set(raw.get("struck", ()))))
    assert sorted(tries) == list(range(len(tries))), "a batch has no intent"
    for batch, found in tries.items():
        assert len({version for version, _ in found}) == 1, (
            f"batch {batch} answered versions {found}: a repeated batch answers the same queries, or fewer"
        )
        found.sort(key=lambda one: len(one[1]))
        assert all(less <= more for (_, less), (_, more) in pairwise(found)), "what was struck out came back"
    batches = [tries[batch][-1] for batch in range(len(tries))]
    assert [version for version, _ in batches] == sorted(version for version, _ in batches)
    return batches, sum(len(found) > 1 for found in tries.values())


def spans(changes: Versions, batches: Batches) -> Spans:
    """The batches that answered each id. One that was removed before a batch was repeated is not answered in it."""
    begun: dict[str, int] = {}
    out: Spans = {}
    for version, raw in sorted(changes.items()):
        for change in raw["changes"]:
            if change["action"] == "add":
                begun[change["id"]] = version
            elif change["action"] == "remove":
                added = begun.pop(change["id"])
                out.setdefault(change["id"], []).append(_span(batches, change["id"], added, version))
    for id, added in begun.items():
        out.setdefault(id, []).append(_span(batches, id, added, NEVER))
    return out


def _span(batches: Batches, id: str, added: int, removed: int) -> tuple[int, int]:
    """From the first batch that has a query to the first that has it no more; versions are never as high as NEVER."""
    has = [batch for batch, (version, _) in enumerate(batches) if version >= added]
    ends = [b for b in has if batches[b][0] >= removed or id in batches[b][1]]
    return (has or [NEVER])[0], (ends or [NEVER])[0]


def living(changes: Versions) -> set[str]:
    """The ids that are registered in the end."""
    last = {
        c["id"]: c["action"] for _, raw in sorted(changes.items()) for c in raw["changes"] if c["action"] != "refuse"
    }
    return {id for id, action in last.items() if action == "add"}


def fed(changes: Versions) -> Bag:
    """(id, action) of the rows that were taken in from the feed; each of its batches in one version."""
    rows: Bag = Counter()
    before = -1
    for _, raw in sorted(changes.items()):
        if raw["feed"] > before:
            assert raw["feed"] == before + 1, "a batch of the feed was skipped"
            rows.update((change["id"], change["action"]) for change in raw["changes"])
            before = raw["feed"]
    return rows


def contents(work: Path, batches: int) -> list[tuple[str, int, int]]:
    """(stream, file, batch) of all files that were read. Spark numbers the files of a source in the order in which it found them."""
    sources = {int(folder.name): folder for folder in (work / "checkpoint" / "sources").iterdir()}
    names = {n: str(re.search(r"/(\w+)/part-", _any_text(folder))[1]) for n, folder in sources.items()}  # type: ignore[index]
    out, done = [], dict.fromkeys(sources, -1)
    for batch in range(batches):
        offsets = (work / "journal" / f"{batch}.offsets").read_text().splitlines()[2:]
        for n, line in enumerate(offsets):
            last = json.loads(line)["logOffset"] if line.startswith("{") else done[n]
            out += [(names[n], file, batch) for file in range(done[n] + 1, last + 1)]
            done[n] = last
    return out


def _any_text(folder: Path) -> str:
    return next(file.read_text() for file in folder.iterdir() if file.name[0].isdigit())


def expected(data: Path, held: list[tuple[str, int, int]], of: Mapping[str, Iterable[tuple[int, int]]]) -> Bag:
    """The answers (id, members ...) by DuckDB; `held` is what the batches held."""
    bag: Bag = Counter()
    with duckdb.connect() as con:
        con.execute("CREATE TABLE held (stream VARCHAR, file INT, batch INT)")
        con.executemany("INSERT INTO held VALUES (?, ?, ?)", held)
        for name in "abc":
            con.execute(
                f"CREATE TABLE {name} AS SELECT id, k, ts, batch FROM read_parquet('{data}/{name}/part-*.parquet', filename = true) "
                f"LEFT JOIN held ON stream = '{name}' AND file = CAST(parse_filename(filename, true)[6:] AS INT)"
            )
            assert con.execute(f"SELECT count(*) FROM {name} WHERE batch IS NULL").fetchall() == [(0,)]
        for id, times in of.items():
            number = int(id.rpartition("-")[2])
            select, source, where = WANTED[number % len(WANTED)]
            batches = ", ".join(f"{term.split()[-1]}.batch" for term in source.split(","))
            for first, end in times:
                inside = f"least({batches}) >= {first} AND greatest({batches}) < {end}"
                sql = f"SELECT {select} FROM {source} WHERE {where.format(n=number % CONSTANTS)} AND {inside}"
                bag.update((id, *row) for row in con.execute(sql).fetchall())
    return bag


def written(spark: Any, out: Path) -> Bag:
    """The answers that the sink has committed."""
    rows = spark.read.parquet(str(out)).select("query", "answer").collect()
    return Counter((id, *json.loads(answer).values()) for id, answer in rows)
