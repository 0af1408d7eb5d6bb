"""Late materialisation: the same results, far fewer bytes where payloads are wide and matches rare."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import watersmeet as wm
from tests.spark.streams import run, stream, table, write

pytestmark = pytest.mark.spark


def streams(tmp_path: Path, spark: Any, names: str, batches: list[pa.Table]) -> dict[str, wm.Stream]:
    return {n: stream(spark, write(tmp_path, n, batches), lateness="30 seconds") for n in names}


def bag(found: pa.Table) -> Counter[Any]:
    return Counter(zip(*(c.to_pylist() for c in found.columns), strict=True))


def test_references_first_gives_the_same_results_over_restarts(spark: Any, tmp_path: Path) -> None:
    text = """SELECT a.w AS x, b.v AS y, c.w AS z, a.k + c.k AS n, c.ts AS ts FROM s a, t b, u c
        WHERE a.k = b.k AND b.j = c.j AND length(a.v) + length(c.w) > 7 WINDOW (a, b) = 8 SECONDS AND WINDOW (b, c) = 5 SECONDS"""
    batches = [
        table(
            [(n % 3, n % 2, "x" * (n % 7), f"payload {n}", 4 * b + n % 9) for n in range(b * 12, b * 12 + 12)],
            "k j v w ts",
        )
        for b in range(4)
    ]
    expected = bag(
        wm.local.run(text, {n: wm.Stream(pa.concat_tables(batches), time="ts", lateness="30 seconds") for n in "stu"})
    )
    assert sum(expected.values()) > 100
    for upto in (1, 3, 4):
        query = wm.sql(text, **streams(tmp_path, spark, "stu", batches[:upto]), shipping="semijoin")
        out, progress = run(query, tmp_path / "ck", tmp_path / "out", "rounds")
    assert "fetched in later rounds" in query.explain("full")
    assert {(x, y, z, n, ts.timestamp()): c for (x, y, z, n, ts), c in out.items()} == {
        (x, y, z, n, ts.timestamp()): c for (x, y, z, n, ts), c in expected.items()
    }
    assert progress[-1].rounds == 3


def test_copies_that_probe_a_biclique_leave_their_payload_behind(spark: Any, tmp_path: Path) -> None:
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE abs(a.k - b.k) <= 1 WINDOW = 2 SECONDS"
    batches = [table([(50 * n, f"{b} {n} " + "x" * 500, 3 * b + n / 100) for n in range(200)]) for b in range(3)]
    paths = {n: write(tmp_path, n, batches) for n in "st"}
    found, sent = {}, {}
    for shipping in ("full", "semijoin"):
        made = {n: stream(spark, p) for n, p in paths.items()}
        query = wm.sql(text, **made, shipping=shipping, routing="random", units=8)
        found[shipping], progress = run(query, tmp_path / shipping, runtime="rounds")
        sent[shipping] = sum(p.mail_bytes for p in progress)
    assert found["full"] == found["semijoin"]
    assert sum(found["full"].values()) == 600
    assert sent["semijoin"] < sent["full"] / 2


def test_wide_payloads_and_rare_matches_ship_less_than_a_fifth(spark: Any, tmp_path: Path) -> None:
    rows = 4_000
    wide = {
        n: [table([(100 * i + (0 if i % 100 == 0 else 1 + "st".index(n)), f"{n}{b}-{i}-" + "x" * 1000, 10 * b + i / rows) for i in range(rows)]) for b in range(3)]
        for n in "st"
    }  # fmt: skip
    text = "SELECT a.v AS x, b.v AS y FROM s a, t b WHERE a.k = b.k WINDOW = 2 SECONDS"
    paths = {n: write(tmp_path, n, batches) for n, batches in wide.items()}
    found, sent = {}, {}
    for shipping in ("full", "semijoin"):
        query = wm.sql(text, **{n: stream(spark, p) for n, p in paths.items()}, shipping=shipping)
        found[shipping], progress = run(query, tmp_path / shipping, runtime="rounds")
        sent[shipping] = sum(p.mail_bytes for p in progress)
    assert found["full"] == found["semijoin"]
    assert sum(found["full"].values()) == 3 * rows // 100
    assert sent["semijoin"] <= sent["full"] / 5


def changing(spark: Any, tmp_path: Path) -> tuple[str, list[dict[str, pa.Table]]]:
    """Streams with wide payloads that hardly match at first, then often, then hardly; and their query."""
    text = "SELECT a.v AS x, b.v AS y, a.k AS k FROM s a, t b WHERE a.k = b.k WINDOW = 3 SECONDS"
    batches = []
    for b in range(15):
        often = 5 <= b < 9
        batches.append(
            {
                n: table(
                    [
                        (i // 40 if often else 1000 * b + 10 * i + (i % 50 > 0) * (1 + "st".index(n)), f"{n}{b}-{i} " + "x" * 500, 2 * b + i / 200)
                        for i in range(200)
                    ]
                )
                for n in "st"
            }
        )  # fmt: skip
    return text, batches


def test_auto_changes_with_the_traffic_and_loses_nothing(spark: Any, tmp_path: Path) -> None:
    text, batches = changing(spark, tmp_path)
    paths = {n: write(tmp_path, n, [b[n] for b in batches]) for n in "st"}
    expected = bag(
        wm.local.run(text, {n: wm.Stream(pa.concat_tables([b[n] for b in batches]), time="ts") for n in "st"})
    )
    rows: list[Any] = []
    broken = {9, 11}

    def sink(found: Any, batch_id: int) -> None:
        if batch_id in broken:
            broken.discard(batch_id)
            raise RuntimeError("the sink is down")
        rows.extend(found.collect())

    said: list[str] = []
    ways: set[str] = set()
    for _ in range(3):
        query = wm.sql(text, **{n: stream(spark, p) for n, p in paths.items()}, bandwidth=2e5, units=4)
        handle = query.start(sink=sink, checkpoint=str(tmp_path / "ck"), trigger="availableNow")
        if broken:
            with pytest.raises(RuntimeError, match=r"^the sink is down\nin batch \d+ of "):
                handle.await_termination()
        else:
            handle.await_termination()
        said += [word for p in handle.history() for word in p.scaled]
        ways |= {p.shipping for p in handle.history()}
        shown = handle.explain("full")
    assert Counter(tuple(r) for r in rows) == expected
    assert sum(expected.values()) > 1000
    assert len(said) >= 2, "it never changed, or never back"
    assert said[0].startswith("from the next batch on with payloads of a, b later")
    assert any(word.startswith("from the next batch on of whole tuples") for word in said)
    assert {"of whole tuples", "with payloads of a, b later"} <= ways
    assert "bytes of payload" in shown
    assert "results per tuple" in shown


def test_shipping_may_change_between_two_lives(spark: Any, tmp_path: Path) -> None:
    text = "SELECT DISTINCT a.v AS x, b.v AS y FROM s a, t b WHERE abs(a.k - b.k) <= 1 WINDOW = 6 SECONDS"
    batches = [table([(3 * n, f"{b} {n} wide", 2 * b + n / 10) for n in range(10)]) for b in range(4)]
    expected = bag(wm.local.run(text, {n: wm.Stream(pa.concat_tables(batches), time="ts") for n in "st"}))
    for upto, shipping in enumerate(("full", "semijoin", "full", "auto"), start=1):
        made = {n: stream(spark, write(tmp_path, n, batches[:upto])) for n in "st"}
        query = wm.sql(text, **made, shipping=shipping, units=4)
        out, progress = run(query, tmp_path / "ck", tmp_path / "out", "rounds")
        wanted = "with payloads of a, b later" if shipping == "semijoin" else "of whole tuples"
        assert progress[-1].shipping == wanted
    assert out == expected
    assert sum(expected.values()) > 100


def test_what_semijoin_shipping_cannot_do_is_said(spark: Any, tmp_path: Path) -> None:
    s = streams(tmp_path, spark, "st", [table([(1, "v", 1)])])
    with pytest.raises(wm.WatersmeetError, match="start"):
        wm.sql("SELECT a.v FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", **s, shipping="semijoin").dataframe()
    with pytest.raises(wm.WatersmeetError, match="worth fetching"):
        wm.sql("SELECT a.k FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", **s, shipping="semijoin").explain()
    with pytest.raises(wm.WatersmeetError, match="ROWS"):
        wm.sql(
            "SELECT a.v FROM s a [ROWS 1], t b WHERE a.k = b.k WINDOW = 1 SECOND", **s, shipping="semijoin"
        ).explain()
    with pytest.raises(wm.WatersmeetError, match="pipeline"):
        wm.sql(
            "SELECT a.v, c.v AS w FROM s a, t b, s c WHERE a.k < b.k AND b.k < c.k WINDOW = 1 SECOND",
            **s,
            shipping="semijoin",
            routing="pipeline",
        ).explain()
    with pytest.raises(wm.WatersmeetError, match="'auto', 'full', 'semijoin'"):
        wm.sql("SELECT a.v FROM s a, t b WHERE a.k = b.k WINDOW = 1 SECOND", **s, shipping="half")
