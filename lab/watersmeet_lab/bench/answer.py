"""The right answer to a benchmark query, from DuckDB.

A time band join is slow in any engine that sees only the equality, so DuckDB is given a second equality: the bucket
number floor(ts / window); and a band of keys is three equalities in the same way. Two tuples within the window of each other lie in the same or in neighbouring buckets; each
tuple of one side is therefore probed under three bucket numbers, and the exact window decides.

The answer is a count and a checksum (the sum of the keys and of each side's time), which every system's results are
aggregated to as they pass: equal counts of wrong rows do not go unseen.

The first stream is asked in spans of event time, with what the others have within the window of each: a join of a hundred million tuples needs no more memory
than one of a few million.

When the input ends, tuples without a partner whose window is still open stay where they are, and how many those are depends on the system's
watermark. So of left and anti joins only results whose `a` is older than `until_us` count.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

import duckdb

from watersmeet_lab.bench.data import ALIASES, START_US

SPAN_US = 2_000_000_000
"""The span of event time that is asked at once."""


@dataclass(frozen=True)
class Answer:
    """How many results, and the sum over them of key + every side's microseconds since the data's start."""

    count: int
    checksum: int


Condition = Literal["equal", "band"]
"""Keys are equal, or at most one apart."""
Kind = Literal["inner", "left", "anti"]
"""What the second stream is to the first."""


@dataclass(frozen=True)
class Question:
    """The join that every system is asked for."""

    ways: int
    window_us: int
    condition: Condition = "equal"
    kind: Kind = "inner"
    until_us: int | None = None
    """Results count whose `a` is before this, in microseconds since the data's start; None: all."""

    @property
    def name(self) -> str:
        """What tells it from others over the same data.

        >>> Question(2, 10).name, Question(2, 10, "band", "anti", 500).name
        ('2way-10us', '2way-10us-band-anti-500us')
        """
        parts = [
            f"{self.ways}way-{self.window_us}us",
            *(p for p in (self.condition, self.kind) if p not in ("equal", "inner")),
        ]
        return "-".join([*parts, *([] if self.until_us is None else [f"{self.until_us}us"])])


def answer(folder: Path, question: Question, files: int | None = None) -> Answer:
    """DuckDB's answer for the first `ways` streams in `folder`, of all or of so many of their first files; remembered next to the data."""
    part = "" if files is None else f"-{files}"
    memo = folder / f"answer-{question.name}{part}.json"
    if memo.exists():
        return Answer(**json.loads(memo.read_text()))
    with duckdb.connect() as con:
        con.execute("SET timezone = 'UTC'")
        for alias in ALIASES[: question.ways]:
            names = sorted(str(file) for file in (folder / alias).glob("*.parquet"))[:files]
            con.from_parquet(names).create_view(alias)
        row = con.execute(f"SELECT max({_since_start()}) FROM {ALIASES[0]}").fetchone()
        assert row is not None
        spans = [con.execute(_query(question, low)).fetchall()[0] for low in range(0, int(row[0]) + 1, SPAN_US)]
    found = Answer(*(sum(int(span[n]) for span in spans) for n in range(2)))
    memo.write_text(json.dumps(asdict(found)))
    return found


def _query(question: Question, low: int) -> str:
    """The answer of the tuples of `a` in one span of event time."""
    ways, window_us, high = question.ways, question.window_us, low + SPAN_US
    first, *others = ALIASES[:ways]
    key = "key" if question.condition == "equal" else "unnest([-1, 0, 1]) + key AS key"
    sources = [f"{first}_ AS (SELECT key, {_since_start()} AS t FROM {first} WHERE {_within(low, high)})"]
    joins = []
    for number, alias in enumerate(others):
        sources.append(
            f"{alias}_ AS (SELECT {key}, t, bucket FROM (SELECT key, {_since_start()} AS t, unnest([-1, 0, 1]) + t // {window_us} AS bucket"
            f" FROM {alias} WHERE {_within(low - window_us, high + window_us)}))"
        )
        windows = [f"abs({alias}.t - {other}.t) <= {window_us}" for other in (first, *others[:number])]
        joins.append(
            f"{question.kind.upper()} JOIN {alias}_ AS {alias} ON {first}.key = {alias}.key AND {first}.t // {window_us} = {alias}.bucket AND {' AND '.join(windows)}"
        )
    times = ALIASES[: 1 if question.kind == "anti" else ways]
    total = " + ".join([f"{first}.key", *(f"coalesce({alias}.t, 0)" for alias in times)])
    until = "" if question.until_us is None else f" WHERE {first}.t < {question.until_us}"
    return f"WITH {', '.join(sources)} SELECT count(*), coalesce(sum({total}), 0) FROM {first}_ AS {first} {' '.join(joins)}{until}"


def _within(low: int, high: int) -> str:
    """Between two times since the data's start, as a condition on the column, so that files are passed over."""
    return f"ts >= make_timestamptz({START_US + low}) AND ts < make_timestamptz({START_US + high})"


def _since_start() -> str:
    return f"epoch_us(ts) - {START_US}"
