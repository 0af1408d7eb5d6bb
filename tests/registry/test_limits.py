"""The limits of registered queries: the same for both engines, for calls and for rows of a feed."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.rounds.test_broken_queries import wide
from tests.rounds.test_subscriptions import SPECS, Sink, sql
from tests.rounds.test_subscriptions import Life as AnyLife
from watersmeet.query.quotas import MOST_COLUMNS, MOST_CONDITIONS, MOST_STREAMS
from watersmeet.registry.limits import MOST_ID_BYTES, MOST_TEXT
from watersmeet.registry.plan import RegistryPlan
from watersmeet.runtime.subscriptions import engines

COLUMNS = 300
MANY = pa.schema([*((f"c{n}", pa.int64()) for n in range(COLUMNS)), ("ts", pa.timestamp("us", tz="UTC"))])


def select(columns: int) -> str:
    return f"SELECT {', '.join(f'r.c{n}' for n in range(columns))} FROM r, s WHERE r.c0 = s.c0 WINDOW = 1 SECOND"


def equal(conditions: int) -> str:
    where = " AND ".join(f"r.c{n} = s.c{n}" for n in range(conditions))
    return f"SELECT r.c0 FROM r, s WHERE {where} WINDOW = 1 SECOND"


def streams(count: int) -> str:
    """Every pair of neighbours is equal in four columns, of which rewriting names 20 for each alias."""
    names = [f"a{n}" for n in range(count)]
    where = [f"{x}.c{c} = {y}.c{c}" for x, y in itertools.pairwise(names) for c in range(4)]
    return f"SELECT a0.c0 FROM {', '.join(f'r {n}' for n in names)} WHERE {' AND '.join(where)} WINDOW = 1 SECOND"


def registry(engine: str) -> Any:
    return wm.local.subscriptions({n: wm.Stream(MANY.empty_table(), time="ts") for n in "rs"}, engine=engine)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
@pytest.mark.parametrize(
    ("made", "most", "said"),
    [
        (select, MOST_COLUMNS, f"{MOST_COLUMNS} at most: select fewer"),
        (streams, MOST_STREAMS, f"{MOST_STREAMS + 1} streams in FROM"),
    ],
)
def test_a_query_of_the_largest_size_is_answered_and_one_more_is_refused(
    engine: str, made: Any, most: int, said: str
) -> None:
    subs = registry(engine)
    subs.add(made(most), id="largest")
    with pytest.raises(wm.UnsupportedError, match=said):
        subs.add(made(most + 1))
    one = pa.table({f.name: pa.array([1], f.type) for f in MANY}, schema=MANY)
    assert subs.push({"r": one, "s": one}).num_rows == 1


def test_what_once_took_a_worker_or_its_memory_is_refused_by_add() -> None:
    subs = registry("rjoin")
    with pytest.raises(wm.UnsupportedError, match="the query has 280 columns in SELECT"):
        subs.add(select(280))
    many = [f"a{n}" for n in range(100)]
    alike = " AND ".join(f"{x}.c0 = {y}.c0" for x, y in itertools.pairwise(many))
    shared = registry("shared")
    with pytest.raises(wm.UnsupportedError, match="the query has 100 streams in FROM"):
        shared.add(f"SELECT a0.c1 FROM {', '.join(f'r {n}' for n in many)} WHERE {alike}")
    assert subs.list() == shared.list() == []


def test_conditions() -> None:
    subs = registry("shared")
    subs.add(equal(MOST_CONDITIONS))
    with pytest.raises(wm.UnsupportedError, match=f"{MOST_CONDITIONS + 1} conditions"):
        subs.add(equal(MOST_CONDITIONS + 1))
    with pytest.raises(wm.QueryError, match="carries 63 different columns"):
        registry("rjoin").add(equal(63))
    with pytest.raises(wm.QueryError, match="names 272 columns; 256 at most"):
        registry("rjoin").add(streams(MOST_STREAMS).replace(" WINDOW", seventeen() + " WINDOW"))


def seventeen() -> str:
    """Each of sixteen aliases is asked for its own value in 13 more columns."""
    return "".join(f" AND a{a}.c{c} = a{(a + 1) % MOST_STREAMS}.c{c}" for c in range(4, 17) for a in range(15))


def test_ids_and_texts() -> None:
    subs = registry("shared")
    for id in ("x" * MOST_ID_BYTES, "\u00e9" * (MOST_ID_BYTES // 2), " ", "\0", "1", "01"):
        assert subs.add(select(1), id=id) == id
    for id, said in [
        ("", "not empty"),
        (7, "text"),
        ("x" * (MOST_ID_BYTES + 1), "1,001 bytes"),
        ("\ud800", "surrogate"),
    ]:
        with pytest.raises(wm.OptionError, match=said):
            subs.add(select(1), id=id)
        with pytest.raises(wm.OptionError, match=said):
            subs.add_all({"fine": select(1), id: select(1)})
    with pytest.raises(wm.UnsupportedError, match=r"20,001 characters"):
        subs.add(select(1).ljust(MOST_TEXT + 1))
    with pytest.raises(wm.OptionError, match="surrogate"):
        subs.add("SELECT r.c0 AS `\ud800` FROM r, s WHERE r.c0 = s.c0")
    assert len(subs.list()) == 6


class Life(AnyLife):
    """A life whose registry asks the engine."""

    def __init__(self, checkpoint: Path, sink: Sink, engine: str) -> None:
        super().__init__(checkpoint, sink, engine=engine)
        self.registry._accept = lambda query, backfill: engines.accept(RegistryPlan(SPECS, 2, engine), query, backfill)


@pytest.mark.parametrize("engine", ["shared", "rjoin"])
def test_rows_of_a_feed_are_refused_and_the_others_are_answered(
    engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    life = Life(tmp_path, Sink(), engine)
    rows = [
        ("x" * 1001, "add", sql(1)),
        ("/" * 90, "add", sql(2)),
        ("wide", "add", wide(MOST_STREAMS + 1)),
        ("long", "add", sql(1).ljust(MOST_TEXT + 1)),
        ("deep", "add", f"SELECT {'(' * 500}r.id{')' * 500} AS x FROM r, s WHERE r.k = s.k"),
        ("half\ud800", "add", sql(1)),
        ("half", "add", "SELECT '\ud800' AS x FROM r, s WHERE r.k = s.k"),
        ("odd", "add", "SELECT odd"),
        ("good", "add", sql(3)),
    ]
    bind = life.registry.bind
    monkeypatch.setattr(life.registry, "bind", lambda sql: 1 // 0 if sql == "SELECT odd" else bind(sql))
    life.registry.take_in(rows, 0)
    life.batch(0)
    assert {id for id, _ in life.sink.batches[0]} == {"good", "/" * 90}
    said = {
        "wide": f"{MOST_STREAMS + 1} streams", "long": "characters", "deep": "nested too deeply", "half?": "surrogate",
        "half": "surrogate", "odd": "it cannot be read: ZeroDivisionError", "x" * 1000: "1,001 bytes",
    }  # fmt: skip
    again = Life(tmp_path, Sink(), engine)
    found = {e.id: e.reason for e in again.registry.list() if e.state == "refused"}
    assert set(found) == set(said)
    assert all(words in found[id] for id, words in said.items())
    monkeypatch.setattr(life.registry, "bind", lambda sql: (_ for _ in ()).throw(OSError("disk")))
    with pytest.raises(OSError, match="disk"):
        life.registry.take_in([("later", "add", sql(1))], 1)
